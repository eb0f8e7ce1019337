// The rows of a comparison: the list (list.js, browser.js) and one row with both texts side by side.

const OUTCOMES = { "1": "won", "0": "tied", "-1": "lost" };
const OUTCOME_SIGNS = { won: "▲", tied: "=", lost: "▼" };
const signed = (difference) => (difference > 0 ? "+" : "") + scoreText(difference);

class PairStore extends Store {
  link(i) {
    const { set, number } = this.index;
    return `${encodeURIComponent(known.sets[set[i]].name)}/${number[i]}/-`;
  }

  texts({ record, prompt, sides }) {
    const texts = [...prompt, ...sides.flatMap(({ draft }) => Object.values(draft.seats).flat())].map(({ content }) => content);
    return [...texts, ...sides.flatMap(({ draft }) => [draft.critique ?? "", ...leaves(draft.lines ?? draft.acts ?? [])]), ...leaves(record)];
  }
}

class PairList extends List {
  usual = { key: "difference", descending: true };

  constructor(store) {
    const hasTarget = store.index.target.some((target) => target !== null);
    const columns = [
      { key: "set", title: "set" },
      { key: "number", title: "row" },
      { key: "question", title: "question" },
      ...(hasTarget ? [{ key: "target", title: "expected" }] : []),
      { key: "base", title: known.labels[0] },
      { key: "other", title: known.labels[1] },
      { key: "difference", title: "difference" },
      { key: "outcome", title: "outcome" },
    ];
    super(store, columns);
  }

  outcome(i) {
    return OUTCOMES[this.store.index.gain[i]];
  }

  passes(i) {
    const { state, low, high } = this.filters;
    const difference = 100 * this.store.index.difference[i];
    if (state === "different" && this.outcome(i) === "tied") return false;
    if (state in OUTCOME_SIGNS && this.outcome(i) !== state) return false;
    // Allow half of the last digit shown: a difference displayed as 50.0 is not below 50.
    return !(low !== "" && difference < Number(low) - 0.05) && !(high !== "" && difference > Number(high) + 0.05);
  }

  value(key, i) {
    const { index } = this.store;
    return key === "outcome" ? index.gain[i] : index[key][i];
  }

  cells(i) {
    const { index } = this.store;
    const outcome = this.outcome(i);
    return {
      set: h("a", { href: `#${this.store.link(i)}` }, this.store.set(i)),
      number: String(index.number[i]),
      question: h("bdi", {}, index.question[i]),
      target: h("bdi", {}, index.target[i] ?? ""),
      base: scoreText(index.base[i]),
      other: scoreText(index.other[i]),
      difference: signed(index.difference[i]),
      outcome: h("span", { className: outcome }, `${OUTCOME_SIGNS[outcome]} ${outcome}`),
    };
  }
}

class PairBrowser extends Browser {
  constructor(store) {
    super(store, new PairList(store));
  }

  states() {
    const count = (gain) => counted(this.store.index.gain.filter((one) => one === gain).length);
    const named = Object.entries(OUTCOMES).map(([gain, outcome]) => [outcome, `${outcome} (${count(Number(gain))})`]);
    return [["", "all"], ["different", "won or lost"], ...named.sort().reverse()];
  }

  pane(line, i) {
    const set = known.sets[this.store.index.set[i]];
    const { base, other, difference } = this.store.index;
    const outcome = this.list.outcome(i);
    const score = h("p", { className: "score" }, h("strong", {}, `${scoreText(base[i])} → ${scoreText(other[i])}`), ` ${set.metric}, ${signed(difference[i])}: ${outcome}`);
    const given = line.sides.map((side, k) => ({ title: known.labels[k], given: side.given, mark: rightness(side.draft.reward, set) }));
    const verdict = h(
      "section",
      { className: "verdict" },
      score,
      line.question ? h("p", { className: "asked", dir: "auto" }, line.question) : null,
      line.target === null ? null : answersOf(line.target, given),
    );
    const prompt = line.prompt.length
      ? [h("details", { className: "seat-view" }, h("summary", {}, "Messages that both models saw"), turnsOf(line.prompt))]
      : [];
    const sides = h("div", { className: "sides" }, line.sides.map((side, k) => this.side(side, k, line)));
    const record = h("details", { className: "record" }, h("summary", {}, "Record"), recordOf(line.record));
    return { title: `${set.name}, row ${line.number}`, content: [verdict, ...prompt, sides, record] };
  }

  side({ sample, of, score, draft }, k, line) {
    const scene = sceneOf(draft, line.record);
    const seats = Object.entries(draft.seats);
    const facts = [`ended: ${words(draft.ended ?? "not known")}`];
    if (of > 1) facts.push(`sample ${sample}, one of ${of}`, `row's mean ${scoreText(score)}`);
    if (draft.contentless) facts.push("no content: worst score");
    const link = `${encodeURIComponent(line.set)}/${line.number}/${sample}`;
    const open = known.reports[k] === null ? "this run has no report" : h("a", { href: `${known.reports[k]}#${link}` }, "open in its report");
    return h(
      "section",
      { ariaLabel: known.labels[k] },
      h("h3", {}, h("span", { className: "seat" }, known.labels[k])),
      h("p", { className: "score" }, h("strong", {}, scoreText(draft.reward)), " ", open),
      h("ul", { className: "tags" }, facts.map((fact) => h("li", {}, fact))),
      draft.critique ? h("blockquote", { dir: "auto" }, draft.critique) : null,
      scene ? drawScene(scene) : seats.map(([seat, turns]) => [seats.length > 1 ? h("h4", {}, `Seat ${seat}`) : null, turnsOf(turns)]),
      Object.keys(draft.metrics ?? {}).length ? metricsOf(draft.metrics) : null,
    );
  }
}

// The page calls this for links to the table. This table cannot be sorted or opened.
function showResults() {}

const openBrowser = async () => new PairBrowser(await PairStore.open());
