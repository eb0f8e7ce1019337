// The table of results: sorting, opening a line, choosing published columns.

const table = document.getElementById("results-table");
const bodies = [...table.querySelectorAll("tbody.sets")];
const original = bodies.map((body) => [...body.rows]); // the card's order
const heads = [...table.tHead.rows[0].cells];

// The first number in a cell's text; null where there is none. Sorting is by what the reader sees.
function numberIn(text) {
  const found = text.replaceAll(",", "").match(/-?\d+(\.\d+)?/);
  return found ? Number(found[0]) : null;
}

// Compares two values so that those without one come last, whatever the direction.
function compare(a, b, descending) {
  if (a === null || b === null) return (a === null) - (b === null);
  const order = typeof a === "string" ? a.localeCompare(b) : a - b;
  return descending ? -order : order;
}

function sortResults(column, direction) {
  for (const head of heads) if (head.hasAttribute("aria-sort")) head.setAttribute("aria-sort", "none");
  original.forEach((rows, place) => bodies[place].append(...rows)); // as it was
  table.classList.toggle("sorted", direction !== "none");
  if (direction === "none") return;
  heads[column].setAttribute("aria-sort", direction);
  const lines = original.flat().filter((row) => row.matches(".set-line, .average"));
  const value = (row) => {
    const text = row.cells[column].textContent.trim();
    return column === 0 ? text : numberIn(row.cells[column].querySelector("strong")?.textContent ?? text);
  };
  const ranked = lines
    .map((row) => [value(row), row, row.matches(".set-line") ? row.nextElementSibling : null])
    .sort(([a], [b]) => compare(a, b, direction === "descending"));
  for (const [, row, detail] of ranked) bodies[0].append(row, ...(detail ? [detail] : []));
}

heads.forEach((head, column) => {
  head.querySelector("button")?.addEventListener("click", () => {
    const turns = column === 0 ? ["none", "ascending", "descending"] : ["none", "descending", "ascending"];
    sortResults(column, turns[(turns.indexOf(head.getAttribute("aria-sort")) + 1) % turns.length]);
  });
});

table.addEventListener("click", (event) => {
  const opener = event.target.closest("button.opener");
  if (!opener) return;
  const detail = opener.closest("tr").nextElementSibling;
  detail.hidden = !detail.hidden;
  opener.setAttribute("aria-expanded", String(!detail.hidden));
});

document.getElementById("published").addEventListener("change", (event) => {
  for (const cell of table.querySelectorAll(`[data-column="${event.target.value}"]`)) cell.hidden = !event.target.checked;
});
for (const box of document.querySelectorAll("#published input")) box.checked = box.defaultChecked; // after a reload too
