// One sample: what was said, seat by seat, and what was judged. Every text is set as text.

const LONG = 1500; // characters of a message that are shown at first
const SHOWN_OF_LONG = 1000;

const counted = (count) => Number(count ?? 0).toLocaleString("en");

function drawSample(line, store, i) {
  const { draft } = line;
  return [
    verdict(line),
    ...(draft.seats ? Object.entries(draft.seats).map(([seat, turns]) => seatOf(seat, turns, draft)) : [notPlayed()]),
    part("Cost and time", took(line)),
    h("details", { className: "record" }, h("summary", {}, "Record"), recordOf(line.record)),
    h("p", { className: "small" }, `Judge prompts: ${line.prompts.join(", ") || "none"}. Stamp ${line.stamp}.`),
  ];
}

function part(title, ...content) {
  return h("section", {}, h("h3", {}, title), ...content);
}

const notPlayed = () => h("p", { className: "small" }, "The play failed: no conversation was kept.");

// ---- the verdict

function verdict(line) {
  const { draft } = line;
  const metric = known.sets.find((set) => set.name === line.set)?.metric ?? "reward";
  const ended = (draft.ended ?? "not played").replaceAll("_", " ");
  const facts = [`record ${line.row}`, `ended: ${ended}`, ...Object.entries(line.groups).map(([k, v]) => `${k}: ${v}`)];
  if (line.shortened.length) facts.push(`shortened to fit the model: ${line.shortened.join(", ")}`);
  const head = draft.valid
    ? h("p", { className: "score" }, h("strong", {}, scoreText(draft.reward)), ` ${metric}`)
    : h("p", { className: "score failed" }, h("strong", {}, "No verdict"), ` ${(draft.failure?.cause ?? "unknown").replaceAll("_", " ")}`);
  return h(
    "section",
    { className: "verdict" },
    head,
    h("ul", { className: "tags" }, facts.map((fact) => h("li", {}, fact)), draft.contentless ? h("li", { className: "failed" }, "said nothing: scored the worst") : null),
    draft.failure ? failureOf(draft.failure) : null,
    draft.critique ? h("blockquote", { dir: "auto" }, draft.critique) : null,
    draft.metrics && Object.keys(draft.metrics).length ? metricsOf(draft.metrics) : null,
    draft.jury?.length ? juryOf(draft.jury) : null,
  );
}

function failureOf({ stage, cause, detail }) {
  return h("div", { className: "failure" }, h("p", {}, `The ${stage} failed: ${cause.replaceAll("_", " ")}.`), h("pre", {}, detail));
}

function metricsOf(metrics) {
  const cells = Object.entries(metrics).map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, shortNumber(value))));
  return h("dl", { className: "metrics" }, cells);
}

function shortNumber(value) {
  const exact = typeof value !== "number" || Number.isInteger(value);
  return exact ? String(value) : String(Number(value.toPrecision(4)));
}

function juryOf(jury) {
  const lines = jury.map((opinion) => [
    opinion.judge,
    opinion.failure ?? scoreText(opinion.reward),
    Object.entries(opinion.metrics ?? {}).map(([name, value]) => `${name} ${shortNumber(value)}`).join(", "),
  ]);
  return smallTable("Jury", ["judge", "score", "metrics"], lines);
}

function smallTable(caption, titles, lines) {
  const head = h("tr", {}, titles.map((title) => h("th", { scope: "col" }, title)));
  const body = lines.map(([name, ...cells]) => h("tr", {}, h("th", { scope: "row" }, name), cells.map((cell) => h("td", {}, cell))));
  return h("table", { className: "part" }, caption ? h("caption", {}, caption) : null, h("thead", {}, head), h("tbody", {}, body));
}

// ---- the conversation

function seatOf(seat, turns, draft) {
  const several = Object.keys(draft.seats).length > 1;
  const title = several ? h("span", { className: "seat" }, `Seat ${seat}`) : "Conversation";
  return part(title, h("ol", { className: "turns" }, turns.map(turnOf)));
}

function turnOf({ role, content }) {
  const who = { assistant: "policy", user: "to the policy", system: "system prompt" }[role] ?? role;
  const said = h("div", { className: "said", dir: "auto" });
  const turn = h("li", { className: `turn ${role}` });
  if (role === "system") {
    said.textContent = content;
    turn.append(h("details", {}, h("summary", {}, who, h("small", {}, ` ${counted(content.length)} characters`)), said));
    return turn;
  }
  turn.append(h("div", { className: "who" }, who), said);
  if (role === "assistant" || content.length <= LONG) {
    said.textContent = content;
    if (!content.trim()) said.append(h("em", {}, "(nothing)"));
    return turn;
  }
  said.textContent = `${content.slice(0, SHOWN_OF_LONG)} …`;
  const more = h("button", { type: "button", className: "link" }, `Show all ${counted(content.length)} characters`);
  more.addEventListener("click", () => {
    said.textContent = content;
    more.remove();
  });
  turn.append(more);
  return turn;
}

// ---- what it took, and what it was about

function took(line) {
  const roles = Object.entries(line.usage).map(([role, use]) => [
    role,
    counted(use.calls),
    counted(use.prompt_tokens),
    counted(use.completion_tokens),
    Object.entries(use.failures ?? {}).map(([cause, count]) => `${cause} ${count}`).join(", ") || "0",
    secondsText(use.seconds ?? 0),
    use.unpriced ? "price unknown" : costText(use.cost_usd ?? 0),
  ]);
  const stages = Object.entries(line.draft.seconds ?? {}).map(([stage, seconds]) => `${stage} ${secondsText(seconds)}`);
  return [
    smallTable(null, ["role", "calls", "tokens in", "tokens out", "failed", "in requests", "cost"], roles),
    h("p", { className: "small" }, stages.join(", ")),
  ];
}

function recordOf(record) {
  const fields = Object.entries(record).map(([name, value]) => {
    const text = typeof value === "string" ? value : JSON.stringify(value, null, 1);
    return h("div", {}, h("dt", {}, name), h("dd", { dir: "auto" }, text));
  });
  return h("dl", {}, fields);
}
