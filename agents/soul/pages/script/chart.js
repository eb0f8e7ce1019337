// What all pictures share: SVG elements, scales and ticks.

// Creates an SVG element with these attributes and children; text is inserted as text.
function svg(name, attributes, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes ?? {})) element.setAttribute(key, value);
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
  return element;
}

// Least and largest of these values, widened where they are equal; [0, 1] without values or where all are 0.
function rangeOf(values, include = []) {
  let low = Infinity;
  let high = -Infinity;
  for (const list of [values, include]) {
    for (const value of list) {
      if (!hasValue(value)) continue;
      low = Math.min(low, value);
      high = Math.max(high, value);
    }
  }
  if (low > high || (low === 0 && high === 0)) return [0, 1];
  return low === high ? [low - 0.5, high + 0.5] : [low, high];
}

// About `count` round numbers between low and high.
function ticksBetween(low, high, count) {
  const rough = (high - low) / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((factor) => factor * power).find((size) => size >= rough) ?? rough;
  const ticks = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + step * 1e-9; k++) ticks.push(Number((k * step).toPrecision(12)));
  return ticks;
}

// A function from values between low and high to pixels between start and end.
function scaleOf([low, high], start, end) {
  return (value) => start + ((value - low) / (high - low)) * (end - start);
}

const px = (value) => value.toFixed(1);

// A short number for an axis.
function tickText(value) {
  const size = Math.abs(value);
  if (size >= 1e6) return `${shortNumber(value / 1e6)}M`;
  if (size >= 1e4) return `${shortNumber(value / 1e3)}k`;
  return size && size < 1e-3 ? value.toExponential(0) : shortNumber(value);
}

// Draws into `host` again whenever its width changes, so that texts keep their size on every screen.
function drawnToWidth(host, draw) {
  let width = 0;
  const observer = new ResizeObserver(() => {
    const now = Math.floor(host.clientWidth);
    if (now && now !== width) draw((width = now));
  });
  observer.observe(host);
  return () => width && draw(width);
}

// What the colours of stacked bars mean.
function stackLegend(names) {
  const sample = (k) =>
    svg("svg", { width: 12, height: 12, "aria-hidden": "true" }, svg("rect", { class: `stack part-${k + 1}`, width: 12, height: 12 }));
  return h(
    "p",
    { className: "legend" },
    names.map((name, k) => h("span", { className: "key" }, sample(k), ` ${name}`)),
  );
}
