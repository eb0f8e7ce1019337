// The views of what one session belongs to. View (d): its group. All drafts and refined answers of its prompt with mean and spread,
// and what the loss does with each: advantages, weights, masks.

// A view of the session that its address names, drawn again when there are other sessions.
class NamedView {
  constructor(_app, run) {
    Object.assign(this, { run, section: h("section", { ariaLabel: this.constructor.label }) });
  }

  async show([name], query) {
    await this.run.sessions;
    const { store } = this.run;
    const i = store.findName(name);
    if (i === undefined) throw new Error(`there is no session ${name} in this run`);
    Object.assign(this, { name, query, state: store.state });
    await this.draw(this.run, i);
  }

  refresh() {
    if (this.run.store.state !== this.state) return this.show([this.name], this.query);
  }
}

class GroupView extends NamedView {
  static label = "Group";

  async draw(run, first) {
    const { store } = run;
    const step = store.get("step", first);
    this.members = store.groupOf(first);
    const title = `${store.set(first)}, row ${store.get("number", first)}, step ${step}`;
    this.table = h("div", {});
    const kind = h("p", { className: "kind" }, `Group of ${counted(this.members.length)} sessions · `, rowLink(store, first));
    this.section.replaceChildren(h("header", {}, kind, h("h1", {}, h("bdi", {}, title))), this.#facts(store), this.table);
    await this.#sequences(run);
  }

  #facts(store) {
    const rows = ["draft", "refined"].map((kind) => {
      const rewards = this.members.map((i) => store.get(kind, i));
      const { mean, spread, count } = momentsOf(rewards);
      return [kind, counted(count), rewardText(mean), rewardText(spread)];
    });
    return smallTable(null, ["", "with a reward", "mean", "spread"], rows);
  }

  // The table of the members. Weights and masks are in their records, which are loaded for it.
  async #sequences(run) {
    const { store } = run;
    const { name } = this;
    const members = this.members.filter((i) => store.has(i));
    this.table.replaceChildren(small("Loading the records of the group ..."));
    const lines = await Promise.all(members.map((i) => store.line(i)));
    if (this.name !== name) return;
    const rows = lines.flatMap((line, k) => {
      const i = members[k];
      const link = h("a", { href: `#${store.link(i)}`, "aria-current": store.name(i) === name ? "true" : "false" }, `session ${k + 1}`);
      const [draft, refined] = ["draft", "refined"].map((kind) => store.get(kind, i));
      const bar = cell(null, rewardBar(draft, refined, store.range(i)));
      const head = [link, bar, rewardText(draft), rewardText(refined), signedReward(store.gain(i))];
      const why = line.draft.failure ? words(line.draft.failure.cause) : "not in the record";
      if (!line.sequences?.length) return [[...head, "none", NONE, NONE, NONE, why]];
      const seen = (one) => [words(one.kind), rewardText(one.advantage), ...[one.weight, one.distill_weight].map(weightText), one.masked ?? "trained"];
      return line.sequences.map((one, n) => [...(n ? head.map(() => "") : head), ...seen(one)]);
    });
    const seen = lines.flatMap((line) => line.sequences ?? []);
    const missing = this.members.length - members.length;
    const titles = ["session", "", "draft", "refined", "gain", "sequence", "advantage", "weight of a token", "distillation", "in the loss"];
    const columns = titles.map((title) => ({ title, text: ["session", "sequence", "in the loss"].includes(title) }));
    this.table.replaceChildren(
      seen.length ? partsOf(seen) : small("No advantage is known: the step is not trained yet."),
      missing ? small(`${NO_TEXT} ${counted(missing)} sessions of the group are not in the tables.`) : "",
      dataTable(columns, rows, { caption: "Sessions and their sequences", sorts: false }),
    );
  }
}

const weightText = (value) => (hasValue(value) ? shortNumber(value) : NONE); // of a token: far below what two digits show

// What each part of the objective saw: its sequences, the range of their advantages, and whether they give a signal.
function partsOf(sequences) {
  const kinds = [...new Set(sequences.map(({ kind }) => kind))];
  const rows = kinds.map((kind) => {
    const own = sequences.filter((one) => one.kind === kind);
    const [low, high] = [Math.min, Math.max].map((end) => end(...own.map(({ advantage }) => advantage ?? 0)));
    const learns = own.some(({ advantage, distill_weight }) => advantage || distill_weight);
    return [
      words(kind),
      counted(own.length),
      counted(own.filter(({ masked }) => !masked).length),
      low === high ? rewardText(low) : `${rewardText(low)} to ${rewardText(high)}`,
      learns ? "" : "no learning signal: all its advantages are 0",
    ];
  });
  const columns = ["sequences", "count", "trained", "advantage", ""].map((title, k) => ({ title, text: k === 0 || k === 4 }));
  return dataTable(columns, rows, { caption: "What the objective saw", sorts: false });
}

// Mean and standard deviation (of the sample) of the values that there are.
function momentsOf(values) {
  const known = values.filter(hasValue);
  if (!known.length) return { mean: null, spread: null, count: 0 };
  const mean = known.reduce((sum, value) => sum + value, 0) / known.length;
  const squares = known.reduce((sum, value) => sum + (value - mean) ** 2, 0);
  return { mean, spread: known.length > 1 ? Math.sqrt(squares / (known.length - 1)) : 0, count: known.length };
}
