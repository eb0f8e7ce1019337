// The report's list of samples, and the pane that shows one (list.js, browser.js).

const SAMPLE_COLUMNS = [
  { key: "set", title: "set" },
  { key: "number", title: "row" },
  { key: "sample", title: "sample", shown: known.n > 1 },
  { key: "reward", title: "score" },
  { key: "state", title: "ended" },
  { key: "question", title: "question" },
  { key: "target", title: "expected" },
  { key: "given", title: "given" },
  { key: "cost", title: "cost" },
  { key: "seconds", title: "time" },
].filter((column) => column.shown !== false);

function stateText(index, i) {
  if (index.cause[i]) return words(index.cause[i]);
  return index.contentless[i] ? "no content" : words(index.ended[i]);
}

class SampleList extends List {
  constructor(store) {
    super(store, SAMPLE_COLUMNS);
    const { cost } = store.index;
    document.getElementById("list").classList.toggle("no-price", cost.includes(null) && !cost.some((one) => one > 0));
  }

  passes(i) {
    const { state, low, high } = this.filters;
    const { index } = this.store;
    if (state === "valid" && index.cause[i]) return false;
    if (state === "failed" && !index.cause[i]) return false;
    if (state === "contentless" && !index.contentless[i]) return false;
    if (state.startsWith("cause:") && index.cause[i] !== state.slice(6)) return false;
    const score = index.reward[i] === null ? null : 100 * index.reward[i];
    // Allow half of the last digit shown: a score displayed as 50.0 is not below 50.
    if (low !== "" && (score === null || score < Number(low) - 0.05)) return false;
    if (high !== "" && (score === null || score > Number(high) + 0.05)) return false;
    return true;
  }

  value(key, i) {
    const { index } = this.store;
    if (key === "state") return stateText(index, i);
    return key === "given" ? (index.given[i] ?? (index.last_turn[i] || null)) : index[key][i];
  }

  draw() {
    this.drawGivenHead();
    super.draw();
  }

  // Samples without a single right answer show their last turn, so "given" would be the wrong column head.
  drawGivenHead() {
    const withTarget = this.shown.filter((i) => this.store.index.target[i] !== null).length;
    const title = withTarget === 0 ? "last turn" : withTarget === this.shown.length ? "given" : "given, or last turn";
    document.querySelector("#list thead th.given button").textContent = title;
    document.getElementById("list").classList.toggle("no-target", withTarget === 0);
  }

  cells(i) {
    const { index } = this.store;
    return {
      set: h("a", { href: `#${this.store.link(i)}` }, this.store.set(i)),
      number: String(index.number[i]),
      sample: String(index.sample[i]),
      reward: scoreText(index.reward[i]),
      state: h("span", { className: index.cause[i] ? "failed" : "" }, stateText(index, i)),
      question: h("bdi", {}, index.question[i]),
      target: h("bdi", {}, index.target[i] ?? ""),
      given: this.given(i),
      cost: costText(index.cost[i]),
      seconds: secondsText(index.seconds[i]),
    };
  }

  // The answer that was read, marked right or wrong; if none was read, the last turn.
  given(i) {
    const { index } = this.store;
    const last = h("bdi", { className: "last" }, index.last_turn[i]);
    if (index.target[i] === null) return [last];
    const mark = markOf(rightness(index.reward[i], known.sets[index.set[i]]));
    return [mark, index.given[i] === null ? [h("em", {}, "not readable: "), last] : h("bdi", {}, index.given[i])];
  }
}

class SampleBrowser extends Browser {
  constructor(store) {
    super(store, new SampleList(store));
  }

  states() {
    const { index } = this.store;
    const counts = new Map();
    for (const cause of index.cause) if (cause) counts.set(cause, (counts.get(cause) ?? 0) + 1);
    const causes = [...counts].sort().map(([cause, n]) => [`cause:${cause}`, `failed: ${words(cause)} (${counted(n)})`]);
    return [["", "all"], ["valid", "with a verdict"], ["failed", "failed"], ["contentless", "no content"], ...causes];
  }

  pane(line, i) {
    const title = `${this.store.set(i)}, row ${line.number}${known.n > 1 ? `, sample ${line.sample}` : ""}`;
    return { title, content: drawSample(line, this.store.index.question[i]) };
  }
}

const openBrowser = async () => new SampleBrowser(await Store.open());
