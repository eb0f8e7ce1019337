// Builds elements of the page and formats values. All text is inserted as text, never as HTML.

// Creates an element with these properties and children; null, undefined and false are left out.
function h(name, properties, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(properties ?? {})) {
    if (key === "on") for (const [event, listener] of Object.entries(value)) element.addEventListener(event, listener);
    else if (key in element && key !== "list") element[key] = value;
    else element.setAttribute(key, value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

// ---- values as text: one scale of numbers with fixed digits

const NONE = "–";
const TOLERANCE = 1e-9; // rewards are compared after JSON, so that 0.1 + 0.2 passes for 0.3
const hasValue = (value) => typeof value === "number" && Number.isFinite(value);
const counted = (count) => Number(count ?? 0).toLocaleString("en");
const sumOf = (values) => values.reduce((sum, value) => sum + (value ?? 0), 0);
const fileName = (path) => path?.split("/").at(-1) || "unknown"; // of a training's data: its folder is in the run's settings
const words = (code) => code.replaceAll("_", " ");
const fixed = (value, digits) => (hasValue(value) ? value.toFixed(digits) : value === null || value === undefined ? NONE : String(value));
const rewardText = (reward) => fixed(reward, 2); // of one session
const meanText = (mean) => fixed(mean, 3); // of many
const scoreText = (reward) => fixed(hasValue(reward) ? 100 * reward : reward, 1); // on the card's scale
// One of three values by the sign of a difference of rewards.
const bySign = (difference, more, less, same) => (difference > TOLERANCE ? more : difference < -TOLERANCE ? less : same);
const signedBy = (text) => (value) => (hasValue(value) ? `${value > TOLERANCE ? "+" : ""}${text(value)}` : NONE);
const signedReward = signedBy(rewardText);
const signedMean = signedBy(meanText);
const percentText = (share) => (hasValue(share) ? `${(100 * share).toFixed(1)} %` : NONE);
const costText = (cost) => (hasValue(cost) ? `$${cost.toFixed(cost && cost < 0.01 ? 5 : 2)}` : NONE);
const secondsText = (seconds) => (hasValue(seconds) ? `${seconds.toFixed(seconds < 10 ? 2 : 0)} s` : NONE);
const dateText = (time) => (time ? new Date(1000 * time).toLocaleString("en-GB", { dateStyle: "medium", timeStyle: "short" }) : "");

function durationText(seconds) {
  if (!hasValue(seconds)) return NONE;
  const minutes = Math.round(seconds / 60);
  if (minutes < 1) return `${Math.round(seconds)} s`;
  return minutes < 60 ? `${minutes} min` : `${Math.floor(minutes / 60)} h ${String(minutes % 60).padStart(2, "0")} min`;
}

// A number as short as it can be, for settings and metrics of unknown size.
function shortNumber(value) {
  const exact = typeof value !== "number" || Number.isInteger(value);
  return exact ? String(value) : String(Number(value.toPrecision(4)));
}

// Compares two values for sorting; null comes last in both directions.
function compare(a, b, descending) {
  if (a === null || b === null) return (a === null) - (b === null);
  const order = typeof a === "string" ? a.localeCompare(b, "en", { numeric: true }) : a - b;
  return descending ? -order : order;
}

// ---- small elements

const options = (pairs) => pairs.map(([value, text]) => h("option", { value }, text));
// A part of an open session. Wide tables scroll in it, for which keys need the focus.
const part = (title, ...content) => h("section", { tabIndex: 0, role: "group", ariaLabel: title }, h("h3", {}, title), ...content);
const small = (...content) => h("p", { className: "small" }, ...content);
const button = (text, click, properties = {}) => h("button", { type: "button", on: { click }, ...properties }, text);
const scroller = (name, content) => h("div", { className: "scroller", tabIndex: 0, role: "region", ariaLabel: name }, content);

// Named numbers: {name: text}.
function tiles(values) {
  const entries = Object.entries(values).map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value)));
  return h("dl", { className: "tiles" }, entries);
}

// A field with its label, and a choice among pairs of value and text; `change` gets the new value.
function labelled(label, field, change) {
  field.addEventListener("change", () => change(field.value));
  return h("label", {}, `${label} `, field);
}

function choice(name, label, pairs, value, change) {
  const field = h("select", { name }, options(pairs));
  field.value = value;
  return labelled(label, field, change);
}

// Sets the choices of a field, and its value. A list that stays the same is not touched: it may be open.
function fillSelect(select, pairs, value) {
  const now = [...select.options].map((option) => option.value).join("\n");
  if (now !== pairs.map(([one]) => one).join("\n")) select.replaceChildren(...options(pairs));
  select.value = value;
}

// Sets the children. Those that are there already are not inserted again, so that a chart with the focus keeps it.
function setChildren(parent, elements) {
  const same = elements.length === parent.children.length && elements.every((element, k) => parent.children[k] === element);
  if (!same) parent.replaceChildren(...elements);
}

// The form of a view of steps, which keeps its fields in the address.
function stepForm(place, ...fields) {
  const step = (name) => h("input", { type: "number", name, step: 1 });
  const on = { change: () => go(place, Object.fromEntries(new FormData(form))), submit: (event) => event.preventDefault() };
  const form = h("form", { className: "choices", on }, fields, h("label", {}, "Step from ", step("from")), h("label", {}, "to ", step("to")));
  return form;
}

// Fills such a form from the address; returns its values.
function readInto(form, query) {
  for (const field of form.elements) field.value = query.get(field.name) ?? "";
  return Object.fromEntries([...form.elements].map(({ name }) => [name, query.get(name) ?? ""]));
}

function leaves(value) {
  if (value !== null && typeof value === "object") return Object.values(value).flatMap(leaves);
  return value === null || value === undefined ? [] : [String(value)];
}

// ---- right and wrong: a sign and a word, because not everybody can tell colours apart

const SIGNS = { right: "✓", wrong: "✗", partly: "≈" };

// Whether a reward means right, wrong or partly right; null without one.
function rightness(reward, { best, worst }) {
  if (!hasValue(reward)) return null;
  return reward === best ? "right" : reward === worst ? "wrong" : "partly";
}

function markOf(kind) {
  if (kind === null) return null;
  const name = kind === "partly" ? "partly right" : kind;
  return h("span", { className: `mark ${kind}`, role: "img", ariaLabel: name, title: name }, SIGNS[kind]);
}
