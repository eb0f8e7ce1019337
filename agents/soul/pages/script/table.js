// The one table of the page: sorted by its heads, with a way to take it along as CSV, LaTeX or text.

// columns: [{title, key, text?: whether the cells are words, soft?: whether they stand back, help?: what the title means}]
// rows: lists of cells; a cell is text, a node, or {show: text or node, value: what is sorted and written to a file}.
// more: {caption, sorts: false, name: of files, sections: the title of each row's section, below(k): what stands below row k}
// Columns without any content are left out.
function dataTable(allColumns, allRows, more = {}) {
  const filled = allColumns.map((_, k) => k).filter((k) => !allRows.length || allRows.some((row) => ![null, undefined, ""].includes(shownOf(row[k]))));
  const [columns, ...rows] = [allColumns, ...allRows].map((row) => filled.map((k) => row[k]));
  const { caption, name = caption ?? "table", sorts = true } = more;
  const body = h("tbody");
  const heads = columns.map((column, k) => (column.title ? h("th", { scope: "col", className: classOf(column), title: column.help ?? "" }, sorts ? headButton(k) : column.title) : h("td")));
  const table = h("table", { className: "data" }, caption ? h("caption", {}, caption) : null, h("thead", {}, h("tr", {}, heads)), body);
  let order = null;

  function headButton(k) {
    return button(columns[k].title, () => {
      order = nextOrder(order, k, !columns[k].text);
      draw();
    });
  }

  function draw() {
    const shown = order ? [...rows].sort((a, b) => compare(valueOf(a[order.key]), valueOf(b[order.key]), order.descending)) : rows;
    const across = (className, content) => h("tr", { className }, h("td", { colSpan: columns.length, className: "text" }, content));
    let section = "";
    const lines = shown.flatMap((row) => {
      const k = more.sections || more.below ? rows.indexOf(row) : -1;
      const [title, below] = [order ? "" : (more.sections?.[k] ?? ""), more.below?.(k)];
      const head = title && title !== section ? across("section", title) : null;
      section = title;
      return [head, h("tr", {}, row.map((cell, n) => cellOf(cell, n, columns[n]))), below && across("under", below)].filter(Boolean);
    });
    body.replaceChildren(...lines);
    heads.forEach((head, k) => sorts && columns[k].title && head.setAttribute("aria-sort", ariaSort(order, k)));
  }

  draw();
  return h("div", { className: "table-with-tools" }, scroller(name, table), rows.length ? takeAlong(name, columns, rows) : null);
}

// The order after a click on a head: one direction, the other, and none.
const nextOrder = (order, key, descending) =>
  order?.key !== key ? { key, descending } : order.descending === descending ? { key, descending: !descending } : null;
const ariaSort = (order, key) => (order?.key !== key ? "none" : order.descending ? "descending" : "ascending");

const classOf = ({ text, soft }) => `${text ? "text" : ""}${soft ? " soft" : ""}`;
function cellOf(cell, k, column) {
  const names = k === 0 && textOf(cell) !== ""; // an empty cell is the head of nothing
  return h(names ? "th" : "td", { className: classOf(column), ...(names ? { scope: "row" } : {}) }, shownOf(cell));
}

const isCell = (cell) => cell !== null && typeof cell === "object" && !(cell instanceof Node) && !Array.isArray(cell);
const shownOf = (cell) => (isCell(cell) ? cell.show : cell);

// What a cell is sorted by and written as: its value, or the text that it shows.
function valueOf(cell) {
  if (isCell(cell)) return cell.value ?? null;
  const text = textOf(cell);
  const number = Number(text.replaceAll(/[,$%▲▼\s]/g, ""));
  return text === "" || text === NONE ? null : Number.isFinite(number) ? number : text;
}

const textOf = (cell) => (cell instanceof Node ? cell.textContent : Array.isArray(cell) ? cell.map(textOf).join("") : String(shownOf(cell) ?? ""));
const cell = (value, show) => ({ value, show });

// Buttons that copy or save a table; numbers keep all their digits.
function takeAlong(name, columns, rows) {
  const titles = columns.map(({ title }) => title);
  const plain = rows.map((row) => row.map((one) => String(valueOf(one) ?? "")));
  const quoted = (text) => (/[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
  const csv = () => [titles, ...plain].map((row) => row.map(quoted).join(",")).join("\n") + "\n";
  const shown = rows.map((row) => row.map((one) => textOf(isCell(one) ? one.show : one)));
  return h(
    "p",
    { className: "tools" },
    button("Copy", () => copyText([titles, ...shown].map((row) => row.join("\t")).join("\n")), { ariaLabel: `Copy ${name}` }),
    button("CSV", () => saveBlob(`${name}.csv`, new Blob([csv()], { type: "text/csv" })), { ariaLabel: `Save ${name} as CSV` }),
    button("LaTeX", () => copyText(latexOf(titles, shown, columns)), { ariaLabel: `Copy ${name} as LaTeX` }),
    button("Link", () => copyText(location.href), { ariaLabel: `Copy a link to ${name}` }),
  );
}

function latexOf(titles, rows, columns) {
  const escaped = (text) => text.replace(/[&%$#_{}]/g, "\\$&").replaceAll("–", "--").replaceAll("~", "\\textasciitilde{}");
  const line = (cells) => `${cells.map(escaped).join(" & ")} \\\\`;
  const places = columns.map(({ text }, k) => (text || k === 0 ? "l" : "r")).join("");
  return [`\\begin{tabular}{${places}}`, "\\toprule", line(titles), "\\midrule", ...rows.map(line), "\\bottomrule", "\\end{tabular}"].join("\n") + "\n";
}

function copyText(text) {
  return tried(() => navigator.clipboard.writeText(text).then(() => notify("Copied.")));
}

function saveBlob(name, blob) {
  const link = h("a", { href: URL.createObjectURL(blob), download: name.replaceAll(/[^\p{L}\p{N}._-]+/gu, "-") });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

// Says something for a moment, also to screen readers.
function notify(text) {
  document.getElementById("notice")?.remove();
  const notice = h("p", { id: "notice", role: "status" }, text);
  document.body.append(notice);
  setTimeout(() => notice.remove(), 2500);
}

// Does what was asked for, and says what prevents it.
async function tried(work) {
  try {
    await work();
  } catch (error) {
    notify(error.message);
  }
}

// A small table without tools, for facts beside a text.
function smallTable(caption, titles, lines) {
  const head = h("tr", {}, titles.map((title) => (title ? h("th", { scope: "col" }, title) : h("td"))));
  const body = lines.map(([name, ...cells]) => h("tr", {}, name ? h("th", { scope: "row" }, name) : h("td"), cells.map((one) => h("td", {}, one))));
  return h("table", { className: "part" }, caption ? h("caption", {}, caption) : null, h("thead", {}, head), h("tbody", {}, body));
}
