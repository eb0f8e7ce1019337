// The sessions of one run as columns of plain lists (numbers, texts, and null where there is nothing), and the run itself.

// A column as a plain list: texts that repeat come as {values, codes}.
const listOf = (column) => (column.codes ? column.codes.map((code) => column.values[code]) : column);

class Store {
  columns = new Map(); // key -> its values
  size = 0;
  last = 0; // the highest id

  constructor(source, run) {
    Object.assign(this, { source, run });
  }

  // Loads what is new. Returns whether anything changed.
  async grow() {
    const { revision, reset, columns } = await this.source.get(addressOf("run", this.run, "index"), { after: this.last, known: this.revision });
    if (reset) Object.assign(this, { columns: new Map(), last: 0 });
    const count = this.#append(columns);
    this.revision = revision;
    if (reset || count) this.places = this.ranges = undefined;
    return reset || count > 0;
  }

  #append(columns) {
    for (const [key, column] of Object.entries(columns)) {
      if (!this.columns.has(key)) this.columns.set(key, []);
      const values = this.columns.get(key);
      for (const value of listOf(column)) values.push(value);
      if (key === "id") for (const id of column) this.last = Math.max(this.last, id);
    }
    this.size = this.columns.get("id")?.length ?? 0;
    return columns.id?.length ?? 0;
  }

  // The value of a session; null where there is none.
  get(key, i) {
    return this.columns.get(key)?.[i] ?? null;
  }

  // The texts of a column, each once, in order.
  distinct(key) {
    return [...new Set(this.columns.get(key) ?? [])].filter((text) => text !== null).sort();
  }

  // The sessions for which `test` holds, as places.
  where(test) {
    const places = [];
    for (let i = 0; i < this.size; i++) if (test(i)) places.push(i);
    return places;
  }

  // The task, or the evaluation set.
  set(i) {
    return this.get("split", i) === "eval" ? this.get("file", i) : this.get("task", i);
  }

  // Refined reward minus draft reward, or null.
  gain(i) {
    const draft = this.get("draft", i);
    const refined = this.get("refined", i);
    return draft === null || refined === null ? null : refined - draft;
  }

  // The lowest and the highest reward that any session of this one's task has.
  range(i) {
    if (!this.ranges) {
      this.ranges = new Map();
      for (let k = 0; k < this.size; k++) {
        const rewards = [this.get("draft", k), this.get("refined", k), ...(this.ranges.get(this.set(k)) ?? [])].filter(hasValue);
        this.ranges.set(this.set(k), [Math.min(...rewards), Math.max(...rewards)]);
      }
    }
    return this.ranges.get(this.set(i));
  }

  // Whether the draft already has the best reward: feedback could not improve it.
  best(i) {
    return this.get("draft", i) >= this.range(i)[1] - TOLERANCE;
  }

  // The name of a session in links: step and its own id, or set, row and sample; it stays when the index is built again.
  name(i) {
    if (this.get("split", i) === "eval") return `${this.set(i)}.${this.get("number", i)}.${this.get("sample", i)}`;
    const session = this.get("session", i);
    const split = this.get("split", i) === "val" ? "val" : "";
    return session ? `${split}${this.get("step", i)}.${session.toWellFormed()}` : `row ${this.get("id", i)}`;
  }

  // What a session is called in titles.
  title(i) {
    const sample = this.get("sample", i) ? `, sample ${this.get("sample", i)}` : "";
    const step = this.get("split", i) === "eval" ? sample : `, step ${this.get("step", i)}`;
    return `${this.set(i)}, row ${this.get("number", i)}${step}`;
  }

  // The sessions of the same prompt in the same step.
  groupOf(i) {
    const keys = ["prompt", "step", "split"];
    const values = keys.map((key) => this.get(key, i));
    return this.where((k) => keys.every((key, n) => this.get(key, k) === values[n]));
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

  // A text that changes with the sessions.
  get state() {
    return `${this.revision} ${this.size}`;
  }

  #address(i) {
    return addressOf("run", this.run, "session", this.get("id", i));
  }

  // Whether the text of a session can be read: a file has those of the chosen sessions.
  has(i) {
    return this.source.has(this.#address(i));
  }

  line(i) {
    return this.source.get(this.#address(i));
  }

  async *search(text, among) {
    const places = new Map(among.map((i) => [this.get("id", i), i]));
    for await (const [share, hits] of this.source.search(this.run, text)) {
      yield [share, hits.filter((id) => places.has(id)).map((id) => places.get(id))];
    }
  }
}

// A training run or an evaluation: its overview and sessions, as far as they are known.
class Run {
  parts = {};

  constructor(source, folder) {
    const { id, name, kind } = folder;
    Object.assign(this, { source, folder, id, name, kind, store: new Store(source, id) });
  }

  // Loads the overview, which the curves need; returns whether it changed. The sessions arrive after it: await `sessions`, a promise
  // of whether there are new ones.
  async load() {
    const overview = await this.source.get(addressOf("run", this.id, "overview"), { known: this.overview?.revision });
    if (!overview.unchanged) this.overview = overview;
    this.indexing = overview.indexing ?? null; // the share of the traces that is read; null if all are
    this.sessions = this.store.grow();
    this.sessions.catch(() => {}); // whoever awaits it sees the error
    return !overview.unchanged;
  }

  // Numbers that only one view needs, asked for again when the run has grown.
  part(name) {
    const { revision } = this.store;
    if (this.parts[name]?.revision !== revision) this.parts[name] = { revision, value: this.source.get(addressOf("run", this.id, name)) };
    return this.parts[name].value;
  }

  // Loads what is new; returns whether anything changed.
  async poll() {
    await this.sessions.catch(() => {});
    const changed = await this.load();
    return (await this.sessions) || changed;
  }
}
