// Browses a list: the form of filters, the list's heads and pages, and the open entry beside it. A subclass defines the
// choices of the field "state" (`states`) and the content of an open entry (`pane`).

const pane = document.getElementById("sample");

class Browser {
  place = "samples"; // of the list in the address

  constructor(store, list) {
    this.store = store;
    this.list = list;
    this.following = true; // until the page shows what its first address asks for
    this.list.drawn = () => this.remember();
    this.setOptions();
    this.drawHeads();
    form.addEventListener("input", (event) => this.changed(event));
    form.addEventListener("submit", (event) => event.preventDefault());
    form.addEventListener("reset", (event) => {
      event.preventDefault();
      this.show(new URLSearchParams());
    });
    document.getElementById("page-back").addEventListener("click", () => this.turn(-1));
    document.getElementById("page-on").addEventListener("click", () => this.turn(1));
    rowsOfList.addEventListener("click", (event) => {
      const row = event.target.closest("tr");
      if (row && !event.target.closest("a")) location.hash = this.address(Number(row.dataset.place));
    });
  }

  // ---- the address

  // The link to a sample within this list, or to the list.
  address(i) {
    const query = queryOf(this.list);
    if (i === undefined) return linkTo(this.place, query);
    query.delete("page"); // the list turns to the page of the sample by itself
    return linkTo(this.store.link(i), query);
  }

  // Writes the current view to the address, except while the page is following an address.
  remember() {
    document.getElementById("to-samples").href = this.address();
    if (!this.following && document.body.dataset.view === "samples") history.replaceState(null, "", this.address(this.list.open));
  }

  // ---- filters

  setOptions() {
    form.elements.set.replaceChildren(...options([["", "all"], ...known.sets.map(({ name }) => [name, name])]));
    form.elements.state.replaceChildren(...options(this.states()));
  }

  // A choice for each kind of groups that the chosen set has.
  drawGroups() {
    const { index } = this.store;
    const kinds = new Map();
    for (let i = 0; i < this.store.size && this.list.filters.set !== ""; i++) {
      if (this.store.set(i) !== this.list.filters.set) continue;
      for (const [kind, value] of Object.entries(index.groups[i])) {
        if (!kinds.has(kind)) kinds.set(kind, new Set());
        kinds.get(kind).add(value);
      }
    }
    const natural = (a, b) => a.localeCompare(b, "en", { numeric: true });
    const choices = [...kinds].map(([kind, values]) => {
      const select = h("select", {}, options([["", "all"], ...[...values].sort(natural).map((value) => [value, value])]));
      select.dataset.kind = kind;
      select.value = this.list.filters.groups[kind] ?? "";
      return h("label", {}, `${kindName(kind)} `, select);
    });
    document.getElementById("groups").replaceChildren(...choices);
  }

  changed(event) {
    const { filters } = this.list;
    const { dataset, name, value } = event.target;
    if (dataset.kind !== undefined) filters.groups[dataset.kind] = value;
    else filters[name] = value;
    if (name === "set") {
      filters.groups = {};
      this.drawGroups();
    }
    clearTimeout(this.soon);
    this.soon = setTimeout(() => this.list.filter(), name === "text" ? 250 : 0);
  }

  // Shows exactly what a query asks for (link.js).
  show(query) {
    const { filters, order, page } = choiceOf(query);
    this.list.filters = filters;
    this.list.order = this.list.columns.some(({ key }) => key === order.key) ? order : this.list.usual;
    for (const name of FIELDS) form.elements[name].value = filters[name];
    this.drawGroups();
    return this.list.filter(page);
  }

  // ---- the list

  drawHeads() {
    const heads = this.list.columns.map(({ key, title, sorts }) => {
      if (sorts === false) return h("th", { scope: "col", className: key }, title);
      const button = h("button", { type: "button" }, title);
      button.addEventListener("click", () => this.sortBy(key));
      const head = h("th", { scope: "col", className: key, "aria-sort": "none" }, button);
      head.dataset.key = key;
      return head;
    });
    document.querySelector("#list thead tr").replaceChildren(...heads);
  }

  sortBy(key) {
    const { order } = this.list;
    if (order.key !== key) this.list.order = { key, descending: false };
    else this.list.order = order.descending ? { key: "", descending: false } : { key, descending: true };
    this.list.page = 0;
    this.list.sort();
  }

  turn(step) {
    this.list.page = Math.min(this.list.pages - 1, Math.max(0, this.list.page + step));
    this.list.draw();
    document.getElementById("listing").scrollTop = 0;
  }

  // ---- one sample

  async open(i) {
    const opening = pane.hidden;
    document.body.classList.add("open"); // must come first: it decides where the list scrolls
    pane.hidden = false;
    this.list.mark(i);
    const line = await this.store.line(i);
    if (this.list.open !== i) return; // another one was opened meanwhile
    const previous = h("button", { type: "button", title: "Arrow left", ariaLabel: "Previous" }, "←");
    const next = h("button", { type: "button", title: "Arrow right", ariaLabel: "Next" }, "→");
    const close = h("button", { type: "button", title: "Esc", ariaLabel: "Close" }, "×");
    previous.addEventListener("click", () => this.move(-1));
    next.addEventListener("click", () => this.move(1));
    close.addEventListener("click", () => this.close());
    const { title, content } = this.pane(line, i);
    const link = h("h2", {}, h("a", { href: this.address(i), title: "Link to it, with this list" }, title));
    const bar = h("div", { className: "bar" }, link, h("span", { className: "turn" }, previous, next, close));
    pane.replaceChildren(bar, ...content);
    pane.setAttribute("aria-label", title);
    pane.scrollTop = 0;
    if (opening) document.querySelector(".panes").scrollIntoView({ block: "nearest" }); // not below the bar
    this.remember();
    if (getComputedStyle(pane).position === "fixed") pane.focus(); // it covers the list
  }

  // Opens the sample before or after the open one, without a new step in the browser's history.
  move(step) {
    const i = this.list.neighbour(step);
    if (i === undefined) return;
    if (this.list.open === undefined) location.hash = this.address(i);
    else this.open(i);
  }

  close() {
    this.hide();
    this.remember();
  }

  hide() {
    const row = [...rowsOfList.rows].find((one) => one.hasAttribute("aria-current"));
    pane.hidden = true;
    pane.replaceChildren();
    document.body.classList.remove("open");
    this.list.mark(undefined);
    row?.querySelector("a").focus({ preventScroll: true });
  }
}
