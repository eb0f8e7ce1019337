// Pairs of rewards as a picture: four counts where both are binary, otherwise a scatter of bubbles.
// Every count leads to its sessions.

const BUBBLES = 20; // along each axis
const PAIR_SIZE = 300;

// axes: [{name, value(i), low: name of the list's field, high}, ...], for x and y.
// open: function from a query of the list.
function drawPairs(title, places, [x, y], open) {
  const pairs = places.map((i) => [x.value(i), y.value(i)]).filter(([a, b]) => a !== null && b !== null);
  const heading = h(
    "figcaption",
    {},
    h("h3", {}, h("bdi", {}, title)),
    h("p", { className: "small" }, `${counted(pairs.length)} sessions with both rewards`),
  );
  if (!pairs.length) return h("figure", { className: "chart" }, heading);
  const values = [...new Set(pairs.flat())].sort((a, b) => a - b);
  const picture = values.length <= 2 ? fourCells(pairs, values, [x, y], open) : bubbles(pairs, values, [x, y], open);
  return h("figure", { className: "chart" }, heading, ...picture);
}

function countButton(count, total, query, open, name) {
  const share = total ? ` ${((100 * count) / total).toFixed(count && count < total / 100 ? 1 : 0)} %` : "";
  const button = h(
    "button",
    { type: "button", className: "count-cell", ariaLabel: `${name}: ${counted(count)} sessions` },
    h("b", {}, counted(count)),
    h("small", {}, share),
  );
  button.addEventListener("click", () => open(query));
  return button;
}

// Two rewards, so four outcomes.
function fourCells(pairs, values, [x, y], open) {
  const [low, high] = values.length === 2 ? values : [values[0], values[0]];
  const levels = low === high ? [low] : [low, high];
  const rows = levels.map((a) => [
    `${x.name} ${shortNumber(a)}`,
    ...levels.map((b) => {
      const count = pairs.filter(([first, second]) => first === a && second === b).length;
      const kind = b > a ? "better" : b < a ? "worse" : "same";
      const cell = countButton(
        count,
        pairs.length,
        { [x.low]: a, [x.high]: a, [y.low]: b, [y.high]: b },
        open,
        `${x.name} ${shortNumber(a)}, ${y.name} ${shortNumber(b)}`,
      );
      cell.classList.add(kind);
      return [cell];
    }),
  ]);
  const table = smallTable(null, ["", ...levels.map((b) => `${y.name} ${shortNumber(b)}`)], rows);
  table.classList.add("four");
  return [table];
}

function bubbles(pairs, values, [x, y], open) {
  const range = [values[0], values.at(-1)];
  const bin = (value, count) => Math.min(count - 1, Math.floor(((value - range[0]) / (range[1] - range[0])) * count));
  const host = h("div", { className: "plot pairs" });
  const counts = new Map();
  // Better, same and worse by the rewards themselves: two rewards of one bin may differ.
  for (const [a, b] of pairs) {
    const key = `${b - a > TOLERANCE ? "better" : b - a < -TOLERANCE ? "worse" : "same"} ${bin(a, BUBBLES)} ${bin(b, BUBBLES)}`;
    counts.set(key, (counts.get(key) ?? 0) + 1);
  }
  const most = Math.max(...counts.values());
  const width = (range[1] - range[0]) / BUBBLES;
  const query = (k, l, size) => ({
    [x.low]: tidy(range[0] + k * size),
    [x.high]: tidy(range[0] + (k + 1) * size),
    [y.low]: tidy(range[0] + l * size),
    [y.high]: tidy(range[0] + (l + 1) * size),
  });
  drawnToWidth(host, (available) => {
    const side = Math.min(available, PAIR_SIZE + MARGIN.left);
    const toX = scaleOf(range, MARGIN.left, side - 10);
    const toY = scaleOf(range, side - 34, 10);
    const ticks = ticksBetween(...range, 4);
    const dots = [...counts].map(([key, count]) => {
      const [kind, ...bins] = key.split(" ");
      const [k, l] = bins.map(Number);
      const [a, b] = [range[0] + (k + 0.5) * width, range[0] + (l + 0.5) * width];
      const dot = svg(
        "circle",
        { class: `bubble ${kind}`, tabindex: 0, role: "button", cx: px(toX(a)), cy: px(toY(b)), r: px(1.5 + 7 * Math.sqrt(count / most)) },
        svg("title", {}, `${x.name} about ${shortNumber(tidy(a))}, ${y.name} about ${shortNumber(tidy(b))}, ${kind}: ${count} sessions`),
      );
      dot.addEventListener("click", () => open(query(k, l, width)));
      dot.addEventListener("keydown", (event) => event.key === "Enter" && open(query(k, l, width)));
      return dot;
    });
    const picture = svg(
      "svg",
      {
        width: side,
        height: side,
        viewBox: `0 0 ${side} ${side}`,
        role: "group",
        "aria-label": `${y.name} against ${x.name}`,
      },
      ticks.map((value) => svg("line", { class: "grid", x1: MARGIN.left, x2: side - 10, y1: px(toY(value)), y2: px(toY(value)) })),
      svg("line", { class: "zero", x1: px(toX(range[0])), y1: px(toY(range[0])), x2: px(toX(range[1])), y2: px(toY(range[1])) }),
      dots,
      ticks.map((value) => [
        svg("text", { class: "tick", x: px(toX(value)), y: side - 18, "text-anchor": "middle" }, tickText(value)),
        svg("text", { class: "tick", x: MARGIN.left - 6, y: px(toY(value) + 3.5), "text-anchor": "end" }, tickText(value)),
      ]),
      svg("text", { x: side - 10, y: side - 4, "text-anchor": "end" }, `${x.name} →`),
      svg("text", { x: 4, y: 10 }, `↑ ${y.name}`),
    );
    host.replaceChildren(picture);
  });
  return [host];
}

const tidy = (value) => Number(value.toPrecision(6));
