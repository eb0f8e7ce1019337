// Where time and money go: calls by role and task, and the parts of each step.

const PARTS_SHOWN = 5; // parts of a step with a colour of their own; the others are one
const TIMES = { "timing_s/gen": "rollout takes", "timing_s/rollout_judging": "judges keep it waiting for", "timing_s/update_actor": "the update takes" };
const SLOWEST = { split: "step", sort: "-seconds" }; // the list that a step leads to

class CostsView {
  constructor(_app, run) {
    this.run = run;
    this.charts = new Charts(run);
    this.form = stepForm(placeOf(run.id, "costs"));
    this.lead = h("p", { className: "lead" });
    this.tables = h("div", { className: "parts" });
    this.grid = h("div", { className: "charts" });
    this.section = h("section", { ariaLabel: "Cost and time" }, h("header", {}, h("h1", {}, "Where time and money go"), this.lead), this.form, this.grid, this.tables);
  }

  show(_parts, query) {
    this.filters = readInto(this.form, query);
    this.refresh();
  }

  refresh() {
    const { calls: all = [], metrics = {} } = this.run.overview;
    const calls = all.filter(({ step }) => within(step, this.filters.from, this.filters.to));
    const several = new Set(calls.map(({ task }) => task)).size > 1;
    this.tables.replaceChildren(callTable("Calls by role", ["role"], calls), several ? callTable("Calls by role and task", ["role", "task"], calls) : "");
    setChildren(this.grid, [this.#parts(metrics), ...this.#sums(calls)]);
  }

  // Cost or requests of each role; without prices also what the cache answered.
  #sums(calls) {
    const steps = [...new Set(calls.map(({ step }) => step))].sort((a, b) => a - b);
    const roles = [...new Set(calls.map(({ role }) => role))].sort().slice(0, PARTS_SHOWN);
    const priced = isPriced(calls);
    const sum = (step, key, role) => sumOf(calls.filter((one) => one.step === step && (!role || one.role === role)).map((one) => one[key]));
    const line = (name, k, key, role) => ({ name, kind: `series-${k + 1}`, mean: steps.map((step) => sum(step, key, role)) });
    const lines = roles.map((role, k) => line(role, k, priced ? "cost_usd" : "requests", role));
    if (!priced) lines.push(line("from the cache", 5, "cache_hits"));
    const draw = (title, drawn) => this.charts.draw(title, { steps, include: [0], lines: drawn }, { filters: SLOWEST });
    return [draw(priced ? "Cost of the calls, US dollars" : "Requests by role", lines), draw("Seconds of waiting for the run's own limits", [line("waiting", 5, "queued_s")])];
  }

  // The parts of each step's time, stacked.
  #parts({ steps: all = [], series = {} }) {
    const places = all.map((_, i) => i).filter((i) => within(all[i], this.filters.from, this.filters.to));
    const values = (key) => places.map((i) => series[key]?.[i] ?? 0);
    const total = (key) => sumOf(values(key));
    const whole = total("timing_s/step");
    const said = Object.entries(TIMES).filter(([key]) => whole && series[key]).map(([key, text]) => `${text} ${Math.round((100 * total(key)) / whole)} %`).join(", ");
    this.lead.textContent = said ? `Of a step's time, ${said}.` : "";
    const wholes = ["timing_s/step", ...("timing_s/rollout_sampling" in series ? ["timing_s/gen"] : [])]; // whose parts are shown
    const keys = Object.keys(series).filter((key) => key.startsWith("timing_s/") && !wholes.includes(key) && !key.startsWith("timing_s/agent_loop/"));
    if (!keys.length) return small("The metrics have no times (timing_s/...).");
    keys.sort((a, b) => total(b) - total(a));
    const lines = keys.slice(0, PARTS_SHOWN).map((key, k) => ({ name: words(key.slice(9)), kind: `series-${k + 1}`, mean: values(key) }));
    const others = keys.slice(PARTS_SHOWN);
    if (others.length) lines.push({ name: "other", kind: "series-6", mean: places.map((_, k) => sumOf(others.map((key) => values(key)[k]))) });
    return this.charts.draw("Parts of a step, seconds", { steps: places.map((i) => all[i]), stacked: true, lines }, { filters: SLOWEST });
  }
}

const CALL_SUMS = ["calls", "failed", "requests", "cache_hits", "prompt_tokens", "completion_tokens", "cost_usd", "unpriced", "seconds", "queued_s"];
const CALL_TITLES = ["calls", "failed", "requests", "from the cache", "tokens in", "tokens out"];

// Whether a price is known for some of these calls; otherwise their cost is not shown.
const isPriced = (calls) => calls.some(({ cost_usd, unpriced, requests }) => cost_usd || (requests && !unpriced));

function callTable(caption, names, calls) {
  const groups = Map.groupBy(calls, (call) => names.map((name) => call[name]).join("\n"));
  const sums = [...groups].map(([key, own]) => [key, Object.fromEntries(CALL_SUMS.map((name) => [name, sumOf(own.map((call) => call[name]))]))]);
  const priced = isPriced(calls);
  const rows = sums.sort(([, a], [, b]) => b.cost_usd - a.cost_usd || b.calls - a.calls).map(([key, one]) => [
    ...key.split("\n"),
    ...CALL_SUMS.slice(0, 6).map((name) => cell(one[name], counted(one[name]))),
    ...(priced ? [costOf(one)] : []),
    one.requests ? cell(one.seconds / one.requests, secondsText(one.seconds / one.requests)) : NONE,
    cell(one.queued_s, secondsText(one.queued_s)),
  ]);
  const titles = [...CALL_TITLES, ...(priced ? ["cost"] : []), "a request", "waiting, all"];
  return dataTable([...names.map((title) => ({ title, text: true })), ...titles.map((title) => ({ title }))], rows, { caption });
}
