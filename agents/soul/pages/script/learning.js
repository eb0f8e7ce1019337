// View (a): is the policy learning, and is the gap between drafts and refined answers alive?

const SERIES = { entropy: "actor/entropy", gradient: "actor/grad_norm", failures: "ditto/share_invalid" };
const FAILURE_COLOURS = 5; // causes with a line of their own, the most frequent first

class LearningView {
  constructor(app, run) {
    this.app = app;
    this.run = run;
    this.section = h("section", { ariaLabel: "Learning" });
    this.charts = new Map(); // key -> CurveChart
  }

  show(_parts, query) {
    this.task = query.get("task") ?? "all";
    this.metric = query.get("metric") ?? "";
    this.refresh();
  }

  refresh() {
    const { run } = this;
    if (!this.head) this.section.replaceChildren(...this.#frame(run));
    const { curves, metrics } = run.overview;
    this.#head(run);
    this.#choices(curves, metrics);
    const drawn = [...this.#main(run), ...this.#series(run)];
    setChildren(this.grid, drawn);
    const tasks = Object.keys(curves).filter((task) => task !== "all");
    const small = tasks.length > 1 && this.task === "all" ? tasks.map((task) => this.#reward(run, task, task)) : [];
    setChildren(this.tasks, small);
    this.tasksTitle.hidden = !small.length;
  }

  #frame(run) {
    this.head = h("header", {});
    this.choice = h("form", { className: "choices" });
    this.grid = h("div", { className: "charts" });
    this.tasks = h("div", { className: "charts small-charts" });
    this.tasksTitle = h("h2", {}, "Reward by task");
    this.taskField = h("select", { name: "task" });
    this.metricField = h("select", { name: "metric" });
    this.choice.append(h("label", {}, "Task ", this.taskField), h("label", {}, "Another metric ", this.metricField));
    this.choice.addEventListener("input", () =>
      go(placeOf(run.id, "learning"), { task: this.taskField.value === "all" ? "" : this.taskField.value, metric: this.metricField.value }),
    );
    this.choice.addEventListener("submit", (event) => event.preventDefault());
    return [this.head, this.choice, this.grid, this.tasksTitle, this.tasks];
  }

  #head(run) {
    const { overview, store } = run;
    const about = overview.run ?? {};
    const all = overview.curves.all ?? { steps: [] };
    const last = all.steps.length - 1;
    const now = (name) => (all[name] && last >= 0 ? meanText(lastOf(all[name].mean)) : "–");
    const tiles = {
      "last step": String(all.steps[last] ?? "–"),
      draft: now("draft"),
      refined: now("refined"),
      gap: now("gap"),
      validation: now("validation"),
      sessions: store.size ? counted(store.size) : "–",
    };
    const resumed = about.resumed?.length ? `, resumed at step ${about.resumed.map(({ step }) => step).join(", ")}` : "";
    const started = about.started ? `started ${new Date(1000 * about.started).toLocaleString("en-GB")}${resumed}` : "";
    this.head.replaceChildren(
      h("p", { className: "kind" }, ["Training run", about.objective, started].filter(Boolean).join(" · ")),
      h("h1", {}, h("bdi", {}, run.name)),
      h(
        "dl",
        { className: "tiles" },
        Object.entries(tiles).map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))),
      ),
      problemsOf(overview),
    );
  }

  #choices(curves, metrics) {
    const tasks = ["all", ...Object.keys(curves).filter((task) => task !== "all")];
    fillSelect(
      this.taskField,
      tasks.map((task) => [task, task === "all" ? "all tasks" : task]),
      this.task,
    );
    const names = Object.keys(metrics.series ?? {}).sort();
    fillSelect(this.metricField, [["", "choose"], ...names.map((name) => [name, name])], this.metric);
  }

  #main(run) {
    const curve = run.overview.curves[this.task];
    if (!curve) return [h("p", { className: "small" }, "No step of this task has finished.")];
    const { steps } = curve;
    const events = run.overview.events ?? [];
    const reward = this.#reward(run, this.task, "Reward, 95 % bands over prompts");
    if (!curve.gap?.mean.some(hasValue)) return [reward]; // nothing was refined
    const gap = this.#chart("gap", "Gap: refined minus draft, 95 % band", run);
    gap.update({ steps, events, include: [0], lines: [{ name: "gap", kind: "gap", ...curve.gap }] });
    const shares = this.#chart("shares", "Refined against draft: share of sessions", run);
    const lines = ["better", "same", "worse"].map((name) => ({ name, kind: name, mean: curve[name] }));
    shares.update({ steps, events, include: [0, 1], lines });
    return [reward, gap.element, shares.element];
  }

  #reward(run, task, title) {
    const curve = run.overview.curves[task];
    const chart = this.#chart(`reward ${title}`, title, run, task);
    const lines = ["draft", "refined", "validation"].filter((name) => curve[name]?.mean.some(hasValue));
    chart.update({
      steps: curve.steps,
      events: run.overview.events ?? [],
      lines: lines.map((name) => ({ name, kind: name, ...curve[name] })),
    });
    return chart.element;
  }

  #series(run) {
    const { steps = [], series = {} } = run.overview.metrics ?? {};
    const events = run.overview.events ?? [];
    const one = (key, title, lines, include = []) => {
      const chart = this.#chart(key, title, run);
      chart.update({ steps, events, include, lines });
      return chart.element;
    };
    const line = (name, key, kind) => ({ name, kind, mean: series[key] });
    const causes = Object.keys(series).filter((key) => key.startsWith("ditto/invalid/"));
    const often = (key) => -series[key].reduce((sum, value) => sum + (value ?? 0), 0);
    causes.sort((a, b) => often(a) - often(b));
    const failures = causes.slice(0, FAILURE_COLOURS).map((key, k) => line(words(key.slice(14)), key, `series-${k + 1}`));
    const drawn = [];
    if (series[SERIES.entropy]) drawn.push(one("entropy", "Entropy of the policy", [line("entropy", SERIES.entropy, "series-1")], [0]));
    if (series[SERIES.gradient]) drawn.push(one("gradient", "Gradient norm", [line("gradient norm", SERIES.gradient, "series-1")], [0]));
    if (series[SERIES.failures])
      drawn.push(
        one("failures", "Failures: share of sessions", [line("drafts without a verdict", SERIES.failures, "worse"), ...failures], [0]),
      );
    if (series[this.metric]) drawn.unshift(one(`metric ${this.metric}`, this.metric, [line(this.metric, this.metric, "series-1")]));
    return drawn;
  }

  #chart(key, title, run, task = this.task) {
    const name = `${this.task} ${key}`;
    if (!this.charts.has(name)) {
      const open = (step) => go(placeOf(run.id, "sessions"), { step_from: step, step_to: step, set: task === "all" ? "" : task });
      this.charts.set(name, new CurveChart(title, open));
    }
    return this.charts.get(name);
  }
}

// What the viewer could not read: damaged lines, a missing run.json.
function problemsOf({ problems = [], notes = [] }) {
  const all = [...notes, ...problems];
  return all.length
    ? h(
        "div",
        { className: "warnings" },
        all.map((problem) => h("p", {}, problem)),
      )
    : "";
}

const lastOf = (values) => values.findLast(hasValue);
