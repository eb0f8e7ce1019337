// View (c): one session. The prompt, then draft, feedback and refined answer beside each other with the changed words
// marked; a dialogue turn by turn, Sotopia and CoSER as one scene each. Then the verdicts, the leak guard's work, and how
// the session is trained.

const WITHHELD = "[withheld]"; // what the leak guard puts in place of a passage (agents/soul/leaks/redaction.py)

function drawSession(line, store, i) {
  const { draft, refined } = line;
  const both = refined ? [draft, refined] : [draft];
  return [
    sessionHead(line, store, i),
    ...both.map(({ failure }, k) => (failure ? attemptFailure(k ? "refined episode" : "draft", failure) : null)),
    line.feedback_failure ? attemptFailure("feedback", line.feedback_failure) : null,
    promptOf(line),
    texts(line),
    part("Verdicts", verdictTable(line), opinionTables(line)),
    line.sequences?.length ? part("Training sequences", sequenceTable(line.sequences)) : null,
    part("Cost and time", took(line), line.refined ? h("p", { className: "small" }, `refined: ${stagesText(line.refined)}`) : null),
    part("As the model saw and wrote it", both.map((attempt, k) => ownViews(attempt, k ? "refined" : "draft"))),
    Object.keys(line.record ?? {}).length ? h("details", { className: "record" }, h("summary", {}, "Record"), recordOf(line.record)) : null,
    h("p", { className: "small" }, "Judge prompts: ", h("bdi", {}, line.prompts.join(", ") || "none"), ". Session ", h("bdi", {}, line.session || "without an id"), ", group ", h("bdi", {}, line.prompt || "unknown"), "."),
  ].filter(Boolean);
}

const stagesText = (attempt) => Object.entries(attempt.seconds ?? {}).map(([stage, seconds]) => `${stage} ${secondsText(seconds)}`).join(", ");
const attemptFailure = (name, failure) => h("div", {}, h("h3", {}, name), failureOf(failure));

// ---- the head

function sessionHead(line, store, i) {
  const { draft, refined } = line;
  const gain = refined && draft.reward !== null && refined.reward !== null ? refined.reward - draft.reward : null;
  const change = gain === null ? "" : gain > TOLERANCE ? "▲ better" : gain < -TOLERANCE ? "▼ worse" : "= same";
  const kind = { "▲": "won", "▼": "lost" }[change[0]] ?? "";
  const facts = [`file ${line.file || "unknown"}`, `record ${line.row}`, `best possible ${shortNumber(line.full_marks ?? 1)}`];
  if (line.model_version !== null && line.model_version !== undefined) facts.push(`weights of step ${line.model_version}`);
  if (line.dropped) facts.push("its group was replaced: the objective learns nothing from it");
  if (line.shortened?.length) facts.push(`shortened to fit the model: ${line.shortened.join(", ")}`);
  for (const [name, count] of Object.entries(line.out_of_tokens ?? {})) if (count) facts.push(`${name}: ${count} sequences out of tokens`);
  const links = h("p", { className: "links" }, groupLink(store, i), " · ", rowLink(store, i));
  return h(
    "section",
    { className: "verdict" },
    h("p", { className: "score" }, h("strong", {}, rewardText(draft.reward)), " draft"),
    h("p", { className: "score" }, h("strong", {}, refined ? rewardText(refined.reward) : "–"), refined ? " refined " : " no refined episode", gain === null ? null : h("b", { className: kind }, `${change} ${signedReward(gain)}`)),
    h("ul", { className: "tags" }, facts.map((fact) => h("li", {}, h("bdi", {}, fact)))),
    links,
  );
}

function groupLink(store, i) {
  const count = store.groupOf(i).length;
  return h("a", { href: `#${placeOf(store.run, "group", store.name(i))}` }, `its group (${counted(count)} sessions)`);
}

function rowLink(store, i) {
  return h("a", { href: `#${placeOf(store.run, "row", store.name(i))}` }, "this row over the steps");
}

// ---- the texts

const isContext = ({ role }) => role !== "assistant";

// The messages of a seat before its first turn, and those from it on.
function splitAtFirstTurn(messages) {
  const first = messages.findIndex((message) => !isContext(message));
  return first < 0 ? [messages, []] : [messages.slice(0, first), messages.slice(first)];
}

function promptOf({ draft }) {
  const seats = Object.entries(draft.seats ?? {});
  if (!seats.length) return null;
  const size = seats.reduce((sum, [, messages]) => sum + splitAtFirstTurn(messages)[0].reduce((n, { content }) => n + content.length, 0), 0);
  const title = seats.length > 1 ? `Prompts of ${seats.length} seats: each one's private context` : "Prompt";
  const views = seats.map(([seat, messages]) => [seats.length > 1 ? h("h4", {}, h("bdi", {}, `Seat ${seat}`)) : null, turnsOf(splitAtFirstTurn(messages)[0])]);
  return h("details", { className: "seat-view prompt", open: seats.length === 1 && size <= 2 * LONG }, h("summary", {}, title, h("small", {}, ` ${counted(size)} characters`)), ...views);
}

function texts(line) {
  const { draft, refined } = line;
  const drafted = columnTurns(draft, line.record);
  const second = refined ? columnTurns(refined, line.record) : null;
  const long = Math.max(drafted?.length ?? 0, second?.length ?? 0) > 1;
  if (long) markTurns(drafted, second);
  else if (drafted?.[0] && second?.[0]) markPair(drafted[0], second[0]);
  const feedback = feedbackOf(line);
  if (!long) {
    const columns = [column("Draft", drafted), feedback, refined ? column("Refined", second) : noRefined(line)];
    return h("div", { className: "sides three" }, columns);
  }
  return h("div", {}, feedback, byTurn(drafted ?? [], second ?? []), refined ? null : noRefined(line), drafted && (second || !refined) ? null : notPlayed());
}

// Turn k of the draft beside turn k of the refined episode; below it on a narrow screen.
function byTurn(drafted, second) {
  const count = Math.max(drafted.length, second.length);
  const cell = (turn, name) => h("div", { className: "cell" }, h("span", { className: "label" }, name), turn ? h("ol", { className: "turns scene" }, drawTurn(turn)) : null);
  const rows = Array.from({ length: count }, (_, k) => [cell(drafted[k], "draft"), second.length ? cell(second[k], "refined") : null]);
  const heads = [h("h3", { className: "cell" }, "Draft"), second.length ? h("h3", { className: "cell" }, "Refined") : null];
  return h("div", { className: `sides turns-by-number${second.length ? "" : " one"}` }, heads, rows);
}

const drawTurn = (turn) => turn.node(turn.shown ?? turn.text);

const noRefined = (line) =>
  h("section", { ariaLabel: "Refined" }, h("h3", {}, "Refined"), h("p", { className: "small" }, line.feedback ? "There is no refined episode in the record." : "No refined episode: the draft got no feedback."));

// The turns of an attempt as shown in its column: {node(pieces), text, own}; null if the play failed.
function columnTurns(attempt, record) {
  if (!attempt.seats) return null;
  const scene = sceneOf({ ...attempt, ...attempt.episode }, record ?? {});
  if (scene) return scene.map((turn) => ({ key: turn.speaker, text: turn.text, own: turn.own ?? !turn.narrator, node: (text) => sceneTurn({ ...turn, text }) }));
  const seats = Object.entries(attempt.seats);
  return seats.flatMap(([seat, messages]) =>
    splitAtFirstTurn(messages)[1].map((message) => ({
      key: `${seat} ${message.role}`,
      text: message.content,
      own: message.role === "assistant",
      node: (text) => plainTurn(message.role, text, seats.length > 1 ? seat : ""),
    })),
  );
}

function plainTurn(role, text, seat) {
  const who = role === "assistant" ? "policy" : "to the policy";
  const shown = text.length || typeof text !== "string" ? text : h("em", {}, "(nothing)");
  return h("li", { className: `turn ${role}` }, h("div", { className: "who" }, seat ? h("bdi", {}, `${seat}: `) : null, who), h("div", { className: "said", dir: "auto" }, shown));
}

// Marks the changed words of each own turn against the turn of the same number and speaker in the other attempt.
function markTurns(drafted, second) {
  if (!drafted || !second) return;
  const waiting = new Map();
  for (const turn of drafted) {
    if (!waiting.has(turn.key)) waiting.set(turn.key, []);
    waiting.get(turn.key).push(turn);
  }
  for (const turn of second) {
    const before = waiting.get(turn.key)?.shift();
    if (before && turn.own) markPair(before, turn);
  }
}

function markPair(before, after) {
  const changes = changesBetween(before.text, after.text);
  before.shown = drawChanges(changes.before, "del");
  after.shown = drawChanges(changes.after, "ins");
}

function column(title, turns) {
  const content = turns ? h("ol", { className: "turns scene" }, turns.map(drawTurn)) : notPlayed();
  return h("section", { ariaLabel: title }, h("h3", {}, title), content);
}

// ---- feedback and the leak guard

// A feedback with a mark on every passage that the leak guard withheld.
function withheldMarked(text) {
  return text.split(WITHHELD).flatMap((piece, k) => (k ? [h("mark", {}, WITHHELD), piece] : [piece]));
}

function feedbackOf(line) {
  const { feedback, redactions, redacted = [], draft } = line;
  const sent = feedback ?? null;
  const pieces = sent === null ? null : withheldMarked(sent);
  const guard = redactions
    ? h("div", { className: "guard" }, h("p", {}, `The leak guard withheld ${counted(redactions)} ${redactions === 1 ? "passage" : "passages"}.`), redacted.length ? h("ul", {}, redacted.map((passage) => h("li", {}, h("del", { dir: "auto" }, passage)))) : null)
    : null;
  const critique = draft.critique && draft.critique !== sent ? h("details", { className: "seat-view" }, h("summary", {}, "The judge's critique of the draft, as written"), h("blockquote", { dir: "auto" }, draft.critique)) : null;
  return h(
    "section",
    { ariaLabel: "Feedback" },
    h("h3", {}, "Feedback"),
    pieces ? h("blockquote", { dir: "auto" }, pieces) : h("p", { className: "small" }, "None was given."),
    guard,
    critique,
  );
}

// ---- verdicts

function verdictTable({ draft, refined }) {
  const names = [...new Set([...Object.keys(draft.metrics ?? {}), ...Object.keys(refined?.metrics ?? {})])];
  const value = (attempt, name) => (name === null ? attempt?.reward : attempt?.metrics?.[name]) ?? null;
  const lines = [null, ...names].map((name) => {
    const [a, b] = [value(draft, name), value(refined, name)];
    const change = typeof a === "number" && typeof b === "number" ? signedReward(b - a) : "–";
    return [name ?? "reward", rewardText(a), rewardText(b), change];
  });
  const ended = ["ended", words(draft.ended ?? "not played"), refined ? words(refined.ended ?? "not played") : "–", ""];
  const empty = [draft, refined].some((attempt) => attempt?.contentless) ? [["no content: worst score", draft.contentless ? "yes" : "no", refined?.contentless ? "yes" : "no", ""]] : [];
  return smallTable(null, ["", "draft", "refined", "change"], [...lines, ended, ...empty]);
}

function opinionTables({ draft, refined }) {
  return [draft, refined].map((attempt, k) => {
    const name = k ? "Refined" : "Draft";
    const canary = attempt?.canary ? [{ ...attempt.canary, judge: `canary: ${attempt.canary.judge}` }] : [];
    const opinions = [...(attempt?.jury ?? []), ...canary];
    if (!opinions.length) return null;
    const metrics = (opinion) => Object.entries(opinion.metrics ?? {}).map(([metric, value]) => `${metric} ${shortNumber(value)}`).join(", ");
    return smallTable(`${name}: jury and canary`, ["judge", "reward", "metrics"], opinions.map((one) => [one.judge, one.failure ?? rewardText(one.reward), metrics(one)]));
  });
}

// ---- training

const SEQUENCE_TITLES = ["sequence", "seat", "prompt", "response", "log-prob sampled", "log-prob base", "advantage", "weight", "distillation", "masked"];

function sequenceTable(sequences) {
  const rows = sequences.map((one) => [
    words(one.kind),
    one.seat,
    `${counted(one.prompt_tokens)} tokens`,
    `${counted(one.response_tokens)} tokens`,
    ...[one.logp_sampled, one.logp_base, one.advantage, one.weight, one.distill_weight].map(rewardText),
    one.masked ?? "no: trained",
  ]);
  return h("div", { className: "scroller", tabIndex: 0, role: "region", ariaLabel: "Training sequences" }, smallTable(null, SEQUENCE_TITLES, rows));
}

// ---- the raw conversations

function ownViews(attempt, name) {
  if (!attempt.seats) return null;
  return Object.entries(attempt.seats).map(([seat, messages]) =>
    h("details", { className: "seat-view" }, h("summary", {}, h("bdi", {}, `${name}, seat ${seat}`), h("small", {}, ` ${counted(messages.length)} messages`)), turnsOf(messages)),
  );
}
