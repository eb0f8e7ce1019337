// Navigation: the address behind "#" says which run and view is shown, with its filters; keys; and the look for new steps.
//
//   #                                the list of runs
//   #RUN/learning?task=T             and feedback, costs, against
//   #RUN/sessions?set=T&state=hurt   the list of sessions
//   #RUN/session/NAME?...            one session, with its list
//   #RUN/group/NAME, #RUN/row/NAME   its group; its row over the steps

function placeOf(...parts) {
  return parts.map((one) => encodeURIComponent(String(one).toWellFormed())).join("/");
}

// Follows a link within the page; empty values of the query are left out.
function go(place, values = {}) {
  const query = new URLSearchParams(Object.entries(values).filter(([, value]) => value !== "" && value !== undefined));
  location.hash = linkTo(place, query);
}

// A training: its overview and sessions, as far as they are known.
class Run {
  constructor(source, folder) {
    this.source = source;
    this.id = folder.id;
    this.name = folder.name;
    this.store = new RunStore(source, folder.id);
  }

  // Loads the overview, which the curves need. The sessions arrive after it: await `sessions`.
  async load() {
    this.overview = await this.source.overview(this.id);
    this.indexing = this.overview.indexing ?? null; // the share of the traces that is read; null if all are
    this.#grow();
    return this;
  }

  #grow() {
    this.sessions = this.store.grow(); // a promise of whether there are new ones
    this.sessions.catch(() => {}); // whoever awaits it sees the error
    return this.sessions;
  }

  // Loads what is new; returns whether anything changed.
  async poll() {
    await this.sessions.catch(() => {});
    const overview = await this.source.overview(this.id, this.overview.revision);
    if (!overview.unchanged) this.overview = overview;
    this.indexing = overview.indexing ?? null;
    const grown = await this.#grow();
    return !overview.unchanged || grown;
  }
}

const RUN_VIEWS = ["learning", "feedback", "samples", "costs", "against"];

class Viewer {
  constructor() {
    this.source = Source.here();
    this.home = new HomeView();
    this.views = {
      learning: new LearningView(),
      feedback: new FeedbackView(),
      group: new GroupView(),
      row: new RowView(),
      costs: new CostsView(),
      against: new AgainstView(this),
    };
    this.runs = new Map(); // id -> promise of a Run
    this.scrolled = new Map(); // place -> how far it was scrolled
  }

  // Loads a run once.
  run(id) {
    if (!this.runs.has(id)) {
      const folder = this.folders.find((one) => one.id === id);
      if (!folder) throw new Error(`there is no run ${id} in this folder`);
      this.runs.set(id, new Run(this.source, folder).load());
      this.runs.get(id).catch(() => this.runs.delete(id)); // so that the next look tries again
    }
    return this.runs.get(id);
  }

  async follow() {
    const { place, query } = readLink();
    try {
      this.folders ??= await this.source.folders();
      await this.#show(place, query);
      this.#say("");
    } catch (error) {
      this.#say(`This cannot be shown: ${error.message}`);
    }
  }

  async #show(place, query) {
    const [id, view = "learning", ...rest] = place.split("/").map(decodeURIComponent);
    const trainings = this.folders.filter(({ kind }) => kind === "training");
    if (!id && trainings.length === 1 && this.folders.length === 1) return location.replace(`#${placeOf(trainings[0].id, "learning")}`);
    if (!id) {
      this.now = null;
      this.#turnTo("home", null);
      return this.#home();
    }
    const loading = this.run(id);
    document.getElementById("live").textContent = "loading";
    const run = await loading;
    if (view === "learning") this.#await(run);
    else await run.sessions;
    this.#progress(run);
    if (readLink().place !== place) return; // the reader has followed another link meanwhile
    this.now = { run, view };
    if (view === "sessions" || view === "session") return this.#sessions(run, rest[0], query);
    const shown = this.views[view] ? view : "learning";
    this.#turnTo(shown, run);
    await this.views[shown].show(run, rest, query);
  }

  // Shows the curves without the sessions, and counts these when they are there.
  async #await(run) {
    try {
      await run.sessions;
    } catch (error) {
      return this.#say(`The sessions cannot be loaded: ${error.message}`);
    }
    if (this.now?.run !== run) return;
    this.#progress(run);
    this.#links(run);
    if (this.now.view === "learning") this.views.learning.refresh(run);
  }

  // The list of runs, as it is now.
  async #home() {
    this.folders = await this.source.folders();
    this.home.show(this.folders);
  }

  async #sessions(run, name, query) {
    this.browser ??= new SessionBrowser(run.store);
    const { browser } = this;
    const other = browser.store !== run.store;
    if (other) browser.use(run.store);
    this.#turnTo("samples", run);
    browser.following = true;
    const arrived = await this.#followList(browser, name, query, other);
    browser.following = false;
    if (arrived) browser.remember();
  }

  // Shows the list and the session that a link asks for. A link to a session without a query keeps the list as it is.
  async #followList(browser, name, query, other) {
    const { store, list } = browser;
    const fresh = other || !this.listed;
    this.listed = true;
    const asked = name === undefined || query.size > 0 || fresh;
    if (asked && (fresh || query.toString() !== queryOf(list).toString())) await browser.show(query);
    if (name === undefined) {
      if (!pane.hidden) browser.hide();
      return true;
    }
    const i = store.findName(name);
    if (i === undefined) {
      browser.hide();
      list.say(`There is no session ${name} in this run.`);
      return false;
    }
    if (!list.shown.includes(i)) await browser.show(new URLSearchParams());
    await browser.open(i);
    return true;
  }

  #turnTo(name, run) {
    const before = document.body.dataset.view;
    if (before) this.scrolled.set(before, scrollY);
    for (const section of document.querySelectorAll("main > section")) section.hidden = section.id !== `${name}-view`;
    document.body.dataset.view = name;
    if (name !== "samples") document.body.classList.remove("open");
    else document.body.classList.toggle("open", !pane.hidden);
    document.getElementById("of-run").hidden = run === null;
    document.getElementById("to-against").hidden = !this.source.live; // a file has one run
    document.getElementById("run-name").textContent = run?.name ?? "";
    document.title = run ? `${run.name}: ${name === "samples" ? "sessions" : name}` : document.title;
    if (run) this.#links(run);
    for (const link of document.querySelectorAll("nav a")) {
      if (link.id === `to-${name}`) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
    }
    if (before !== name) scrollTo(0, this.scrolled.get(name) ?? 0);
  }

  #links(run) {
    document.querySelector("#to-samples .count").textContent = counted(run.store.size);
    for (const name of RUN_VIEWS) {
      const link = document.getElementById(`to-${name}`);
      const own = link.hash.startsWith(`#${placeOf(run.id)}/`); // keeps the filters of the list
      if (name !== "samples" || !own) link.href = `#${placeOf(run.id, name === "samples" ? "sessions" : name)}`;
    }
  }

  #say(problem) {
    const line = document.getElementById("problem");
    line.hidden = problem === "";
    line.textContent = problem;
  }

  #progress({ indexing, store }) {
    const state = this.source.live ? "" : `${counted(store.size)} sessions of the run`;
    document.getElementById("live").textContent = indexing === null ? state : `reading the traces: ${Math.round(100 * indexing)} %`;
  }

  // Looks for new steps. What is open stays open.
  async poll() {
    if (document.hidden) return;
    try {
      if (this.now) await this.#pollRun(this.now);
      else if (this.folders) await this.#home();
    } catch (error) {
      document.getElementById("live").textContent = `no answer from the viewer (${error.message})`;
    }
  }

  async #pollRun(now) {
    const { run, view } = now;
    const others = this.views[view]?.others ?? [];
    const changes = await Promise.all([run, ...others].map((one) => one.poll()));
    this.#progress(run);
    if (!changes.includes(true) || this.now !== now) return;
    this.#links(run);
    if (this.browser?.store === run.store) await this.browser.grown();
    if (this.views[view]) await this.views[view].refresh(run);
  }

  start() {
    addEventListener("hashchange", () => this.follow());
    document.addEventListener("keydown", (event) => this.key(event));
    if (this.source.live) this.#keepLooking();
    return this.follow();
  }

  async #keepLooking() {
    for (;;) {
      await new Promise((resume) => setTimeout(resume, known.poll_ms));
      await this.poll();
    }
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
    const typing = event.target.closest("input, select, textarea");
    const list = document.body.dataset.view === "samples";
    if (event.key === "/" && !typing && this.now) {
      event.preventDefault();
      if (!list) go(placeOf(this.now.run.id, "sessions"));
      this.#turnTo("samples", this.now.run);
      form.elements.text.focus();
    } else if (event.key >= "1" && event.key <= String(RUN_VIEWS.length) && !typing && this.now) {
      document.getElementById(`to-${RUN_VIEWS[event.key - 1]}`).click();
    } else if (list) this.#listKey(event, typing);
  }

  #listKey(event, typing) {
    if (event.key === "Escape") {
      if (typing) event.target.blur();
      else if (!pane.hidden) this.browser.close();
    } else if (event.key in STEPS && !typing) {
      if (pane.contains(event.target) && event.key.match(/Up|Down/)) return; // these scroll the open session
      event.preventDefault();
      this.browser.move(STEPS[event.key]);
    }
  }
}

const STEPS = { ArrowUp: -1, ArrowLeft: -1, ArrowDown: 1, ArrowRight: 1 };

new Viewer().start();
