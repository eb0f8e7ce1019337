// A scene in which several people speak, in the order in which they spoke. The journal keeps what everybody heard
// (CoSER: `lines`, Sotopia: `acts`) and each seat's own view; what a character thought stands in its seat's turns alone.

// The scene of a draft, or null where there is but one conversation: turns of {speaker, note, text, thought, reasoning, own}.
function sceneOf(draft, record) {
  if (draft.lines) return draft.lines.map(sceneLine, ownTurns(draft.seats));
  if (draft.acts) return draft.acts.map(sceneAct, { turns: ownTurns(draft.seats), me: record[`${record.eval_position ?? "agent1"}_name`] });
  return null;
}

// What each seat said, in order: calling it with the seat's name takes the next turn.
function ownTurns(seats) {
  const turns = new Map();
  for (const [seat, messages] of Object.entries(seats ?? {})) {
    turns.set(seat, messages.filter(({ role }) => role === "assistant").map(({ content }) => content));
  }
  return { has: (seat) => turns.has(seat), next: (seat) => turns.get(seat)?.shift() ?? "" };
}

function sceneLine({ speaker, text }) {
  const narrator = !this.has(speaker);
  const { reasoning, answer } = withoutReasoning(this.next(speaker));
  const nothing = narrator ? "(Nothing changes.)" : "(says nothing)";
  return { speaker, note: narrator ? "narrator" : "", text: text || nothing, thought: thoughtsIn(answer), reasoning, narrator };
}

function sceneAct({ speaker, kind, text, well_formed, held_back }) {
  const own = speaker === this.me;
  const { reasoning } = withoutReasoning(own ? this.turns.next("policy") : "");
  const silent = { leave: "(leaves the conversation)", none: held_back ? "(wants to leave, but stays)" : "(does nothing)" };
  const note = [own ? "policy" : "partner", kind === "speak" || kind in silent ? "" : kind, well_formed ? "" : "not in the form asked for"];
  return { speaker, note: note.filter(Boolean).join(", "), text: silent[kind] ?? text, thought: "", reasoning, own };
}

// A turn's reasoning (think blocks) and the rest. An unclosed block takes everything behind it.
function withoutReasoning(turn) {
  const tag = "(?:seed:)?(?:think|thinking|reasoning)";
  const closed = turn.match(new RegExp(`^([\\s\\S]*)</${tag}>([\\s\\S]*)$`, "i"));
  const open = closed ? null : turn.match(new RegExp(`^([\\s\\S]*?)<${tag}>([\\s\\S]*)$`, "i"));
  if (closed) return { reasoning: closed[1].replace(new RegExp(`</?${tag}>`, "gi"), "").trim(), answer: closed[2] };
  return open ? { reasoning: open[2].trim(), answer: open[1] } : { reasoning: "", answer: turn };
}

// What stands in square brackets: a character's thoughts. As in the task, an unclosed bracket takes the rest with it.
function thoughtsIn(turn) {
  const thoughts = [];
  let depth = 0;
  for (const piece of turn.split(/([[\]])/)) {
    if (piece === "[") depth += 1;
    else if (piece === "]") depth = Math.max(0, depth - 1);
    else if (depth && piece.trim()) thoughts.push(piece.trim());
  }
  return thoughts.join(" ");
}

function drawScene(turns) {
  return h("ol", { className: "turns scene" }, turns.map(sceneTurn));
}

function sceneTurn({ speaker, note, text, thought, reasoning, own, narrator }) {
  const kind = narrator ? "narrator" : own ? "assistant" : "user";
  return h(
    "li",
    { className: `turn ${kind}` },
    h("div", { className: "who" }, h("b", {}, h("bdi", {}, speaker)), note ? ` ${note}` : null),
    reasoning ? h("details", { className: "private" }, h("summary", {}, `private: reasoning, ${counted(reasoning.length)} characters`), h("div", { className: "said", dir: "auto" }, reasoning)) : null,
    thought ? h("div", { className: "private" }, h("span", { className: "label" }, "private thought: "), h("span", { className: "said", dir: "auto" }, thought)) : null,
    h("div", { className: "said", dir: "auto" }, text),
  );
}
