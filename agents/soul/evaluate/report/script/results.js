// The table of results: sorting, and opening a line.

const table = document.getElementById("results-table");
const bodies = [...table.querySelectorAll("tbody.sets")];
const original = bodies.map((body) => [...body.rows]); // the card's order
const heads = [...table.tHead.rows[0].cells];

// The first number in a cell's text; null if there is none. Rows are sorted by the displayed numbers.
function numberIn(text) {
  const match = text.replaceAll(",", "").match(/-?\d+(\.\d+)?/);
  return match ? Number(match[0]) : null;
}

// Sorts by the column with this key; by the card's order if the key is "".
function sortResults({ key, descending }) {
  original.forEach((rows, place) => bodies[place].append(...rows)); // as it was
  const column = heads.findIndex((head) => head.dataset.key === key && key !== "");
  table.classList.toggle("sorted", column >= 0);
  for (const head of heads) if (head.hasAttribute("aria-sort")) head.setAttribute("aria-sort", "none");
  if (column < 0) return;
  heads[column].setAttribute("aria-sort", descending ? "descending" : "ascending");
  const lines = original.flat().filter((row) => row.matches(".set-line, .average"));
  const value = (row) => {
    const text = row.cells[column].textContent.trim();
    return column === 0 ? text : numberIn(row.cells[column].querySelector("strong")?.textContent ?? text);
  };
  const ranked = lines
    .map((row) => [value(row), row, row.matches(".set-line") ? row.nextElementSibling : null])
    .sort(([a], [b]) => compare(a, b, descending));
  for (const [, row, detail] of ranked) bodies[0].append(row, ...(detail ? [detail] : []));
}

function openLine(row, open) {
  row.nextElementSibling.hidden = !open;
  row.querySelector(".opener").setAttribute("aria-expanded", String(open));
}

const setLines = () => [...table.querySelectorAll(".set-line")];
const isOpen = (row) => !row.nextElementSibling.hidden;

// The order and the open lines as the query of a link.
function resultsQuery() {
  const query = new URLSearchParams();
  const sorted = heads.find((head) => ["ascending", "descending"].includes(head.getAttribute("aria-sort")));
  if (sorted) query.set("sort", (sorted.getAttribute("aria-sort") === "descending" ? "-" : "") + sorted.dataset.key);
  for (const row of setLines()) if (isOpen(row)) query.append("open", row.dataset.set);
  return query;
}

// Shows what a link asks for, and scrolls to the first line that it opens.
function showResults(query) {
  if (query.toString() === resultsQuery().toString()) return;
  sortResults(choiceOf(query).order);
  const open = new Set(query.getAll("open"));
  for (const row of setLines()) openLine(row, open.has(row.dataset.set));
  setLines().find(isOpen)?.scrollIntoView({ block: "start" });
}

function rememberResults() {
  replaceLink("results", resultsQuery());
  document.getElementById("to-results").href = linkTo("results", resultsQuery());
}

heads.forEach((head) => {
  head.querySelector("button")?.addEventListener("click", () => {
    const key = head.dataset.key;
    const turns = key === "set" ? ["none", "ascending", "descending"] : ["none", "descending", "ascending"];
    const next = turns[(turns.indexOf(head.getAttribute("aria-sort")) + 1) % turns.length];
    sortResults(next === "none" ? { key: "" } : { key, descending: next === "descending" });
    rememberResults();
  });
});

table.addEventListener("click", (event) => {
  const opener = event.target.closest("button.opener");
  if (!opener) return;
  const row = opener.closest("tr");
  openLine(row, !isOpen(row));
  rememberResults();
});
