// Home: everything below the folder in one table, and a choice of runs to compare.

const CURVES = ["draft", "refined", "validation"];

class HomeView {
  constructor(app) {
    this.app = app;
    this.section = h("section", { ariaLabel: "All runs" });
    this.chosen = new Set();
  }

  async show() {
    this.#draw(this.app.known);
  }

  async poll() {
    this.#draw(await this.app.folders());
  }

  #draw(folders) {
    const drawn = JSON.stringify([folders, [...this.chosen]]);
    if (drawn === this.drawn) return;
    this.drawn = drawn;
    const of = (kind) => folders.filter((one) => one.kind === kind);
    const [trainings, evaluations] = [of("training"), of("evaluation")];
    const running = folders.filter(({ state }) => state === "running").length;
    this.section.replaceChildren(
      h("header", {}, h("h1", {}, "Runs"), h("p", { className: "kind" }, `${counted(trainings.length)} training runs, ${counted(evaluations.length)} evaluations, ${counted(running)} running`)),
      this.#chooser(),
      trainings.length ? this.#table("Training runs", TRAINING_FACTS, trainings) : "",
      evaluations.length ? this.#table("Evaluations", EVALUATION_FACTS, evaluations) : "",
      folders.length ? "" : h("p", { className: "empty" }, "There is no training run and no evaluation below this folder. A run appears here as soon as its folder is made."),
    );
  }

  #chooser() {
    if (!this.app.source.live) return "";
    const ids = [...this.chosen].join(",");
    const start = button(`Compare ${counted(this.chosen.size)} runs`, () => go(`compare/${ids}`), { className: "button primary", disabled: this.chosen.size < 2 });
    const help = this.chosen.size ? null : small("Tick two or more runs of one kind to compare them; the first is the baseline.");
    return h("div", { className: "choices" }, start, help);
  }

  #table(caption, facts, folders) {
    const live = this.app.source.live;
    const columns = [...(live ? [{ title: "", text: true }] : []), ...facts.map(([title, , more]) => ({ title, ...more }))];
    const rows = folders.map((one) => [...(live ? [cell(this.chosen.has(one.id), this.#tick(one))] : []), ...facts.map(([, value]) => value(one))]);
    return dataTable(columns, rows, { caption });
  }

  #tick({ id, path }) {
    const box = h("input", { type: "checkbox", checked: this.chosen.has(id), ariaLabel: `compare ${path}` });
    box.addEventListener("change", () => {
      if (!this.chosen.delete(id)) this.chosen.add(id);
      this.#draw(this.app.known);
      this.section.querySelector(`input[aria-label="compare ${CSS.escape(path)}"]`)?.focus();
    });
    return box;
  }
}

const runLink = (one) => h("a", { href: one.href ?? `#${placeOf(one.id, firstView(one))}` }, one.path);
const progress = ({ done, total }) => (total && done < total ? `${counted(done)} of ${counted(total)}` : counted(done));
const costOf = ({ cost_usd, unpriced }) => cell(cost_usd, unpriced && !cost_usd ? NONE : `${unpriced ? "at least " : ""}${costText(cost_usd)}`);
const withEnds = (text, value, ends) => cell(value, [h("b", {}, text(value)), ends ? h("small", {}, ` ${ends.map(text).join(" to ")}`) : null]);

function stateCell({ state, cause }) {
  const kind = { running: "won", failed: "failed", stale: "failed" }[state] ?? "";
  return cell(state, h("span", { className: kind, title: cause ?? "" }, state, cause ? h("small", { className: "cause" }, cause) : null));
}

const PATH = ["run", (one) => cell(one.path, runLink(one)), { text: true }];
const STATE = ["state", stateCell, { text: true }];
const EFFORT = [
  ["time", (one) => cell(one.seconds, durationText(one.seconds))],
  ["cost", costOf],
  ["changed", (one) => cell(one.changed, dateText(one.changed))],
];
const TRAINING_FACTS = [
  PATH,
  STATE,
  ["steps", (one) => cell(one.done, progress(one))],
  ["curves", (one) => cell(one.last?.loss ?? one.score, sparkline(one.curves ?? {})), { help: "over the steps: rewards of drafts (solid), refined answers (dashed) and validation (dotted), or the loss" }],
  ["last draft", (one) => withEnds(meanText, one.score, one.interval), { help: "mean reward of the last step's drafts, 95 %" }],
  ["refined", (one) => cell(one.last?.refined, meanText(one.last?.refined))],
  ["validation", (one) => cell(one.last?.validation, meanText(one.last?.validation))],
  ["loss", ({ last }) => last?.loss && cell(last.loss, meanText(last.loss)), { help: "of supervised fine-tuning, per token, in the last step" }],
  ["alarms", (one) => cell(Object.keys(one.alarms ?? {}).length, alarmsOf(one))],
  ["objective", (one) => one.objective ?? "", { text: true }],
  ["tasks", (one) => (one.tasks ?? []).join(", "), { text: true }],
  ...EFFORT,
];
const EVALUATION_FACTS = [
  PATH,
  ["model", (one) => h("bdi", {}, one.name), { text: true }],
  STATE,
  ["samples", (one) => cell(one.done, progress(one))],
  ["score", (one) => withEnds(scoreText, one.score, one.interval), { help: "macro average times 100, 95 %" }],
  ["sets", (one) => ((one.tasks ?? []).length > 4 ? `${one.tasks.length} sets` : (one.tasks ?? []).join(", ")), { text: true }],
  ...EFFORT,
];

const alarmsOf = ({ id, alarms = {} }) =>
  Object.entries(alarms).map(([name, step], k) => [k ? ", " : "", h("a", { className: "failed", href: hrefOf(placeOf(id, "sessions"), { step_from: step, step_to: step }) }, `${words(name)} at ${step}`)]);

// The curves of a run as a small picture, on one scale.
function sparkline(curves) {
  const rewards = CURVES.filter((name) => curves[name]?.some(hasValue));
  const known = rewards.length ? rewards : Object.keys(curves);
  if (!known.length) return null;
  const y = scaleOf(rangeOf(known.flatMap((name) => curves[name])), 20, 3);
  const lines = known.map((name) => {
    const x = scaleOf([0, Math.max(1, curves[name].length - 1)], 3, 117);
    const points = curves[name].flatMap((value, i) => (hasValue(value) ? [`${px(x(i))},${px(y(value))}`] : []));
    const last = points.at(-1).split(",");
    return [svg("polyline", { class: `curve ${name}`, points: points.join(" ") }), svg("circle", { class: `dot ${name}`, cx: last[0], cy: last[1], r: 2 })];
  });
  const said = known.map((name) => `${name} ${meanText(curves[name].find(hasValue))} to ${meanText(curves[name].findLast(hasValue))}`).join(", ");
  return svg("svg", { class: "sparkline", width: 120, height: 23, role: "img", "aria-label": said }, svg("title", {}, said), lines);
}
