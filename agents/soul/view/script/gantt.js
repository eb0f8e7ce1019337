// One step's sessions as a Gantt chart: when each stage of a session ran, the longest sessions first. The straggler, which
// ends last, is what the step waits for.

const GANTT_ROWS = 24; // sessions that are loaded; their records hold the times
const ROW_HEIGHT = 20;
const STAGES = ["draft play", "draft judge", "draft feedback", "refined play", "refined judge"];

class Gantt {
  constructor(run, openStep) {
    this.openStep = openStep;
    this.choice = h("select", { name: "step" });
    this.choice.addEventListener("change", () => this.openStep(this.choice.value));
    this.note = h("p", { className: "small", role: "status" });
    this.host = h("div", { className: "plot gantt" });
    const legend = stackLegend(STAGES);
    this.table = h("details", { className: "numbers" }, h("summary", {}, "Table"));
    this.element = h(
      "section",
      { className: "gantt-part" },
      h("h3", {}, "The longest sessions of a step"),
      h("div", { className: "choices" }, h("label", {}, "Step ", this.choice)),
      legend,
      this.note,
      this.host,
      this.table,
    );
  }

  async show(run, asked) {
    const { store } = run;
    const steps = [...new Set(store.where((i) => store.text("split", i) === "step").map((i) => store.number("step", i)))].sort(
      (a, b) => b - a,
    );
    fillSelect(
      this.choice,
      steps.map((step) => [String(step), String(step)]),
      steps.includes(Number(asked)) && asked !== "" ? asked : String(steps[0] ?? ""),
    );
    if (!steps.length) return this.host.replaceChildren();
    const step = Number(this.choice.value);
    const all = store.where((i) => store.number("step", i) === step && store.text("split", i) === "step");
    const longest = all
      .filter((i) => store.has(i))
      .sort((a, b) => (store.number("seconds", b) ?? 0) - (store.number("seconds", a) ?? 0)).slice(0, GANTT_ROWS);
    const state = longest.map((i) => store.number("id", i)).join(" ");
    if (state === this.state) return;
    this.state = state;
    this.note.textContent = "Loading the records ...";
    const links = longest.map((i) => store.link(i));
    let lines;
    try {
      lines = await Promise.all(longest.map((i) => store.line(i)));
    } catch (error) {
      if (this.state === state) this.state = this.note.textContent = `The records cannot be loaded: ${error.message}`; // the next look tries again
      return;
    }
    if (this.state !== state) return; // another step was chosen meanwhile
    this.#draw(
      lines.map((line, k) => ({ line, link: links[k], bars: barsOf(line) })),
      all.length,
    );
  }

  #draw(rows, count) {
    const starts = rows.flatMap(({ bars }) => bars.map(({ start }) => start));
    const first = Math.min(...starts);
    const ends = rows.map(({ bars }) => Math.max(...bars.map(({ end }) => end)));
    const last = Math.max(...ends);
    const straggler = ends.indexOf(last);
    const sorted = rows
      .map((row, k) => ({ ...row, straggler: k === straggler, begin: Math.min(...row.bars.map(({ start }) => start)) }))
      .filter(({ bars }) => bars.length);
    if (!sorted.length) {
      this.note.textContent = "The records of this step have no times.";
      return this.host.replaceChildren();
    }
    const timed = sorted.every(({ line }) => Object.keys(line.draft.started ?? {}).length);
    const note = `${counted(sorted.length)} of ${counted(count)} sessions, ${secondsText(last - first)} from the first start to the last end.`;
    this.note.textContent = timed
      ? `${note} The straggler is marked ▶.`
      : `${note} These records have no start times: each session begins at 0.`;
    drawnToWidth(this.host, (width) => this.host.replaceChildren(this.#picture(sorted, [first, last], width)));
    const cells = sorted.map(({ line, link, straggler, bars }) => [
      h("a", { href: `#${link}` }, h("bdi", {}, nameOf(line, straggler))),
      ...STAGES.map((stage) =>
        this.#cell(
          bars.find((bar) => bar.stage === stage),
          first,
        ),
      ),
    ]);
    this.table.replaceChildren(this.table.firstChild, scrolled("Sessions of a step", smallTable(null, ["session", ...STAGES], cells)));
  }

  #cell(bar, first) {
    return bar ? `${secondsText(bar.end - bar.start)} from ${secondsText(bar.start - first)}` : "–";
  }

  #picture(rows, range, width) {
    const left = Math.min(170, width * 0.36);
    const x = scaleOf([0, range[1] - range[0]], left, width - 14);
    const height = rows.length * ROW_HEIGHT + 26;
    const ticks = ticksBetween(0, range[1] - range[0], Math.max(2, Math.floor((width - left) / 90)));
    const grid = ticks.map((value) => [
      svg("line", { class: "grid", x1: px(x(value)), x2: px(x(value)), y1: 0, y2: height - 22 }),
      svg("text", { class: "tick", x: px(x(value)), y: height - 8, "text-anchor": "middle" }, `${tickText(value)} s`),
    ]);
    const drawn = rows.map(({ line, link, straggler, bars }, k) => {
      const y = k * ROW_HEIGHT;
      const label = svg(
        "a",
        { href: `#${link}` },
        svg("text", { class: straggler ? "straggler" : "", x: 0, y: y + 14 }, shortened(nameOf(line, straggler), left / 6.4)),
      );
      const stages = bars.map(({ stage, start, end }) =>
        svg(
          "rect",
          {
            class: `stack part-${STAGES.indexOf(stage) + 1}`,
            x: px(x(start - range[0])),
            width: px(Math.max(1, x(end) - x(start))),
            y: y + 4,
            height: ROW_HEIGHT - 7,
          },
          svg("title", {}, `${stage}: ${secondsText(end - start)}`),
        ),
      );
      return [label, stages];
    });
    return svg(
      "svg",
      { width, height, viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": "When the stages of each session ran" },
      grid,
      drawn,
    );
  }
}

const nameOf = (line, straggler) => `${straggler ? "▶ " : ""}${line.task}, row ${line.number}`;
const shortened = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);

// The stages of a session as {stage, start, end}, in unix time; one after the other from 0 where the record has no starts.
function barsOf(line) {
  let clock = 0;
  return ["draft", "refined"].flatMap((name) => {
    const attempt = line[name];
    return Object.entries(attempt?.seconds ?? {}).map(([stage, seconds]) => {
      const start = attempt.started?.[stage] ?? clock;
      clock = start + seconds;
      return { stage: `${name} ${stage}`, start, end: clock };
    });
  });
}
