// Keeps the chosen grades in the browser and saves them as the table that data make-set --judgements reads.
const rows = JSON.parse(document.getElementById("rows").textContent);
const place = "sentcli judgements " + document.title;
const fields = [...document.querySelectorAll("fieldset")];
let grades = {};
let unsaved = false;
try { grades = JSON.parse(localStorage.getItem(place) || "{}"); } catch { /* the browser keeps nothing for files */ }

// A grade belongs to a query and a document, not to a place on the page: the next page may have another order.
function nameAt(query, position) {
  const [[, asked], documents] = rows[query];
  const [key, text] = documents[position];
  return JSON.stringify([asked, key, text.length]);
}
const nameOf = (field) => nameAt(field.dataset.query, field.dataset.document);
const isOpen = (field) => grades[nameOf(field)] === undefined;

function show() {
  for (const field of fields) {
    const grade = grades[nameOf(field)];
    field.classList.toggle("judged", grade !== undefined);
    for (const input of field.querySelectorAll("input")) input.checked = input.value === grade;
  }
  document.getElementById("count").textContent = fields.filter((field) => !isOpen(field)).length + " of " + fields.length + " judged";
}

function choose(field, grade) {
  if (grade === undefined) delete grades[nameOf(field)]; else grades[nameOf(field)] = grade;
  unsaved = true;
  try { localStorage.setItem(place, JSON.stringify(grades)); } catch { /* they are lost with the page */ }
  show();
}

function go(field) {
  if (!field) return;
  field.focus({preventScroll: true});
  field.scrollIntoView({block: "start"});
}

// The first open document behind a place, else the first of all.
const openAfter = (place) => fields.slice(place).find(isOpen) || fields.find(isOpen);

document.querySelector("main").addEventListener("change", (event) => choose(event.target.closest("fieldset"), event.target.value));
document.getElementById("next").addEventListener("click", () => go(openAfter(0)));

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.altKey || event.metaKey || event.repeat) return;
  const current = document.activeElement.closest("fieldset");
  const at = fields.indexOf(current);
  if (event.key === "j") go(fields[at + 1]);
  else if (event.key === "k") go(fields[at - 1]);
  else if (event.key === "x" && current) choose(current, undefined);
  else if (["0", "1", "2"].includes(event.key)) {
    if (!current) return go(openAfter(0)); // nobody has read it yet
    choose(current, event.key);
    go(openAfter(at + 1));
  }
});

document.getElementById("save").addEventListener("click", () => {
  const line = (text) => String(text).replace(/[\s\0]+/g, " ");
  // as inert in table.py: no text is a formula for a spreadsheet
  const inert = (text) => text.length > 1 && /^'*[=+\-@\t\r]/.test(text) ? `'${text}` : text;
  const lines = [["query-id", "query", "document-id", "document", "relevance"]];
  rows.forEach(([[id, query], documents], number) => documents.forEach(([key, text], position) =>
    lines.push([...[id, line(query), key, line(text)].map(inert), grades[nameAt(number, position)] ?? ""])));
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([lines.map((cells) => cells.join("\t")).join("\n") + "\n"], {type: "text/tab-separated-values"}));
  link.download = "judge.tsv";
  link.click();
  URL.revokeObjectURL(link.href);
  unsaved = false;
});

window.addEventListener("beforeunload", (event) => { if (unsaved) event.preventDefault(); });
show();
