// The turns of two attempts beside each other, with the changed words marked: one turn as columns with the feedback between
// them, a dialogue turn by turn.

const isContext = ({ role }) => role !== "assistant";

// The messages of a seat before its first turn, and those from it on.
function splitAtFirstTurn(messages) {
  const first = messages.findIndex((message) => !isContext(message));
  return first < 0 ? [messages, []] : [messages.slice(0, first), messages.slice(first)];
}

function promptOf({ draft }) {
  const seats = Object.entries(draft.seats ?? {});
  if (!seats.length) return null;
  const size = seats.reduce(
    (sum, [, messages]) => sum + splitAtFirstTurn(messages)[0].reduce((n, { content }) => n + content.length, 0),
    0,
  );
  const title = seats.length > 1 ? `Prompts of ${seats.length} seats: each one's private context` : "Prompt";
  const views = seats.map(([seat, messages]) => [
    seats.length > 1 ? h("h4", {}, h("bdi", {}, `Seat ${seat}`)) : null,
    turnsOf(splitAtFirstTurn(messages)[0]),
  ]);
  return h(
    "details",
    { className: "seat-view prompt", open: seats.length === 1 },
    h("summary", {}, title, h("small", {}, ` ${counted(size)} characters`)),
    ...views,
  );
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
  return h(
    "div",
    {},
    feedback,
    byTurn(drafted ?? [], second ?? []),
    refined ? null : noRefined(line),
    drafted && (second || !refined) ? null : notPlayed(),
  );
}

// Turn k of the draft beside turn k of the refined episode; below it on a narrow screen.
function byTurn(drafted, second) {
  const count = Math.max(drafted.length, second.length);
  const cell = (turn, name) =>
    h(
      "div",
      { className: "cell" },
      h("span", { className: "label" }, name),
      turn ? h("ol", { className: "turns scene" }, drawTurn(turn)) : null,
    );
  const rows = Array.from({ length: count }, (_, k) => [cell(drafted[k], "draft"), second.length ? cell(second[k], "refined") : null]);
  const heads = [h("h3", { className: "cell" }, "Draft"), second.length ? h("h3", { className: "cell" }, "Refined") : null];
  return h("div", { className: `sides turns-by-number${second.length ? "" : " one"}` }, heads, rows);
}

const drawTurn = (turn) => turn.node(turn.shown ?? turn.text);

const noRefined = (line) =>
  h(
    "section",
    { ariaLabel: "Refined" },
    h("h3", {}, "Refined"),
    h(
      "p",
      { className: "small" },
      line.feedback ? "There is no refined episode in the record." : "No refined episode: the draft got no feedback.",
    ),
  );

// The turns of an attempt as shown in its column: {node(pieces), text, own}; null if the play failed.
function columnTurns(attempt, record) {
  if (!attempt.seats) return null;
  const scene = sceneOf({ ...attempt, ...attempt.episode }, record ?? {});
  if (scene)
    return scene.map((turn) => ({
      key: turn.speaker,
      text: turn.text,
      own: turn.own ?? !turn.narrator,
      node: (text) => sceneTurn({ ...turn, text }),
    }));
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
  return h(
    "li",
    { className: `turn ${role}` },
    h("div", { className: "who" }, seat ? h("bdi", {}, `${seat}: `) : null, who),
    h("div", { className: "said", dir: "auto" }, shown),
  );
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
