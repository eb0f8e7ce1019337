// View (e): one row over the steps, as the paper's table 2: draft, feedback and refined answer of each step in which the row
// was played, and its mean rewards.

const STEPS_FIRST = 8; // steps that are shown at first, spread over the training

class RowView {
  constructor() {
    this.section = document.getElementById("row-view");
  }

  async show(run, [name], query) {
    const { store } = run;
    const first = store.findName(name);
    if (first === undefined) throw new Error(`there is no session ${name} in this run`);
    this.name = name;
    this.query = query;
    this.state = `${store.revision} ${store.size}`;
    this.steps = stepsOfRow(store, first);
    this.texts = stepsOfRow(store, first, (i) => store.has(i));
    this.order = Math.max(0, (Number.parseInt(query.get("of"), 10) || 1) - 1);
    this.all = query.get("all") === "1" || this.texts.length <= STEPS_FIRST;
    const title = `${store.set(first)}, row ${store.number("number", first)} over the steps`;
    const kind = `${store.text("split", first) === "val" ? "validation" : "training"} · file ${store.text("file", first) || "unknown"} · played in ${counted(this.steps.length)} steps`;
    this.table = h("div", {});
    this.section.replaceChildren(
      h("header", {}, h("p", { className: "kind" }, h("bdi", {}, kind)), h("h1", {}, h("bdi", {}, title))),
      this.#chart(run),
      this.#choice(run),
      this.table,
    );
    await this.#fill(run);
  }

  refresh(run) {
    if (`${run.store.revision} ${run.store.size}` !== this.state) return this.show(run, [this.name], this.query);
  }

  #chart(run) {
    const { store } = run;
    const lines = ["draft", "refined"].map((kind) => {
      const moments = this.steps.map(({ members }) => momentsOf(members.map((i) => store.number(kind, i))));
      return { name: kind, kind, mean: moments.map(({ mean }) => mean), n: moments.map(({ count }) => count) };
    });
    const chart = new CurveChart("Mean reward of the row's group", (step) =>
      go(placeOf(run.id, "group", store.name(this.steps.find((one) => one.step === step).members[0]))),
    );
    chart.update({ steps: this.steps.map(({ step }) => step), lines: lines.filter(({ mean }) => mean.some(hasValue)) });
    return h("div", { className: "charts" }, chart.element);
  }

  #choice(run) {
    const largest = Math.max(...this.steps.map(({ members }) => members.length));
    const follow = (values) =>
      go(placeOf(run.id, "row", this.name), { of: this.order ? this.order + 1 : "", all: this.all ? "1" : "", ...values });
    const which = h("select", {}, options(Array.from({ length: largest }, (_, k) => [String(k + 1), `session ${k + 1} of the group`])));
    which.value = String(this.order + 1);
    which.addEventListener("change", () => follow({ of: which.value === "1" ? "" : which.value }));
    const more = h("button", { type: "button", className: "link" }, `Show all ${counted(this.texts.length)} steps`);
    more.addEventListener("click", () => follow({ all: "1" }));
    return h("div", { className: "choices" }, h("label", {}, "Of each step ", which), this.all ? null : more);
  }

  async #fill(run) {
    const steps = this.texts;
    const count = steps.length;
    const shown = this.all
      ? steps
      : Array.from({ length: STEPS_FIRST }, (_, k) => steps[Math.round((k * (count - 1)) / (STEPS_FIRST - 1))]);
    this.table.replaceChildren(h("p", { className: "small" }, "Loading the records ..."));
    const lines = await Promise.all(shown.map(({ members }) => run.store.line(members[Math.min(this.order, members.length - 1)])));
    if (this.texts !== steps) return; // another row was opened meanwhile
    this.table.replaceChildren(...shown.map((one, k) => this.#step(run, one, lines[k])));
  }

  #step(run, { step, members }, line) {
    const i = members[Math.min(this.order, members.length - 1)];
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
    store.text("split", first),
    store.set(first),
    store.text("file", first),
    store.number("number", first),
  ];
  const byStep = new Map();
  for (const i of store.withText("task", task)) {
    if (store.number("number", i) !== number || store.text("file", i) !== file || store.text("split", i) !== split || !test(i)) continue;
    const step = store.number("step", i);
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
