// Can the judge be trusted? Its rewards by version of its prompt and by length, canaries, jury, failures, waiting, and alarms.

class JudgeView {
  constructor(_app, run) {
    this.run = run;
    this.charts = new Charts(run);
    this.alarms = h("ul", { className: "events" });
    this.grid = h("div", { className: "charts" });
    this.pictures = h("div", { className: "charts" });
    this.failures = h("div", {});
    const parts = [h("h2", {}, "Alarms"), this.alarms, this.grid, h("h2", {}, "Reward against length"), this.pictures, h("h2", {}, "Failures by cause"), this.failures];
    this.section = h("section", { ariaLabel: "Judge" }, h("header", {}, h("h1", {}, "Can the judge be trusted?")), ...parts);
  }

  async show() {
    await this.run.sessions;
    await this.refresh();
  }

  async refresh() {
    const { overview } = this.run;
    Object.assign(this, await this.run.part("judge"));
    const { events = [], about = {} } = overview;
    const told = events.filter(({ kind }) => kind === "alarm" || kind === "outage");
    const link = (step) => h("a", { href: hrefOf(placeOf(this.run.id, "sessions"), { step_from: step, step_to: step, split: "step" }) }, `Step ${step}`);
    const lines = told.map(({ step, kind, text }) => h("li", {}, link(step), kind === "alarm" ? `, alarm ${words(text)}: ${about[`alarm/${text}`] ?? "raised"}.` : `: ${text}.`));
    this.alarms.replaceChildren(...(lines.length ? lines : [h("li", {}, "No alarm, and no outage of a judge.")]));
    const { series = {} } = overview.metrics ?? {};
    const canary = { "ditto/reward_draft": "judge, all drafts", "ditto/canary/reward_draft": "canary, its share" };
    const jury = Object.keys(series).filter((name) => name.startsWith("judge/jury/"));
    const named = Object.fromEntries(jury.map((name) => [name, name.slice(11).replace("/", " of ")]));
    const priced = isPriced(overview.calls ?? []);
    const metrics = (title, names, more = { include: [0] }) => this.charts.metrics(title, names, more);
    const latency = { "judge/latency_p50_s": "median", "judge/latency_p95_s": "95 %", "judge/latency_p99_s": "99 %" };
    const drawn = [
      this.#byPrompt(),
      series["ditto/canary/reward_draft"] ? metrics("Rewards of judge and canary", canary, {}) : null,
      metrics("Judge minus canary, same drafts", { "ditto/canary/difference": "difference" }),
      metrics("Agreement of the jury", named, { include: [0, 1] }),
      metrics("Seconds of a request", latency),
      metrics("Seconds of waiting for the run's own limits", { "judge/queued_s": "waiting" }),
      priced ? metrics("Cost of a step, US dollars", { "judge/cost_usd": "cost" }) : metrics("Requests of a step", { "judge/requests": "requests", "judge/calls": "calls" }),
    ];
    setChildren(this.grid, drawn.filter(Boolean));
    setChildren(this.pictures, this.#lengths());
    this.failures.replaceChildren(this.#failures());
  }

  // A new version of a prompt is a new line, so that its jump does not pass for learning.
  #byPrompt() {
    const { judges } = this;
    const { curves, events = [] } = this.run.overview;
    const steps = [...new Set(judges.map(({ step }) => step))];
    const lines = [...new Set(judges.map(({ prompts }) => prompts))].map((prompts, k) => {
      const at = (key) => steps.map((step) => judges.find((one) => one.step === step && one.prompts === prompts)?.[key] ?? null);
      return { name: prompts || "no prompt", kind: `series-${(k % 6) + 1}`, mean: at("mean"), n: at("n") };
    });
    return this.charts.draw("Mean reward of the drafts by the judge's prompt", { steps, events, lines, bounds: curves.all?.range });
  }

  #lengths() {
    const { curves } = this.run.overview;
    const titles = { answer: "draft reward by length of the draft", critique: "refined reward by length of the feedback" };
    return Object.entries(this.lengths).flatMap(([task, kinds]) => Object.entries(kinds).map(([kind, one]) => {
      const [low, high] = one.interval ?? [];
      const range = one.interval ? `, 95 % interval ${signedReward(low)} to ${signedReward(high)}` : "";
      const said = `Correlation within prompts ${hasValue(one.correlation) ? signedReward(one.correlation) : NONE}${range}; ${counted(one.n)} sessions of ${counted(one.groups)} prompts.`;
      const lines = [{ name: "reward", kind: kind === "answer" ? "draft" : "refined", mean: one.mean, n: one.count }];
      const chart = this.charts.draw(`${task}: ${titles[kind]}`, { across: "character", steps: one.length, lines, bounds: curves[task]?.range });
      return h("div", {}, chart, small(said));
    }));
  }

  #failures() {
    const { store } = this.run;
    const all = store.where((i) => store.get("split", i) === "step");
    const failed = Map.groupBy(all.filter((i) => store.get("cause", i) !== null), (i) => store.get("cause", i));
    const counts = [...failed].map(([cause, { length }]) => [cause, length]);
    const link = (cause, count) => h("a", { href: hrefOf(placeOf(this.run.id, "sessions"), { state: `cause:${cause}`, split: "step" }) }, counted(count));
    const rows = counts.sort(([, a], [, b]) => b - a).map(([cause, count]) => [words(cause), cell(count, link(cause, count)), cell(count / all.length, percentText(count / all.length))]);
    return rows.length ? dataTable([{ title: "cause", text: true }, { title: "sessions" }, { title: "share" }], rows, { name: "Failures by cause" }) : small("No session failed.");
  }
}
