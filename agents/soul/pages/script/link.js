// The address behind "#" says which view is shown, with its filters, so that a copied address shows the same.
//
//   #                                the list of runs
//   #RUN/learning?task=T             a view of a run
//   #RUN/sessions?set=T&sort=-gain   a list with filters, order and page
//   #RUN/session/NAME?...            one session, with its list
//   #compare/RUN,RUN                 and play, annotate/ID, review/ID

function placeOf(...parts) {
  return parts.map((one) => encodeURIComponent(String(one).toWellFormed())).join("/");
}

function readLink() {
  const [place, ...query] = location.hash.slice(1).split("?");
  return { place, query: new URLSearchParams(query.join("?")) };
}

// The address of a place with these values, {name: value} or pairs of them; empty ones are left out.
function hrefOf(place, values = {}) {
  const pairs = Array.isArray(values) ? values : Object.entries(values);
  const filled = pairs.filter(([, value]) => value !== "" && value !== undefined && value !== null);
  return `#${place}${filled.length ? `?${new URLSearchParams(filled)}` : ""}`;
}

// Follows a link within the page.
function go(place, values = {}) {
  location.hash = hrefOf(place, values);
}

// Changes the address without adding a step to the browser's history.
function replaceLink(place, values) {
  history.replaceState(null, "", hrefOf(place, values));
}
