// A review of training files: what was built, what was left out and why, and marks that the next build follows.

class ReviewView {
  constructor(app) {
    this.source = app.source;
    this.section = h("section", { className: "review", ariaLabel: "Review of data" });
  }

  async show([file], query) {
    const { folder, files } = await this.source.get("review/about");
    const one = files.find((each) => each.file === file);
    if (!one) return this.#overview(folder, files);
    this.choice = { reason: query.get("reason") ?? "", text: query.get("text") ?? "", first: Number(query.get("first") ?? 0) };
    await this.#rows(one);
  }

  #overview(folder, files) {
    const sum = (counts) => sumOf(Object.values(counts ?? {}));
    const rows = files.map(({ file, rows: count, left_out, marks, card }) => {
      const all = Math.max(sum(card?.left_out), sum(left_out));
      return [h("a", { href: `#${placeOf("review", file)}` }, file), card?.task ?? "", counted(count), counted(all), card ? counted(card.contamination.rows) : NONE, `${counted(marks.keep)} / ${counted(marks.drop)}`];
    });
    const columns = [{ title: "file", text: true }, { title: "task", text: true }, { title: "rows" }, { title: "left out" }, { title: "evaluated rows checked" }, { title: "marked keep / drop" }];
    this.section.replaceChildren(h("header", {}, h("h1", {}, "Review of training data"), h("p", { className: "kind" }, folder)), rows.length ? dataTable(columns, rows, { name: "training files" }) : h("p", { className: "empty" }, "There is no training file in this folder. Build one: python -m data.train."));
  }

  async #rows(one) {
    const { reason, text, first } = this.choice;
    const { total, rows } = await this.source.get(addressOf("review", "rows", one.file), this.choice);
    const follow = (values) => go(placeOf("review", one.file), { ...this.choice, first: "", ...values });
    const reasons = Object.entries(one.left_out).map(([name, count]) => [name, `${name} (${counted(count)})`]);
    const search = h("input", { type: "search", value: text, placeholder: "in the rows" });
    const jump = h("input", { type: "number", min: 1, max: total, value: first + 1 });
    const page = (step) => button(step < 0 ? "←" : "→", () => follow({ first: Math.max(0, first + step * 50) }), { ariaLabel: step < 0 ? "Previous page" : "Next page", disabled: step < 0 ? first === 0 : first + rows.length >= total });
    this.section.replaceChildren(
      h("header", {}, h("p", { className: "kind" }, h("a", { href: "#review" }, "all files")), h("h1", {}, one.file)),
      this.#counts(one),
      h(
        "div",
        { className: "choices" },
        choice("reason", "Rows", [["", `built (${counted(one.rows)})`], ...reasons], reason, (value) => follow({ reason: value })),
        labelled("Search", search, (value) => follow({ text: value })),
        labelled("Jump to row", jump, (value) => follow({ first: Math.max(0, Number(value) - 1) })),
      ),
      h("div", { className: "pager" }, rows.length ? `${counted(first + 1)} to ${counted(first + rows.length)} of ${counted(total)}` : "No row matches.", h("span", { className: "turn" }, page(-1), page(1))),
      ...rows.map((row) => this.#row(one.file, row)),
    );
  }

  // Why items were left out; those of a reason that is a choice in "Rows" can be read.
  #counts({ left_out, card }) {
    const rows = Object.entries({ ...left_out, ...card?.left_out }).map(([reason, count]) => [reason, counted(count)]);
    return rows.length ? smallTable("Left out", ["reason", "items"], rows) : "";
  }

  #row(file, { row, reason, source, result, may_keep, mark }) {
    const marks = h("span", { className: "turn" });
    const draw = (now) => marks.replaceChildren(...["keep", "drop"].map((name) => button(name, () => set(name), { className: `button${now === name ? " primary" : ""}`, disabled: name === "keep" && !may_keep, ariaPressed: String(now === name) })));
    const set = (name) => tried(async () => {
      await this.source.post("review/mark", { file, row, mark: name });
      draw(name);
    });
    draw(mark);
    const titles = [reason ? `left out: ${reason}` : "built", may_keep ? "" : ", must stay out"].join("");
    return h("section", { className: "step-line record" }, h("div", { className: "pager" }, h("span", {}, titles, " ", h("kbd", {}, row)), marks), h("div", { className: "sides" }, part("Source", recordOf(source)), part("Row", recordOf(result))));
  }
}
