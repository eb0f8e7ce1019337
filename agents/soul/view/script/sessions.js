// A run's sessions: their store, the list with its filters, and the pane that shows one (list.js, browser.js).

const NO_TEXT = "This file has all numbers, and the texts of chosen sessions only; soul view shows the others.";
const TOLERANCE = 1e-9; // rewards are compared after JSON, so that 0.1 + 0.2 passes for 0.3

// What a researcher looks for, in the order of the field "Sessions": value -> [name, test of a session].
const KINDS = {
  improved: ["most improved", (of, i) => of.gain(i) > TOLERANCE],
  hurt: ["most hurt", (of, i) => of.gain(i) !== null && of.gain(i) < -TOLERANCE],
  same: ["feedback ignored (same reward)", (of, i) => of.gain(i) !== null && Math.abs(of.gain(i)) <= TOLERANCE && !of.best(i)],
  redacted: ["feedback redacted", (of, i) => of.number("redactions", i) > 0],
  disagree: ["judges disagree", (of, i) => of.number("disagree", i) === 1],
  unrefined: ["without a refined episode", (of, i) => of.number("refined", i) === null],
  failed: ["failed", (of, i) => of.text("cause", i) !== null],
  dropped: ["dropped groups", (of, i) => of.number("dropped", i) === 1],
  live: ["of the running step", (of, i) => of.number("live", i) === 1],
  text: ["with a text to read", (of, i) => of.has(i)],
};
// The order in which such a list is shown first.
const KIND_ORDERS = { improved: { key: "gain", descending: true }, hurt: { key: "gain", descending: false } };

// A reward, advantage or metric with three decimals at most, so that columns stay narrow.
function rewardText(reward) {
  if (typeof reward !== "number") return reward === null || reward === undefined ? "–" : String(reward);
  return Math.abs(reward) < 0.001 ? shortNumber(reward) : String(Number(reward.toFixed(3)));
}

const signedReward = (gain) => (gain === null ? "–" : `${gain > TOLERANCE ? "+" : ""}${rewardText(gain)}`);

// The sessions of one run, as the list and the other views read them.
class RunStore extends Columns {
  constructor(source, run) {
    super();
    this.source = source;
    this.run = run;
    this.last = 0; // the highest id
    this.revision = undefined;
  }

  // Loads what is new. Returns whether anything changed.
  async grow() {
    const { revision, reset, columns } = await this.source.columns(this.run, this.last, this.revision);
    if (reset) this.clear();
    const count = this.append(columns);
    if (reset) this.last = 0;
    if (count) this.last = listOf(columns.id).reduce((a, b) => Math.max(a, b), this.last);
    this.revision = revision;
    const changed = reset || count > 0;
    if (changed) this.#forget();
    return changed;
  }

  #forget() {
    this.places = undefined;
    this.highest = undefined;
  }

  set(i) {
    return this.text("task", i);
  }

  // Whether the draft already has the best reward that any session of its task has: feedback could not improve it.
  best(i) {
    if (!this.highest) {
      this.highest = new Map();
      for (let k = 0; k < this.size; k++) {
        const reward = Math.max(this.number("draft", k) ?? -Infinity, this.number("refined", k) ?? -Infinity);
        this.highest.set(this.set(k), Math.max(reward, this.highest.get(this.set(k)) ?? -Infinity));
      }
    }
    return this.number("draft", i) >= this.highest.get(this.set(i)) - TOLERANCE;
  }

  // The name of a session in links: its step and its own id, which stay when the index is built again.
  name(i) {
    const session = this.text("session", i);
    const part = this.text("split", i) === "val" ? "val" : "";
    return session ? `${part}${this.number("step", i)}.${session.toWellFormed()}` : `row ${this.number("id", i)}`;
  }

  // The sessions of the same prompt in the same step.
  groupOf(i) {
    const same = (k) => this.number("step", k) === this.number("step", i) && this.text("split", k) === this.text("split", i);
    return this.withText("prompt", this.text("prompt", i)).filter(same);
  }

  link(i) {
    return placeOf(this.run, "session", this.name(i));
  }

  // The place of the session with this name; the last one where a resumed run has played it again.
  findName(name) {
    if (!this.places) {
      this.places = new Map();
      for (let i = 0; i < this.size; i++) this.places.set(this.name(i), i);
    }
    return this.places.get(name);
  }

  // Whether the text of a session can be read: a file has those of the chosen sessions.
  has(i) {
    return this.source.has(this.number("id", i));
  }

  line(i) {
    return this.source.session(this.run, this.number("id", i));
  }

  async *search(text, among) {
    const places = new Map();
    for (const i of among) places.set(this.number("id", i), i);
    for await (const [share, hits] of this.source.search(this.run, text)) {
      yield [share, hits.filter((id) => places.has(id)).map((id) => places.get(id))];
    }
  }
}

const SESSION_COLUMNS = [
  { key: "step", title: "step" },
  { key: "set", title: "task" },
  { key: "number", title: "row" },
  { key: "draft", title: "draft" },
  { key: "refined", title: "refined" },
  { key: "gain", title: "gain" },
  { key: "advantage_draft", title: "adv. draft" },
  { key: "advantage_refined", title: "adv. refined" },
  { key: "redactions", title: "redacted" },
  { key: "state", title: "state" },
  { key: "tokens", title: "tokens" },
  { key: "cost", title: "cost" },
  { key: "seconds", title: "time" },
];

class SessionList extends List {
  constructor(store) {
    super(store, SESSION_COLUMNS);
  }

  inGroups(i) {
    const { set, split } = this.filters;
    return (set === "" || this.store.set(i) === set) && (split === "" || this.store.text("split", i) === split);
  }

  passes(i) {
    const { store, filters } = this;
    const { state } = filters;
    if (state.startsWith("cause:")) {
      if (store.text("cause", i) !== state.slice(6)) return false;
    } else if (state in KINDS && !KINDS[state][1](store, i)) return false;
    return (
      within(store.number("step", i), filters.from, filters.to) &&
      within(store.number("draft", i), filters.draft_low, filters.draft_high) &&
      within(store.number("refined", i), filters.refined_low, filters.refined_high) &&
      within(store.gain(i), filters.low, filters.high)
    );
  }

  value(key, i) {
    if (key === "gain") return this.store.gain(i);
    if (key === "set") return this.store.set(i);
    return key === "state" ? stateOf(this.store, i) : this.store.number(key, i);
  }

  cells(i) {
    const { store } = this;
    const number = (key) => store.number(key, i);
    const gain = store.gain(i);
    const direction = gain > TOLERANCE ? "won" : gain < -TOLERANCE ? "lost" : "";
    return {
      step: h("a", { href: `#${store.link(i)}` }, store.text("split", i) === "val" ? `${number("step")} val` : String(number("step"))),
      set: h("bdi", {}, store.set(i)),
      number: String(number("number")),
      draft: rewardText(number("draft")),
      refined: rewardText(number("refined")),
      gain: h("span", { className: direction }, direction ? (direction === "won" ? "▲ " : "▼ ") : "", signedReward(gain)),
      advantage_draft: rewardText(number("advantage_draft")),
      advantage_refined: rewardText(number("advantage_refined")),
      redactions: number("redactions") ? String(number("redactions")) : "",
      state: h("bdi", { className: store.text("cause", i) ? "failed" : "" }, stateOf(store, i)),
      tokens: number("tokens") === null ? "–" : counted(number("tokens")),
      cost: costText(number("cost")),
      seconds: number("seconds") === null ? "–" : secondsText(number("seconds")),
    };
  }
}

// Whether a value lies in a range of the form's texts. Half of the last digit shown is allowed.
function within(value, low, high) {
  if (low === "" && high === "") return true;
  const room = TOLERANCE + Math.abs(value) * 5e-5;
  return value !== null && (low === "" || value >= Number(low) - room) && (high === "" || value <= Number(high) + room);
}

function stateOf(store, i) {
  const notes = [];
  if (store.text("cause", i)) notes.push(words(store.text("cause", i)));
  if (store.number("live", i) === 1) notes.push("running");
  if (store.number("dropped", i) === 1) notes.push("dropped");
  if (store.number("disagree", i) === 1) notes.push("judges disagree");
  return notes.join(", ");
}

class SessionBrowser extends Browser {
  constructor(store) {
    super(store, new SessionList(store));
    this.use(store);
    // A choice of the list brings its own order, as "most hurt" says.
    form.elements.state.addEventListener("input", () => (this.list.order = KIND_ORDERS[form.elements.state.value] ?? this.list.usual));
  }

  // Shows the sessions of another run, or of the same one after it has grown.
  use(store) {
    this.store = this.list.store = store;
    this.place = placeOf(store.run, "sessions");
    this.setOptions();
  }

  setOptions() {
    const tasks = this.store.distinct("task");
    fillSelect(form.elements.set, [["", "all"], ...tasks.map((task) => [task, task])], this.list.filters.set);
    fillSelect(form.elements.state, this.states(), this.list.filters.state);
  }

  drawGroups() {
    const { filters } = this.list;
    if (RANGES.some((name) => filters[name] !== "")) document.getElementById("rewards").open = true;
  }

  states() {
    const kinds = Object.entries(KINDS).map(([value, [name]]) => [value, name]);
    const causes = this.store.distinct("cause");
    return [["", "all"], ...kinds, ...causes.map((cause) => [`cause:${cause}`, `failed: ${words(cause)}`])];
  }

  // Takes in new sessions. Open session, filters, page and scroll stay; a text is not searched again.
  async grown() {
    const name = this.opened;
    this.use(this.store);
    const focused = document.activeElement?.closest?.("#list tbody tr")?.querySelector("a").hash;
    const i = pane.hidden ? undefined : this.store.findName(name);
    if (i !== undefined) this.list.open = i;
    if (this.list.filters.text.trim() === "") await this.list.filter(this.list.page);
    if (focused) [...rowsOfList.querySelectorAll("a")].find((link) => link.hash === focused)?.focus({ preventScroll: true });
    if (i !== undefined && this.openedLive && this.store.number("live", i) !== 1) await this.#openAgain(i);
  }

  async open(i) {
    if (!this.store.has(i)) {
      this.hide();
      return this.list.say(NO_TEXT);
    }
    this.opened = this.store.name(i);
    this.openedLive = this.store.number("live", i) === 1;
    await super.open(i);
  }

  // Shows a session of the running step again once the step is trained: now it has advantages and weights.
  async #openAgain(i) {
    const top = pane.scrollTop;
    await this.open(i);
    pane.scrollTop = top;
  }

  pane(line, i) {
    const title = `${this.store.set(i)}, row ${line.number}, step ${line.step}`;
    return { title, content: drawSession(line, this.store, i) };
  }
}

const RANGES = ["draft_low", "draft_high", "refined_low", "refined_high", "low", "high"];
