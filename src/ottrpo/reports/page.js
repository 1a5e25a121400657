"use strict";
// Sort a table by the column whose head is clicked; a second click turns the order round.
function value(row, index) {
  const cell = row.cells[index];
  if (!cell) return "";
  return "sort" in cell.dataset ? Number(cell.dataset.sort) : cell.textContent;
}
function compare(a, b) {
  if (typeof a === typeof b) return typeof a === "number" ? a - b : a.localeCompare(b, "en", { numeric: true });
  return typeof a === "number" ? -1 : 1; // what has no number comes last
}
document.addEventListener("click", (event) => {
  const head = event.target.closest("th");
  if (!head) return;
  const body = head.closest("table").tBodies[0];
  const index = head.cellIndex;
  const down = head.getAttribute("aria-sort") === "ascending";
  for (const other of head.parentNode.cells) other.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", down ? "descending" : "ascending");
  const rows = Array.from(body.rows);
  rows.sort((a, b) => {
    const order = compare(value(a, index), value(b, index));
    return down ? -order : order;
  });
  body.append(...rows);
});
// A link into something folded opens it.
function unfold() {
  let part = location.hash.length > 1 && document.getElementById(location.hash.slice(1));
  const wanted = part;
  for (; part; part = part.parentElement) if (part.tagName === "DETAILS") part.open = true;
  if (wanted) wanted.scrollIntoView();
}
addEventListener("hashchange", unfold);
unfold();
// What is folded is printed too.
addEventListener("beforeprint", () => {
  for (const part of document.querySelectorAll("details:not([open])")) {
    part.open = true;
    part.dataset.opened = "";
  }
});
addEventListener("afterprint", () => {
  for (const part of document.querySelectorAll("details[data-opened]")) {
    part.open = false;
    delete part.dataset.opened;
  }
});
