// View (g): two runs over each other. Their curves in one picture, and their sessions paired by part, task, row, step and
// place in the group.

const PAIRS_FIRST = 30;

class AgainstView {
  constructor(viewer) {
    this.viewer = viewer;
    this.section = document.getElementById("against-view");
    this.charts = new Map();
  }

  async show(run, [other, name], query) {
    this.query = query;
    this.run = run;
    this.otherId = other;
    const others = this.viewer.folders.filter(({ kind, id }) => kind === "training" && id !== run.id);
    const choice = h(
      "select",
      {},
      options([["", others.length ? "choose" : "there is no other run"], ...others.map((one) => [one.id, one.name])]),
    );
    choice.value = other ?? "";
    choice.addEventListener("change", () => go(placeOf(run.id, "against", ...(choice.value ? [choice.value] : []))));
    this.body = h("div", {});
    this.section.replaceChildren(
      h("header", {}, h("h1", {}, "Two runs")),
      h("div", { className: "choices" }, h("label", {}, h("bdi", {}, `${run.name} against `), choice)),
      this.body,
    );
    this.charts.clear();
    if (!other) return;
    this.body.replaceChildren(h("p", { className: "small" }, "Loading the other run ..."));
    const second = await this.viewer.run(other);
    await second.sessions;
    this.second = second;
    if (this.run !== run || this.otherId !== other) return;
    if (name === undefined) this.#draw();
    else await this.#pair(name);
  }

  // The runs beside the one of the address that the viewer looks at for new steps.
  get others() {
    return this.second && this.otherId ? [this.second] : [];
  }

  refresh() {
    for (const draw of this.charts.values()) draw();
  }

  #draw() {
    const { run, second } = this;
    const tasks = Object.keys(run.overview.curves).filter((task) => task in second.overview.curves);
    const curves = h(
      "div",
      { className: "charts" },
      ["draft", "refined", "gap", "validation"]
        .filter((kind) => [run, second].some(({ overview }) => overview.curves.all?.[kind]?.mean.some(hasValue)))
        .map((kind) => this.#chart(kind, "all")),
      tasks.filter((task) => task !== "all").map((task) => this.#chart("draft", task)),
    );
    const pairs = pairedSessions(run.store, second.store);
    this.body.replaceChildren(curves, this.#summary(pairs), this.#differences(pairs));
  }

  #chart(kind, task) {
    const { run, second } = this;
    const chart = new CurveChart(`${kind[0].toUpperCase()}${kind.slice(1)}, ${task === "all" ? "all tasks" : task}`, (step) =>
      go(placeOf(run.id, "sessions"), { from: step, to: step, set: task === "all" ? "" : task }),
    );
    const draw = () => {
      const both = [run, second].map((one) => one.overview.curves[task]);
      const steps = [...new Set(both.flatMap((curve) => curve?.steps ?? []))].sort((a, b) => a - b);
      const lines = both.map((curve, k) => overSteps(curve, kind, steps, [run, second][k].name, k ? "refined" : "draft")).filter(Boolean);
      chart.update({ steps, lines, include: kind === "gap" ? [0] : [] });
    };
    draw();
    this.charts.set(`${kind} ${task}`, draw);
    return chart.element;
  }

  #summary(pairs) {
    const { run, second } = this;
    const tasks = [...new Set(pairs.map(({ task }) => task))].sort();
    const rows = tasks.flatMap((task) => {
      const of = pairs.filter((pair) => pair.task === task);
      return ["draft", "refined"].map((kind) => {
        const both = of
          .map(({ a, b }) => [run.store.number(kind, a), second.store.number(kind, b)])
          .filter(([x, y]) => x !== null && y !== null);
        const mean = (k) => momentsOf(both.map((pair) => pair[k])).mean;
        const gain = momentsOf(both.map(([x, y]) => y - x)).mean;
        return [
          `${task}, ${kind}`,
          counted(both.length),
          rewardText(mean(0)),
          rewardText(mean(1)),
          gain === null ? "–" : signedReward(tidy(gain)),
        ];
      });
    });
    const note = `${counted(pairs.length)} sessions of both runs have the same part, task, row, step and place in their group.`;
    return h(
      "section",
      {},
      h("h2", {}, "Paired sessions"),
      h("p", { className: "small" }, note),
      rows.length ? scrolled("Paired sessions", smallTable(null, ["task", "pairs", run.name, second.name, "difference"], rows)) : null,
    );
  }

  // The pairs whose drafts differ most.
  #differences(pairs) {
    const { run, second } = this;
    const known = pairs
      .map((pair) => ({ ...pair, x: run.store.number("draft", pair.a), y: second.store.number("draft", pair.b) }))
      .filter(({ x, y }) => x !== null && y !== null && Math.abs(x - y) > TOLERANCE);
    known.sort((one, two) => Math.abs(two.y - two.x) - Math.abs(one.y - one.x));
    const rows = known
      .slice(0, PAIRS_FIRST)
      .map(({ a, x, y }) => [
        h(
          "a",
          { href: `#${placeOf(run.id, "against", second.id, run.store.name(a))}` },
          h("bdi", {}, `${run.store.set(a)}, row ${run.store.number("number", a)}, step ${run.store.number("step", a)}`),
        ),
        rewardText(x),
        rewardText(y),
        signedReward(tidy(y - x)),
      ]);
    if (!rows.length) return h("p", { className: "small" }, "No paired drafts differ in their rewards.");
    return scrolled(
      "Largest differences",
      smallTable(`Largest differences of ${counted(known.length)}`, ["session", run.name, second.name, "difference"], rows),
    );
  }

  // The two sessions of a pair beside each other.
  async #pair(name) {
    const { run, second } = this;
    const a = run.store.findName(name);
    const pair = pairedSessions(run.store, second.store).find((one) => one.a === a);
    if (!pair) throw new Error(`session ${name} has no partner in ${second.name}`);
    const lines = await Promise.all([run.store.line(pair.a), second.store.line(pair.b)]);
    const sides = ["draft", "refined"].map((kind) => this.#sides(kind, lines, pair));
    const back = h("a", { href: `#${placeOf(run.id, "against", second.id)}` }, "all pairs");
    this.body.replaceChildren(
      h("h2", {}, h("bdi", {}, `${lines[0].task}, row ${lines[0].number}, step ${lines[0].step}`)),
      h("p", { className: "links" }, back),
      promptOf(lines[0]),
      ...sides,
    );
  }

  #sides(kind, lines, pair) {
    const turns = lines.map((line) => (line[kind] ? columnTurns(line[kind], line.record) : null));
    if (turns[0] && turns[1]) markTurns(turns[0], turns[1]);
    const links = [this.run.store.link(pair.a), this.second.store.link(pair.b)];
    const sections = lines.map((line, k) =>
      h(
        "section",
        {},
        h(
          "h4",
          {},
          h("a", { href: `#${links[k]}` }, h("bdi", {}, [this.run, this.second][k].name)),
          ` ${kind} ${rewardText(line[kind]?.reward)}`,
        ),
        turns[k] ? h("ol", { className: "turns scene" }, turns[k].map(drawTurn)) : notPlayed(),
      ),
    );
    return h("section", {}, h("h3", {}, kind), h("div", { className: "sides" }, sections));
  }
}

// A curve of another run, moved to these steps.
function overSteps(curve, kind, steps, name, colour) {
  if (!curve?.[kind]) return null;
  const place = new Map(curve.steps.map((step, i) => [step, i]));
  const moved = (values) => steps.map((step) => (place.has(step) ? (values?.[place.get(step)] ?? null) : null));
  const { mean, low, high, n } = curve[kind];
  return { name, kind: colour, mean: moved(mean), low: moved(low), high: moved(high), n: moved(n) };
}

// Sessions of both runs with equal part, task, file, row, step and place in the group: {a, b, task}.
function pairedSessions(first, second) {
  const waiting = new Map();
  const eachKey = (store, take) => {
    const seen = new Map();
    for (let i = 0; i < store.size; i++) {
      const key = [store.text("split", i), store.set(i), store.text("file", i), store.number("number", i), store.number("step", i)].join(
        "\n",
      );
      const place = seen.get(key) ?? 0;
      seen.set(key, place + 1);
      take(`${key}\n${place}`, i);
    }
  };
  eachKey(second, (key, i) => waiting.set(key, i));
  const pairs = [];
  eachKey(first, (key, i) => waiting.has(key) && pairs.push({ a: i, b: waiting.get(key), task: first.set(i) }));
  return pairs;
}
