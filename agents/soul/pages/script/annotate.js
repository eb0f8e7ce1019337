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

  async poll() {} // a label is being thought about: nothing changes by itself

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
    this.#draw(await this.source.get(addressOf("annotate", "item", number), { person: this.person }));
  }

  async #label(value) {
    try {
      await this.source.post("annotate/label", { person: this.person, item: this.item.item, value });
      this.before = this.item.item;
      await this.#next();
    } catch (error) {
      notify(error.message);
    }
  }

  #draw(item) {
    this.item = item;
    const { progress } = this.about;
    const own = Object.entries(progress).find(([person]) => person === this.person)?.[1];
    const undo = this.before ? button("Back to the last one (u)", () => this.#open(this.before), { className: "link" }) : null;
    this.section.replaceChildren(
      h("header", {}, h("p", { className: "kind" }, `${this.person}: ${progressText(own)} `, undo), h("h1", {}, item ? `Item ${item.item}` : "All items are labelled. Thank you.")),
      ...(item ? this.#item(item) : []),
      agreementOf(this.about),
    );
    scrollTo(0, 0);
  }

  #item({ context, texts, dimensions, label }) {
    const pair = texts.length === 2;
    const columns = texts.map((messages, k) => h("section", { ariaLabel: pair ? "AB"[k] : "text" }, pair ? h("h3", {}, "AB"[k]) : null, turnsOf(messages)));
    const choices = pair
      ? ["A", "B", "tie"].map((value) => button(value === "tie" ? "Cannot tell (t)" : `${value} (${value.toLowerCase()})`, () => this.#label(value), { className: `button${label === value ? " primary" : ""}` }))
      : this.#ratings(dimensions, label);
    return [
      context.length ? h("details", { className: "seat-view" }, h("summary", {}, "What came before"), turnsOf(context)) : "",
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
}

const progressText = (one) => (one ? `${counted(one.done)} of ${counted(one.of)}` : "no item yet");

function agreementOf({ progress, agreement }) {
  const people = Object.entries(progress).map(([person, one]) => [h("bdi", {}, person), progressText(one)]);
  const numbers = Object.entries(agreement).map(([name, one]) => [name, cell(one.value, meanText(one.value)), one.interval ? one.interval.map(meanText).join(" to ") : NONE, counted(one.n)]);
  const table = numbers.length ? dataTable([{ title: "measure", text: true }, { title: "value" }, { title: "95 %" }, { title: "n" }], numbers, { caption: "Agreement", name: "agreement" }) : null;
  return h("details", { className: "settings" }, h("summary", {}, "Progress and agreement"), h("div", { className: "parts" }, people.length ? smallTable("Progress", ["person", "done"], people) : small("Nobody has labelled anything yet."), table));
}
