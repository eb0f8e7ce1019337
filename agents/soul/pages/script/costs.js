// View (f): where time and money go. Judge calls by role and task, and the parts of each step.

const PARTS_SHOWN = 5; // parts of a step with a colour of their own; the others are one
const BAR_HEIGHT = 190;

class CostsView {
  constructor(app, run) {
    this.app = app;
    this.run = run;
    this.section = h("section", { ariaLabel: "Cost and time" });
  }

  show(_parts, query) {
    const { run } = this;
    if (!this.form) this.#frame(run);
    this.filters = { from: query.get("from") ?? "", to: query.get("to") ?? "" };
    for (const [name, value] of Object.entries(this.filters)) this.form.elements[name].value = value;
    this.drawn = undefined;
    this.refresh();
  }

  #frame(run) {
    const field = (name) => h("input", { type: "number", name, step: 1 });
    this.form = h("form", { className: "choices" }, h("label", {}, "Step from ", field("from")), h("label", {}, "to ", field("to")));
    this.form.addEventListener("change", () => go(placeOf(run.id, "costs"), Object.fromEntries(new FormData(this.form))));
    this.form.addEventListener("submit", (event) => event.preventDefault());
    this.tables = h("div", { className: "parts" });
    this.bars = h("figure", { className: "chart" });
    const priced = isPriced(run.overview.calls ?? []);
    this.counts = priced ? "cost_usd" : "requests";
    this.cost = new CurveChart(priced ? "Cost of the judges, US dollars" : "Requests to the judges", (step) => this.#open(run, step));
    this.section.replaceChildren(
      h("header", {}, h("h1", {}, "Where time and money go")),
      this.form,
      this.tables,
      h("div", { className: "charts wide" }, this.bars, this.cost.element),
    );
  }

  #open(run, step) {
    go(placeOf(run.id, "sessions"), { step_from: step, step_to: step, split: "step", sort: "-seconds" });
  }

  refresh() {
    const { run } = this;
    const state = `${run.overview.revision} ${run.store.size}`;
    if (this.drawn === state) return;
    this.drawn = state;
    const calls = (run.overview.calls ?? []).filter(({ step }) => within(step, this.filters.from, this.filters.to));
    this.tables.replaceChildren(
      scroller(
        "Judge calls",
        callTable("Calls by role and task", calls, ({ role, task }) => [role, task]),
      ),
      scroller(
        "Judge calls by role",
        callTable("By role", calls, ({ role }) => [role]),
      ),
    );
    this.#drawCost(calls);
    this.#drawBars(run.overview.metrics ?? {});
  }

  #drawCost(calls) {
    const steps = [...new Set(calls.map(({ step }) => step))].sort((a, b) => a - b);
    const roles = [...new Set(calls.map(({ role }) => role))].sort().slice(0, PARTS_SHOWN);
    const sum = (step, role) =>
      calls.filter((one) => one.step === step && one.role === role).reduce((total, one) => total + (one[this.counts] ?? 0), 0);
    this.cost.update({
      steps,
      include: [0],
      lines: roles.map((role, k) => ({ name: role, kind: `series-${k + 1}`, mean: steps.map((step) => sum(step, role)) })),
    });
  }

  // The parts of each step's time, stacked.
  #drawBars({ steps: all = [], series = {} }) {
    const places = all.map((_, i) => i).filter((i) => within(all[i], this.filters.from, this.filters.to));
    const steps = places.map((i) => all[i]);
    const total = (key) => places.reduce((sum, i) => sum + (series[key][i] ?? 0), 0);
    const wholes = ["timing_s/step"]; // whose parts are shown
    if ("timing_s/rollout_sampling" in series) wholes.push("timing_s/gen");
    const keys = Object.keys(series)
      .filter((key) => key.startsWith("timing_s/") && !wholes.includes(key) && !key.startsWith("timing_s/agent_loop/"))
      .sort((a, b) => total(b) - total(a));
    const named = keys.slice(0, PARTS_SHOWN);
    const parts = named.map((key) => ({ name: words(key.slice(9)), values: places.map((i) => series[key][i] ?? 0) }));
    if (keys.length > PARTS_SHOWN)
      parts.push({
        name: "other",
        values: places.map((i) => keys.slice(PARTS_SHOWN).reduce((sum, key) => sum + (series[key][i] ?? 0), 0)),
      });
    const title = h("figcaption", {}, h("h3", {}, "Parts of a step, seconds"));
    if (!steps.length || !parts.length)
      return this.bars.replaceChildren(title, h("p", { className: "small" }, "The metrics have no times (timing_s/...)."));
    const host = h("div", { className: "plot" });
    drawnToWidth(host, (width) => host.replaceChildren(this.#stack(steps, parts, width)));
    const legend = stackLegend(parts.map(({ name }) => name));
    const rows = steps.map((step, i) => [String(step), ...parts.map(({ values }) => shortNumber(values[i]))]);
    const table = h(
      "details",
      { className: "numbers" },
      h("summary", {}, "Table"),
      scroller("Parts of a step", smallTable(null, ["step", ...parts.map(({ name }) => name)], rows)),
    );
    this.bars.replaceChildren(title, legend, host, table);
  }

  #stack(steps, parts, width) {
    const sums = steps.map((_, i) => parts.reduce((sum, { values }) => sum + values[i], 0));
    const high = Math.max(...sums) || 1;
    const y = scaleOf([0, high], BAR_HEIGHT - 24, 8);
    const wide = (width - MARGIN.left - MARGIN.right) / steps.length;
    const x = (i) => MARGIN.left + i * wide;
    const up = ticksBetween(0, high, 4);
    const bars = steps.map((step, i) => {
      let base = 0;
      return parts.map(({ name, values }, k) => {
        const top = base + values[i];
        const bar = svg(
          "rect",
          {
            class: `stack part-${k + 1}`,
            x: px(x(i) + wide * 0.08),
            width: px(Math.max(0.5, wide * 0.84)),
            y: px(y(top)),
            height: px(y(base) - y(top)),
          },
          svg("title", {}, `step ${step}: ${name} ${secondsText(values[i])}`),
        );
        bar.addEventListener("click", () => this.#open(this.run, step));
        base = top;
        return bar;
      });
    });
    const every = Math.ceil(steps.length / Math.max(2, Math.floor(width / 60)));
    const labels = steps.map((step, i) =>
      i % every ? null : svg("text", { class: "tick", x: px(x(i) + wide / 2), y: BAR_HEIGHT - 8, "text-anchor": "middle" }, String(step)),
    );
    const axis = up.map((value) => [
      svg("line", { class: value ? "grid" : "zero", x1: MARGIN.left, x2: width - MARGIN.right, y1: px(y(value)), y2: px(y(value)) }),
      svg("text", { class: "tick", x: MARGIN.left - 6, y: px(y(value) + 3.5), "text-anchor": "end" }, tickText(value)),
    ]);
    return svg(
      "svg",
      {
        width,
        height: BAR_HEIGHT,
        viewBox: `0 0 ${width} ${BAR_HEIGHT}`,
        role: "img",
        "aria-label": "Seconds of each step by part; the table below has the numbers",
      },
      axis,
      bars,
      labels,
    );
  }
}

const CALL_SUMS = ["calls", "failed", "requests", "cache_hits", "prompt_tokens", "completion_tokens", "cost_usd", "unpriced", "seconds", "queued_s"];

// Whether a price is known for some of these calls; otherwise their cost is not shown.
const isPriced = (calls) => calls.some(({ cost_usd, unpriced, requests }) => cost_usd || (requests && !unpriced));

function callTable(title, calls, keyOf) {
  const sums = new Map();
  for (const call of calls) {
    const names = keyOf(call).join(", ");
    const sum = sums.get(names) ?? Object.fromEntries(CALL_SUMS.map((name) => [name, 0]));
    for (const name of CALL_SUMS) sum[name] += call[name] ?? 0;
    sums.set(names, sum);
  }
  const priced = isPriced(calls);
  const cost = ({ cost_usd, unpriced }) => (unpriced && !cost_usd ? "–" : `${unpriced ? "at least " : ""}${costText(cost_usd)}`);
  const rows = [...sums].sort(([, a], [, b]) => b.cost_usd - a.cost_usd || b.calls - a.calls);
  const cells = rows.map(([names, one]) => [
    names,
    ...["calls", "failed", "requests", "cache_hits", "prompt_tokens", "completion_tokens"].map((name) => counted(one[name])),
    ...(priced ? [cost(one)] : []),
    one.requests ? secondsText(one.seconds / one.requests) : "–",
    secondsText(one.queued_s),
  ]);
  const titles = ["", "calls", "failed", "requests", "from the cache", "tokens in", "tokens out", "a request", "waiting, all"];
  if (priced) titles.splice(7, 0, "cost");
  return smallTable(title, titles, cells);
}
