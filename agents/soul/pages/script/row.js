// View (e): one row over the steps, as the paper's table 2: draft, feedback and refined answer of each step in which the row
// was played, and its mean rewards.

const STEPS_FIRST = 8; // steps that are shown at first, spread over the training

class RowView {
  constructor(app, run) {
    this.app = app;
    this.run = run;
    this.section = h("section", { ariaLabel: "Row over the steps" });
  }

  async show([name], query) {
    const { run } = this;
    await run.sessions;
    const { store } = run;
    const first = store.findName(name);
    if (first === undefined) throw new Error(`there is no session ${name} in this run`);
    this.name = name;
    this.query = query;
    this.state = `${store.revision} ${store.size}`;
    this.steps = stepsOfRow(store, first);
    this.texts = stepsOfRow(store, first, (i) => store.has(i));
    this.all = query.get("all") === "1" || this.texts.length <= STEPS_FIRST;
    const title = `${store.set(first)}, row ${store.get("number", first)} over the steps`;
    const kind = `${store.get("split", first) === "val" ? "validation" : "training"} · file ${store.get("file", first) || "unknown"} · played in ${counted(this.steps.length)} steps`;
    this.table = h("div", {});
    this.section.replaceChildren(
      h("header", {}, h("p", { className: "kind" }, h("bdi", {}, kind)), h("h1", {}, h("bdi", {}, title))),
      this.#chart(run),
      this.#choice(run),
      this.table,
    );
    await this.#fill(run);
  }

  refresh() {
    const { store } = this.run;
    if (`${store.revision} ${store.size}` !== this.state) return this.show([this.name], this.query);
  }

  #chart(run) {
    const { store } = run;
    const lines = ["draft", "refined"].map((kind) => {
      const moments = this.steps.map(({ members }) => momentsOf(members.map((i) => store.get(kind, i))));
      return { name: kind, kind, mean: moments.map(({ mean }) => mean), n: moments.map(({ count }) => count) };
    });
    const chart = new CurveChart("Mean reward of the row's group", (step) =>
      go(placeOf(run.id, "group", store.name(this.steps.find((one) => one.step === step).members[0]))),
    );
    chart.update({ steps: this.steps.map(({ step }) => step), lines: lines.filter(({ mean }) => mean.some(hasValue)) });
    return h("div", { className: "charts" }, chart.element);
  }

  #choice(run) {
    const more = h("button", { type: "button", className: "link" }, `Show all ${counted(this.texts.length)} steps`);
    more.addEventListener("click", () => go(placeOf(run.id, "row", this.name), { all: "1" }));
    return h("div", { className: "choices" }, this.all ? null : more);
  }

  async #fill(run) {
    const steps = this.texts;
    const count = steps.length;
    const shown = this.all
      ? steps
      : Array.from({ length: STEPS_FIRST }, (_, k) => steps[Math.round((k * (count - 1)) / (STEPS_FIRST - 1))]);
    this.table.replaceChildren(h("p", { className: "small" }, "Loading the records ..."));
    const lines = await Promise.all(shown.map(({ members }) => run.store.line(members[0])));
    if (this.texts !== steps) return; // another row was opened meanwhile
    this.table.replaceChildren(...shown.map((one, k) => this.#step(run, one, lines[k])));
  }

  #step(run, { step, members }, line) {
    const i = members[0];
    const link = h("a", { href: `#${run.store.link(i)}` }, `Step ${step}`);
    const [draft, refined] = [lastOwnTurn(line.draft), lastOwnTurn(line.refined)];
    const changes = draft !== null && refined !== null ? changesBetween(draft, refined) : null;
    const cell = (title, reward, text, pieces, tag) =>
      h(
        "section",
        { ariaLabel: title },
        h("p", { className: "small" }, `${title} ${rewardText(reward)}`),
        text === null ? h("em", {}, "none") : h("div", { className: "said", dir: "auto" }, pieces ? drawChanges(pieces, tag) : text),
      );
    return h(
      "section",
      { className: "step-line" },
      h("h3", {}, link),
      h(
        "div",
        { className: "sides three" },
        cell("draft", line.draft.reward, draft, changes?.before, "del"),
        h(
          "section",
          { ariaLabel: "feedback" },
          h("p", { className: "small" }, "feedback"),
          line.feedback ? h("div", { className: "said", dir: "auto" }, withheldMarked(line.feedback)) : h("em", {}, "none"),
        ),
        cell("refined", line.refined?.reward, refined, changes?.after, "ins"),
      ),
    );
  }
}

// The steps in which a session's row was played, with the sessions of each.
function stepsOfRow(store, first, test = () => true) {
  const [split, task, file, number] = [
    store.get("split", first),
    store.get("task", first),
    store.get("file", first),
    store.get("number", first),
  ];
  const byStep = new Map();
  for (const i of store.where((k) => store.get("task", k) === task)) {
    if (store.get("number", i) !== number || store.get("file", i) !== file || store.get("split", i) !== split || !test(i)) continue;
    const step = store.get("step", i);
    if (!byStep.has(step)) byStep.set(step, []);
    byStep.get(step).push(i);
  }
  return [...byStep].sort(([a], [b]) => a - b).map(([step, members]) => ({ step, members }));
}

// What the policy said last, which is all it said in a task of one turn.
function lastOwnTurn(attempt) {
  const turns = Object.values(attempt?.seats ?? {})
    .flat()
    .filter((message) => !isContext(message));
  return turns.length ? turns.at(-1).content : null;
}
