// The turns of two attempts beside each other, with the changed words marked: one turn as columns with the feedback between
// them, a dialogue turn by turn. A request of the feedback is linked to the new words that follow it.

// The messages of a seat before its first turn, and those from it on.
function splitAtFirstTurn(messages) {
  const first = messages.findIndex(({ role }) => role === "assistant");
  return first < 0 ? [messages, []] : [messages.slice(0, first), messages.slice(first)];
}

function promptOf({ draft }) {
  const seats = Object.entries(draft.seats ?? {}).map(([seat, messages]) => [seat, splitAtFirstTurn(messages)[0]]);
  if (!seats.length) return null;
  const size = seats.flatMap(([, messages]) => messages).reduce((sum, { content }) => sum + content.length, 0);
  const title = seats.length > 1 ? `Prompts of ${seats.length} agents: each one's private context` : "Prompt";
  const views = seats.map(([seat, messages]) => [seats.length > 1 ? h("h3", {}, h("bdi", {}, `Agent ${seat}`)) : null, turnsOf(messages)]);
  return h("details", { className: "seat-view prompt", open: seats.length === 1 }, h("summary", {}, title, h("small", {}, ` ${counted(size)} characters`)), views);
}

function texts(line) {
  const { draft, refined } = line;
  const [drafted, second] = [draft, refined].map((attempt) => attempt && columnTurns(attempt, line.record));
  const requests = new Requests(line.feedback);
  const long = Math.max(drafted?.length ?? 0, second?.length ?? 0) > 1;
  markTurns(drafted, second, requests);
  const feedback = feedbackOf(line, requests);
  const bar = second ? h("p", { className: "small" }, marksSwitch(), requests.linked ? " A dotted underline links a request of the feedback and the new words that follow it." : null) : null;
  if (!long) return h("div", {}, bar, h("div", { className: "sides three" }, column("Draft", drafted), feedback, refined ? column("Refined", second) : noRefined(line)));
  return h("div", {}, feedback, bar, byTurn(drafted ?? [], second ?? []), refined ? null : noRefined(line), drafted && (second || !refined) ? null : notPlayed());
}

// Shows the texts with or without the marks of changes; the choice holds for the sessions that are opened next.
function marksSwitch() {
  const plain = () => document.body.classList.contains("plain");
  const name = () => (plain() ? "Mark the changes" : "Show plain text");
  const one = button(name(), () => (document.body.classList.toggle("plain"), (one.textContent = name())), { className: "link" });
  return one;
}

// Turn k of the draft beside turn k of the refined episode; below it on a narrow screen and on paper.
function byTurn(drafted, second) {
  const count = Math.max(drafted.length, second.length);
  const cell = (turn, name) => h("div", { className: "cell" }, turn ? [h("span", { className: "label" }, name), turnList([turn])] : null);
  const rows = Array.from({ length: count }, (_, k) => [cell(drafted[k], `draft, turn ${k + 1}`), second.length ? cell(second[k], `refined, turn ${k + 1}`) : null]);
  const heads = [h("h3", { className: "cell" }, "Draft"), second.length ? h("h3", { className: "cell" }, "Refined") : null];
  return h("div", { className: `sides turns-by-number${second.length ? "" : " one"}` }, heads, rows);
}

const turnList = (turns) => h("ol", { className: "turns" }, turns.map(drawTurn));
const saidText = (text) => h("div", { className: "said", dir: "auto" }, text);

// A turn: who spoke, the reasoning before it (folded), a private thought, and the text, where it is `shown` with marks.
function drawTurn({ kind, who, text, shown, reasoning, thought }) {
  const folded = () => h("summary", {}, `private: reasoning, ${counted(reasoning.length)} characters`);
  return h(
    "li",
    { className: `turn ${kind}` },
    h("div", { className: "who" }, who),
    reasoning ? h("details", { className: "private" }, folded(), saidText(reasoning)) : null,
    thought ? h("div", { className: "private" }, h("span", { className: "label" }, "private thought: "), saidText(thought)) : null,
    saidText(text.trim() ? (shown ?? text) : h("em", {}, "(nothing)")),
  );
}

function noRefined({ feedback }) {
  return h("section", { ariaLabel: "Refined" }, h("h3", {}, "Refined"), small(feedback ? "There is no refined episode in the record." : "No refined episode: the draft got no feedback."));
}

// The turns of an attempt for `drawTurn`, with their `key` (a speaker) and whether they are the policy's `own`; null if the play failed.
function columnTurns(attempt, record) {
  if (!attempt.seats) return null;
  const scene = sceneOf({ ...attempt, ...attempt.episode }, record ?? {});
  if (scene) return scene.map(sceneTurn);
  const seats = Object.entries(attempt.seats);
  const turnOf = (seat, { role, content }) => {
    const own = role === "assistant";
    const { reasoning, answer } = withoutReasoning(own ? content : "");
    const who = [seats.length > 1 ? h("bdi", {}, `${seat}: `) : null, WHO[role] ?? role];
    return { key: `${seat} ${role}`, own, kind: role, who, reasoning, text: reasoning ? answer.trim() : content };
  };
  return seats.flatMap(([seat, messages]) => splitAtFirstTurn(messages)[1].map((message) => turnOf(seat, message)));
}

// Marks the changed words of each own turn against the turn of the same number and speaker in the other attempt.
function markTurns(drafted, second, requests) {
  if (!drafted || !second) return;
  const waiting = Map.groupBy(drafted, ({ key }) => key);
  for (const turn of second) {
    const before = waiting.get(turn.key)?.shift();
    if (before && turn.own) markPair(before, turn, requests);
  }
}

function markPair(before, after, requests) {
  const changes = changesBetween(before.text, after.text);
  before.shown = drawChanges(changes.before, "del");
  after.shown = drawChanges(changes.after, "ins", requests);
}

function column(title, turns, ...above) {
  return h("section", { ariaLabel: title }, h("h3", {}, h("bdi", {}, title)), above, turns ? turnList(turns) : notPlayed());
}

// ---- requests

// A sentence asks for something if it begins with one of these verbs, perhaps after a short word, or has one of these words.
const VERBS = "acknowledge|add|admit|answer|apologi[sz]e|ask|avoid|be|begin|bring|choose|close|come|compare|consider|count|describe|drop|end|explain|find|focus|follow|give|greet|include|invite|keep|leave|let|listen|look|make|mention|name|notice|offer|open|pick|propose|put|quote|raise|read|refer|remember|remove|reply|respond|say|settle|show|slow|speak|start|state|stay|stick|stop|suggest|take|tell|thank|think|track|try|turn|use|wait|weigh|write";
const ASKS = new RegExp(`^\\W*(?:(?:and|but|so|then|please|first|next|also|instead|finally|never|always|rather)\\b,?\\s+)?(?:${VERBS})\\b|\\b(?:should|must|ought|please|need(?:s|ed)? to|have to|has to|could have|instead|make sure|try to|do not|don['’]t|better to|next time)\\b`, "iu");
const COMMON = new Set("all and any are but can did for get got had has her him his how its let may not off our out she the too was who why yet you about after again also been before being could does doing done each even ever every from have having here how into just less like long made make more most much must need next none only other ought over please rather said same should some such sure than that their them then there these they thing this those time try under until very want were what when where which while who will with would your yours you".split(" "));

// The sentences of a text, which together are the text.
const sentencesOf = (text) => text.match(/[^]+?(?:[.!?…]+["'”’»)\]]*(?=\s|$)|\n|$)\s*/gu) ?? [];

// A word without its ending, so that "asking" and "ask" are one; "" for a word without content of its own.
function stemOf(word) {
  const plain = word.toLowerCase();
  if (plain.length < 3 || COMMON.has(plain) || !/[\p{L}\p{N}]/u.test(plain)) return "";
  const stem = plain.replace(/(?:ing|ely|ly|ed|es|e|s)$/u, "");
  return stem.length < 3 ? plain : stem;
}

// The sentences of a feedback, and for those that ask for something the inserted words that have their content.
class Requests {
  constructor(feedback) {
    this.sentences = sentencesOf(feedback ?? "").map((text) => ({ text, stems: new Set(ASKS.test(text) ? wordsOf(text.replaceAll(WITHHELD, "")).map(stemOf) : []), words: [] }));
    for (const { stems } of this.sentences) stems.delete("");
  }

  get linked() {
    return this.sentences.some(({ words }) => words.length);
  }

  // An inserted text; the words that a request asks for are elements.
  drawInserted(text) {
    return wordsOf(text).map((word) => {
      const stem = stemOf(word);
      const asking = this.sentences.filter(({ stems }) => stems.has(stem));
      if (!asking.length) return word;
      const element = h("span", { className: "followed", tabIndex: 0, title: `asked for: ${asking.map((one) => one.text.trim()).join(" ")}` }, word);
      for (const { words } of asking) words.push(element);
      return element;
    });
  }

  // The feedback, once the texts are drawn: a request and its words light up together.
  draw() {
    return this.sentences.map(({ text, words }) => {
      if (!words.length) return withheldMarked(text);
      const sentence = h("span", { className: "request", tabIndex: 0, title: `new in the refined text: ${[...new Set(words.map((word) => word.textContent))].join(", ")}` }, withheldMarked(text.trimEnd()));
      lightTogether(sentence, words);
      for (const word of words) lightTogether(word, [sentence]);
      return [sentence, text.slice(text.trimEnd().length)];
    });
  }
}

function lightTogether(one, others) {
  for (const [event, lit] of Object.entries({ pointerenter: true, focus: true, pointerleave: false, blur: false })) {
    one.addEventListener(event, () => others.forEach((other) => other.classList.toggle("lit", lit)));
  }
}
