// Curves or stacked areas over the steps, with bands, events on the axis, labels at the ends of the lines, zoom, a cursor for mouse
// and keys, and the same numbers as a table.

const MARGIN = { left: 46, right: 14, top: 12, bottom: 26 };
const EVENT_SIGNS = { resume: "↻", checkpoint: "◆", outage: "✕", alarm: "!" };
const DOTS_UP_TO = 40; // points: longer curves are drawn without dots
const LETTER = 6.1; // pixels of a label's letter
const DRAGGED = 6; // pixels from which on a click is a drag
const TWICE_MS = 250; // a click on a zoomed chart may be the first of two

// data: {steps, lines: [{name, kind, mean, low?, high?, n?}], events?, stacked?: whether the lines add up, smooth?: 0 to 0.95,
//        include?: values that the axis must show, bounds?: those that it shows unless it is zoomed, zoom?: [first, last step],
//        across?: what the steps are}
// kind is the CSS class that gives a line its colour and dashes. onZoom(range or null) keeps the zoom in an address.
class CurveChart {
  constructor(title, openStep, { height = 210, onZoom } = {}) {
    const zoom = (range) => this.update({ ...this.data, zoom: range });
    Object.assign(this, { title, openStep, height, onZoom: onZoom ?? zoom, cursor: null }); // cursor: a place in `steps`
    this.host = h("div", { className: "plot" });
    this.note = h("p", { className: "small" });
    this.said = h("p", { className: "said-values", role: "status" });
    this.table = h("details", { className: "numbers" }, h("summary", {}, "Table"));
    this.table.addEventListener("toggle", () => this.#fillTable());
    this.tools = h("div", {});
    const below = h("div", { className: "below" }, this.table, this.tools);
    this.element = h("figure", { className: "chart" }, h("figcaption", {}, h("h2", { className: "title" }, title), this.note), this.host, this.said, below);
    this.redraw = drawnToWidth(this.host, (width) => this.#draw(width));
  }

  update(data) {
    if (JSON.stringify(data) === JSON.stringify(this.data)) return;
    this.data = data;
    if (this.cursor !== null && this.cursor >= data.steps.length) this.cursor = null;
    const { steps, zoom, across = "step" } = data;
    this.note.textContent = zoom ? `Zoomed to ${across}s ${zoom[0]} to ${zoom[1]}; the axis of values fits them.` : "";
    this.redraw();
    this.#fillTable();
    const picture = button("PNG", () => savePicture(this.title, this.svg), { ariaLabel: `Save ${this.title} as PNG` });
    const tools = takeAlong(this.title, ...this.#rows());
    tools.querySelectorAll("button")[1].after(picture);
    this.tools.replaceChildren(tools);
  }

  #draw(width) {
    if (!this.data) return;
    const { steps, include = [], bounds, events = [], stacked, zoom } = this.data;
    this.places = steps.map((_, i) => i).filter((i) => !zoom || (steps[i] >= zoom[0] && steps[i] <= zoom[1]));
    this.lines = this.#layers();
    const values = this.lines.flatMap(({ top, mean, low, high }) => this.places.flatMap((i) => (stacked ? [top[i]] : [top[i], mean[i], low?.[i], high?.[i]])));
    const [low, high] = rangeOf(values, [...include, ...(stacked ? [0] : []), ...((!zoom && bounds) || [])]);
    const room = (high - low) * 0.05;
    const longest = Math.max(0, ...this.lines.map(({ name }) => name.length));
    this.right = width - Math.max(MARGIN.right, Math.min(width * 0.3, longest * LETTER + 12));
    this.bottom = this.height - MARGIN.bottom;
    this.x = scaleOf(rangeOf(this.places.map((i) => steps[i])), MARGIN.left, this.right);
    this.y = scaleOf([stacked ? low : low - room, high + room], this.bottom, MARGIN.top);
    const focused = document.activeElement === this.svg;
    this.mark = svg("line", { class: "cursor", y1: MARGIN.top, y2: this.bottom, visibility: "hidden" });
    this.chosen = svg("rect", { class: "chosen", y: MARGIN.top, height: this.bottom - MARGIN.top, width: 0 });
    const looks = { width, height: this.height, viewBox: `0 0 ${width} ${this.height}`, tabindex: 0, role: "slider" };
    const says = { "aria-label": `${this.title}, ${this.data.across ?? "step"}`, "aria-valuemin": steps[0] ?? 0, "aria-valuemax": steps.at(-1) ?? 0 };
    const shapes = [this.lines.map((line) => this.#band(line)), this.lines.map((line) => this.#line(line, width)), this.#labels(width)];
    this.svg = svg("svg", { ...looks, ...says, "aria-valuenow": steps.at(-1) ?? 0 }, this.#axes(width, [low, high]), shapes, this.#events(events), this.chosen, this.mark);
    this.#listen();
    this.host.replaceChildren(this.svg);
    this.#moveTo(this.cursor);
    if (focused) this.svg.focus({ preventScroll: true });
  }

  // Each line with its drawn values `top`, and what lies below an area, `from`.
  #layers() {
    const { steps, lines, stacked, smooth } = this.data;
    const sums = steps.map(() => 0);
    return lines.map((line) => {
      if (!stacked) return { ...line, top: smooth ? smoothed(line.mean, smooth) : line.mean, raw: smooth ? line.mean : null };
      const from = [...sums];
      line.mean.forEach((value, i) => (sums[i] += value ?? 0));
      return { ...line, from, top: sums.map((sum, i) => (hasValue(line.mean[i]) ? sum : null)) };
    });
  }

  #listen() {
    const on = (name, listener) => this.svg.addEventListener(name, listener);
    on("pointerdown", (event) => (this.from = event.offsetX));
    on("pointermove", (event) => {
      this.#point(event.offsetX);
      if (this.from === undefined || !event.buttons) return;
      this.svg.setPointerCapture(event.pointerId);
      this.chosen.setAttribute("x", Math.min(this.from, event.offsetX));
      this.chosen.setAttribute("width", Math.abs(event.offsetX - this.from));
    });
    on("pointerleave", () => this.svg !== document.activeElement && this.#moveTo(null));
    on("pointerup", (event) => this.#chosen(event.offsetX));
    on("dblclick", () => (clearTimeout(this.soon), this.data.zoom && this.onZoom(null)));
    on("keydown", (event) => this.#key(event));
  }

  // A drag zooms, a click opens the step.
  #chosen(x) {
    const { from } = this;
    this.from = undefined;
    if (from === undefined) return;
    const { steps, zoom } = this.data;
    const [first, last] = [Math.min(from, x), Math.max(from, x)];
    const inside = this.places.filter((i) => this.x(steps[i]) >= first - 1 && this.x(steps[i]) <= last + 1).map((i) => steps[i]);
    this.chosen.setAttribute("width", 0);
    if (last - first > DRAGGED) return inside.length > 1 && this.onZoom([inside[0], inside.at(-1)]);
    this.#point(x);
    clearTimeout(this.soon);
    this.soon = setTimeout(() => this.#openCursor(), zoom ? TWICE_MS : 0);
  }

  #axes(width, [low, high]) {
    const { steps } = this.data;
    const [first, last] = rangeOf(this.places.map((i) => steps[i]));
    const across = ticksBetween(first, last, Math.max(2, Math.floor(width / 80))).filter((step) => Number.isInteger(step));
    return [
      axisUp(ticksBetween(low, high, Math.max(3, Math.floor(this.height / 60))), this.y, [MARGIN.left, this.right]),
      across.map((step) => svg("text", { class: "tick", x: px(this.x(step)), y: this.bottom + 17, "text-anchor": "middle" }, String(step))),
    ];
  }

  #events(events) {
    const { steps } = this.data;
    const [first, last] = [steps[this.places[0]], steps[this.places.at(-1)]];
    return events.filter(({ step }) => step >= first && step <= last).map(({ step, kind, text }) => {
      const x = px(this.x(step));
      const sign = svg("text", { class: "sign", x, y: MARGIN.top - 2, "text-anchor": "middle" }, EVENT_SIGNS[kind] ?? "·");
      const line = svg("line", { x1: x, x2: x, y1: MARGIN.top + 2, y2: this.bottom });
      return svg("g", { class: `event ${EVENT_SIGNS[kind] ? kind : ""}` }, svg("title", {}, `step ${step}: ${kind}: ${text}`), line, sign);
    });
  }

  #points(values, places) {
    return places.map((i) => `${px(this.x(this.data.steps[i]))},${px(this.y(values[i]))}`);
  }

  #band({ kind, low, high, from, top, name }) {
    const area = (looks, below, above, places) => svg("polygon", { ...looks, points: [...this.#points(above, places), ...this.#points(below, places).reverse()].join(" ") });
    if (from) {
      const known = this.places.filter((i) => hasValue(top[i]));
      const shape = area({ class: `area ${kind}` }, from, top, known);
      if (known.length === 1) shape.setAttribute("points", this.#bar(from[known[0]], top[known[0]]));
      shape.append(svg("title", {}, name));
      return shape;
    }
    if (!low || !high) return null;
    return runsOf(this.places, (i) => hasValue(low[i]) && hasValue(high[i])).map((run) => area({ class: `band ${kind}` }, low, high, run));
  }

  // The area of a single step.
  #bar(from, top) {
    const [left, right] = [MARGIN.left + 20, this.right - 20].map(px);
    return `${left},${px(this.y(top))} ${right},${px(this.y(top))} ${right},${px(this.y(from))} ${left},${px(this.y(from))}`;
  }

  // Steps without a value are bridged: validation has one only now and then.
  #line({ kind, name, top, raw, from }) {
    if (from) return null;
    const places = this.places.filter((i) => hasValue(top[i]));
    const curve = (values, more) => svg("polyline", { class: `curve ${kind}${more}`, points: this.#points(values, places).join(" ") }, svg("title", {}, name));
    const dots = places.length <= DOTS_UP_TO && !raw ? places : [];
    const dot = (i) => svg("circle", { class: `dot ${kind}`, cx: px(this.x(this.data.steps[i])), cy: px(this.y(top[i])), r: 2.4 });
    return [raw ? curve(raw, " faint") : null, curve(top, ""), dots.map(dot)];
  }

  // The names at the ends of the lines, moved apart where they would cover each other.
  #labels(width) {
    const most = Math.floor((width - this.right - 8) / LETTER);
    const ends = this.lines.map(({ name, kind, top, from }) => {
      const i = this.places.findLast((place) => hasValue(top[place]));
      return i === undefined ? null : { name, kind, y: this.y(from ? (from[i] + top[i]) / 2 : top[i]) + 3.5 };
    });
    const labels = ends.filter(Boolean).sort((a, b) => a.y - b.y);
    labels.forEach((one, k) => (one.y = Math.max(one.y, (labels[k - 1]?.y ?? 0) + 12)));
    labels.reverse().forEach((one, k) => (one.y = Math.min(one.y, (labels[k - 1]?.y ?? this.bottom + 16) - 12)));
    const short = (name) => (name.length > most ? `${name.slice(0, most - 1)}…` : name);
    return labels.map(({ name, kind, y }) => svg("text", { class: `label ${kind}`, x: this.right + 7, y: px(y) }, short(name), svg("title", {}, name)));
  }

  #point(x) {
    const { steps } = this.data;
    const away = (i) => Math.abs(this.x(steps[i]) - x);
    this.#moveTo(this.places.reduce((nearest, i) => (nearest === null || away(i) < away(nearest) ? i : nearest), null));
  }

  #moveTo(place) {
    this.cursor = this.places.includes(place) ? place : null;
    this.mark.setAttribute("visibility", this.cursor === null ? "hidden" : "visible");
    if (this.cursor === null) return (this.said.textContent = "");
    const { steps, lines, events = [], across = "step" } = this.data;
    for (const end of ["x1", "x2"]) this.mark.setAttribute(end, px(this.x(steps[place])));
    const values = lines.filter(({ mean }) => hasValue(mean[place])).map((line) => `${line.name} ${valueText(line, place)}`);
    const here = events.filter(({ step }) => step === steps[place]).map(({ kind, text }) => `${kind}: ${text}`);
    this.said.textContent = [`${across} ${steps[place]}`, ...values, ...here].join(" · ");
    this.svg.setAttribute("aria-valuenow", steps[place]);
    this.svg.setAttribute("aria-valuetext", this.said.textContent);
  }

  #key(event) {
    const now = this.places.indexOf(this.cursor);
    const last = this.places.length - 1;
    const moves = { ArrowLeft: now < 0 ? last : now - 1, ArrowRight: now + 1, Home: 0, End: last };
    if (event.key in moves && last >= 0) this.#moveTo(this.places[Math.max(0, Math.min(last, moves[event.key]))]);
    else if (event.key === "Enter") this.#openCursor();
    else if (event.key === "Escape" && this.data.zoom) this.onZoom(null);
    else return;
    event.preventDefault();
  }

  #openCursor() {
    if (this.cursor !== null) this.openStep?.(this.data.steps[this.cursor]);
  }

  // Columns and rows of the numbers, with all their digits.
  #rows() {
    const { steps, lines, across = "step" } = this.data;
    const columns = lines.flatMap((line) => ["mean", "low", "high", "n"].filter((key) => line[key]).map((key) => [line[key], key === "mean" ? line.name : `${line.name} ${key}`]));
    const rows = steps.map((step, i) => [cell(step, String(step)), ...columns.map(([values]) => cell(values[i], fixed(values[i], Number.isInteger(values[i]) ? 0 : 4)))]);
    return [[{ title: across }, ...columns.map(([, title]) => ({ title }))], rows];
  }

  #fillTable() {
    if (this.table.open && this.data) this.table.replaceChildren(this.table.firstChild, dataTable(...this.#rows(), { name: `${this.title}, table` }));
  }
}

function valueText({ mean, low, high, n }, i) {
  const band = low && high && hasValue(low[i]) && hasValue(high[i]) ? ` (${shortNumber(low[i])} to ${shortNumber(high[i])})` : "";
  return `${shortNumber(mean[i])}${band}${n && hasValue(n[i]) ? `, n=${n[i]}` : ""}`;
}

// The stretches of a list for whose entries `test` holds.
function runsOf(list, test) {
  const runs = [];
  list.forEach((one, k) => {
    if (!test(one)) return;
    if (!k || !test(list[k - 1])) runs.push([]);
    runs.at(-1).push(one);
  });
  return runs;
}

// An exponential mean of the values so far, without the pull of its start.
function smoothed(values, weight) {
  let [sum, total] = [0, 0];
  return values.map((value) => {
    if (!hasValue(value)) return null;
    [sum, total] = [weight * sum + (1 - weight) * value, weight * total + (1 - weight)];
    return sum / total;
  });
}

// The charts of a view: each is made once and then updated, so that it keeps cursor and focus.
class Charts {
  constructor(run, options = {}) {
    Object.assign(this, { run, options, all: new Map() });
  }

  // The element of a chart; `filters` are those of the list that a click on a step opens.
  draw(title, data, { filters = {}, ...options } = {}) {
    if (!this.all.has(title)) this.all.set(title, new CurveChart(title, null, { ...this.options, ...options }));
    const chart = this.all.get(title);
    if (!data.across) chart.openStep = (step) => go(placeOf(this.run.id, "sessions"), { step_from: step, step_to: step, ...filters });
    chart.update(data);
    return chart.element;
  }

  // A chart of those of these metrics that the run has: {metric: name of its line}; nothing without any.
  metrics(title, names, more = {}, options = {}) {
    const { steps = [], series = {} } = this.run.overview.metrics ?? {};
    const lines = Object.entries(names).filter(([metric]) => series[metric]?.some(hasValue));
    const drawn = lines.map(([metric, name], k) => ({ name, kind: `series-${(k % 6) + 1}`, mean: series[metric] }));
    return lines.length ? this.draw(title, { steps, events: this.run.overview.events ?? [], lines: drawn, ...more }, options) : null;
  }
}
