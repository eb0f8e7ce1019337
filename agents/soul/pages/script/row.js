// View (e): one row over the steps, as the paper's table 2: draft, feedback and refined answer of each step in which the row
// was played, and its mean rewards.

const STEPS_FIRST = 8; // steps that are shown at first, spread over the training

class RowView extends NamedView {
  static label = "Row over the steps";

  async draw(run, first) {
    const { store } = run;
    this.steps = stepsOfRow(store, first);
    this.texts = stepsOfRow(store, first, (i) => store.has(i));
    this.all = this.query.get("all") === "1" || this.texts.length <= STEPS_FIRST;
    const title = `${store.set(first)}, row ${store.get("number", first)} over the steps`;
    const kind = `${store.get("split", first) === "val" ? "validation" : "training"} · file ${fileName(store.get("file", first))} · played in ${counted(this.steps.length)} step${this.steps.length === 1 ? "" : "s"}`;
    const all = button(`Show all ${counted(this.texts.length)} steps`, () => go(placeOf(run.id, "row", this.name), { all: "1" }), { className: "link" });
    this.table = h("div", {});
    this.asked = h("p", { className: "asked", dir: "auto" });
    this.section.replaceChildren(
      h("header", {}, h("p", { className: "kind" }, h("bdi", {}, kind)), h("h1", {}, h("bdi", {}, title)), this.asked),
      this.#chart(run),
      h("div", { className: "choices" }, this.all ? null : all),
      this.table,
    );
    await this.#fill(run);
  }

  #chart(run) {
    const { store } = run;
    const lines = ["draft", "refined"].map((kind) => {
      const moments = this.steps.map(({ members }) => momentsOf(members.map((i) => store.get(kind, i))));
      return { name: kind, kind, mean: moments.map(({ mean }) => mean), n: moments.map(({ count }) => count) };
    });
    const open = (step) => go(placeOf(run.id, "group", store.name(this.steps.find((one) => one.step === step).members[0])));
    const chart = new CurveChart("Mean reward of the row's group", open);
    chart.update({ bounds: run.overview.curves[store.set(this.steps[0].members[0])]?.range, steps: this.steps.map(({ step }) => step), lines: lines.filter(({ mean }) => mean.some(hasValue)) });
    return h("div", { className: "charts" }, chart.element);
  }

  async #fill(run) {
    const steps = this.texts;
    const spread = Array.from({ length: STEPS_FIRST }, (_, k) => steps[Math.round((k * (steps.length - 1)) / (STEPS_FIRST - 1))]);
    const shown = this.all ? steps : spread;
    if (!steps.length) return this.table.replaceChildren(small(NO_TEXT));
    this.table.replaceChildren(small("Loading the records ..."));
    const lines = await Promise.all(shown.map(({ members }) => run.store.line(members[0])));
    if (this.texts !== steps) return; // another row was opened meanwhile
    this.asked.textContent = lines[0].question ?? "";
    this.table.replaceChildren(...shown.map((one, k) => this.#step(run, one, lines[k])));
  }

  #step(run, { step, members }, line) {
    const requests = new Requests(line.feedback);
    // What the policy said last, which is all it said in a task of one turn.
    const last = (attempt) => attempt && columnTurns(attempt, {})?.findLast(({ own }) => own);
    const [draft, refined] = [line.draft, line.refined].map(last);
    if (draft && refined) markPair(draft, refined, requests);
    const cell = (title, content) =>
      h("section", { ariaLabel: `${title} of step ${step}` }, small(title), content?.length ? saidText(content) : h("em", {}, "none"));
    const cells = [
      cell(`draft ${rewardText(line.draft.reward)}`, draft?.shown ?? draft?.text),
      cell("feedback", requests.draw()),
      cell(`refined ${rewardText(line.refined?.reward)}`, refined?.shown ?? refined?.text),
    ];
    const link = h("a", { href: `#${run.store.link(members[0])}` }, `Step ${step}`);
    return h("section", { className: "step-line" }, h("h2", { className: "title" }, link), h("div", { className: "sides three" }, cells));
  }
}

// The steps in which a session's row was played, with the sessions of each.
function stepsOfRow(store, first, test = () => true) {
  const keys = ["split", "task", "file", "number"];
  const values = keys.map((key) => store.get(key, first));
  const members = store.where((i) => keys.every((key, k) => store.get(key, i) === values[k]) && test(i));
  return [...Map.groupBy(members, (i) => store.get("step", i))].sort(([a], [b]) => a - b).map(([step, of]) => ({ step, members: of }));
}
