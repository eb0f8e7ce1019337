// View (g): two runs over each other. Their curves in one picture, and the prompts that both played in the same step
// (agents/soul/view/against.py).

class AgainstView {
  constructor(viewer) {
    this.viewer = viewer;
    this.section = document.getElementById("against-view");
    this.charts = new Map();
  }

  async show(run, [other, ...names]) {
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
    if (names.length) await this.#pair(names);
    else await this.#draw();
  }

  // The runs beside the one of the address that the viewer looks at for new steps.
  get others() {
    return this.second && this.otherId ? [this.second] : [];
  }

  refresh() {
    for (const draw of this.charts.values()) draw();
  }

  async #draw() {
    const { run, second } = this;
    const pairs = await run.source.against(run.id, second.id);
    if (this.run !== run || this.second !== second) return;
    const tasks = Object.keys(run.overview.curves).filter((task) => task in second.overview.curves);
    const curves = h(
      "div",
      { className: "charts" },
      ["draft", "refined", "gap", "validation"]
        .filter((kind) => [run, second].some(({ overview }) => overview.curves.all?.[kind]?.mean.some(hasValue)))
        .map((kind) => this.#chart(kind, "all")),
      tasks.filter((task) => task !== "all").map((task) => this.#chart("draft", task)),
    );
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

  #summary({ prompts, tasks }) {
    const signed = (value) => signedReward(tidy(value));
    const rows = tasks.map(({ task, kind, prompts: count, means, difference, interval }) => [
      `${task}, ${kind}`,
      counted(count),
      ...means.map(rewardText),
      signed(difference),
      interval ? `${signed(interval[0])} to ${signed(interval[1])}` : "–",
    ]);
    const note = `Both runs played ${counted(prompts)} prompts in the same step; each counts with the mean reward of its group.`;
    const titles = ["task", "prompts", this.run.name, this.second.name, "difference", "95 %"];
    return h(
      "section",
      {},
      h("h2", {}, "The same prompts"),
      h("p", { className: "small" }, note),
      rows.length ? scrolled("The same prompts", smallTable(null, titles, rows)) : null,
    );
  }

  // The prompts whose drafts differ most.
  #differences({ largest, differing }) {
    const { run, second } = this;
    const nameOf = (store, id) => store.name(store.where((i) => store.number("id", i) === id)[0]);
    const rows = largest.map(({ task, number, step, means: [x, y], ids: [a, b] }) => [
      h(
        "a",
        { href: `#${placeOf(run.id, "against", second.id, nameOf(run.store, a), nameOf(second.store, b))}` },
        h("bdi", {}, `${task}, row ${number}, step ${step}`),
      ),
      rewardText(x),
      rewardText(y),
      signedReward(tidy(y - x)),
    ]);
    if (!rows.length) return h("p", { className: "small" }, "No common prompt differs in the mean reward of its drafts.");
    return scrolled(
      "Largest differences",
      smallTable(`Largest differences of ${counted(differing)}`, ["prompt", run.name, second.name, "difference"], rows),
    );
  }

  // The first sessions of a prompt in both runs, beside each other.
  async #pair(names) {
    const { run, second } = this;
    const stores = [run.store, second.store];
    const places = names.map((name, k) => stores[k].findName(name));
    if (places.includes(undefined)) throw new Error(`there is no session ${names.join(" or ")} in these runs`);
    const lines = await Promise.all(places.map((i, k) => stores[k].line(i)));
    const sides = ["draft", "refined"].map((kind) => this.#sides(kind, lines, { a: places[0], b: places[1] }));
    const back = h("a", { href: `#${placeOf(run.id, "against", second.id)}` }, "all prompts");
    this.body.replaceChildren(
      h("h2", {}, h("bdi", {}, `${lines[0].task}, row ${lines[0].number}, step ${lines[0].step}`)),
      h("p", { className: "links" }, back, " · the first session of each group"),
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
