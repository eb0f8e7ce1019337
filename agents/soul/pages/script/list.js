// A list of the entries of a store, with filters, order and pages, and the open entry beside it. It is used for sessions,
// samples and paired rows. A store has `size`, `where(test)`, and of an entry `link(i)`, `name(i)`, `title(i)`, and its place by
// `findName(name)`; `about` says what is particular to a list:
//
//   many              the word for entries
//   fields()          filters: [{name, label, type, choices?: [[value, text]], test?(i, value), from?: name of its summary}]
//   columns           [{key, title, number?}]
//   cells(i)          key -> content of a cell
//   value(key, i)     what a column is sorted by
//   open(i)           promise of {title, content} of an open entry
//   orders            value of the field "state" -> the order that it brings
//   groupOf(i)        with a field "by": the key of the entry's group, and cells(members) of its head, the first one a text

const PAGE_SIZE = 100;
const MOVES = { ArrowUp: -1, ArrowLeft: -1, ArrowDown: 1, ArrowRight: 1, k: -1, j: 1 };

class List {
  constructor(store, place, about) {
    Object.assign(this, { store, place, about, filters: {}, order: null, page: 0, shown: [], unfolded: new Set() });
    this.searches = 0; // a search stops when a newer one begins
    this.form = h("form", { className: "filters", role: "search", autocomplete: "off", ariaLabel: `Filter ${about.many}` });
    this.found = h("span", { role: "status" }, `Loading the ${about.many} ...`);
    this.turns = h("span", { className: "turn" });
    this.heads = h("tr");
    this.body = h("tbody");
    const table = h("table", { className: "list", ariaLabel: about.many }, h("thead", {}, this.heads), this.body);
    this.listing = h("div", { className: "listing" }, h("div", { className: "pager" }, this.found, this.turns), table);
    this.pane = h("article", { className: "pane", tabIndex: -1, hidden: true });
    this.section = h("section", { className: "browser", ariaLabel: about.many }, h("h1", { className: "unseen" }, about.many), this.form, h("div", { className: "panes" }, this.listing, this.pane));
    this.#listen();
  }

  #listen() {
    this.form.addEventListener("input", (event) => this.#changed(event.target));
    this.form.addEventListener("submit", (event) => event.preventDefault());
    this.form.addEventListener("reset", (event) => (event.preventDefault(), this.show(new URLSearchParams())));
    this.body.addEventListener("click", (event) => {
      const row = event.target.closest("tr[data-place]");
      if (row && !event.target.closest("a, button")) location.hash = this.address(Number(row.dataset.place));
    });
    const heads = this.about.columns.map(({ key, title, number, help }) => {
      const head = h("th", { scope: "col", className: columnClass({ key, number }), title: help ?? "", ariaSort: "none" }, button(title, () => this.#sortBy(key)));
      head.dataset.key = key;
      return head;
    });
    this.heads.append(...heads);
  }

  // ---- the address

  // The link to an entry within this list, or to the list.
  address(i) {
    const { order } = this;
    const query = { ...this.filters, sort: order && (order.descending ? "-" : "") + order.key, page: this.page ? this.page + 1 : "" };
    if (i === undefined) return hrefOf(this.place, query);
    return hrefOf(this.store.link(i), { ...query, page: "" }); // the list turns to the page of the entry by itself
  }

  // Shows exactly what a query asks for.
  show(query) {
    const sort = query.get("sort") ?? "";
    const key = sort.replace(/^-/, "");
    this.order = this.about.columns.some((column) => column.key === key) ? { key, descending: sort.startsWith("-") } : null;
    this.filters = Object.fromEntries([...query].filter(([name]) => name !== "sort" && name !== "page"));
    this.#drawFields();
    return this.filter(Math.max(0, (Number.parseInt(query.get("page"), 10) || 1) - 1));
  }

  // Follows a link to the list, or to one of its entries.
  async follow(name, query) {
    this.following = true;
    if (!name || query.size || !this.drawn) await this.show(query);
    const i = name ? this.store.findName(name) : undefined;
    if (i === undefined) {
      this.#hide();
      if (name) this.found.textContent = `There is no ${name} among these ${this.about.many}.`;
    } else {
      if (!this.shown.includes(i)) await this.show(new URLSearchParams());
      await this.open(i);
    }
    this.following = false;
    if (!name) this.#remember();
  }

  // Writes what is shown to the address, except while the page follows one.
  #remember() {
    if (!this.following && this.section.isConnected && !this.section.hidden) history.replaceState(null, "", this.address(this.opened));
  }

  // ---- filters

  #drawFields() {
    const fields = this.about.fields(this.filters);
    const drawn = JSON.stringify(fields);
    if (this.fieldsDrawn !== drawn) {
      this.fieldsDrawn = drawn;
      const direct = fields.filter(({ from }) => !from).map((field) => this.#field(field));
      const summaries = [...new Set(fields.map(({ from }) => from).filter(Boolean))].map((from) => {
        const inside = fields.filter((field) => field.from === from);
        const open = inside.some(({ name }) => this.filters[name]);
        return h("details", { open }, h("summary", {}, from), h("span", { className: "range" }, inside.map((field) => this.#field(field))));
      });
      this.form.replaceChildren(...direct, ...summaries, h("button", { type: "reset" }, "Clear"));
    }
    for (const { name } of fields) this.form.elements[name].value = this.filters[name] ?? "";
  }

  #field({ name, label, type, choices, placeholder }) {
    const field = choices ? h("select", { name }, options(choices)) : h("input", { name, type, placeholder: placeholder ?? "", step: "any" });
    return h("label", {}, `${label} `, field);
  }

  #changed({ name, value }) {
    this.filters = { ...this.filters, [name]: value };
    if (name === "set") for (const key of Object.keys(this.filters)) if (key.startsWith("group.")) delete this.filters[key];
    if (name === "state") this.order = this.about.orders[value] ?? null;
    this.#drawFields();
    clearTimeout(this.soon);
    this.soon = setTimeout(() => this.filter(), name === "text" ? 250 : 0);
  }

  async filter(page = 0) {
    const search = ++this.searches;
    const tests = this.about.fields(this.filters).filter(({ name, test }) => test && this.filters[name]);
    let matches = this.store.where((i) => tests.every(({ name, test }) => test(i, this.filters[name])));
    const text = (this.filters.text ?? "").trim();
    if (text) {
      const among = matches;
      matches = [];
      for await (const [share, hits] of this.store.search(text, among)) {
        if (search !== this.searches) return;
        matches.push(...hits);
        if (share === 1) break;
        if (hits.length) this.#order([...matches]); // what is found so far
        this.found.textContent = `Searching: ${Math.round(100 * share)} %, ${counted(matches.length)} found`;
        await new Promise((resume) => setTimeout(resume)); // let the page breathe
      }
    }
    if (search !== this.searches) return;
    this.page = page;
    this.#order(matches);
  }

  // ---- the list

  #sortBy(key) {
    this.order = nextOrder(this.order, key, false);
    this.page = 0;
    this.#order(this.shown);
  }

  #order(places) {
    const { key, descending } = this.order ?? {};
    this.shown = places.sort((a, b) => (key ? compare(this.about.value(key, a), this.about.value(key, b), descending) : 0) || a - b);
    this.groups = this.filters.by ? Map.groupBy(this.shown, (i) => this.about.groupOf(i).key) : null;
    if (this.groups) this.shown = [...this.groups.values()].flat();
    this.page = Math.min(this.page, this.pages - 1);
    this.draw();
  }

  get pages() {
    return Math.max(1, Math.ceil((this.groups?.size ?? this.shown.length) / PAGE_SIZE));
  }

  draw() {
    this.drawn = true;
    const { many } = this.about;
    const [count, all] = [counted(this.shown.length), counted(this.store.size)];
    this.found.textContent = count === all ? `${all} ${many}` : `${count} of ${all} ${many}`;
    if (this.groups) this.found.textContent += ` in ${counted(this.groups.size)} groups`;
    if (!this.shown.length) this.found.textContent = this.store.size ? `None of ${all} ${many} matches these filters.` : `There are no ${many} yet.`;
    const turn = (step, text, name) => button(text, () => this.#turn(step), { ariaLabel: name, disabled: step < 0 ? this.page === 0 : this.page === this.pages - 1 });
    this.turns.replaceChildren(turn(-1, "←", "Previous page"), `${this.page + 1} / ${this.pages}`, turn(1, "→", "Next page"));
    this.turns.hidden = this.pages === 1;
    const start = this.page * PAGE_SIZE;
    const rows = this.groups
      ? [...this.groups].slice(start, start + PAGE_SIZE).flatMap(([key, members]) => this.#groupRows(key, members))
      : this.shown.slice(start, start + PAGE_SIZE).map((i) => this.#row(i));
    this.body.replaceChildren(...rows);
    for (const head of this.heads.cells) head.ariaSort = ariaSort(this.order, head.dataset.key);
    this.#mark();
    this.#remember();
  }

  #row(i) {
    const row = h("tr", {}, this.#cells(this.about.columns, this.about.cells(i)));
    row.dataset.place = i;
    return row;
  }

  #cells(columns, cells) {
    return columns.map((column) => h("td", { className: columnClass(column) }, cells[column.key]));
  }

  #groupRows(key, members) {
    const open = this.unfolded.has(key);
    const { cells } = this.about.groupOf(members[0]);
    const [first, ...others] = this.about.columns;
    const texts = cells(members);
    const fold = button(texts[first.key], () => this.#fold(key, !open), { ariaExpanded: String(open), className: "opener" });
    fold.dataset.group = key;
    const head = h("tr", { className: "group" }, h("th", { scope: "row", className: first.key }, fold), this.#cells(others, texts));
    return [head, ...(open ? members.map((i) => this.#row(i)) : [])];
  }

  // Opens or closes a group; its head keeps the focus.
  #fold(key, open) {
    if (open) this.unfolded.add(key);
    else this.unfolded.delete(key);
    this.draw();
    [...this.body.querySelectorAll("[data-group]")].find(({ dataset }) => dataset.group === key)?.focus({ preventScroll: true });
  }

  // In a list of groups the arrow keys move the focus over the rows; right and left open and close a group.
  #keyInGroups(event) {
    const stops = [...this.body.rows].map((row) => row.querySelector("button, a"));
    const at = stops.findIndex((stop) => stop.closest("tr").contains(document.activeElement));
    const { group } = stops[at]?.dataset ?? {};
    const way = { ArrowRight: true, ArrowLeft: false }[event.key];
    if (group !== undefined && way !== undefined) this.#fold(group, way);
    else if (way === false) stops.slice(0, at).findLast(({ dataset }) => dataset.group !== undefined)?.focus(); // to the head of its group
    else if (way === undefined) stops[Math.max(0, Math.min(stops.length - 1, at + MOVES[event.key]))]?.focus();
  }

  #turn(step) {
    this.page = Math.min(this.pages - 1, Math.max(0, this.page + step));
    this.draw();
    this.listing.scrollTop = 0;
  }

  #mark() {
    for (const row of this.body.rows) row.ariaCurrent = Number(row.dataset.place) === this.opened ? "true" : null;
  }

  // Takes in new entries. Open entry, filters, page, focus and scroll stay; a text is not searched again.
  async grown() {
    const name = this.openName;
    const focused = this.body.contains(document.activeElement) ? document.activeElement.closest("tr")?.querySelector("a")?.hash : null;
    if (name !== undefined) this.opened = this.store.findName(name);
    this.#drawFields();
    if (!(this.filters.text ?? "").trim()) await this.filter(this.page);
    if (focused) [...this.body.querySelectorAll("a")].find((link) => link.hash === focused)?.focus({ preventScroll: true });
  }

  // ---- the open entry

  async open(i) {
    this.opened = i;
    this.openName = this.store.name(i);
    const group = this.groups && this.about.groupOf(i).key;
    const place = Math.floor((this.groups ? [...this.groups.keys()].indexOf(group) : this.shown.indexOf(i)) / PAGE_SIZE);
    const folded = this.groups?.has(group) && !this.unfolded.has(group);
    if (folded) this.unfolded.add(group);
    if (place >= 0 && (folded || place !== this.page)) {
      this.page = place;
      this.draw();
    }
    document.body.classList.add("open"); // must come first: it decides where the list scrolls
    this.#mark();
    this.body.querySelector("tr[aria-current]")?.scrollIntoView({ block: "nearest" });
    const opening = this.pane.hidden;
    if (opening) this.pane.replaceChildren(small("Loading ..."));
    this.pane.hidden = false;
    let entry;
    try {
      entry = await this.about.open(i);
    } catch (error) {
      entry = { title: this.store.title(i), content: [h("p", { className: "notice" }, error.message)] };
    }
    if (this.opened !== i) return; // another one was opened meanwhile
    const bar = h(
      "div",
      { className: "bar" },
      h("h2", {}, h("a", { href: this.address(i), title: "Link to it, with this list" }, entry.title)),
      h("span", { className: "turn" }, button("←", () => this.move(-1), { ariaLabel: "Previous" }), button("→", () => this.move(1), { ariaLabel: "Next" }), button("×", () => this.close(), { ariaLabel: "Close", title: "Esc" })),
    );
    this.pane.replaceChildren(bar, ...entry.content);
    this.pane.ariaLabel = entry.title;
    this.pane.scrollTop = 0;
    this.#remember();
    if (opening && getComputedStyle(this.pane).position === "fixed") this.pane.focus(); // it covers the list
  }

  // Opens the entry before or after the open one, without a new step in the browser's history.
  move(step) {
    const place = this.shown.indexOf(this.opened);
    const i = place < 0 ? this.shown[0] : this.shown[place + step];
    if (i === undefined) return;
    if (this.opened === undefined) location.hash = this.address(i);
    else this.open(i);
  }

  close() {
    this.#hide();
    this.#remember();
  }

  #hide() {
    const row = this.body.querySelector("tr[aria-current]");
    this.opened = this.openName = undefined;
    this.pane.hidden = true;
    this.pane.replaceChildren();
    document.body.classList.remove("open");
    this.#mark();
    row?.querySelector("a")?.focus({ preventScroll: true });
  }

  // Whether the list handles this key.
  key(event, typing) {
    if (event.key === "Escape") {
      if (typing) event.target.blur();
      else if (!this.pane.hidden) this.close();
      return true;
    }
    if (typing || !(event.key in MOVES)) return false;
    if (this.pane.contains(event.target) && event.key.match(/Up|Down/)) return false; // these scroll the open entry
    if (this.groups && this.pane.hidden) this.#keyInGroups(event);
    else this.move(MOVES[event.key]);
    return true;
  }

  focusSearch() {
    this.form.elements.text?.focus();
  }
}

const columnClass = ({ key, number }) => (number ? `${key} number` : key);

// Whether a value lies at or above (below) the limit of a field. Half of the last digit shown is allowed.
const atLeast = (value, limit) => hasValue(value) && value >= Number(limit) - TOLERANCE - Math.abs(value) * 5e-5;
const atMost = (value, limit) => hasValue(value) && value <= Number(limit) + TOLERANCE + Math.abs(value) * 5e-5;

// Whether a value lies between two limits; an empty limit is none.
const within = (value, low, high) => (low === "" || atLeast(value, low)) && (high === "" || atMost(value, high));
