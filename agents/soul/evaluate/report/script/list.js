// A list of the entries of a store, with filters, order and pages. A subclass defines the columns (`columns`), its own
// filters beside set and groups (`passes`), the value that a column is sorted by (`value`) and the cells of a line
// (`cells`).

const PAGE_SIZE = 100;
const REDRAW_MS = 400; // between two looks at what a search has found
const form = document.getElementById("filters");
const rowsOfList = document.querySelector("#list tbody");

class List {
  usual = { key: "", descending: false }; // the default order: that of the store

  constructor(store, columns) {
    this.store = store;
    this.columns = columns;
    Object.assign(this, choiceOf(new URLSearchParams())); // filters, order, page
    this.shown = []; // entries that pass the filters, in their order
    this.run = 0; // counts searches: a search stops when a newer one begins
  }

  // Whether an entry is in the chosen set and groups.
  inGroups(i) {
    const { set, groups } = this.filters;
    if (set !== "" && this.store.set(i) !== set) return false;
    return Object.entries(groups).every(([kind, value]) => value === "" || this.store.index.groups[i][kind] === value);
  }

  async filter(page = 0) {
    const run = ++this.run;
    this.page = page;
    let matches = Array.from({ length: this.store.size }, (_, i) => i).filter((i) => this.inGroups(i) && this.passes(i));
    if (this.filters.text.trim()) {
      const among = matches;
      matches = [];
      let drawn = performance.now();
      for await (const [share, hits] of this.store.search(this.filters.text.trim(), among)) {
        if (run !== this.run) return;
        matches.push(...hits);
        if (share < 1 && hits.length && performance.now() - drawn > REDRAW_MS) {
          this.shown = [...matches]; // what is found so far
          this.sort();
          drawn = performance.now();
        }
        if (share < 1) this.say(`Searching: ${Math.round(100 * share)} %, ${matches.length.toLocaleString("en")} found`);
        await new Promise((resume) => setTimeout(resume)); // let the page breathe
      }
    }
    if (run !== this.run) return;
    this.shown = matches;
    this.sort();
  }

  sort() {
    const { key, descending } = this.order;
    this.shown.sort((a, b) => (key ? compare(this.value(key, a), this.value(key, b), descending) : 0) || a - b);
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
    this.say(this.shown.length === this.store.size ? `${all} ${known.entries}` : `${count} of ${all} ${known.entries}`);
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
    this.mark(this.open, false);
    this.drawn?.(); // the browser then updates the address
  }

  row(i) {
    const cells = this.cells(i);
    const row = h("tr", {}, this.columns.map(({ key }) => h("td", { className: key }, cells[key])));
    row.dataset.place = i;
    return row;
  }

  // Mark the entry that is open, turning to its page.
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

  // The entry `step` places from the open one; the first one if no entry of the list is open.
  neighbour(step) {
    const place = this.shown.indexOf(this.open);
    return place < 0 ? this.shown[0] : this.shown[place + step];
  }
}
