// View (d): the group of a session. All drafts and refined answers of its prompt on one reward axis, with mean and spread,
// and what the loss does with each: advantages, weights, masks.

const STRIP = { height: 186, left: 64, right: 16, first: 50, between: 72, stacked: 5 }; // pixels

class GroupView {
  constructor(app, run) {
    this.app = app;
    this.run = run;
    this.section = h("section", { ariaLabel: "Group" });
  }

  async show([name]) {
    const { run } = this;
    await run.sessions;
    const { store } = run;
    const first = store.findName(name);
    if (first === undefined) throw new Error(`there is no session ${name} in this run`);
    this.name = name;
    const step = store.get("step", first);
    this.members = store.groupOf(first);
    this.state = `${store.revision} ${store.size}`;
    const title = `${store.set(first)}, row ${store.get("number", first)}, step ${step}`;
    this.table = h("div", {});
    this.section.replaceChildren(
      h(
        "header",
        {},
        h("p", { className: "kind" }, `Group of ${counted(this.members.length)} sessions · `, rowLink(store, first)),
        h("h1", {}, h("bdi", {}, title)),
      ),
      this.#strip(store),
      this.#facts(store),
      this.table,
    );
    await this.#sequences(run);
  }

  refresh() {
    const { store } = this.run;
    if (`${store.revision} ${store.size}` !== this.state) return this.show([this.name]);
  }

  #strip(store) {
    const kinds = ["draft", "refined"];
    const values = (kind) => this.members.map((i) => store.get(kind, i));
    const range = rangeOf(kinds.flatMap(values));
    const host = h("div", { className: "plot" });
    drawnToWidth(host, (width) => {
      const x = scaleOf(range, STRIP.left + 10, width - STRIP.right - 10);
      const rows = kinds.map((kind, k) => this.#stripRow(store, kind, STRIP.first + k * STRIP.between, x, values(kind)));
      const ticks = ticksBetween(...range, Math.max(2, Math.floor(width / 120)));
      const axis = ticks.map((value) => [
        svg("line", { class: "grid", x1: px(x(value)), x2: px(x(value)), y1: 8, y2: STRIP.height - 24 }),
        svg("text", { class: "tick", x: px(x(value)), y: STRIP.height - 8, "text-anchor": "middle" }, tickText(value)),
      ]);
      host.replaceChildren(
        svg(
          "svg",
          {
            width,
            height: STRIP.height,
            viewBox: `0 0 ${width} ${STRIP.height}`,
            role: "img",
            "aria-label": "Rewards of the group's drafts and refined answers; the table below has the numbers",
          },
          axis,
          rows,
        ),
      );
    });
    return h(
      "figure",
      { className: "chart" },
      h("figcaption", {}, h("h3", {}, "Rewards of the group; the bar is the mean and one standard deviation to each side")),
      host,
    );
  }

  // Equal rewards are stacked, so that each session has a dot.
  #stripRow(store, kind, y, x, rewards) {
    const stacked = new Map();
    const dots = rewards.map((reward, k) => {
      if (reward === null) return null;
      const at = Math.round(x(reward) / 9);
      const level = stacked.get(at) ?? 0;
      stacked.set(at, level + 1);
      const dot = svg(
        "circle",
        { class: `dot ${kind}`, cx: px(x(reward)), cy: px(y - STRIP.stacked * level), r: 4.5 },
        svg("title", {}, `${kind} ${k + 1}: ${shortNumber(reward)}`),
      );
      dot.addEventListener("click", () => (location.hash = store.link(this.members[k])));
      return dot;
    });
    const { mean, spread } = momentsOf(rewards);
    const bar =
      mean === null
        ? []
        : [
            svg("line", { class: `spread ${kind}`, x1: px(x(mean - spread)), x2: px(x(mean + spread)), y1: y + 12, y2: y + 12 }),
            svg("line", { class: `mean ${kind}`, x1: px(x(mean)), x2: px(x(mean)), y1: y + 6, y2: y + 18 }),
          ];
    return [svg("text", { x: 0, y: y + 4 }, kind), bar, dots];
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
    this.table.replaceChildren(h("p", { className: "small" }, "Loading the records of the group ..."));
    const lines = await Promise.all(members.map((i) => store.line(i)));
    if (this.name !== name) return;
    const rows = lines.flatMap((line, k) => {
      const i = members[k];
      const link = h("a", { href: `#${store.link(i)}`, "aria-current": store.name(i) === name ? "true" : "false" }, `session ${k + 1}`);
      const rewards = [rewardText(store.get("draft", i)), rewardText(store.get("refined", i)), signedReward(store.gain(i))];
      const sequences = line.sequences ?? [];
      if (!sequences.length)
        return [[link, ...rewards, "none", "–", "–", "–", line.draft.failure ? words(line.draft.failure.cause) : "not in the record"]];
      return sequences.map((one, n) => [
        n ? "" : link,
        ...(n ? ["", "", ""] : rewards),
        words(one.kind),
        rewardText(one.advantage),
        rewardText(one.weight),
        rewardText(one.distill_weight),
        one.masked ?? "trained",
      ]);
    });
    const seen = lines.flatMap((line) => line.sequences ?? []);
    const missing = this.members.length - members.length;
    const titles = ["session", "draft", "refined", "gain", "sequence", "advantage", "weight of a token", "distillation", "in the loss"];
    this.table.replaceChildren(
      seen.length ? partsOf(seen) : h("p", { className: "small" }, "No advantage is known: the step is not trained yet."),
      missing ? h("p", { className: "small" }, `${NO_TEXT} ${counted(missing)} sessions of the group are not in the tables.`) : "",
      scroller("Sessions of the group", smallTable("Sessions and their sequences", titles, rows)),
    );
  }
}

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
  return scroller("What the objective saw", smallTable("What the objective saw", ["sequences", "count", "trained", "advantage", ""], rows));
}

// Mean and standard deviation (of the sample) of the values that there are.
function momentsOf(values) {
  const known = values.filter(hasValue);
  if (!known.length) return { mean: null, spread: null, count: 0 };
  const mean = known.reduce((sum, value) => sum + value, 0) / known.length;
  const squares = known.reduce((sum, value) => sum + (value - mean) ** 2, 0);
  return { mean, spread: known.length > 1 ? Math.sqrt(squares / (known.length - 1)) : 0, count: known.length };
}
