"use strict";
// Clicking a head sorts its table: numbers from the highest, words from A; once more turns it round. What is missing stays last.
for (const table of document.querySelectorAll("table")) {
  const body = table.tBodies[0];
  const heads = [...table.tHead.rows[0].cells];
  const sort = (head, column) => {
    const numbers = head.classList.contains("number");
    const before = head.getAttribute("aria-sort");
    const first = numbers ? "descending" : "ascending";
    const second = numbers ? "ascending" : "descending";
    const order = before === first ? second : first;
    const sign = order === "ascending" ? 1 : -1;
    const key = (row) => {
      const cell = row.cells[column];
      if (!numbers) return cell.textContent;
      return cell.dataset.value === undefined ? null : Number(cell.dataset.value);
    };
    const compare = (a, b) => {
      const x = key(a), y = key(b);
      if (x === null || y === null) return (x === null) - (y === null);
      return sign * (numbers ? x - y : x.localeCompare(y, "en", { numeric: true }));
    };
    body.append(...[...body.rows].sort(compare));
    for (const other of heads) other.setAttribute("aria-sort", other === head ? order : "none");
  };
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = head.textContent;
    button.addEventListener("click", () => sort(head, column));
    head.setAttribute("aria-sort", "none");
    head.replaceChildren(button);
  });
}
// A table that is wider than its place says to which side it goes on.
for (const edge of document.querySelectorAll(".edge")) {
  const place = edge.firstElementChild;
  const update = () => {
    const left = place.scrollLeft, right = place.scrollWidth - place.clientWidth - left;
    edge.classList.toggle("from", left > 1);
    edge.classList.toggle("on", right > 1);
  };
  place.addEventListener("scroll", update, { passive: true });
  new ResizeObserver(update).observe(place);
  for (const part of document.querySelectorAll("details")) part.addEventListener("toggle", update);
}
