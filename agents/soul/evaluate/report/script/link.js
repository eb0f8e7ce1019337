// The address behind "#": `results?sort=-score`, `samples?set=hitom&sort=-reward`, or `SET/NUMBER/SAMPLE?...` for one
// sample. The query holds what is filtered and how it is sorted, so that a copied address shows the same list.

const FIELDS = [...document.getElementById("filters").elements].map(({ name }) => name).filter(Boolean);
const NUMBERS = FIELDS.filter((name) => document.getElementById("filters").elements[name].type === "number");
const GROUP = "group.";

function readLink() {
  const [place, ...query] = location.hash.slice(1).split("?");
  return { place, query: new URLSearchParams(query.join("?")) };
}

function linkTo(place, query) {
  const text = query.toString();
  return `#${place}${text ? `?${text}` : ""}`;
}

// Filters, order and page as a query, without defaults.
function queryOf({ filters, order, page }) {
  const query = new URLSearchParams();
  for (const name of FIELDS) if (filters[name]) query.set(name, filters[name]);
  for (const [kind, value] of Object.entries(filters.groups)) if (value) query.set(GROUP + kind, value);
  if (order.key) query.set("sort", (order.descending ? "-" : "") + order.key);
  if (page) query.set("page", page + 1);
  return query;
}

// The filters, order and page in a query, with defaults for the rest.
function choiceOf(query) {
  const filters = { groups: {} };
  for (const name of FIELDS) filters[name] = query.get(name) ?? "";
  for (const name of NUMBERS) if (!Number.isFinite(Number(filters[name]))) filters[name] = "";
  for (const [name, value] of query) if (name.startsWith(GROUP)) filters.groups[name.slice(GROUP.length)] = value;
  const sort = query.get("sort") ?? "";
  const order = { key: sort.replace(/^-/, ""), descending: sort.startsWith("-") };
  const page = Math.max(0, (Number.parseInt(query.get("page"), 10) || 1) - 1);
  return { filters, order, page };
}

// Changes the address without adding a step to the browser's history.
function replaceLink(place, query) {
  history.replaceState(null, "", linkTo(place, query));
}
