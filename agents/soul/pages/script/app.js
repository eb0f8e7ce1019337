// The application: follows the address (link.js), makes each view once, handles keys, and looks for news while a run goes on.
//
// A view has `section`, `show(parts, query)`, and where it needs them `refresh()` after its run has grown, `key(event, typing)`,
// and `others`: further runs that it shows.

const VIEWS = {
  training: { learning: LearningView, feedback: FeedbackView, sessions: SessionsView, judge: JudgeView, costs: CostsView, group: GroupView, row: RowView },
  evaluation: { results: ResultsView, sessions: SessionsView },
};
const TITLES = { learning: "Learning", feedback: "Feedback", sessions: "Sessions", judge: "Judge", costs: "Cost and time", results: "Results", play: "Playground", annotate: "Annotation", review: "Data review" };
const WHOLE = { compare: CompareView, play: PlayView, annotate: AnnotateView, review: ReviewView }; // views of no single run
const KEYS = [
  ["1 2 3 ...", "the views of a run"],
  ["/", "search"],
  ["← → ↑ ↓, j k", "the entry before and after"],
  ["Esc", "close the entry, leave a field"],
  ["h", "all runs"],
  ["?", "this list"],
];

class App {
  constructor(source) {
    this.source = source;
    this.main = document.querySelector("main");
    this.nav = document.querySelector("nav");
    this.views = new Map(); // key -> view
    this.runs = new Map(); // id -> promise of a Run
    this.scrolled = new Map(); // section -> how far it was scrolled
    this.live = h("span", { id: "live", role: "status" });
  }

  async start() {
    addEventListener("hashchange", () => this.follow());
    document.addEventListener("keydown", (event) => this.#key(event));
    if (!location.hash && known.start) replaceLink(known.start);
    await this.follow();
    if (this.source.live) this.#keepLooking();
  }

  async folders() {
    this.known = (await this.source.get("folders")).folders;
    return this.known;
  }

  // Loads a run once.
  run(id) {
    if (!this.runs.has(id)) {
      const folder = this.known.find((one) => one.id === id);
      if (!folder) throw new Error("there is no such run in this folder");
      const run = new Run(this.source, folder);
      const loading = run.load().then(() => run);
      this.runs.set(id, loading);
      loading.catch(() => this.runs.delete(id)); // so that the next look tries again
    }
    return this.runs.get(id);
  }

  async follow() {
    const { place, query } = readLink();
    try {
      await this.#show(place, query);
      this.#say("");
    } catch (error) {
      if (!this.now) [this.main, this.nav].forEach((one) => one.replaceChildren(...(one === this.nav ? [h("a", { href: "#" }, "Runs")] : [])));
      this.#say(`This cannot be shown: ${error.message.replace(/\.$/, "")}.`);
    }
  }

  async #show(place, query) {
    const [id, view, ...parts] = place.split("/").map(decodeURIComponent);
    if (!this.known) await this.folders();
    if (!id && !this.known.length && known.extensions?.length) return location.replace(`#${known.extensions[0]}`);
    if (!id) {
      if (this.known.length === 1 && !this.known[0].href) return location.replace(`#${placeOf(this.known[0].id, firstView(this.known[0]))}`);
      return this.#turnTo("home", () => new HomeView(this), null, [], query);
    }
    if (id in WHOLE) return this.#turnTo(id, () => new WHOLE[id](this), null, [view, ...parts].filter((one) => one !== undefined), query);
    this.live.textContent = "loading";
    const run = await this.run(id);
    this.#progress(run);
    if (readLink().place !== place) return; // the reader has followed another link meanwhile
    const views = viewsOf(run);
    const name = view === "session" ? "sessions" : view in views ? view : firstView(run.folder);
    await this.#turnTo(`${id} ${name}`, () => new views[name](this, run), run, parts, query, name);
    run.sessions.then(() => this.#links(run), (error) => this.#say(`The sessions cannot be loaded: ${error.message}`));
  }

  // Shows a view; it is made the first time.
  async #turnTo(key, make, run, parts, query, name = key) {
    if (this.now?.view) this.scrolled.set(this.now.view, scrollY);
    if (!this.views.has(key)) {
      const made = make();
      this.views.set(key, made);
      this.main.append(made.section);
    }
    const view = this.views.get(key);
    const other = this.now?.view !== view;
    this.now = { key, view, run, name };
    for (const section of this.main.children) section.hidden = section !== view.section;
    document.body.dataset.view = name;
    document.body.classList.toggle("open", view.list ? !view.list.pane.hidden : false);
    document.title = run ? `${run.name}: ${(TITLES[name] ?? name).toLowerCase()}` : (TITLES[name] ?? name);
    this.#links(run);
    await view.show(parts, query);
    if (other) scrollTo(0, this.scrolled.get(view) ?? 0);
  }

  #links(run) {
    if (this.now?.run !== run) return;
    const { name } = this.now;
    const link = (text, place, current, count) =>
      h("a", { href: `#${place}`, ...(current ? { "aria-current": "page" } : {}) }, text, count === undefined ? null : h("span", { className: "count" }, ` ${counted(count)}`));
    const runs = this.known.length > 1 || this.known[0]?.href ? link("Runs", "", name === "home") : null;
    const ofRun = Object.keys(run ? viewsOf(run) : {}).filter((view) => view in TITLES);
    const links = ofRun.map((view) => {
      const list = this.views.get(`${run.id} ${view}`)?.list;
      const text = view === "sessions" && run.kind === "evaluation" ? "Samples" : TITLES[view];
      const at = link(text, placeOf(run.id, view), view === name, view === "sessions" ? run.store.size : undefined);
      if (list) at.href = list.address(); // keeps the filters
      return at;
    });
    const others = run ? [] : [this.source.live && this.known.length > 1 && link("Compare", "compare", name === "compare"), ...(known.extensions ?? []).map((one) => link(TITLES[one], one, name === one))];
    const about = h("span", { className: "of" }, this.live, " ", run ? h("bdi", { title: run.folder.path }, run.folder.path) : null);
    const help = button("?", () => this.#legend(), { ariaLabel: "Keys", className: "help" });
    this.nav.replaceChildren(...[runs, ...links, ...others, about, help].filter(Boolean));
    this.nav.querySelector("[aria-current]")?.scrollIntoView({ block: "nearest", inline: "nearest" });
  }

  #say(problem) {
    Object.assign(document.getElementById("problem"), { hidden: problem === "", textContent: problem });
  }

  #progress({ indexing, folder }) {
    const state = this.source.live && ["running", "stale"].includes(folder.state) ? "live" : "";
    this.live.textContent = indexing === null ? state : `reading the traces: ${Math.round(100 * indexing)} %`;
  }

  // ---- news

  async #keepLooking() {
    for (;;) {
      await new Promise((resume) => setTimeout(resume, known.poll_ms));
      if (document.hidden) continue;
      try {
        await this.#poll();
      } catch (error) {
        this.live.textContent = `no answer from the viewer (${error.message})`;
      }
    }
  }

  // Looks for new steps. What is open stays open.
  async #poll() {
    const { now } = this;
    if (!now?.run) return now?.view.poll?.();
    const { run, view } = now;
    const changes = await Promise.all([run, ...(view.others ?? [])].map((one) => one.poll()));
    this.#progress(run);
    if (!changes.includes(true) || this.now !== now) return;
    this.#links(run);
    await view.refresh?.();
  }

  // ---- keys

  #key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented || !this.now || document.querySelector("dialog[open]")) return;
    const typing = event.target.closest("input, select, textarea, [contenteditable]");
    if (this.now.view.key?.(event, typing)) return event.preventDefault();
    if (typing) return;
    const links = [...this.nav.querySelectorAll("a")].filter((link) => link.hash !== "");
    if (event.key === "/") {
      event.preventDefault();
      if (this.now.view.list) this.now.view.list.focusSearch();
      else if (this.now.run) this.#search(this.now.run);
    } else if (event.key === "?") this.#legend();
    else if (event.key === "h") location.hash = "";
    else links[Number(event.key) - 1]?.click();
  }

  async #search(run) {
    location.hash = `#${placeOf(run.id, "sessions")}`;
    await new Promise((resume) => setTimeout(resume));
    await run.sessions;
    this.now.view.list?.focusSearch();
  }

  #legend() {
    const dialog = document.getElementById("legend");
    const close = button("Close", () => dialog.close());
    dialog.replaceChildren(h("h2", {}, "Keys"), h("dl", { className: "keys" }, KEYS.map(([keys, text]) => h("div", {}, h("dt", {}, h("kbd", {}, keys)), h("dd", {}, text)))), close);
    dialog.showModal();
  }
}

// Supervised fine-tuning has no sessions.
const isSupervised = ({ folder }) => folder.objective === "sft";
const viewsOf = (run) => (isSupervised(run) ? { learning: LearningView } : VIEWS[run.kind]);
const firstView = ({ kind }) => Object.keys(VIEWS[kind])[0];

(known.served ? Promise.resolve(new ServedSource()) : EmbeddedSource.open()).then(
  (source) => new App(source).start(),
  (error) => (document.querySelector("main").textContent = `The data cannot be unpacked (${error.message}): use a browser from 2024 or later.`),
);
