// The sessions of a training run, or the samples of an evaluation, as a list.

// What a researcher looks for: value of the field "state" -> [name, test of a session].
const KINDS = {
  improved: ["improved by feedback", (of, i) => of.gain(i) > TOLERANCE],
  hurt: ["hurt by feedback", (of, i) => of.gain(i) !== null && of.gain(i) < -TOLERANCE],
  same: ["feedback ignored (same reward)", (of, i) => of.gain(i) !== null && Math.abs(of.gain(i)) <= TOLERANCE && !of.best(i)],
  kept: ["draft already best (same reward)", (of, i) => of.gain(i) !== null && Math.abs(of.gain(i)) <= TOLERANCE && of.best(i)],
  moved: ["refined answer changed", (of, i) => of.get("followed", i) > 0],
  landed: ["refined answer changed to the right one", (of, i) => of.get("followed", i) === 2],
  right: ["draft right", (of, i) => of.get("draft", i) !== null && of.best(i)],
  wrong: ["draft not right", (of, i) => of.get("draft", i) !== null && !of.best(i)],
  redacted: ["feedback redacted", (of, i) => of.get("redactions", i) > 0],
  disagree: ["judges disagree", (of, i) => of.get("disagree", i) === 1],
  unrefined: ["without a refined episode", (of, i) => of.get("refined", i) === null],
  failed: ["failed", (of, i) => of.get("cause", i) !== null],
  contentless: ["empty response", (of, i) => of.get("contentless", i) === 1],
  live: ["of the running step", (of, i) => of.get("live", i) === 1],
  text: ["with a text to read", (of, i) => of.has(i)],
};
const OF_EVALUATIONS = ["right", "wrong", "disagree", "failed", "contentless"];
// The order in which such a list is shown first.
const KIND_ORDERS = { improved: { key: "gain", descending: true }, hurt: { key: "gain", descending: false } };
const TRAINING_COLUMNS = [
  { key: "step", title: "step", number: true },
  { key: "set", title: "task" },
  { key: "question", title: "question" },
  { key: "reward", title: "draft → refined", number: true },
  { key: "gain", title: "gain", number: true },
  { key: "advantage", title: "advantage", number: true },
  { key: "state", title: "state" },
  { key: "seconds", title: "time", number: true },
];
const SAMPLE_COLUMNS = [
  { key: "set", title: "set" },
  { key: "number", title: "row", number: true },
  { key: "reward", title: "score", number: true },
  { key: "question", title: "question" },
  { key: "target", title: "expected" },
  { key: "given", title: "given" },
  { key: "state", title: "ended" },
  { key: "cost", title: "cost", number: true },
  { key: "seconds", title: "time", number: true },
];

class SessionsView {
  constructor(app, run) {
    this.run = run;
    const evaluation = run.kind === "evaluation";
    const { store } = run;
    this.list = new List(store, placeOf(run.id, "sessions"), {
      many: evaluation ? "samples" : "sessions",
      columns: evaluation ? SAMPLE_COLUMNS : TRAINING_COLUMNS,
      orders: KIND_ORDERS,
      fields: (filters) => [...this.#fields(evaluation), ...(evaluation ? this.#groups(filters.set) : [])],
      cells: (i) => (evaluation ? this.#sampleCells(i) : this.#cells(i)),
      value: (key, i) => this.#value(key, i),
      open: async (i) => ({ title: `${store.title(i)}${placeInGroup(store, i)}`, content: drawSession(await store.line(i), run, i) }),
      groupOf: (i) => ({ key: `${store.get("split", i)} ${store.get("step", i)} ${store.get("prompt", i)}`, cells: (members) => this.#groupCells(members) }),
    });
    this.section = this.list.section;
  }

  async show([name], query) {
    await this.run.sessions;
    if (query.get("theme")) this.themes = await this.run.part("themes");
    await this.list.follow(name, query);
  }

  refresh() {
    return this.list.grown();
  }

  key(event, typing) {
    return this.list.key(event, typing);
  }

  #fields(evaluation) {
    const { store } = this.run;
    const sets = [...new Set(store.where(() => true).map((i) => store.set(i)))].sort();
    const states = evaluation ? OF_EVALUATIONS : Object.keys(KINDS);
    const causes = store.distinct("cause").map((cause) => [`cause:${cause}`, `failed: ${words(cause)}`]);
    const range = (name, label, from, value) => [
      { name: `${name}_from`, label: `${label} from`, type: "number", from, test: (i, limit) => atLeast(value(i), limit) },
      { name: `${name}_to`, label: "to", type: "number", from, test: (i, limit) => atMost(value(i), limit) },
    ];
    const state = (i, value) => (value.startsWith("cause:") ? store.get("cause", i) === value.slice(6) : KINDS[value]?.[1](store, i) ?? true);
    const shared = [
      { name: "text", label: "Search", type: "search", placeholder: "in all texts" },
      { name: "set", label: evaluation ? "Set" : "Task", choices: [["", "all"], ...sets.map((one) => [one, one])], test: (i, value) => store.set(i) === value },
      { name: "state", label: "Show", choices: [["", "all"], ...states.map((one) => [one, KINDS[one][0]]), ...causes], test: state },
    ];
    if (evaluation) return [...shared, ...range("draft", "Score", "Score", (i) => (store.get("draft", i) === null ? null : 100 * store.get("draft", i)))];
    return [
      ...shared,
      { name: "split", label: "Part", choices: [["", "all"], ["step", "training"], ["val", "validation"]], test: (i, value) => store.get("split", i) === value },
      { name: "by", label: "List", choices: [["", "sessions"], ["group", "groups"]] },
      ...this.#theme(),
      ...range("step", "Step", "Steps", (i) => store.get("step", i)),
      ...range("draft", "Draft", "Rewards", (i) => store.get("draft", i)),
      ...range("refined", "Refined", "Rewards", (i) => store.get("refined", i)),
      ...range("gain", "Gain", "Rewards", (i) => store.gain(i)),
    ];
  }

  // What the feedback says (feedback.js), once a link has asked for it.
  #theme() {
    const { sentences, themes } = this.themes ?? { sentences: [], themes: [] };
    const ids = new Map([...sentences, ...themes].map((one) => [one.text, new Set(one.ids)]));
    const choices = [["", "all"], ...[...ids.keys()].map((text) => [text, text.slice(0, 60)])];
    return ids.size ? [{ name: "theme", label: "Feedback says", choices, test: (i, text) => ids.get(text)?.has(this.run.store.get("id", i)) ?? false }] : [];
  }

  // A choice for each kind of groups that the chosen set has.
  #groups(set) {
    const { store, overview } = this.run;
    const kinds = new Map();
    for (const i of set ? store.where((k) => store.set(k) === set) : []) {
      for (const [kind, value] of Object.entries(store.get("groups", i))) kinds.set(kind, (kinds.get(kind) ?? new Set()).add(value));
    }
    return [...kinds].map(([kind, values]) => ({
      name: `group.${kind}`,
      label: kindName(overview, kind),
      choices: [["", "all"], ...[...values].sort((a, b) => compare(a, b)).map((value) => [value, valueName(overview, kind, value)])],
      test: (i, value) => store.get("groups", i)[kind] === value,
    }));
  }

  #value(key, i) {
    const { store } = this.run;
    if (key === "gain") return store.gain(i);
    if (key === "set") return store.set(i);
    if (key === "reward") return store.get("draft", i);
    if (key === "advantage") return store.get("advantage_draft", i);
    return key === "state" ? stateOf(store, i) : store.get(key, i);
  }

  #cells(i) {
    const { store } = this.run;
    const number = (key) => store.get(key, i);
    const gain = store.gain(i);
    return {
      step: h("a", { href: this.list.address(i) }, number("split") === "val" ? `${number("step")} val` : String(number("step"))),
      ...this.#shared(i, number("draft"), number("refined"), rewardText),
      gain: h("span", { className: bySign(gain, "won", "lost", "") }, signedReward(gain)),
      advantage: `${rewardText(number("advantage_draft"))} / ${rewardText(number("advantage_refined"))}`,
      state: h("bdi", { className: number("cause") ? "failed" : "" }, stateOf(store, i)),
      seconds: secondsText(number("seconds")),
    };
  }

  // The cells that a session and a group share.
  #shared(i, draft, refined, text) {
    const { store } = this.run;
    const question = store.get("question", i);
    return {
      set: h("bdi", {}, store.set(i)),
      question: h("bdi", { title: question ?? "" }, question),
      reward: [rewardBar(draft, refined, store.range(i)), ` ${text(draft)} → ${text(refined)}`],
    };
  }

  #sampleCells(i) {
    const { store, overview } = this.run;
    const set = overview.sets[store.set(i)];
    const mark = store.get("target", i) === null ? null : markOf(rightness(store.get("draft", i), set));
    const unread = store.get("target", i) !== null && store.get("given", i) === null;
    return {
      set: h("a", { href: this.list.address(i) }, store.set(i)),
      number: `${store.get("number", i)}${store.get("sample", i) ? `.${store.get("sample", i)}` : ""}`,
      reward: scoreText(store.get("draft", i)),
      question: h("bdi", { title: store.get("question", i) ?? "" }, store.get("question", i)),
      target: h("bdi", {}, store.get("target", i) ?? ""),
      given: [mark, unread ? h("em", {}, "not readable") : h("bdi", {}, store.get("given", i) ?? "")],
      state: h("span", { className: store.get("cause", i) ? "failed" : "" }, words(store.get("cause", i) ?? store.get("ended", i) ?? "")),
      cost: costText(store.get("cost", i)),
      seconds: secondsText(store.get("seconds", i)),
    };
  }

  // The head of a group: number of its sessions, and means over those that have a value.
  #groupCells(members) {
    const { store } = this.run;
    const [first] = members;
    const mean = (of) => momentsOf(members.map(of)).mean;
    const [draft, refined] = ["draft", "refined"].map((key) => mean((i) => store.get(key, i)));
    const shared = this.#shared(first, draft, refined, meanText);
    return {
      ...shared,
      step: `${store.get("step", first)}${store.get("split", first) === "val" ? " val" : ""}`,
      question: [h("b", {}, `${counted(members.length)} × `), shared.question],
      gain: signedMean(mean((i) => store.gain(i))),
      state: h("a", { href: `#${placeOf(this.run.id, "group", store.name(first))}` }, "group"),
      seconds: secondsText(mean((i) => store.get("seconds", i))),
    };
  }
}

// Which session of its group it is.
function placeInGroup(store, i) {
  const members = store.groupOf(i);
  return members.length > 1 ? `, session ${members.indexOf(i) + 1}` : "";
}

function stateOf(store, i) {
  const notes = { live: "running", disagree: "judges disagree", redactions: "redacted" };
  return [words(store.get("cause", i) ?? ""), ...Object.keys(notes).map((key) => store.get(key, i) && notes[key])].filter(Boolean).join(", ");
}

// Draft and refined reward as a small bar: from a ring to a dot, on 0 to 1 and the range of the task's rewards.
function rewardBar(draft, refined, range) {
  if (!hasValue(draft)) return null;
  const x = scaleOf([Math.min(0, range[0]), Math.max(1, range[1])], 5, 55);
  const kind = bySign(hasValue(refined) ? refined - draft : 0, "better", "worse", "same");
  return svg(
    "svg",
    { class: `reward-bar ${kind}`, width: 60, height: 10, "aria-hidden": "true" },
    svg("line", { class: "axis", x1: 5, x2: 55, y1: 5, y2: 5 }),
    hasValue(refined) ? svg("line", { class: "way", x1: px(x(draft)), x2: px(x(refined)), y1: 5, y2: 5 }) : null,
    svg("circle", { class: "from", cx: px(x(draft)), cy: 5, r: 3 }),
    hasValue(refined) ? svg("circle", { class: "to", cx: px(x(refined)), cy: 5, r: 3.4 }) : null,
  );
}

// ---- groups of an evaluation in words

const kindName = (overview, kind) => overview.names?.kinds[kind] ?? kind;
const valueName = (overview, kind, value) => overview.names?.values[kind]?.[value] ?? words(value);
