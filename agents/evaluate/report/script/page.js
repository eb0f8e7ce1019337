// The page: which view a link shows, and the keys.

const views = { results: document.getElementById("results-view"), samples: document.getElementById("samples-view") };
const ready = Store.open().then(async (store) => {
  const browser = new Browser(store);
  await browser.show({});
  return browser;
});
ready.catch((error) => {
  document.getElementById("found").textContent = `The samples cannot be unpacked (${error.message}): use a browser of 2023 or later.`;
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

// #results, #samples, or #SET/NUMBER/SAMPLE: one sample.
async function follow() {
  const link = location.hash.slice(1);
  if (link.split("/").length !== 3) {
    view(link === "samples" ? "samples" : "results");
    const browser = await ready;
    if (!pane.hidden) browser.hide();
    return;
  }
  view("samples");
  const browser = await ready;
  const i = browser.store.find(link);
  if (i === undefined) {
    browser.hide();
    browser.list.say(`This run has no sample ${decodeURIComponent(link)}.`);
  } else {
    if (!browser.list.shown.includes(i)) await browser.show({});
    await browser.open(i);
  }
}

document.addEventListener("click", async (event) => {
  const button = event.target.closest("button[data-browse]");
  if (!button) return;
  location.hash = "#samples";
  await (await ready).show(JSON.parse(button.dataset.browse));
});

const STEPS = { ArrowUp: -1, ArrowLeft: -1, ArrowDown: 1, ArrowRight: 1 };

document.addEventListener("keydown", async (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
  const typing = event.target.closest("input, select, textarea");
  if (event.key === "/" && !typing) {
    event.preventDefault();
    if (views.samples.hidden) location.hash = "#samples";
    view("samples");
    form.elements.text.focus();
    return;
  }
  if (views.samples.hidden) return;
  if (event.key === "Escape") {
    if (typing) event.target.blur();
    else if (!pane.hidden) (await ready).close();
  } else if (event.key in STEPS && !typing) {
    // Up and down scroll the sample for those who read in it.
    if (pane.contains(event.target) && event.key.match(/Up|Down/)) return;
    event.preventDefault();
    (await ready).move(STEPS[event.key]);
  }
});

addEventListener("hashchange", follow);
addEventListener("beforeprint", () => document.querySelectorAll("#choose").forEach((choice) => (choice.open = false)));
follow();
