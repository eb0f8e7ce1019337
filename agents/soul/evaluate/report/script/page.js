// Navigation: follows links to views and samples, and handles keys.

const views = { results: document.getElementById("results-view"), samples: document.getElementById("samples-view") };
const ready = openBrowser().then(async (browser) => {
  await browser.show(new URLSearchParams());
  return browser;
});
ready.catch((error) => {
  document.getElementById("found").textContent = `The samples cannot be unpacked (${error.message}): use a browser from 2023 or later.`;
});

const scrolled = { results: 0, samples: 0 };

function view(name) {
  const before = document.body.dataset.view;
  if (before === name) return;
  if (before) scrolled[before] = scrollY;
  for (const [key, section] of Object.entries(views)) {
    section.hidden = key !== name;
    const link = document.getElementById(`to-${key}`);
    if (key === name) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  document.body.dataset.view = name;
  scrollTo(0, scrolled[name]);
}

async function follow() {
  const { place, query } = readLink();
  const isSample = place.split("/").length === 3;
  if (!isSample && place !== "samples") {
    view("results");
    showResults(query);
    const browser = await ready;
    if (!pane.hidden) browser.hide();
    browser.following = false;
    return;
  }
  view("samples");
  const browser = await ready;
  if (readLink().place !== place) return; // the reader has followed another link meanwhile
  browser.following = true;
  const arrived = await followTo(browser, isSample ? place : null, query);
  browser.following = false;
  if (arrived) browser.remember();
}

// Shows what a link asks for. Returns false if there is no such entry.
async function followTo(browser, link, query) {
  const { store, list } = browser;
  // A link to an entry without a query keeps the list as it is, if the entry is in it.
  const asked = link === null || query.size > 0;
  if (asked && query.toString() !== queryOf(list).toString()) await browser.show(query);
  if (link === null) {
    if (!pane.hidden) browser.hide();
    return true;
  }
  const i = store.find(link);
  if (i === undefined) {
    browser.hide();
    list.say(`There is no ${decodeURIComponent(link)} among these ${known.entries}.`);
    return false;
  }
  if (!list.shown.includes(i)) await browser.show(new URLSearchParams());
  await browser.open(i);
  return true;
}

document.addEventListener("click", (event) => {
  const button = event.target.closest("button[data-browse]");
  if (!button) return;
  const { kind, value, cause, ...fields } = JSON.parse(button.dataset.browse);
  const query = new URLSearchParams(cause === undefined ? fields : { ...fields, state: `cause:${cause}` });
  if (kind !== undefined) query.set(GROUP + kind, value);
  location.hash = linkTo("samples", query);
});

const STEPS = { ArrowUp: -1, ArrowLeft: -1, ArrowDown: 1, ArrowRight: 1 };

document.addEventListener("keydown", async (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
  const typing = event.target.closest("input, select, textarea");
  if (event.key === "/" && !typing) {
    event.preventDefault();
    if (views.samples.hidden) location.hash = document.getElementById("to-samples").hash;
    view("samples");
    form.elements.text.focus();
    return;
  }
  if (views.samples.hidden) return;
  if (event.key === "Escape") {
    if (typing) event.target.blur();
    else if (!pane.hidden) (await ready).close();
  } else if (event.key in STEPS && !typing) {
    // Inside the open sample, up and down scroll it.
    if (pane.contains(event.target) && event.key.match(/Up|Down/)) return;
    event.preventDefault();
    (await ready).move(STEPS[event.key]);
  }
});

addEventListener("hashchange", follow);
follow();
