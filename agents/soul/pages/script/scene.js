// A scene of several people, in the order in which they spoke. The journal holds the public lines (CoSER: `lines`,
// Sotopia: `acts`) and each seat's own view. Only the turns of a character's own seat contain its thoughts.

// The scene of a draft as turns of {speaker, note, text, thought, reasoning, own}; null where the draft has no scene.
function sceneOf(draft, record) {
  const turns = ownTurns(draft.seats);
  const me = record[`${record.eval_position ?? "agent1"}_name`] ?? ownSpeaker(draft);
  if (draft.lines) return draft.lines.map((line) => sceneLine(line, turns));
  return draft.acts ? draft.acts.map((act) => sceneAct(act, turns, me)) : null;
}

// The speaker whose acts the policy's turns contain: a trace of a training has no record to look it up in.
function ownSpeaker({ acts, seats }) {
  const own = Object.values(seats ?? {}).flat().filter(({ role }) => role === "assistant").map(({ content }) => content);
  const count = new Map();
  for (const { speaker, text } of acts ?? []) {
    if (text && own.some((turn) => turn.includes(text))) count.set(speaker, (count.get(speaker) ?? 0) + 1);
  }
  return [...count].sort(([, a], [, b]) => b - a)[0]?.[0];
}

// The turns of each seat: `next(seat)` returns the next one, and "" after the last.
function ownTurns(seats) {
  const turns = new Map();
  for (const [seat, messages] of Object.entries(seats ?? {})) {
    turns.set(seat, messages.filter(({ role }) => role === "assistant").map(({ content }) => content));
  }
  return { has: (seat) => turns.has(seat), next: (seat) => turns.get(seat)?.shift() ?? "" };
}

function sceneLine({ speaker, text }, turns) {
  const narrator = !turns.has(speaker);
  const { reasoning, answer } = withoutReasoning(turns.next(speaker));
  const nothing = narrator ? "(Nothing changes.)" : "(says nothing)";
  return { speaker, note: narrator ? "narrator" : "", text: text || nothing, thought: thoughtsIn(answer), reasoning, narrator };
}

function sceneAct({ speaker, kind, text, well_formed, held_back }, turns, me) {
  const own = speaker === me;
  const { reasoning } = withoutReasoning(own ? turns.next("policy") : "");
  const silent = { leave: "(leaves the conversation)", none: held_back ? "(wants to leave, but stays)" : "(does nothing)" };
  const note = [own ? "policy" : "partner", kind === "speak" || kind in silent ? "" : kind, well_formed ? "" : "not in the form asked for"];
  return { speaker, note: note.filter(Boolean).join(", "), text: silent[kind] ?? text, thought: "", reasoning, own };
}

// Splits a turn into its reasoning and its answer, for display. It knows the usual forms of agents/soul/answers/thinking.py, which
// decides what counts. An unclosed block runs to the end of the turn.
function withoutReasoning(raw) {
  const turn = raw.replace(/\[(\/?)THINK\]/g, "<$1think>");
  const tag = "(?:\\w+:)?(?:think(?:ing)?|thoughts?|reason(?:ing)?|reflection|analysis|scratch_?pad)";
  const closed = turn.match(new RegExp(`^([\\s\\S]*)</${tag}>([\\s\\S]*)$`, "i"));
  const open = closed ? null : turn.match(new RegExp(`^([\\s\\S]*?)<${tag}>([\\s\\S]*)$`, "i"));
  if (closed) return { reasoning: closed[1].replace(new RegExp(`</?${tag}>`, "gi"), "").trim(), answer: closed[2] };
  return open ? { reasoning: open[2].trim(), answer: open[1] } : { reasoning: "", answer: turn };
}

// A character's thoughts, which are in square brackets. As in the task, an unclosed bracket runs to the end of the turn.
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

// Such a turn as turns.js draws it.
function sceneTurn({ speaker, note, own, narrator, ...turn }) {
  const who = [h("b", {}, h("bdi", {}, speaker)), note ? ` ${note}` : null];
  return { ...turn, key: speaker, own: own ?? !narrator, kind: narrator ? "narrator" : own ? "assistant" : "user", who };
}
