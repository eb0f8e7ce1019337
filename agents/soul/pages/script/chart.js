// What all pictures share: SVG elements, scales and ticks, and a way to take a picture along.

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
  for (const value of [...values, ...include].filter(hasValue)) {
    low = Math.min(low, value);
    high = Math.max(high, value);
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

// Lines across a picture at these ticks of `x`, between two heights, with their numbers at a third one.
function axisAcross(ticks, x, [top, bottom], y) {
  return ticks.map((value) => [
    svg("line", { class: value === 0 ? "zero" : "grid", x1: px(x(value)), x2: px(x(value)), y1: top, y2: bottom }),
    svg("text", { class: "tick", x: px(x(value)), y, "text-anchor": "middle" }, tickText(value)),
  ]);
}

// The same along a picture, with the numbers on its left.
function axisUp(ticks, y, [left, right]) {
  return ticks.map((value) => [
    svg("line", { class: value === 0 ? "zero" : "grid", x1: left, x2: right, y1: px(y(value)), y2: px(y(value)) }),
    svg("text", { class: "tick", x: left - 6, y: px(y(value) + 3.5), "text-anchor": "end" }, tickText(value)),
  ]);
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

const LOOKS = "fill stroke stroke-width stroke-dasharray stroke-linejoin opacity font-family font-size font-weight".split(" ");
const TITLE_HEIGHT = 26;

// Saves a drawing as PNG, twice as sharp as on the screen. Its computed looks become attributes of a copy, because the page's
// style does not reach into an image.
async function savePicture(title, drawing) {
  const copy = drawing.cloneNode(true);
  const [shown, copied] = [drawing, copy].map((one) => [one, ...one.querySelectorAll("*")]);
  shown.forEach((one, k) => {
    const style = getComputedStyle(one);
    for (const look of LOOKS) copied[k].setAttribute(look, style.getPropertyValue(look));
  });
  const image = h("img", { src: `data:image/svg+xml,${encodeURIComponent(new XMLSerializer().serializeToString(copy))}` });
  await image.decode();
  const { width, height } = drawing.getBoundingClientRect();
  const canvas = h("canvas", { width: 2 * width, height: 2 * (height + TITLE_HEIGHT) });
  const pen = canvas.getContext("2d");
  const page = getComputedStyle(document.body);
  pen.scale(2, 2);
  pen.fillStyle = page.backgroundColor;
  pen.fillRect(0, 0, width, height + TITLE_HEIGHT);
  pen.fillStyle = page.color;
  pen.font = `600 14px ${page.fontFamily}`;
  pen.fillText(title, 8, 18);
  pen.drawImage(image, 0, TITLE_HEIGHT, width, height);
  canvas.toBlob((blob) => saveBlob(`${title}.png`, blob));
}
