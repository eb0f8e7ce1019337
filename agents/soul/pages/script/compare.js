// Any number of runs against the first one: the headline and the sets by effect, each with its interval as in a forest plot, and
// the rows behind a set with both texts. Training runs also have their curves over each other.

const FOREST_WIDTH = 190; // pixels of an interval

class CompareView {
  constructor(app) {
    this.app = app;
    this.section = h("section", { className: "compare", ariaLabel: "Compare" });
    this.tables = new Map(); // address -> promise of its answer
    this.lists = new Map(); // address -> List of rows
  }

  async show([ids, ...rest], query) {
    if (!ids) return this.section.replaceChildren(h("header", {}, h("h1", {}, "Compare")), h("p", { className: "empty" }, "Tick two or more runs of one kind in the list of ", h("a", { href: "#" }, "runs"), "."));
    const within = rest[0] === "within";
    const [view, number, set, row] = rest.slice(Number(within));
    const place = `compare/${ids}${within ? "/within" : ""}`;
    if (this.place !== place) this.section.replaceChildren(h("header", {}, h("h1", {}, "Compare")), small("Pairing the rows of the runs ..."));
    Object.assign(this, { ids, within, place });
    const table = await this.#ask([]);
    if (view === "rows") return this.#rows(table, Number(number), set, row, query);
    this.list = null;
    this.section.replaceChildren(this.#head(table), ...table.comparisons.flatMap((one, k) => this.#one(one, k, table)), await this.#curves());
  }

  key(event, typing) {
    return this.list?.key(event, typing) ?? false;
  }

  #ask(parts) {
    const address = this.#address(parts);
    if (!this.tables.has(address)) {
      const asking = this.app.source.get(address);
      asking.catch(() => this.tables.delete(address));
      this.tables.set(address, asking);
    }
    return this.tables.get(address);
  }

  #head({ comparisons, kind, level }) {
    const { baseline } = comparisons[0];
    const tests = Math.max(...comparisons.map(({ sets }) => sets.length));
    const other = kind === "training" && this.app.source.live ? h("a", { href: `#compare/${this.ids}${this.within ? "" : "/within"}` }, this.within ? "run against run" : "refined against draft within each run") : null;
    const note = `Rows are pairs, so their difficulty cancels out. Intervals are 95 %. A star is a p-value below ${level} after Holm's adjustment for ${counted(tests)} sets: without it, one set in twenty would have a star by chance. The headline is one test.`;
    return h("header", {}, h("h1", {}, this.within ? "Refined answers against drafts" : `Against ${baseline.label}`), h("p", { className: "note" }, note), other ? h("p", { className: "links" }, other) : null);
  }

  #one(comparison, k, table) {
    const { compared, headline, sets, notes } = comparison;
    const unit = table.kind === "evaluation" ? 100 : 1; // the card's scale, or the rewards themselves
    const text = signedBy((value) => fixed(unit * value, unit === 100 ? 1 : 3));
    const plain = (value) => fixed(hasValue(value) ? unit * value : value, unit === 100 ? 1 : 3);
    const ends = (interval) => (interval ? `${text(interval[0])} to ${text(interval[1])}` : NONE);
    const lead = headline.difference === null ? "No set is comparable." : `${text(headline.difference)} on average over ${counted(headline.sets)} of ${counted(headline.of)} sets (95 %: ${ends(headline.interval)}${headline.p_value === null ? "" : `, p = ${pText(headline.p_value)}`})${headline.star ? " *" : ""}`;
    const { ends: [low, high], bar } = forestOf([headline, ...sets]);
    const titles = ["rows", comparison.baseline.label, compared.label, "difference", "95 %", "p", "p adjusted", "won / tied / lost", "between seeds"];
    const columns = [
      { title: "set", text: true },
      { title: `${low} to ${high} % of the range`, help: "the difference with its 95 % interval, as a percentage of the metric's range" },
      ...titles.map((title) => ({ title })),
      { title: "not comparable", text: true },
    ];
    const rows = sets.map((one) => [
      one.rows ? h("a", { href: `#${this.#address(["rows", k, one.name])}` }, one.name) : one.name,
      cell(one.comparable ? one.effect : null, one.comparable ? bar(one) : null),
      counted(one.rows),
      ...(one.means ?? [null, null]).map((mean) => cell(mean, plain(mean))),
      cell(one.difference, h("b", {}, text(one.difference), one.star ? " *" : "")),
      cell(one.interval?.[0], ends(one.interval)),
      cell(one.p_value, pText(one.p_value)),
      cell(one.p_adjusted, pText(one.p_adjusted)),
      ["wins", "ties", "losses"].map((name, n) => [n ? " / " : "", h("a", { href: hrefOf(this.#address(["rows", k, one.name]), { state: ["won", "tied", "lost"][n] }) }, counted(one[name]))]),
      one.seeds.some((values) => values.length > 1) ? one.seeds.map((values) => values.map(plain).join(", ")).join(" against ") : "",
      one.reasons.join("; "),
    ]);
    return [
      h("h2", {}, h("bdi", {}, table.comparisons.length > 1 || this.within ? compared.label : `${compared.label} against ${comparison.baseline.label}`)),
      h("p", { className: "lead" }, lead, " ", bar(headline, "headline")),
      dataTable(columns, rows, { name: `${compared.label} against ${comparison.baseline.label}` }),
      h("div", { className: "notes" }, [...new Set([...notes, ...sets.flatMap((one) => one.notes)])].map((note) => h("p", {}, note))),
    ];
  }

  // Where a part of the comparison is, in the page and in the API.
  #address(parts) {
    return [this.place, ...parts.map((one) => placeOf(one))].join("/");
  }

  // ---- the curves of training runs

  async #curves() {
    const ids = this.ids.split(",");
    const folders = (this.app.known ?? []).filter(({ id }) => ids.includes(id));
    if (this.within || !this.app.source.live || folders.some(({ kind }) => kind !== "training")) return "";
    const runs = await Promise.all(ids.map((id) => this.app.run(id)));
    const kinds = ["draft", "refined", "gap", "validation"].filter((kind) => runs.some(({ overview }) => overview.curves.all?.[kind]?.mean.some(hasValue)));
    const charts = kinds.map((kind) => {
      const steps = [...new Set(runs.flatMap(({ overview }) => overview.curves.all?.steps ?? []))].sort((a, b) => a - b);
      const chart = new CurveChart(`${kind[0].toUpperCase()}${kind.slice(1)}, all tasks`);
      chart.update({ steps, include: kind === "gap" ? [0] : [], lines: runs.map(({ overview, folder }, k) => overSteps(overview.curves.all, kind, steps, folder.path, k)).filter(Boolean) });
      return chart.element;
    });
    return h("div", {}, h("h2", {}, "Curves"), h("div", { className: "charts" }, charts));
  }

  // ---- the rows behind a set

  async #rows(table, k, set, row, query) {
    const place = this.#address(["rows", k, set]);
    if (!this.lists.has(place)) this.lists.set(place, this.#makeList(place, table.comparisons[k], k, set, await this.#ask(["rows", k, set])));
    this.list = this.lists.get(place);
    const back = h("a", { href: `#${this.place}` }, "all sets");
    this.section.replaceChildren(h("p", { className: "links" }, back, ` · ${set}: `, h("bdi", {}, table.comparisons[k].compared.label), " against ", h("bdi", {}, table.comparisons[k].baseline.label)), this.list.section);
    await this.list.follow(row, query);
  }

  #makeList(place, comparison, k, set, { rows, higher_is_better }) {
    const difference = (i) => rows[i].other - rows[i].base;
    const outcome = (i) => bySign((higher_is_better ? 1 : -1) * difference(i), "won", "lost", "tied");
    const places = rows.map((_, i) => i);
    const store = {
      size: rows.length,
      where: (test) => places.filter(test),
      link: (i) => `${place}/${placeOf(rows[i].id)}`,
      name: (i) => rows[i].id,
      title: (i) => `${set}, row ${rows[i].id}`,
      findName: (name) => places.find((i) => rows[i].id === name),
    };
    const choices = ["won", "tied", "lost"].map((name) => [name, `${name} (${counted(places.filter((i) => outcome(i) === name).length)})`]);
    const numbers = { base: comparison.baseline.label, other: comparison.compared.label, difference: "difference" };
    return new List(store, place, {
      many: "rows",
      columns: [
        { key: "id", title: "row", number: true },
        { key: "question", title: "question" },
        ...Object.entries(numbers).map(([key, title]) => ({ key, title, number: true })),
        { key: "outcome", title: "outcome" },
      ],
      orders: { won: { key: "difference", descending: true }, lost: { key: "difference", descending: false } },
      fields: () => [{ name: "state", label: "Show", choices: [["", "all"], ...choices], test: (i, value) => outcome(i) === value }],
      cells: (i) => ({
        id: h("a", { href: `#${store.link(i)}` }, rows[i].id),
        question: h("bdi", {}, rows[i].question ?? ""),
        base: rewardText(rows[i].base),
        other: rewardText(rows[i].other),
        difference: signedReward(difference(i)),
        outcome: h("span", { className: outcome(i) }, outcome(i)),
      }),
      value: (key, i) => ({ difference, outcome })[key]?.(i) ?? rows[i][key] ?? null,
      open: async (i) => ({ title: store.title(i), content: drawPair(await this.#ask(["texts", k, set, rows[i].id])) }),
    });
  }
}

// What draws differences with their intervals on one scale, and its ends.
function forestOf(all) {
  const widthOf = ({ metric }) => (hasValue(metric?.low) && hasValue(metric.high) ? metric.high - metric.low : 1);
  const share = (one) => [one.difference, ...(one.interval ?? [])].map((value) => (hasValue(value) ? value / widthOf(one) : null));
  const range = rangeOf(all.flatMap(share), [0]);
  const bar = (one, kind = "") => {
    const [mean, ...interval] = share(one);
    const star = one.star ? bySign(one.effect ?? one.difference, "better", "worse", "") : "";
    return intervalBar({ mean, interval: one.interval && interval, range }, `forest ${kind} ${star}`, FOREST_WIDTH);
  };
  return { ends: range.map((end) => shortNumber(Number((100 * end).toPrecision(3)))), bar };
}

const pText = (p) => (hasValue(p) ? (p < 0.001 ? "< 0.001" : p.toFixed(3)) : NONE);

// Both texts of a row beside each other, with the changed words marked.
function drawPair({ question, target, record, sides }) {
  const turns = sides.map(({ attempt }) => columnTurns(attempt, record));
  markTurns(...turns);
  const answers = sides.map(({ label, given }) => answerBox(label, given ?? NO_ANSWER()));
  const score = ({ score: mean, sample, attempt }) =>
    h("p", { className: "score" }, h("strong", {}, rewardText(mean)), sample ? ` sample ${sample} ${rewardText(attempt.reward)}` : null);
  const critique = ({ critique: text }) => (text ? h("blockquote", { dir: "auto" }, text) : null);
  return [
    question ? h("p", { className: "asked", dir: "auto" }, question) : null,
    target === null ? null : h("dl", { className: "answers" }, answerBox("Expected", target), answers),
    promptOf({ draft: sides[0].attempt }),
    h("div", { className: "sides" }, sides.map((side, k) => column(side.label, turns[k], score(side), critique(side.attempt)))),
    foldedRecord(record),
  ].filter(Boolean);
}

// A curve of one of several runs, moved to these steps.
function overSteps(curve, kind, steps, name, k) {
  if (!curve?.[kind]) return null;
  const place = new Map(curve.steps.map((step, i) => [step, i]));
  const moved = (values) => steps.map((step) => values?.[place.get(step)] ?? null);
  const { mean, low, high, n } = curve[kind];
  return { name, kind: `series-${(k % 5) + 1}`, mean: moved(mean), low: moved(low), high: moved(high), n: moved(n) };
}
