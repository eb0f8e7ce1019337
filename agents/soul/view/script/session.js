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
    part(
      "As the model saw and wrote it",
      both.map((attempt, k) => ownViews(attempt, k ? "refined" : "draft")),
    ),
    Object.keys(line.record ?? {}).length ? h("details", { className: "record" }, h("summary", {}, "Record"), recordOf(line.record)) : null,
    h(
      "p",
      { className: "small" },
      "Judge prompts: ",
      h("bdi", {}, line.prompts.join(", ") || "none"),
      ". Session ",
      h("bdi", {}, line.session || "without an id"),
      ", group ",
      h("bdi", {}, line.prompt || "unknown"),
      ".",
    ),
  ].filter(Boolean);
}

const stagesText = (attempt) =>
  Object.entries(attempt.seconds ?? {})
    .map(([stage, seconds]) => `${stage} ${secondsText(seconds)}`)
    .join(", ");
const attemptFailure = (name, failure) => h("div", {}, h("h3", {}, name), failureOf(failure));

// ---- the head

function sessionHead(line, store, i) {
  const { draft, refined } = line;
  const gain = refined && draft.reward !== null && refined.reward !== null ? refined.reward - draft.reward : null;
  const change = gain === null ? "" : gain > TOLERANCE ? "▲ better" : gain < -TOLERANCE ? "▼ worse" : "= same";
  const kind = { "▲": "won", "▼": "lost" }[change[0]] ?? "";
  const facts = [`file ${line.file || "unknown"}`, `record ${line.row}`, `best possible ${shortNumber(line.full_marks ?? 1)}`];
  if (line.model_version !== null && line.model_version !== undefined) facts.push(`weights of step ${line.model_version}`);
  if (line.dropped) {
    facts.push("its group was replaced: the objective learns nothing from it");
  }
  if (line.shortened?.length) facts.push(`shortened to fit the model: ${line.shortened.join(", ")}`);
  for (const [name, count] of Object.entries(line.out_of_tokens ?? {})) if (count) facts.push(`${name}: ${count} sequences out of tokens`);
  const links = h("p", { className: "links" }, groupLink(store, i), " · ", rowLink(store, i));
  return h(
    "section",
    { className: "verdict" },
    h("p", { className: "score" }, h("strong", {}, rewardText(draft.reward)), " draft"),
    h(
      "p",
      { className: "score" },
      h("strong", {}, refined ? rewardText(refined.reward) : "–"),
      refined ? " refined " : " no refined episode",
      gain === null ? null : h("b", { className: kind }, `${change} ${signedReward(gain)}`),
    ),
    h(
      "ul",
      { className: "tags" },
      facts.map((fact) => h("li", {}, h("bdi", {}, fact))),
    ),
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
    ? h(
        "div",
        { className: "guard" },
        h("p", {}, `The leak guard withheld ${counted(redactions)} ${redactions === 1 ? "passage" : "passages"}.`),
        redacted.length
          ? h(
              "ul",
              {},
              redacted.map((passage) => h("li", {}, h("del", { dir: "auto" }, passage))),
            )
          : null,
      )
    : null;
  const critique =
    draft.critique && draft.critique !== sent
      ? h(
          "details",
          { className: "seat-view" },
          h("summary", {}, "The judge's critique of the draft, as written"),
          h("blockquote", { dir: "auto" }, draft.critique),
        )
      : null;
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
  const empty = [draft, refined].some((attempt) => attempt?.contentless)
    ? [["no content: worst score", draft.contentless ? "yes" : "no", refined?.contentless ? "yes" : "no", ""]]
    : [];
  return smallTable(null, ["", "draft", "refined", "change"], [...lines, ended, ...empty]);
}

function opinionTables({ draft, refined }) {
  return [draft, refined].map((attempt, k) => {
    const name = k ? "Refined" : "Draft";
    const canary = attempt?.canary ? [{ ...attempt.canary, judge: `canary: ${attempt.canary.judge}` }] : [];
    const opinions = [...(attempt?.jury ?? []), ...canary];
    if (!opinions.length) return null;
    const metrics = (opinion) =>
      Object.entries(opinion.metrics ?? {})
        .map(([metric, value]) => `${metric} ${shortNumber(value)}`)
        .join(", ");
    return smallTable(
      `${name}: jury and canary`,
      ["judge", "reward", "metrics"],
      opinions.map((one) => [one.judge, one.failure ?? rewardText(one.reward), metrics(one)]),
    );
  });
}

// ---- training

const SEQUENCE_TITLES = [
  "sequence",
  "seat",
  "prompt",
  "response",
  "log-prob sampled",
  "log-prob base",
  "advantage",
  "weight",
  "distillation",
  "masked",
];

function sequenceTable(sequences) {
  const rows = sequences.map((one) => [
    words(one.kind),
    one.seat,
    `${counted(one.prompt_tokens)} tokens`,
    `${counted(one.response_tokens)} tokens`,
    ...[one.logp_sampled, one.logp_base, one.advantage, one.weight, one.distill_weight].map(rewardText),
    one.masked ?? "no: trained",
  ]);
  return h(
    "div",
    { className: "scroller", tabIndex: 0, role: "region", ariaLabel: "Training sequences" },
    smallTable(null, SEQUENCE_TITLES, rows),
  );
}

// ---- the raw conversations

function ownViews(attempt, name) {
  if (!attempt.seats) return null;
  return Object.entries(attempt.seats).map(([seat, messages]) =>
    h(
      "details",
      { className: "seat-view" },
      h("summary", {}, h("bdi", {}, `${name}, seat ${seat}`), h("small", {}, ` ${counted(messages.length)} messages`)),
      turnsOf(messages),
    ),
  );
}
