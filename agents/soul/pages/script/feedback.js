// Where does feedback help, and where does it hurt? Shares over the steps and by task, draft against refined reward, whether answers
// followed, what the feedback says again and again, and lists of the sessions to read first.

const FIRST = 5; // sessions of a list
const LISTS = ["improved", "hurt", "same", "redacted", "disagree"];
// Name of a share -> state of the list of sessions, and the name of its interval.
const SIDES = { helped: ["improved", "better"], hurt: ["hurt", "worse"], ignored: ["same"], "already best": ["kept"] };

class FeedbackView {
  constructor(_app, run) {
    this.run = run;
    this.charts = new Charts(run);
    this.tasks = h("select", { name: "set" });
    this.form = stepForm(placeOf(run.id, "feedback"), h("label", {}, "Task ", this.tasks));
    [this.shares, this.pictures, this.lists] = ["charts wide", "charts small-charts", "charts lists"].map((className) => h("div", { className }));
    [this.byTask, this.said] = [h("div", {}), h("div", {})];
    this.section = h("section", { ariaLabel: "Feedback" }, h("header", {}, h("h1", {}, "Where feedback helps and hurts")), this.form, this.shares, this.byTask, this.pictures, this.said, this.lists);
  }

  async show(_parts, query) {
    await this.run.sessions;
    this.filters = readInto(this.form, query);
    this.refresh();
  }

  refresh() {
    const { run, filters } = this;
    const { store } = run;
    const state = `${store.state} ${JSON.stringify(filters)}`;
    if (this.drawn === state) return;
    this.drawn = state;
    const tasks = store.distinct("task");
    fillSelect(this.tasks, [["", "all"], ...tasks.map((task) => [task, task])], filters.set);
    const { set, from, to } = filters;
    this.listed = { set, step_from: from, step_to: to, split: "step" }; // the same filters in the list
    const places = store.where((i) => (set === "" || store.set(i) === set) && store.get("split", i) === "step" && within(store.get("step", i), from, to));
    const both = places.filter((i) => store.gain(i) !== null && store.get("live", i) !== 1);
    const shown = tasks.filter((task) => set === "" || task === set);
    this.shares.replaceChildren(this.#overSteps(both));
    this.byTask.replaceChildren(this.#table(shown, both));
    const open = (task) => (query) => go(placeOf(run.id, "sessions"), { ...this.listed, set: task, ...query });
    const pairs = (task) => both.filter((i) => store.set(i) === task).map((i) => [store.get("draft", i), store.get("refined", i)]);
    this.pictures.replaceChildren(...shown.map((task) => drawPairs(task, pairs(task), open(task))));
    this.lists.replaceChildren(...LISTS.map((kind) => this.#list(kind, places)));
    this.#themes(both, state);
  }

  #overSteps(both) {
    const { store, overview } = this.run;
    const of = Map.groupBy(both, (i) => store.get("step", i));
    const steps = [...of.keys()].sort((a, b) => a - b);
    const share = (state) => steps.map((step) => of.get(step).filter((i) => KINDS[state][1](store, i)).length / of.get(step).length);
    const kinds = ["better", "worse", "same", "kept"];
    const lines = Object.entries(SIDES).map(([name, [state]], k) => ({ name, kind: kinds[k], mean: share(state) }));
    return this.charts.draw("Share of the sessions with both rewards", { steps, stacked: true, events: overview.events ?? [], lines }, { filters: { set: this.filters.set, split: "step" } });
  }

  // A count that leads to its sessions.
  #count(count, query) {
    return cell(count, h("a", { href: hrefOf(placeOf(this.run.id, "sessions"), { ...this.listed, ...query }) }, counted(count)));
  }

  #table(tasks, both) {
    const { store, overview } = this.run;
    const whole = !this.filters.from && !this.filters.to; // the intervals are those of all steps
    const percent = (count, n) => cell(n ? count / n : null, percentText(n ? count / n : null));
    const rows = tasks.map((task) => {
      const own = both.filter((i) => store.set(i) === task);
      const count = (state, among = own) => among.filter((i) => KINDS[state][1](store, i)).length;
      const sides = Object.values(SIDES).flatMap(([state, name]) => {
        const interval = whole && overview.curves[task]?.shares[name]?.interval;
        const range = interval ? interval.map((end) => (100 * end).toFixed(1)).join(" to ") : NONE;
        return [this.#count(count(state), { set: task, state }), percent(count(state), own.length), ...(name ? [range] : [])];
      });
      const read = own.filter((i) => store.get("followed", i) !== null);
      const followed = ["moved", "landed"].flatMap((state) => (read.length ? [this.#count(count(state, read), { set: task, state }), percent(count(state, read), read.length)] : [NONE, NONE]));
      return [task, cell(own.length, counted(own.length)), ...sides, ...followed];
    });
    const titles = Object.entries(SIDES).flatMap(([name, [, interval]]) => [name, "share", ...(interval ? ["95 % interval"] : [])]);
    const columns = ["task", "sessions", ...titles, "answer changed", "share", "to the right one", "share"].map((title, k) => ({ title, text: !k }));
    return dataTable(columns, rows, { caption: "By task" });
  }

  // What the feedback says: repeated sentences, and words that go together, with the gains of their sessions.
  async #themes(both, state) {
    const { store } = this.run;
    const { read, sentences, themes } = await this.run.part("themes");
    if (this.drawn !== state) return;
    const places = new Map(both.map((i) => [store.get("id", i), i]));
    const table = (caption, list) => {
      const rows = list.map(({ text, ids }) => [text, ids.filter((id) => places.has(id)).map((id) => store.gain(places.get(id)))]).filter(([, gains]) => gains.length);
      const share = (gains, sign) => percentText(gains.filter((gain) => sign * gain > TOLERANCE).length / gains.length);
      const cells = rows.map(([text, gains]) => {
        const { mean, count } = momentsOf(gains);
        return [h("bdi", {}, text), this.#count(count, { theme: text }), cell(mean, signedMean(mean)), share(gains, 1), share(gains, -1)];
      });
      const columns = ["", "sessions", "mean gain", "helped", "hurt"].map((title, k) => ({ title, text: !k }));
      return rows.length ? dataTable(columns, cells, { caption }) : part(caption, small("There is none."));
    };
    const parts = h("div", { className: "parts said-often" }, table("Repeated sentences", sentences), table("Words that go together", themes));
    this.said.replaceChildren(h("h2", {}, "What the feedback says"), small(`From the latest ${counted(read)} sessions with both rewards.`), parts);
  }

  #list(kind, places) {
    const { store } = this.run;
    const [name, test] = KINDS[kind];
    const matches = places.filter((i) => test(store, i));
    const readable = matches.filter((i) => store.has(i));
    const order = KIND_ORDERS[kind];
    // The largest changes first; of the other kinds the latest.
    const byGain = (a, b) => compare(store.gain(a), store.gain(b), order.descending) || b - a;
    const first = order ? readable.sort(byGain) : readable.slice(-FIRST).reverse();
    const title = (i) => h("a", { href: `#${store.link(i)}` }, h("bdi", {}, store.title(i)));
    const rewards = (i) => `${rewardText(store.get("draft", i))} → ${rewardText(store.get("refined", i))}`;
    const rows = first.slice(0, FIRST).map((i) => [title(i), rewards(i), signedReward(store.gain(i))]);
    const query = { state: kind, ...this.listed, sort: order ? (order.descending ? "-" : "") + order.key : "" };
    const all = h("a", { href: hrefOf(placeOf(store.run, "sessions"), query) }, `all ${counted(matches.length)}`);
    const content = rows.length ? smallTable(null, ["session", "draft → refined", "gain"], rows) : small(matches.length ? NO_TEXT : "There is none.");
    return h("section", { ariaLabel: name }, h("h2", { className: "title" }, name[0].toUpperCase() + name.slice(1), matches.length ? [" · ", all] : null), content);
  }
}

const BUBBLES = 20; // along each axis
const PAIR_SIZE = 300;

// Pairs of draft and refined reward as bubbles; `open` gets the query of a bubble's sessions.
function drawPairs(title, pairs, open) {
  const said = small(`${counted(pairs.length)} sessions with both rewards`);
  const host = h("div", { className: "plot" });
  const range = rangeOf(pairs.flat());
  const size = (range[1] - range[0]) / BUBBLES;
  const at = (k) => Number((range[0] + k * size).toPrecision(6));
  const bin = (value) => Math.min(BUBBLES - 1, Math.floor((value - range[0]) / size));
  // Better, same and worse by the rewards themselves: two rewards of one bin may differ.
  const placed = Map.groupBy(pairs, ([a, b]) => JSON.stringify([bin(a), bin(b), bySign(b - a, "better", "worse", "same")]));
  const most = Math.max(...[...placed.values()].map(({ length }) => length));
  const bubble = (key, count, x, y) => {
    const [k, l, kind] = JSON.parse(key);
    const show = () => open({ draft_from: at(k), draft_to: at(k + 1), refined_from: at(l), refined_to: at(l + 1) });
    const place = { cx: px(x(at(k + 0.5))), cy: px(y(at(l + 0.5))), r: px(1.5 + 7 * Math.sqrt(count / most)) };
    const text = `draft about ${shortNumber(at(k + 0.5))}, refined about ${shortNumber(at(l + 0.5))}, ${kind}: ${count} sessions`;
    const dot = svg("circle", { class: `bubble ${kind}`, tabindex: 0, role: "button", ...place }, svg("title", {}, text));
    dot.addEventListener("click", show);
    dot.addEventListener("keydown", (event) => event.key === "Enter" && show());
    return dot;
  };
  drawnToWidth(host, (width) => {
    const side = Math.min(width, PAIR_SIZE + MARGIN.left);
    const x = scaleOf(range, MARGIN.left, side - 10);
    const y = scaleOf(range, side - 34, 24);
    const ticks = ticksBetween(...range, 4);
    const axes = [axisUp(ticks, y, [MARGIN.left, side - 10]), axisAcross(ticks, x, [24, side - 34], side - 18)];
    const equal = svg("line", { class: "zero", x1: px(x(range[0])), y1: px(y(range[0])), x2: px(x(range[1])), y2: px(y(range[1])) });
    const names = [svg("text", { x: side - 10, y: side - 4, "text-anchor": "end" }, "draft →"), svg("text", { x: 4, y: 10 }, "↑ refined")];
    const looks = { width: side, height: side, viewBox: `0 0 ${side} ${side}`, role: "group", "aria-label": "refined against draft" };
    host.replaceChildren(svg("svg", looks, axes, equal, [...placed].map(([key, { length }]) => bubble(key, length, x, y)), names));
  });
  return h("figure", { className: "chart" }, h("figcaption", {}, h("h2", { className: "title" }, h("bdi", {}, title)), said), pairs.length ? host : null);
}
