// Which samples are shown: the filters, the order, and the list of them, a page at a time.

const PAGE_SIZE = 100;
const form = document.getElementById("filters");
const rowsOfList = document.querySelector("#list tbody");
const COLUMNS = [
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
  return index.contentless[i] ? "said nothing" : words(index.ended[i]);
}

class List {
  constructor(store) {
    this.store = store;
    Object.assign(this, choiceOf(new URLSearchParams())); // filters, order, page
    this.shown = []; // samples that pass the filters, in their order
    document.getElementById("list").classList.toggle("no-price", store.index.cost.includes(null) && !store.index.cost.some((cost) => cost > 0));
    this.run = 0; // counts searches: an older one stops when a newer one has begun
  }

  passes(i) {
    const { set, state, low, high, groups } = this.filters;
    const { index } = this.store;
    if (set !== "" && this.store.set(i) !== set) return false;
    if (state === "valid" && index.cause[i]) return false;
    if (state === "failed" && !index.cause[i]) return false;
    if (state === "contentless" && !index.contentless[i]) return false;
    if (state.startsWith("cause:") && index.cause[i] !== state.slice(6)) return false;
    const score = index.reward[i] === null ? null : 100 * index.reward[i];
    // Half of the last digit shown: a score that reads 50.0 is not below 50.
    if (low !== "" && (score === null || score < Number(low) - 0.05)) return false;
    if (high !== "" && (score === null || score > Number(high) + 0.05)) return false;
    return Object.entries(groups).every(([kind, value]) => value === "" || index.groups[i][kind] === value);
  }

  async filter(page = 0) {
    const run = ++this.run;
    this.page = page;
    let found = Array.from({ length: this.store.size }, (_, i) => i).filter((i) => this.passes(i));
    if (this.filters.text.trim()) {
      const among = found;
      found = [];
      for await (const [share, hits] of this.store.search(this.filters.text.trim(), among)) {
        if (run !== this.run) return;
        found.push(...hits);
        if (share < 1) this.say(`Searching: ${Math.round(100 * share)} %, ${found.length.toLocaleString("en")} found`);
        await new Promise((resume) => setTimeout(resume)); // let the page breathe
      }
    }
    if (run !== this.run) return;
    this.shown = found;
    this.sort();
  }

  sort() {
    const { key, descending } = this.order;
    const { index } = this.store;
    const values = { state: (i) => stateText(index, i), given: (i) => index.given[i] ?? (index.said[i] || null) };
    const value = values[key] ?? ((i) => index[key][i]);
    this.shown.sort((a, b) => (key ? compare(value(a), value(b), descending) : 0) || a - b);
    this.page = Math.min(this.page, this.pages - 1);
    this.draw();
  }

  say(text) {
    document.getElementById("found").textContent = text;
  }

  get pages() {
    return Math.max(1, Math.ceil(this.shown.length / PAGE_SIZE));
  }

  draw() {
    const count = this.shown.length.toLocaleString("en");
    const all = this.store.size.toLocaleString("en");
    this.say(this.shown.length === this.store.size ? `${all} samples` : `${count} of ${all} samples`);
    document.getElementById("page").textContent = `${this.page + 1} / ${this.pages}`;
    document.getElementById("page-back").disabled = this.page === 0;
    document.getElementById("page-on").disabled = this.page === this.pages - 1;
    document.querySelector(".turn").hidden = this.pages === 1;
    const start = this.page * PAGE_SIZE;
    rowsOfList.replaceChildren(...this.shown.slice(start, start + PAGE_SIZE).map((i) => this.row(i)));
    for (const head of document.querySelectorAll("#list thead th[aria-sort]")) {
      const direction = this.order.descending ? "descending" : "ascending";
      head.setAttribute("aria-sort", head.dataset.key === this.order.key ? direction : "none");
    }
    this.drawGivenHead();
    this.mark(this.open, false);
    this.drawn?.(); // whoever wants to know of it: the address
  }

  // Over the last words of samples that have no single right answer "given" would mislead.
  drawGivenHead() {
    const withTarget = this.shown.filter((i) => this.store.index.target[i] !== null).length;
    const title = withTarget === 0 ? "said last" : withTarget === this.shown.length ? "given" : "given, or said last";
    document.querySelector("#list thead th.given button").textContent = title;
    document.getElementById("list").classList.toggle("no-target", withTarget === 0);
  }

  row(i) {
    const { index } = this.store;
    const cells = {
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
    const row = h("tr", {}, COLUMNS.map(({ key }) => h("td", { className: key }, cells[key])));
    row.dataset.place = i;
    return row;
  }

  // The answer that was read, with a sign for right and wrong; where there is none, the last words.
  given(i) {
    const { index } = this.store;
    const said = h("bdi", { className: "last" }, index.said[i]);
    if (index.target[i] === null) return [said];
    const mark = markOf(rightness(index.reward[i], known.sets[index.set[i]]));
    return [mark, index.given[i] === null ? [h("em", {}, "not readable: "), said] : h("bdi", {}, index.given[i])];
  }

  // Mark the sample that is open, turning to its page.
  mark(i, turn = true) {
    this.open = i;
    const place = this.shown.indexOf(i);
    const page = Math.floor(place / PAGE_SIZE);
    if (turn && place >= 0 && page !== this.page) {
      this.page = page;
      this.draw();
    }
    for (const row of rowsOfList.rows) {
      const here = Number(row.dataset.place) === i;
      if (here) row.setAttribute("aria-current", "true");
      else row.removeAttribute("aria-current");
      if (here && turn) row.scrollIntoView({ block: "nearest" });
    }
  }

  // The sample `step` places from the open one in the list; the first where none of the list is open.
  neighbour(step) {
    const place = this.shown.indexOf(this.open);
    return place < 0 ? this.shown[0] : this.shown[place + step];
  }
}
