// The results of an evaluation: the table of the terminal with a bar for each interval, and what is behind each line.

const BAR = { width: 116, height: 14, margin: 4 };

class ResultsView {
  constructor(app, run) {
    this.run = run;
    this.section = h("section", { ariaLabel: "Results", className: "results" });
    this.unfolded = new Set();
  }

  show(_parts, query) {
    for (const set of query.getAll("open")) this.unfolded.add(set);
    this.refresh();
  }

  refresh() {
    const { overview, name } = this.run;
    this.section.replaceChildren(
      h("header", {}, h("p", { className: "kind" }, "SOUL evaluation"), h("h1", {}, h("bdi", {}, name)), h("dl", { className: "facts" }, overview.facts.map(([title, text]) => h("div", {}, h("dt", {}, title), h("dd", {}, text))))),
      tiles(Object.fromEntries(overview.tiles)),
      this.#warnings(),
      ...overview.cautions.map((text) => h("p", { className: "note" }, text)),
      this.#table(),
      h("div", { className: "notes" }, overview.explanations.map((text) => h("p", {}, text))),
      h("details", { className: "settings" }, h("summary", {}, "Settings"), h("pre", { tabIndex: 0 }, JSON.stringify(overview.settings, null, 1))),
    );
  }

  #samples(query) {
    return hrefOf(placeOf(this.run.id, "sessions"), query);
  }

  #warnings() {
    const lines = this.run.overview.warnings.map(({ title, advice, sets }) => {
      const links = Object.entries(sets).map(([name, detail], k) => [k ? ", " : "", h("a", { href: this.#samples({ set: name }) }, name), ` (${detail})`]);
      return h("p", {}, h("strong", {}, `${title}: `), links, `. ${advice}`);
    });
    return lines.length ? h("section", { className: "warnings", ariaLabel: "Warnings" }, lines) : "";
  }

  // The lines of table.md, with the details of an opened set below its line. Costs are left out if no price is known.
  #table() {
    const { titles, published, lines } = this.run.overview;
    const priced = lines.some(({ cells }) => /[1-9]/.test(cells.at(-1)));
    const own = titles.slice(2).filter((title) => priced || title !== "cost");
    const columns = [
      { title: "set", text: true },
      { title: titles[1] },
      { title: "", help: "The score with its interval; dashed: the score if every sample without a verdict were the worst, and the best" },
      ...own.map((title) => ({ title })),
      ...published.map(({ model, source }) => ({ title: `${model} (${source})`, soft: true, help: "published" })),
    ];
    const rows = lines.map((line) => {
      const [name, score, ...others] = line.cells;
      const opener = line.set === null ? h("b", {}, name) : button(name, () => this.#toggle(line.set), { className: "opener", ariaExpanded: String(this.unfolded.has(line.set)) });
      return [cell(name, opener), cell(line.mean, h("b", {}, score)), cell(line.mean, scaledBar(line)), ...others.slice(0, own.length), ...line.published];
    });
    const below = (k) => (this.unfolded.has(lines[k].set) ? this.#detail(lines[k].set) : null);
    return dataTable(columns, rows, { name: `results of ${this.run.name}`, sections: lines.map(({ dimension }) => dimension), below });
  }

  #toggle(set) {
    if (!this.unfolded.delete(set)) this.unfolded.add(set);
    replaceLink(placeOf(this.run.id, "results"), [...this.unfolded].map((one) => ["open", one]));
    this.refresh();
    this.section.querySelectorAll(".opener").forEach((one) => one.textContent === set && one.focus({ preventScroll: true }));
    document.getElementById(`set-${set}`)?.scrollIntoView({ block: "nearest" });
  }

  #detail(name) {
    const set = this.run.overview.sets[name];
    const { metric } = set;
    const range = `${shortNumber(metric.low)} to ${shortNumber(metric.high)}${metric.higher_is_better ? "" : ", lower is better"}`;
    const meaning = [`${name}: `, h("strong", {}, metric.name), ` x 100, range ${range}${metric.source ? ` (${metric.source})` : ""}. `, set.samples ? h("a", { href: this.#samples({ set: name }) }, "its samples") : null];
    return h(
      "section",
      { className: "detail", id: `set-${name}`, ariaLabel: name },
      h("p", { className: "meaning" }, meaning),
      set.warnings.map((warning) => h("p", { className: "warning" }, warning)),
      h("div", { className: "parts" }, this.#groups(name, set), metricsTable(name, set), severalTable(set), this.#failures(name, set), rolesTable(set)),
    );
  }

  #groups(name, set) {
    const { overview } = this.run;
    return Object.entries(set.groups).map(([kind, groups]) => {
      const columns = [{ title: kindName(overview, kind), text: true }, { title: "score [95 %]" }, { title: "" }, { title: "n" }, { title: "invalid" }];
      const rows = groups.map((group) => [
        h("a", { href: this.#samples({ set: name, [`group.${kind}`]: group.value }) }, valueName(overview, kind, group.value)),
        cell(group.mean, scoreInterval(group)),
        cell(group.mean, scaledBar({ ...group, range: [set.metric.low, set.metric.high] })),
        counted(group.samples),
        counted(group.invalid),
      ]);
      return dataTable(columns, rows, { caption: `By ${kindName(overview, kind)}`, name: `${name} by ${kind}` });
    });
  }

  #failures(name, { causes, contentless }) {
    const rows = Object.entries(causes).map(([cause, count]) => [h("a", { href: this.#samples({ set: name, state: `cause:${cause}` }) }, words(cause)), counted(count)]);
    if (contentless) rows.push([h("a", { href: this.#samples({ set: name, state: "contentless" }) }, "empty response (worst score)"), counted(contentless)]);
    return rows.length ? smallTable("Failures by cause", ["cause", "samples"], rows) : null;
  }
}

const scoreInterval = ({ mean, interval }) => `${scoreText(mean)} [${interval ? interval.map(scoreText).join(", ") : NONE}]`;

function metricsTable(set, { metrics }) {
  const rows = Object.entries(metrics).map(([name, value]) => [name, cell(value, meanText(value))]);
  return rows.length ? dataTable([{ title: "metric", text: true }, { title: "value" }], rows, { caption: "Other metrics", name: `other metrics of ${set}` }) : null;
}

function severalTable({ best_of }) {
  const rows = Object.entries(best_of).map(([k, { mean, rows: count }]) => [`best of ${k}`, scoreText(mean), counted(count)]);
  return rows.length ? smallTable("Several samples per row", ["", "score", "rows"], rows) : null;
}

function rolesTable({ roles, seconds, samples }) {
  if (!samples) return null;
  const priced = Object.values(roles).some(({ cost }) => /[1-9]/.test(cost));
  const rows = Object.entries(roles).map(([role, use]) => [role, ...[use.calls, use.prompt_tokens, use.completion_tokens].map(counted), fixed(use.latency_p50_s, 2), fixed(use.latency_p95_s, 2), ...(priced ? [use.cost] : [])]);
  const stages = Object.entries(seconds).map(([stage, sum]) => [stage, fixed(sum / samples, 2)]);
  return [smallTable("Calls and cost", ["role", "calls", "tokens in", "tokens out", "p50 s", "p95 s", ...(priced ? ["cost"] : [])], rows), smallTable("Seconds per sample", ["stage", "mean"], stages)];
}

// A score with its interval and bounds on the range of its metric, whose ends are below it unless they are 0 and 100.
function scaledBar(score) {
  const bar = intervalBar(score);
  const [low, high] = score.range.map((end) => shortNumber(100 * end));
  return !bar || (low === "0" && high === "100") ? bar : h("span", { className: "scaled" }, bar, h("small", {}, h("span", {}, low), h("span", {}, high)));
}

function intervalBar({ mean, interval, bounds, range }, kind = "", width = BAR.width) {
  if (!hasValue(mean)) return null;
  const x = scaleOf(range, BAR.margin, width - BAR.margin);
  const line = (kind, [low, high], y) => svg("line", { class: kind, x1: px(x(low)), x2: px(x(high)), y1: y, y2: y });
  const ticks = [0, 0.25, 0.5, 0.75, 1].map((share) => range[0] + share * (range[1] - range[0]));
  if (range[0] < 0 && range[1] > 0) ticks.push(0);
  return svg(
    "svg",
    { class: `bar ${kind}`, width, height: BAR.height, role: "img", "aria-label": scoreInterval({ mean, interval }) },
    ticks.map((value) => svg("line", { class: value === 0 ? "zero" : "tick", x1: px(x(value)), x2: px(x(value)), y1: 1, y2: BAR.height - 1 })),
    bounds && bounds[0] !== bounds[1] ? line("bounds", bounds, 11) : null,
    interval ? line("interval", interval, 7) : null,
    svg("circle", { class: "mean", cx: px(x(mean)), cy: 7, r: 3 }),
  );
}
