// View (b): where does feedback help, and where does it hurt? Draft against refined reward of each task, and lists of the
// sessions to read first.

const FIRST = 5; // sessions of a list
const LISTS = ["improved", "hurt", "same", "redacted", "disagree"];

class FeedbackView {
  constructor(app, run) {
    this.app = app;
    this.run = run;
    this.section = h("section", { ariaLabel: "Feedback" });
  }

  async show(_parts, query) {
    const { run } = this;
    await run.sessions;
    if (!this.form) this.#frame(run);
    this.filters = { set: query.get("set") ?? "", from: query.get("from") ?? "", to: query.get("to") ?? "" };
    for (const [name, value] of Object.entries(this.filters)) this.form.elements[name].value = value;
    this.refresh();
  }

  #frame(run) {
    this.tasks = h("select", { name: "set" });
    const step = (name) => h("input", { type: "number", name, step: 1 });
    this.form = h(
      "form",
      { className: "choices" },
      h("label", {}, "Task ", this.tasks),
      h("label", {}, "Step from ", step("from")),
      h("label", {}, "to ", step("to")),
    );
    this.form.addEventListener("change", () => go(placeOf(run.id, "feedback"), Object.fromEntries(new FormData(this.form))));
    this.form.addEventListener("submit", (event) => event.preventDefault());
    this.pictures = h("div", { className: "charts small-charts" });
    this.lists = h("div", { className: "charts lists" });
    this.section.replaceChildren(h("header", {}, h("h1", {}, "Where feedback helps and hurts")), this.form, this.pictures, this.lists);
  }

  refresh() {
    const { run } = this;
    const { store } = run;
    const state = `${store.revision} ${store.size} ${JSON.stringify(this.filters)}`;
    if (this.drawn === state && this.drawnRun === run) return;
    this.drawn = state;
    this.drawnRun = run;
    const tasks = store.distinct("task");
    fillSelect(this.tasks, [["", "all"], ...tasks.map((task) => [task, task])], this.filters.set);
    const { set, from, to } = this.filters;
    this.listed = { set, step_from: from, step_to: to }; // the same filters in the list
    const places = store.where(
      (i) => (set === "" || store.set(i) === set) && store.get("split", i) === "step" && within(store.get("step", i), from, to),
    );
    const axes = [
      { name: "draft", value: (i) => store.get("draft", i), low: "draft_from", high: "draft_to" },
      { name: "refined", value: (i) => store.get("refined", i), low: "refined_from", high: "refined_to" },
    ];
    const open = (task) => (query) => go(placeOf(run.id, "sessions"), { ...this.listed, set: task, split: "step", ...query });
    const pictures = tasks
      .filter((task) => set === "" || task === set)
      .map((task) =>
        drawPairs(
          task,
          places.filter((i) => store.set(i) === task),
          axes,
          open(task),
        ),
      );
    this.pictures.replaceChildren(...pictures);
    this.lists.replaceChildren(...LISTS.map((kind) => this.#list(run, kind, places)));
  }

  #list(run, kind, places) {
    const { store } = run;
    const [name, test] = KINDS[kind];
    const matches = places.filter((i) => test(store, i));
    const readable = matches.filter((i) => store.has(i));
    const order = KIND_ORDERS[kind];
    // The largest changes first; of the other kinds the latest.
    const first = order
      ? readable.sort((a, b) => compare(store.gain(a), store.gain(b), order.descending) || b - a)
      : readable.slice(-FIRST).reverse();
    const rows = first
      .slice(0, FIRST)
      .map((i) => [
        h(
          "a",
          { href: `#${store.link(i)}` },
          h("bdi", {}, `${store.set(i)}, row ${store.get("number", i)}, step ${store.get("step", i)}`),
        ),
        `${rewardText(store.get("draft", i))} → ${rewardText(store.get("refined", i))}`,
        signedReward(store.gain(i)),
      ]);
    const query = new URLSearchParams({ state: kind, split: "step" });
    for (const [key, value] of Object.entries(this.listed)) if (value) query.set(key, value);
    if (order) query.set("sort", (order.descending ? "-" : "") + order.key);
    const all = h("a", { href: linkTo(placeOf(store.run, "sessions"), query) }, `all ${counted(matches.length)}`);
    const content = rows.length
      ? smallTable(null, ["session", "draft → refined", "gain"], rows)
      : h("p", { className: "small" }, matches.length ? NO_TEXT : "There is none.");
    return h(
      "section",
      { ariaLabel: name },
      h("h3", {}, name[0].toUpperCase() + name.slice(1), matches.length ? [" · ", all] : null),
      content,
    );
  }
}
