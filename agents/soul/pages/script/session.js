// One session or sample: question and answers, the prompt, then draft, feedback and refined answer beside each other with
// the changed words marked; a dialogue turn by turn. Then the verdicts, the leak guard's work, how the session is trained,
// and what it cost.

const WITHHELD = "[withheld]"; // what the leak guard puts in place of a passage (agents/soul/leaks/redaction.py)
const LONG = 1500; // characters of a message that are shown at first

function drawSession(line, run, i) {
  const { draft, refined } = line;
  const both = refined ? [draft, refined] : [draft];
  const identity = { "Judge prompts": line.prompts.join(", ") || "none", Session: line.session, Group: line.prompt, Stamp: line.stamp };
  return [
    sessionHead(line, run, i),
    ...both.map((attempt, k) => attempt.failure && attemptFailure(k ? "refined episode" : "draft", attempt.failure)),
    line.feedback_failure ? attemptFailure("feedback", line.feedback_failure) : null,
    promptOf(line),
    texts(line),
    part("Verdicts", verdictTable(line), opinionTables(line)),
    line.sequences?.length ? part("Training sequences", sequenceTable(line.sequences)) : null,
    part("Cost and time", took(line)),
    part("As the model saw and wrote it", both.map((attempt, k) => ownViews(attempt, k ? "refined" : "draft", line.sequences ?? []))),
    part("What the judge was asked and answered", callsOf(both)),
    foldedRecord(line.record ?? {}),
    small(Object.entries(identity).filter(([, text]) => text).map(([name, text], k) => [k ? `. ${name}: ` : `${name}: `, h("bdi", {}, text)]), "."),
  ].filter(Boolean);
}

const notPlayed = () => small("The play failed: no conversation was kept.");
const attemptFailure = (name, failure) => h("div", {}, h("h3", {}, name), failureOf(failure));
const failureOf = ({ stage, cause, detail }) => h("div", { className: "failure" }, h("p", {}, `The ${stage} failed: ${words(cause)}.`), h("pre", {}, detail));

// ---- the head

function sessionHead(line, run, i) {
  const { draft, refined } = line;
  const training = run.kind === "training";
  const set = training ? { best: line.full_marks ?? 1, worst: 0 } : run.overview.sets[line.set];
  const text = training ? rewardText : scoreText;
  const gain = refined && hasValue(draft.reward) && hasValue(refined.reward) ? refined.reward - draft.reward : null;
  const group = `its group (${counted(run.store.groupOf(i).length)} sessions)`;
  const change = gain === null ? null : bySign(gain, ["won", "▲ better"], ["lost", "▼ worse"], ["", "= same"]);
  const score = draft.failure
    ? h("p", { className: "score failed" }, h("strong", {}, "No verdict"), ` ${words(draft.failure.cause)}`)
    : h("p", { className: "score" }, h("strong", {}, text(draft.reward), training ? [" → ", refined ? text(refined.reward) : NONE] : null), training ? " draft → refined " : ` ${set?.metric.name ?? "reward"}`, change && h("b", { className: change[0] }, ` ${change[1]} ${signedReward(gain)}`));
  return h(
    "section",
    { className: "verdict" },
    score,
    h("ul", { className: "tags" }, factsOf(line, run).map((fact) => h("li", {}, h("bdi", {}, fact)))),
    line.question ? h("p", { className: "asked", dir: "auto" }, line.question) : null,
    line.target === null || line.target === undefined ? null : answersOf(line, set),
    !training && draft.critique ? h("blockquote", { dir: "auto" }, draft.critique) : null,
    training ? h("p", { className: "links" }, h("a", { href: `#${placeOf(run.id, "group", run.store.name(i))}` }, group), " · ", rowLink(run.store, i)) : null,
  );
}

function factsOf(line, { kind, overview }) {
  const facts = [`file ${fileName(line.file)}`, `record ${line.row}`];
  if (line.policy || line.side) facts.push(`policy ${line.policy || "of all seats"}, seat ${line.side || "policy"}`);
  if (kind === "training") facts.push(`best possible ${shortNumber(line.full_marks ?? 1)}`);
  else facts.push(`ended: ${words(line.draft.ended ?? "not played")}`, ...Object.entries(line.groups).map(([name, value]) => `${kindName(overview, name)}: ${valueName(overview, name, value)}`));
  if (hasValue(line.model_version)) facts.push(`weights of step ${line.model_version}`);
  if (line.draft.contentless) facts.push("empty response: the worst score");
  if (line.shortened?.length) facts.push(`shortened to fit the model: ${line.shortened.join(", ")}`);
  for (const [name, count] of Object.entries(line.out_of_tokens ?? {})) if (count) facts.push(`${name}: ${count} sequences out of tokens`);
  return facts;
}

// The right answer, next to the given answers.
function answersOf({ target, given, draft, refined }, set) {
  const answer = (title, text, { reward }) => answerBox(title, markOf(rightness(reward, set)), text ?? NO_ANSWER());
  const others = [answer(refined ? "Draft" : "Given", given, draft), refined ? answer("Refined", refined.given, refined) : null];
  return h("dl", { className: "answers" }, answerBox("Expected", target), others);
}

const answerBox = (title, ...content) => h("div", {}, h("dt", {}, h("bdi", {}, title)), h("dd", { dir: "auto" }, content));
const NO_ANSWER = () => h("em", {}, "no answer could be read");

const rowLink = (store, i) => h("a", { href: `#${placeOf(store.run, "row", store.name(i))}` }, "this row over the steps");

// ---- feedback and the leak guard

// A feedback with a mark on every passage that the leak guard withheld.
function withheldMarked(text) {
  return text.split(WITHHELD).flatMap((piece, k) => (k ? [h("mark", {}, WITHHELD), piece] : [piece]));
}

function feedbackOf({ feedback, redactions, redacted = [], draft }, requests) {
  const passages = redacted.length ? h("ul", {}, redacted.map((passage) => h("li", {}, h("del", { dir: "auto" }, passage)))) : null;
  const guard = redactions ? h("div", { className: "guard" }, h("p", {}, `The leak guard withheld ${counted(redactions)} ${redactions === 1 ? "passage" : "passages"}.`), passages) : null;
  const written = draft.critique && draft.critique !== feedback;
  return h(
    "section",
    { ariaLabel: "Feedback" },
    h("h3", {}, "Feedback"),
    feedback ? h("blockquote", { dir: "auto" }, requests.draw()) : small("None was given."),
    guard,
    written ? h("details", { className: "seat-view" }, h("summary", {}, "The judge's critique of the draft, as written"), h("blockquote", { dir: "auto" }, draft.critique)) : null,
  );
}

// ---- verdicts

function verdictTable({ draft, refined }) {
  const names = [...new Set([...Object.keys(draft.metrics ?? {}), ...Object.keys(refined?.metrics ?? {})])];
  const value = (attempt, name) => (name === null ? attempt?.reward : attempt?.metrics?.[name]) ?? null;
  const lines = [null, ...names].map((name) => {
    const [a, b] = [value(draft, name), value(refined, name)];
    return [name ?? "reward", rewardText(a), ...(refined ? [rewardText(b), hasValue(a) && hasValue(b) ? signedReward(b - a) : NONE] : [])];
  });
  const ended = ["ended", words(draft.ended ?? "not played"), ...(refined ? [words(refined.ended ?? "not played"), ""] : [])];
  return smallTable(null, ["", "draft", ...(refined ? ["refined", "change"] : [])], [...lines, ended]);
}

function opinionTables({ draft, refined }) {
  return [draft, refined].map((attempt, k) => {
    const canary = attempt?.canary ? [{ ...attempt.canary, judge: `canary: ${attempt.canary.judge}` }] : [];
    const opinions = [...(attempt?.jury ?? []), ...canary];
    if (!opinions.length) return null;
    const metrics = ({ metrics }) => Object.entries(metrics ?? {}).map(([metric, value]) => `${metric} ${shortNumber(value)}`).join(", ");
    return smallTable(`${k ? "Refined" : "Draft"}: jury and canary`, ["judge", "reward", "metrics"], opinions.map((one) => [one.judge, one.failure ?? rewardText(one.reward), metrics(one)]));
  });
}

// ---- training

function sequenceTable(sequences) {
  const columns = ["sequence", "agent", "prompt", "response", "log-prob sampled", "log-prob base", "advantage", "weight", "distillation", "masked"];
  const rows = sequences.map((one) => [
    words(one.kind),
    one.seat,
    counted(one.prompt_tokens),
    counted(one.response_tokens),
    ...[one.logp_sampled, one.logp_base, one.advantage, one.weight, one.distill_weight].map((value) => cell(value, meanText(value))),
    one.masked ?? "no: trained",
  ]);
  return dataTable(columns.map((title, k) => ({ title, text: k < 2 || k === 9 })), rows, { name: "training sequences", sorts: false });
}

// ---- the conversations as they were

function ownViews(attempt, name, sequences) {
  return Object.entries(attempt.seats ?? {}).map(([seat, messages]) => {
    const own = sequences.filter((one) => one.attempt === name && one.seat === seat);
    const tokens = own.map((one) => `, ${words(one.kind)}: ${counted(one.prompt_tokens)} tokens in, ${counted(one.response_tokens)} sampled`);
    return h("details", { className: "seat-view" }, h("summary", {}, h("bdi", {}, `${name}, agent ${seat}`), h("small", {}, ` ${counted(messages.length)} messages`, tokens)), turnsOf(messages));
  });
}

// The calls of the judge and of who wrote the feedback, word for word.
function callsOf(attempts) {
  const calls = attempts.flatMap((attempt, k) => (attempt.calls ?? []).map((call) => ({ ...call, of: k ? "refined" : "draft" })));
  if (!calls.length) return small("No call is in the record: the task's rules gave the verdict, or an earlier version of soul wrote it.");
  return calls.map(({ of, role, model, request, reply, failure, prompt_tokens, completion_tokens, cached }) => {
    const tokens = cached ? "from the cache" : `${counted(prompt_tokens)} tokens in, ${counted(completion_tokens)} out`;
    const title = h("summary", {}, h("bdi", {}, `${role} of the ${of}, ${model}`), h("small", {}, ` ${tokens}`), failure ? h("small", { className: "failed" }, ` ${words(failure)}`) : null);
    return h("details", { className: "seat-view" }, title, turnsOf([...request, { role: "judge", content: reply ?? "" }], "to the judge"));
  });
}

const WHO = { system: "system", user: "to the policy", assistant: "policy" };

// Messages as turns: system prompts are folded, other long ones are cut, the policy's own ones are whole.
function turnsOf(messages, asked = WHO.user) {
  return h("ol", { className: "turns" }, messages.map(({ role, content }) => {
    const who = role === "user" ? asked : (WHO[role] ?? role);
    const own = role === "assistant" || role === "judge";
    const turn = drawTurn({ kind: own ? "assistant" : role, who, text: content });
    const said = turn.lastChild;
    if (role === "system") {
      const size = h("small", {}, ` ${counted(content.length)} characters`);
      turn.replaceChildren(h("details", {}, h("summary", {}, who, size), said));
    } else if (!own && content.length > LONG) {
      const all = () => ((said.textContent = content), more.remove());
      const more = button(`Show all ${counted(content.length)} characters`, all, { className: "link" });
      said.textContent = `${content.slice(0, LONG)} …`;
      turn.append(more);
    }
    return turn;
  }));
}

// ---- cost and time, and the record

function took(line) {
  const uses = Object.entries(line.usage);
  const priced = uses.some(([, use]) => !use.unpriced); // otherwise the column is left out
  const rows = uses.map(([role, use]) => [
    role,
    ...[use.calls, use.requests, use.cache_hits, use.prompt_tokens, use.completion_tokens].map(counted),
    Object.entries(use.failures ?? {}).map(([cause, count]) => `${cause} ${count}`).join(", ") || "0",
    secondsText(use.seconds ?? 0),
    ...(priced ? [use.unpriced ? NONE : costText(use.cost_usd ?? 0)] : []),
  ]);
  const titles = ["role", "calls", "requests", "from the cache", "tokens in", "tokens out", "failed", "in requests", ...(priced ? ["cost"] : [])];
  const stages = [line.draft, line.refined].filter(Boolean).map((attempt, k) => {
    const texts = Object.entries(attempt.seconds ?? {}).map(([stage, seconds]) => `${stage} ${secondsText(seconds)}`);
    return texts.length ? `${k ? "refined" : "draft"}: ${texts.join(", ")}` : "";
  });
  return [rows.length ? smallTable(null, titles, rows) : null, small(stages.filter(Boolean).join("; "))];
}

const foldedRecord = (record) =>
  Object.keys(record).length ? h("details", { className: "record" }, h("summary", {}, "Record"), recordOf(record)) : null;

function recordOf(record) {
  const fields = Object.entries(record).map(([name, value]) => {
    const text = typeof value === "string" ? value : JSON.stringify(value, null, 1);
    return h("div", {}, h("dt", {}, name), h("dd", { dir: "auto" }, text));
  });
  return h("dl", {}, fields);
}
