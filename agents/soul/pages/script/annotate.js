// Annotation: a person reads blinded texts in an order of their own, labels them by keys or buttons, and sees the agreement.

class AnnotateView {
  constructor(app) {
    this.source = app.source;
    this.section = h("section", { className: "annotate", ariaLabel: "Annotation" });
  }

  async show([person]) {
    this.person = person ?? "";
    if (!this.person) return this.#askName();
    await this.#next();
  }

  key(event, typing) {
    if (typing || !this.item) return false;
    if (event.key === "u" && this.before) return this.#open(this.before), true;
    const choice = { a: "A", b: "B", t: "tie" }[event.key.toLowerCase()];
    if (!choice || Object.keys(this.item.dimensions).length) return false;
    this.#label(choice);
    return true;
  }

  #askName() {
    const name = h("input", { name: "person", required: true, maxLength: 40, pattern: "[\\p{L}\\p{N} ._\\-]+", ariaLabel: "your name" });
    const form = h("form", { className: "choices", on: { submit: (event) => (event.preventDefault(), go(placeOf("annotate", name.value.trim()))) } }, h("label", {}, "Your name ", name), h("button", { className: "button primary" }, "Begin"));
    this.item = null;
    this.section.replaceChildren(h("header", {}, h("h1", {}, "Annotation"), h("p", { className: "lead" }, "You will read texts without knowing who wrote them. Stop whenever you like: under the same name you go on where you were.")), form);
    name.focus();
  }

  async #next() {
    this.about = await this.source.get("annotate/about", { person: this.person });
    this.#draw(this.about.next);
  }

  async #open(number) {
    this.#draw(await this.source.get("annotate/item", { person: this.person, item: number }));
  }

  #label(value) {
    return tried(async () => {
      await this.source.post("annotate/label", { person: this.person, item: this.item.item, value });
      this.before = this.item.item;
      await this.#next();
    });
  }

  #draw(item) {
    this.item = item;
    const { items, people } = this.about;
    const undo = this.before ? button("Back to the last one (u)", () => this.#open(this.before), { className: "link" }) : null;
    this.section.replaceChildren(
      h("header", {}, h("p", { className: "kind" }, `${this.person}: ${counted(people[this.person])} of ${counted(items)} items `, undo), h("h1", {}, item ? `Item ${item.item}` : "All items are labelled. Thank you.")),
      ...(item ? this.#item(item) : []),
      this.#agreement(),
    );
    scrollTo(0, 0);
  }

  #item({ context, texts, dimensions, label }) {
    const pair = texts.length === 2;
    const columns = texts.map((messages, k) => h("section", { ariaLabel: pair ? "AB"[k] : "text" }, pair ? h("h2", { className: "title" }, "AB"[k]) : null, blinded(messages)));
    const choices = pair
      ? ["A", "B", "tie"].map((value) => button(value === "tie" ? "Cannot tell (t)" : `${value} (${value.toLowerCase()})`, () => this.#label(value), { className: `button${label === value ? " primary" : ""}` }))
      : this.#ratings(dimensions, label);
    return [
      context.length ? h("details", { className: "seat-view" }, h("summary", {}, "What came before"), blinded(context)) : "",
      h("p", { className: "note" }, pair ? "Which text was more likely written by a person?" : "Rate the text on each dimension."),
      h("div", { className: pair ? "sides" : "sides one" }, columns),
      h("div", { className: "choices" }, choices),
    ];
  }

  #ratings(dimensions, label) {
    const fields = Object.entries(dimensions).map(([name, [low, high]]) => [name, h("input", { type: "number", min: low, max: high, step: "any", required: true, value: label?.[name] ?? "" }), low, high]);
    const form = h("form", { className: "choices" }, fields.map(([name, field, low, high]) => h("label", {}, `${words(name)} (${shortNumber(low)} to ${shortNumber(high)}) `, field)), h("button", { className: "button primary" }, "Save"));
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.#label(Object.fromEntries(fields.map(([name, field]) => [name, Number(field.value)])));
    });
    return form;
  }

  // How far everybody is, and how far they agree with each other and with the judge: computed when it is opened.
  #agreement() {
    const { items, people } = this.about;
    const done = Object.entries(people).map(([person, count]) => [h("bdi", {}, person), `${counted(count)} of ${counted(items)}`]);
    const numbers = h("div", { className: "parts" }, done.length ? smallTable("Progress", ["person", "labelled"], done) : small("Nobody has labelled anything yet."));
    const details = h("details", { className: "settings" }, h("summary", {}, "Progress and agreement"), numbers);
    details.addEventListener("toggle", async () => {
      if (!details.open || numbers.children.length > 1) return;
      const waiting = small("Computing ...");
      numbers.append(waiting);
      waiting.replaceWith(agreementTable(await this.source.get("annotate/agreement")));
    });
    return details;
  }
}

// Turns without the name of who wrote them: role "user" is the side that is labelled.
function blinded(messages) {
  const name = { user: "the writer", assistant: "the other side", system: "setting" };
  return turnList(messages.map(({ role, content }) => sceneTurn({ speaker: name[role], text: content, own: role === "user" })));
}

function agreementTable({ metrics }) {
  const rows = Object.entries(metrics).flatMap(([name, one]) => {
    const measures = { ...one.measures, "alpha of the people": { value: one.human_alpha, n: one.n } };
    return Object.entries(measures).filter(([, { value }]) => hasValue(value)).map(([measure, value]) => [`${name}: ${measure}`, cell(value.value, meanText(value.value)), hasValue(value.low) ? `${meanText(value.low)} to ${meanText(value.high)}` : NONE, counted(value.n)]);
  });
  return rows.length ? dataTable([{ title: "people and judge", text: true }, { title: "value" }, { title: "95 %" }, { title: "n" }], rows, { caption: "Agreement" }) : small("There are too few labels.");
}
