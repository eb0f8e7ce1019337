// One sample: question, conversation and verdict. All text is inserted as text, never as HTML.

const LONG = 1500; // characters of a message that are shown at first
const SHOWN_OF_LONG = 1000;

// The question is shown above the answers. Without an answer to compare, the first turns of the conversation contain it.
function drawSample(line, question) {
  return [
    verdict(line, question),
    ...conversation(line),
    part("Cost and time", took(line)),
    h("details", { className: "record" }, h("summary", {}, "Record"), recordOf(line.record)),
    h("p", { className: "small" }, `Judge prompts: ${line.prompts.join(", ") || "none"}. Stamp ${line.stamp}.`),
  ];
}

const notPlayed = () => h("p", { className: "small" }, "The play failed: no conversation was kept.");

// ---- the verdict

function verdict(line, question) {
  const { draft } = line;
  const set = known.sets.find(({ name }) => name === line.set);
  const ended = words(draft.ended ?? "not played");
  const groups = Object.entries(line.groups).map(([kind, value]) => `${kindName(kind)}: ${valueName(kind, value)}`);
  const facts = [`record ${line.row}`, `ended: ${ended}`, ...groups];
  if (line.shortened.length) facts.push(`shortened to fit the model: ${line.shortened.join(", ")}`);
  const head = draft.valid
    ? h("p", { className: "score" }, h("strong", {}, scoreText(draft.reward)), ` ${set?.metric ?? "reward"}`)
    : h("p", { className: "score failed" }, h("strong", {}, "No verdict"), ` ${words(draft.failure?.cause ?? "unknown")}`);
  return h(
    "section",
    { className: "verdict" },
    head,
    h("ul", { className: "tags" }, facts.map((fact) => h("li", {}, fact)), draft.contentless ? h("li", { className: "failed" }, "no content: worst score") : null),
    line.target === null || !question ? null : h("p", { className: "asked", dir: "auto" }, question),
    line.target === null ? null : answersOf(line.target, [{ title: "Given", given: line.given, mark: rightness(draft.valid ? draft.reward : null, set) }]),
    draft.failure ? failureOf(draft.failure) : null,
    draft.critique ? h("blockquote", { dir: "auto" }, draft.critique) : null,
    draft.metrics && Object.keys(draft.metrics).length ? metricsOf(draft.metrics) : null,
    draft.jury?.length ? juryOf(draft.jury) : null,
  );
}

// The right answer, next to the given answers.
function answersOf(target, answers) {
  const box = (title, mark, text) => h("div", {}, h("dt", {}, title), h("dd", { dir: "auto" }, mark, text));
  const given = answers.map(({ title, given, mark }) => box(title, markOf(mark), given ?? h("em", {}, "no answer could be read")));
  return h("dl", { className: "answers" }, box("Expected", null, target), given);
}

function failureOf({ stage, cause, detail }) {
  return h("div", { className: "failure" }, h("p", {}, `The ${stage} failed: ${cause.replaceAll("_", " ")}.`), h("pre", {}, detail));
}

function metricsOf(metrics) {
  const cells = Object.entries(metrics).map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, shortNumber(value))));
  return h("dl", { className: "metrics" }, cells);
}

function juryOf(jury) {
  const lines = jury.map((opinion) => [
    opinion.judge,
    opinion.failure ?? scoreText(opinion.reward),
    Object.entries(opinion.metrics ?? {}).map(([name, value]) => `${name} ${shortNumber(value)}`).join(", "),
  ]);
  return smallTable("Jury", ["judge", "score", "metrics"], lines);
}

// ---- the conversation

// A scene of several people is one conversation, with each seat's own view below it; otherwise each seat is shown.
function conversation({ draft, record }) {
  if (!draft.seats) return [notPlayed()];
  const seats = Object.entries(draft.seats);
  const scene = sceneOf(draft, record);
  if (!scene) return seats.map(([seat, turns]) => part(seats.length > 1 ? h("span", { className: "seat" }, `Seat ${seat}`) : "Conversation", turnsOf(turns)));
  const views = seats.map(([seat, turns]) =>
    h("details", { className: "seat-view" }, h("summary", {}, `Seat ${seat}`, h("small", {}, ` ${counted(turns.length)} messages, as the model saw and wrote them`)), turnsOf(turns)),
  );
  return [part("Scene", drawScene(scene)), part("Each seat's own view", views)];
}

const turnsOf = (turns) => h("ol", { className: "turns" }, turns.map(turnOf));

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

// ---- cost and time, and the record

function took(line) {
  const uses = Object.entries(line.usage);
  const priced = uses.some(([, use]) => !use.unpriced); // otherwise the column is left out
  const roles = uses.map(([role, use]) => [
    role,
    counted(use.calls),
    counted(use.prompt_tokens),
    counted(use.completion_tokens),
    Object.entries(use.failures ?? {}).map(([cause, count]) => `${cause} ${count}`).join(", ") || "0",
    secondsText(use.seconds ?? 0),
    ...(priced ? [use.unpriced ? "–" : costText(use.cost_usd ?? 0)] : []),
  ]);
  const stages = Object.entries(line.draft.seconds ?? {}).map(([stage, seconds]) => `${stage} ${secondsText(seconds)}`);
  const titles = ["role", "calls", "tokens in", "tokens out", "failed", "in requests", ...(priced ? ["cost"] : [])];
  return [smallTable(null, titles, roles), h("p", { className: "small" }, stages.join(", "))];
}

function recordOf(record) {
  const fields = Object.entries(record).map(([name, value]) => {
    const text = typeof value === "string" ? value : JSON.stringify(value, null, 1);
    return h("div", {}, h("dt", {}, name), h("dd", { dir: "auto" }, text));
  });
  return h("dl", {}, fields);
}
