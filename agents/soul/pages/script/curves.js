// Curves over the steps, with bands, events on the axis, a cursor for mouse and keys, and the same numbers as a table.

const CHART_HEIGHT = 210;
const MARGIN = { left: 46, right: 14, top: 10, bottom: 26 };
const EVENT_SIGNS = { resume: "↻", checkpoint: "◆", outage: "✕", alarm: "!" };
const DOTS_UP_TO = 40; // points: longer curves are drawn without dots

// data: {steps, lines: [{name, kind, mean, low?, high?, n?}], events?, include?: values that the axis must show}
// kind is the CSS class that gives a line its colour and dashes.
class CurveChart {
  constructor(title, openStep) {
    this.openStep = openStep;
    this.cursor = null; // a place in `steps`
    this.host = h("div", { className: "plot" });
    this.legend = h("p", { className: "legend" });
    this.said = h("p", { className: "said-values", role: "status" });
    this.table = h("details", { className: "numbers" }, h("summary", {}, "Table"));
    this.table.addEventListener("toggle", () => this.#fillTable());
    this.element = h(
      "figure",
      { className: "chart" },
      h("figcaption", {}, h("h3", {}, title)),
      this.legend,
      this.host,
      this.said,
      this.table,
    );
    this.title = title;
    this.redraw = drawnToWidth(this.host, (width) => this.#draw(width));
  }

  update(data) {
    const grown = JSON.stringify(data) !== JSON.stringify(this.data);
    if (!grown) return;
    this.data = data;
    if (this.cursor !== null && this.cursor >= data.steps.length) this.cursor = null;
    this.legend.replaceChildren(...data.lines.map((line) => legendOf(line)));
    this.redraw();
    this.#fillTable();
  }

  #draw(width) {
    if (!this.data) return;
    const { steps, lines, events = [], include = [] } = this.data;
    const values = lines.flatMap(({ mean, low, high }) => [...mean, ...(low ?? []), ...(high ?? [])]);
    const [low, high] = rangeOf(values, include);
    const room = (high - low) * 0.05;
    this.x = scaleOf(rangeOf(steps), MARGIN.left, width - MARGIN.right);
    this.y = scaleOf([low - room, high + room], CHART_HEIGHT - MARGIN.bottom, MARGIN.top);
    const focused = document.activeElement === this.svg;
    const parts = [
      this.#axes(width, [low, high]),
      this.#events(events),
      lines.map((line) => this.#band(line)),
      lines.map((line) => this.#line(line)),
    ];
    this.mark = svg("line", { class: "cursor", y1: MARGIN.top, y2: CHART_HEIGHT - MARGIN.bottom, visibility: "hidden" });
    this.svg = svg(
      "svg",
      { width, height: CHART_HEIGHT, viewBox: `0 0 ${width} ${CHART_HEIGHT}`, tabindex: 0, role: "slider" },
      ...parts.flat(),
      this.mark,
    );
    this.svg.setAttribute("aria-label", `${this.title}, step`);
    this.svg.setAttribute("aria-valuemin", steps[0] ?? 0);
    this.svg.setAttribute("aria-valuenow", steps.at(-1) ?? 0);
    this.svg.setAttribute("aria-valuemax", steps.at(-1) ?? 0);
    this.svg.addEventListener("pointermove", (event) => this.#point(event.offsetX));
    this.svg.addEventListener("pointerleave", () => this.svg !== document.activeElement && this.#moveTo(null));
    this.svg.addEventListener("click", (event) => (this.#point(event.offsetX), this.#openCursor()));
    this.svg.addEventListener("keydown", (event) => this.#key(event));
    this.host.replaceChildren(this.svg);
    this.#moveTo(this.cursor);
    if (focused) this.svg.focus({ preventScroll: true });
  }

  #axes(width, [low, high]) {
    const { steps } = this.data;
    const bottom = CHART_HEIGHT - MARGIN.bottom;
    const [first, last] = rangeOf(steps);
    const across = ticksBetween(first, last, Math.max(2, Math.floor(width / 80))).filter((step) => Number.isInteger(step));
    const up = ticksBetween(low, high, 4);
    return [
      up.map((value) =>
        svg("line", {
          class: value === 0 ? "zero" : "grid",
          x1: MARGIN.left,
          x2: width - MARGIN.right,
          y1: px(this.y(value)),
          y2: px(this.y(value)),
        }),
      ),
      up.map((value) =>
        svg("text", { class: "tick", x: MARGIN.left - 6, y: px(this.y(value) + 3.5), "text-anchor": "end" }, tickText(value)),
      ),
      across.map((step) => svg("text", { class: "tick", x: px(this.x(step)), y: bottom + 17, "text-anchor": "middle" }, String(step))),
    ];
  }

  #events(events) {
    const top = MARGIN.top;
    const { steps } = this.data;
    const drawn = events.filter(({ step }) => step >= steps[0] && step <= steps.at(-1));
    return drawn.map(({ step, kind, text }) => {
      const x = px(this.x(step));
      const sign = svg("text", { class: "sign", x, y: top + 2, "text-anchor": "middle" }, EVENT_SIGNS[kind] ?? "·");
      const line = svg("line", { x1: x, x2: x, y1: top + 5, y2: CHART_HEIGHT - MARGIN.bottom });
      return svg("g", { class: `event ${EVENT_SIGNS[kind] ? kind : ""}` }, svg("title", {}, `step ${step}: ${kind}: ${text}`), line, sign);
    });
  }

  #band({ kind, low, high }) {
    if (!low || !high) return null;
    return runsOf(this.data.steps, (i) => hasValue(low[i]) && hasValue(high[i])).map((run) => {
      const above = run.map((i) => `${px(this.x(this.data.steps[i]))},${px(this.y(high[i]))}`);
      const below = run.map((i) => `${px(this.x(this.data.steps[i]))},${px(this.y(low[i]))}`).reverse();
      return svg("polygon", { class: `band ${kind}`, points: [...above, ...below].join(" ") });
    });
  }

  // Steps without a value are bridged: validation has one only now and then.
  #line({ kind, name, mean }) {
    const { steps } = this.data;
    const places = steps.map((_, i) => i).filter((i) => hasValue(mean[i]));
    const points = places.map((i) => `${px(this.x(steps[i]))},${px(this.y(mean[i]))}`);
    const dots =
      places.length <= DOTS_UP_TO
        ? places.map((i) => svg("circle", { class: `dot ${kind}`, cx: px(this.x(steps[i])), cy: px(this.y(mean[i])), r: 2.4 }))
        : [];
    return [svg("polyline", { class: `curve ${kind}`, points: points.join(" ") }, svg("title", {}, name)), dots];
  }

  #point(x) {
    const { steps } = this.data;
    let nearest = null;
    for (let i = 0; i < steps.length; i++) {
      if (nearest === null || Math.abs(this.x(steps[i]) - x) < Math.abs(this.x(steps[nearest]) - x)) nearest = i;
    }
    this.#moveTo(nearest);
  }

  #moveTo(place) {
    this.cursor = place;
    this.mark.setAttribute("visibility", place === null ? "hidden" : "visible");
    if (place === null) {
      this.said.textContent = "";
      return;
    }
    const { steps, lines, events = [] } = this.data;
    const x = px(this.x(steps[place]));
    this.mark.setAttribute("x1", x);
    this.mark.setAttribute("x2", x);
    const values = lines.filter(({ mean }) => hasValue(mean[place])).map((line) => `${line.name} ${valueText(line, place)}`);
    const here = events.filter(({ step }) => step === steps[place]).map(({ kind, text }) => `${kind}: ${text}`);
    this.said.textContent = [`step ${steps[place]}`, ...values, ...here].join(" · ");
    this.svg.setAttribute("aria-valuenow", steps[place]);
    this.svg.setAttribute("aria-valuetext", this.said.textContent);
  }

  #key(event) {
    const { steps } = this.data;
    const now = this.cursor ?? steps.length;
    const moves = { ArrowLeft: now - 1, ArrowRight: (this.cursor ?? -1) + 1, Home: 0, End: steps.length - 1 };
    if (event.key in moves && steps.length) this.#moveTo(Math.max(0, Math.min(steps.length - 1, moves[event.key])));
    else if (event.key === "Enter") this.#openCursor();
    else return;
    event.preventDefault();
  }

  #openCursor() {
    if (this.cursor !== null) this.openStep?.(this.data.steps[this.cursor]);
  }

  #fillTable() {
    if (!this.table.open || !this.data) return;
    const { steps, lines } = this.data;
    const rows = steps.map((step, i) => [String(step), ...lines.map((line) => (hasValue(line.mean[i]) ? valueText(line, i) : "–"))]);
    const scroller = h(
      "div",
      { className: "scroller", tabIndex: 0, role: "region", ariaLabel: `${this.title}, table` },
      smallTable(null, ["step", ...lines.map(({ name }) => name)], rows),
    );
    this.table.replaceChildren(this.table.firstChild, scroller);
  }
}

function valueText({ mean, low, high, n }, i) {
  const band = low && high && hasValue(low[i]) && hasValue(high[i]) ? ` (${shortNumber(low[i])} to ${shortNumber(high[i])})` : "";
  return `${shortNumber(mean[i])}${band}${n && hasValue(n[i]) ? `, n=${n[i]}` : ""}`;
}

// The stretches of places for which `test` holds.
function runsOf(list, test) {
  const runs = [];
  let run = [];
  for (let i = 0; i <= list.length; i++) {
    if (i < list.length && test(i)) run.push(i);
    else if (run.length) {
      runs.push(run);
      run = [];
    }
  }
  return runs;
}

function legendOf({ name, kind }) {
  const sample = svg(
    "svg",
    { width: 26, height: 10, "aria-hidden": "true" },
    svg("line", { class: `curve ${kind}`, x1: 1, x2: 25, y1: 5, y2: 5 }),
  );
  return h("span", { className: "key" }, sample, ` ${name}`);
}
