// Keeps the chosen grades in the browser and saves them as the table that data make-set --judgements reads.
const rows = JSON.parse(document.getElementById("rows").textContent);
const place = "sentcli judgements " + document.title + " " + JSON.stringify(rows).length;
const fields = [...document.querySelectorAll("fieldset")];
let grades = {};
try { grades = JSON.parse(localStorage.getItem(place) || "{}"); } catch { /* the browser keeps nothing for files */ }

const nameOf = (field) => field.dataset.query + " " + field.dataset.document;

function show() {
  for (const field of fields) {
    const grade = grades[nameOf(field)];
    field.classList.toggle("judged", grade !== undefined);
    for (const input of field.querySelectorAll("input")) input.checked = input.value === grade;
  }
  document.getElementById("count").textContent = Object.keys(grades).length + " of " + fields.length + " judged";
}

document.querySelector("main").addEventListener("change", (event) => {
  grades[nameOf(event.target.closest("fieldset"))] = event.target.value;
  try { localStorage.setItem(place, JSON.stringify(grades)); } catch { /* they are lost with the page */ }
  show();
});

document.getElementById("save").addEventListener("click", () => {
  const line = (text) => String(text).replace(/[\s\0]+/g, " ");
  const lines = [["query-id", "query", "document-id", "document", "relevance"]];
  rows.forEach(([[id, query], documents], number) => documents.forEach(([key, text], position) =>
    lines.push([id, line(query), key, line(text), grades[number + " " + position] ?? ""])));
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([lines.map((cells) => cells.join("\t")).join("\n") + "\n"], {type: "text/tab-separated-values"}));
  link.download = "judge.tsv";
  link.click();
  URL.revokeObjectURL(link.href);
});

window.addEventListener("beforeunload", (event) => { if (Object.keys(grades).length) event.preventDefault(); });
show();
