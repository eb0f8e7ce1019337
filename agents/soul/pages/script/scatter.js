// Pairs of rewards as a picture: four counts where both are binary, otherwise a scatter of bubbles.
// Every count leads to its sessions.

const BUBBLES = 20; // along each axis
const PAIR_SIZE = 300;

// axes: [{name, value(i), low: name of the list's field, high}, ...], for x and y.
// open: function from a query of the list.
function drawPairs(title, places, [x, y], open) {
  const pairs = places.map((i) => [x.value(i), y.value(i)]).filter(([a, b]) => a !== null && b !== null);
  const heading = h("figcaption", {}, h("h2", { className: "title" }, h("bdi", {}, title)), small(`${counted(pairs.length)} sessions with both rewards`));
  if (!pairs.length) return h("figure", { className: "chart" }, heading);
  const values = [...new Set(pairs.flat())].sort((a, b) => a - b);
  return h("figure", { className: "chart" }, heading, (values.length <= 2 ? fourCells : bubbles)(pairs, values, [x, y], open));
}

// Two rewards, so four outcomes.
function fourCells(pairs, values, [x, y], open) {
  const rows = values.map((a) => [
    `${x.name} ${shortNumber(a)}`,
    ...values.map((b) => {
      const count = pairs.filter(([first, second]) => first === a && second === b).length;
      const share = ((100 * count) / pairs.length).toFixed(count && count < pairs.length / 100 ? 1 : 0);
      const query = { [x.low]: a, [x.high]: a, [y.low]: b, [y.high]: b };
      const kind = b > a ? "better" : b < a ? "worse" : "same";
      const name = `${x.name} ${shortNumber(a)}, ${y.name} ${shortNumber(b)}: ${counted(count)} sessions`;
      const click = () => open(query);
      return h("button", { type: "button", className: `count-cell ${kind}`, ariaLabel: name, on: { click } }, h("b", {}, counted(count)), h("small", {}, ` ${share} %`));
    }),
  ]);
  const table = smallTable(null, ["", ...values.map((b) => `${y.name} ${shortNumber(b)}`)], rows);
  table.classList.add("four");
  return table;
}

function bubbles(pairs, values, [x, y], open) {
  const range = [values[0], values.at(-1)];
  const size = (range[1] - range[0]) / BUBBLES;
  const bin = (value) => Math.min(BUBBLES - 1, Math.floor((value - range[0]) / size));
  const counts = new Map();
  // Better, same and worse by the rewards themselves: two rewards of one bin may differ.
  for (const [a, b] of pairs) {
    const key = `${b - a > TOLERANCE ? "better" : b - a < -TOLERANCE ? "worse" : "same"} ${bin(a)} ${bin(b)}`;
    counts.set(key, (counts.get(key) ?? 0) + 1);
  }
  const most = Math.max(...counts.values());
  const at = (k) => tidy(range[0] + k * size);
  const host = h("div", { className: "plot pairs" });
  drawnToWidth(host, (width) => {
    const side = Math.min(width, PAIR_SIZE + MARGIN.left);
    const toX = scaleOf(range, MARGIN.left, side - 10);
    const toY = scaleOf(range, side - 34, 24);
    const dots = [...counts].map(([key, count]) => {
      const [kind, ...bins] = key.split(" ");
      const [k, l] = bins.map(Number);
      const [a, b] = [at(k + 0.5), at(l + 0.5)];
      const show = () => open({ [x.low]: at(k), [x.high]: at(k + 1), [y.low]: at(l), [y.high]: at(l + 1) });
      const looks = { class: `bubble ${kind}`, tabindex: 0, role: "button", cx: px(toX(a)), cy: px(toY(b)), r: px(1.5 + 7 * Math.sqrt(count / most)) };
      const text = `${x.name} about ${shortNumber(a)}, ${y.name} about ${shortNumber(b)}, ${kind}: ${count} sessions`;
      const dot = svg("circle", looks, svg("title", {}, text));
      dot.addEventListener("click", show);
      dot.addEventListener("keydown", (event) => event.key === "Enter" && show());
      return dot;
    });
    const ticks = ticksBetween(...range, 4).map((value) => [
      svg("line", { class: "grid", x1: MARGIN.left, x2: side - 10, y1: px(toY(value)), y2: px(toY(value)) }),
      svg("text", { class: "tick", x: px(toX(value)), y: side - 18, "text-anchor": "middle" }, tickText(value)),
      svg("text", { class: "tick", x: MARGIN.left - 6, y: px(toY(value) + 3.5), "text-anchor": "end" }, tickText(value)),
    ]);
    const equal = svg("line", { class: "zero", x1: px(toX(range[0])), y1: px(toY(range[0])), x2: px(toX(range[1])), y2: px(toY(range[1])) });
    const names = [svg("text", { x: side - 10, y: side - 4, "text-anchor": "end" }, `${x.name} →`), svg("text", { x: 4, y: 10 }, `↑ ${y.name}`)];
    const looks = { width: side, height: side, viewBox: `0 0 ${side} ${side}`, role: "group", "aria-label": `${y.name} against ${x.name}` };
    host.replaceChildren(svg("svg", looks, ticks, equal, dots, names));
  });
  return host;
}

const tidy = (value) => Number(value.toPrecision(6));
