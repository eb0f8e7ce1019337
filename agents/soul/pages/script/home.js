// Home: everything below the folder in one table, and a choice of runs to compare.

class HomeView {
  constructor(app) {
    this.app = app;
    this.section = h("section", { ariaLabel: "All runs" });
    this.chosen = new Set();
  }

  async show() {
    this.#draw(this.app.known);
  }

  async poll() {
    this.#draw(await this.app.folders());
  }

  #draw(folders) {
    const drawn = JSON.stringify([folders, [...this.chosen]]);
    if (drawn === this.drawn) return;
    this.drawn = drawn;
    const columns = [
      { title: "run", text: true },
      { title: "kind", text: true },
      { title: "state", text: true },
      { title: "steps" },
      { title: "tasks", text: true },
      { title: "changed" },
    ];
    const rows = folders.map((one) => [
      h("a", { href: one.href ?? `#${placeOf(one.id, firstView(one))}` }, one.path),
      one.kind,
      one.running ? h("b", { className: "won" }, "running") : "",
      one.kind === "training" ? counted(one.steps) : "",
      (one.tasks ?? []).join(", "),
      cell(one.modified, dateText(one.modified)),
    ]);
    const empty = h("p", { className: "empty" }, "There is no training run and no evaluation below this folder.");
    this.section.replaceChildren(h("header", {}, h("h1", {}, "Runs")), folders.length ? dataTable(columns, rows, { name: "runs" }) : empty);
  }
}
