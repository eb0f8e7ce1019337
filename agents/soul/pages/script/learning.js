// Is the policy learning, and is the gap between drafts and refined answers alive? One large chart, small ones below it, every metric
// on demand, and the run's settings.

const OWN_METRICS = {
  "Entropy of the policy": { "actor/entropy": "entropy" },
  "Gradient norm": { "actor/grad_norm": "gradient", "train/grad_norm": "gradient" },
  "Tokens per second": { "perf/tokens_per_second": "tokens" },
};
const MULTIPLE = { height: 150 };
const FAILURE_COLOURS = 5; // causes with a line of their own, the most frequent first
const MATCHES_SHOWN = 40; // metrics that a search shows
const SMOOTHEST = 0.95;

class LearningView {
  constructor(app, run) {
    Object.assign(this, { app, run });
    this.charts = new Charts(run, { onZoom: (range) => this.#set({ zoom: range ? range.join("-") : "" }) });
    this.head = h("header", {});
    const set = ({ target }) => this.#set({ [target.name]: target.value === target.dataset.none ? "" : target.value });
    const none = (name, value, more) => ({ name, on: { change: set }, ...more, "data-none": value });
    this.taskField = h("select", none("task", "all"));
    this.smoothField = h("input", none("smooth", "0", { type: "number", min: 0, max: SMOOTHEST, step: 0.05 }));
    this.whole = button("Show all steps", () => this.#set({ zoom: "" }), { className: "button" });
    const choices = h("div", { className: "choices" }, h("label", {}, "Task ", this.taskField), h("label", {}, "Smoothing ", this.smoothField), this.whole);
    [this.large, this.multiples] = ["charts wide", "charts small-charts"].map((className) => h("div", { className }));
    this.find = h("input", { type: "search", placeholder: "name or meaning", on: { input: () => this.#picker() } });
    this.picker = h("ul", { className: "picker" });
    const search = h("div", { className: "choices" }, h("label", {}, "Search ", this.find));
    const metrics = h("details", { className: "settings" }, h("summary", {}, "All metrics"), search, this.picker);
    this.otherField = h("select", none("against", ""));
    this.settings = h("div", {});
    const fields = h("div", { className: "choices" }, h("label", {}, "Differences to ", this.otherField));
    this.config = h("details", { className: "settings" }, h("summary", {}, "Settings"), fields, this.settings);
    this.section = h("section", { ariaLabel: "Learning" }, this.head, choices, this.large, this.multiples, metrics, this.config);
  }

  show(_parts, query) {
    this.query = Object.fromEntries(query);
    this.task = this.query.task ?? "all";
    const [first, last] = (this.query.zoom ?? "").split("-").map(Number);
    this.zoom = first < last ? [first, last] : null;
    this.smooth = Math.min(SMOOTHEST, Math.max(0, Number(this.query.smooth) || 0));
    this.chosen = (this.query.metrics ?? "").split(",").filter(Boolean);
    if (this.query.against) this.config.open = true;
    this.refresh();
    this.run.sessions.then(() => this.#head());
  }

  #set(changes) {
    go(placeOf(this.run.id, "learning"), { ...this.query, ...changes });
  }

  key(event, typing) {
    if (event.key !== "Escape" || typing || !this.zoom) return false;
    this.#set({ zoom: "" });
    return true;
  }

  refresh() {
    const { curves } = this.run.overview;
    const tasks = Object.keys(curves).filter((task) => task !== "all");
    this.#head();
    fillSelect(this.taskField, [["all", "all tasks"], ...tasks.map((task) => [task, task])], this.task);
    this.smoothField.value = this.smooth;
    this.taskField.parentElement.hidden = tasks.length < 2;
    this.whole.hidden = !this.zoom;
    const loss = this.charts.metrics("Loss per token", { "train/loss": "training", "val/loss": "validation" }, this.#shared(), { height: 330 });
    const reward = loss ?? this.#reward(this.task, this.task === "all" ? "Reward" : `Reward, ${this.task}`, { height: 330 });
    setChildren(this.large, [reward ?? small("No step has finished.")]);
    const byTask = tasks.length > 1 && this.task === "all" ? tasks.map((task) => this.#reward(task, task, MULTIPLE)) : [];
    setChildren(this.multiples, [...this.#chosen(), ...this.#ofTask(), ...byTask, ...this.#ofRun()].filter(Boolean));
    this.#picker();
    this.#settings();
  }

  #head() {
    const { overview, store, name } = this.run;
    const about = overview.run ?? {};
    const all = overview.curves.all ?? { steps: [] };
    const now = (key) => (all[key] ? meanText(all[key].mean.findLast(hasValue)) : NONE);
    const { steps = [], series = {} } = overview.metrics ?? {};
    const losses = { "training loss": series["train/loss"], "validation loss": series["val/loss"] };
    const last = Object.fromEntries(Object.entries(losses).map(([name, values]) => [name, meanText(values?.findLast(hasValue))]));
    const named = isSupervised(this.run) ? last : { ...Object.fromEntries(["draft", "refined", "gap", "validation"].map((key) => [key, now(key)])), sessions: store.size ? counted(store.size) : NONE };
    const resumed = about.resumed?.length ? `, resumed at step ${about.resumed.map(({ step }) => step).join(", ")}` : "";
    const started = about.started ? `started ${dateText(about.started)}${resumed}` : "";
    const problems = [...(overview.notes ?? []), ...(overview.problems ?? [])].map((problem) => h("p", {}, problem));
    this.head.replaceChildren(
      h("p", { className: "kind" }, ["Training run", about.objective, started].filter(Boolean).join(" · ")),
      h("h1", {}, h("bdi", {}, name)),
      h("p", { className: "lead" }, overview.verdict ?? ""),
      tiles({ "last step": String(Math.max(all.steps.at(-1) ?? 0, steps.at(-1) ?? 0) || NONE), ...named }),
      problems.length ? h("div", { className: "warnings" }, problems) : "",
    );
  }

  // What all charts of the view share.
  #shared() {
    return { events: this.run.overview.events ?? [], zoom: this.zoom, smooth: this.smooth };
  }

  #reward(task, title, options) {
    const curve = this.run.overview.curves[task];
    const names = ["draft", "refined", "validation"].filter((name) => curve?.[name].mean.some(hasValue));
    if (!names.length) return null;
    const lines = names.map((name) => ({ name, kind: name, ...curve[name] }));
    const data = { steps: curve.steps, bounds: curve.range, lines, ...this.#shared() };
    return this.charts.draw(title, data, { filters: { set: task === "all" ? "" : task }, ...options });
  }

  #ofTask() {
    const { task } = this;
    const curve = this.run.overview.curves[task];
    if (!curve?.gap.mean.some(hasValue)) return []; // nothing was refined
    const filters = { set: task === "all" ? "" : task, split: "step" };
    const shared = { steps: curve.steps, ...this.#shared() };
    const shares = ["better", "same", "worse"].map((name) => ({ name, kind: name, mean: curve[name] }));
    return [
      this.charts.draw("Gap: refined minus draft", { ...shared, include: [0], lines: [{ name: "gap", kind: "gap", ...curve.gap }] }, { filters, ...MULTIPLE }),
      this.charts.draw("Refined against draft: share of sessions", { ...shared, stacked: true, lines: shares }, { filters, ...MULTIPLE }),
    ];
  }

  #ofRun() {
    const { series = {} } = this.run.overview.metrics ?? {};
    const own = Object.entries(OWN_METRICS).map(([title, names]) => this.charts.metrics(title, names, { include: [0], ...this.#shared() }, MULTIPLE));
    const often = (key) => sumOf(series[key]);
    const causes = Object.keys(series).filter((key) => key.startsWith("ditto/invalid/")).sort((a, b) => often(b) - often(a));
    const named = causes.slice(0, FAILURE_COLOURS).map((key) => [key, words(key.slice(14))]);
    const failures = { "ditto/share_invalid": "no verdict", ...Object.fromEntries(named) };
    return [...own, this.charts.metrics("Failures: share of sessions", failures, { include: [0], ...this.#shared() }, MULTIPLE)];
  }

  // ---- every metric

  #chosen() {
    return this.chosen.map((name) => this.charts.metrics(name, { [name]: name.split("/").at(-1) }, this.#shared(), MULTIPLE));
  }

  #picker() {
    const { metrics, about = {} } = this.run.overview;
    const wanted = this.find.value.toLowerCase().split(/\s+/);
    const fits = (name) => wanted.every((word) => `${name} ${about[name] ?? ""}`.toLowerCase().includes(word));
    const names = Object.keys(metrics?.series ?? {}).filter((name) => this.chosen.includes(name) || fits(name));
    const first = names.sort((a, b) => this.chosen.includes(b) - this.chosen.includes(a)).slice(0, MATCHES_SHOWN);
    const choose = ({ target }) => this.#set({ metrics: [...this.chosen.filter((name) => name !== target.value), ...(target.checked ? [target.value] : [])].join(",") });
    const box = (name) => h("input", { type: "checkbox", value: name, checked: this.chosen.includes(name), on: { change: choose } });
    const lines = first.map((name) => h("li", {}, h("label", {}, box(name), h("b", {}, ` ${name} `), h("small", {}, about[name] ?? ""))));
    const more = names.length > first.length ? [h("li", {}, small(`and ${names.length - first.length} more: search for some of them`))] : [];
    this.picker.replaceChildren(...lines, ...more);
  }

  // ---- settings

  async #settings() {
    const others = (this.app.known ?? []).filter(({ id, kind, href }) => kind === "training" && id !== this.run.id && !href);
    const { against = "" } = this.query;
    fillSelect(this.otherField, [["", "no run"], ...others.map(({ id, path }) => [id, path])], against);
    this.otherField.parentElement.hidden = !others.length;
    const name = others.find(({ id }) => id === against)?.path;
    if (name && this.other?.id !== against) this.other = { id: against, overview: await this.app.source.get(addressOf("run", against, "overview")) };
    if ((this.query.against ?? "") !== against) return; // the reader has chosen another one meanwhile
    const of = ({ run = {} }) => Object.fromEntries(settingsOf(run.config ?? run));
    const [mine, theirs] = [of(this.run.overview), name ? of(this.other.overview) : {}];
    const keys = [...new Set([...Object.keys(mine), ...Object.keys(theirs)])].sort().filter((key) => !name || mine[key] !== theirs[key]);
    const rows = keys.map((key) => [key, mine[key] ?? NONE, ...(name ? [theirs[key] ?? NONE] : [])]);
    const columns = ["setting", "this run", ...(name ? [name] : [])].map((title) => ({ title, text: true }));
    this.settings.replaceChildren(small(`${counted(rows.length)} settings${name ? " that differ" : ""}`), dataTable(columns, rows, { name: "Settings" }));
  }
}

// Names and values of the leaves of a configuration.
const settingsOf = (value, name = "") =>
  value !== null && typeof value === "object" && !Array.isArray(value)
    ? Object.entries(value).flatMap(([key, one]) => settingsOf(one, name ? `${name}.${key}` : key))
    : [[name, JSON.stringify(value)]];
