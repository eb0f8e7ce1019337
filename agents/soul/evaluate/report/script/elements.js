// Builds elements of the page and formats values. All text is inserted as text, never as HTML.

// Creates an element with these properties and children.
function h(name, properties, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(properties ?? {})) {
    if (key in element && key !== "list") element[key] = value;
    else element.setAttribute(key, value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
  return element;
}

const counted = (count) => Number(count ?? 0).toLocaleString("en");
const words = (code) => code.replaceAll("_", " ");
const scoreText = (reward) => (reward === null ? "–" : (100 * reward).toFixed(1));
const costText = (cost) => (cost === null ? "–" : `$${cost.toFixed(cost && cost < 0.01 ? 5 : 2)}`);
const secondsText = (seconds) => `${seconds.toFixed(seconds < 10 ? 2 : 0)} s`;

function shortNumber(value) {
  const exact = typeof value !== "number" || Number.isInteger(value);
  return exact ? String(value) : String(Number(value.toPrecision(4)));
}

function options(pairs) {
  return pairs.map(([value, text]) => h("option", { value }, text));
}

function part(title, ...content) {
  return h("section", {}, h("h3", {}, title), ...content);
}

function smallTable(caption, titles, lines) {
  const head = h("tr", {}, titles.map((title) => h("th", { scope: "col" }, title)));
  const body = lines.map(([name, ...cells]) => h("tr", {}, h("th", { scope: "row" }, name), cells.map((cell) => h("td", {}, cell))));
  return h("table", { className: "part" }, caption ? h("caption", {}, caption) : null, h("thead", {}, head), h("tbody", {}, body));
}

// Compares two values for sorting; null comes last in both directions.
function compare(a, b, descending) {
  if (a === null || b === null) return (a === null) - (b === null);
  const order = typeof a === "string" ? a.localeCompare(b) : a - b;
  return descending ? -order : order;
}

// ---- groups in words

const kindName = (kind) => known.names[kind]?.[0] ?? kind;
const valueName = (kind, value) => known.names[kind]?.[1][value] ?? value;

// ---- right and wrong: a sign and a word, because not everybody can tell colours apart

const SIGNS = { right: "✓", wrong: "✗", partly: "≈" };

// Whether a score means right, wrong or partly right; null without a score.
function rightness(reward, { best, worst }) {
  if (reward === null) return null;
  return reward === best ? "right" : reward === worst ? "wrong" : "partly";
}

function markOf(kind) {
  if (kind === null) return null;
  const name = kind === "partly" ? "partly right" : kind;
  return h("span", { className: `mark ${kind}`, role: "img", ariaLabel: name, title: name }, SIGNS[kind]);
}
