// The columns of all sessions of a run, in typed arrays: about 9 MB for 50,000 sessions. Numbers are float64, with NaN
// where there is none; texts are stored once each, with a code for each session.

const TEXTS = ["split", "task", "file", "prompt", "session", "cause"];

class Columns {
  constructor() {
    this.clear();
  }

  clear() {
    this.size = 0;
    this.numbers = new Map(); // key -> Float64Array, longer than `size`
    this.codes = new Map(); // key -> Uint32Array
    this.values = new Map(TEXTS.map((key) => [key, []])); // key -> the texts; a code is a place in this list
    this.known = new Map(TEXTS.map((key) => [key, new Map()])); // key -> text -> code
  }

  // Appends the columns of the API.
  append(columns) {
    const count = columns.id?.length ?? 0;
    for (const [key, column] of Object.entries(columns)) {
      if (TEXTS.includes(key)) this.#appendTexts(key, column, count);
      else this.#appendNumbers(key, column, count);
    }
    this.size += count;
    return count;
  }

  #appendNumbers(key, column, count) {
    const array = this.#room(this.numbers, key, count, Float64Array);
    for (let i = 0; i < count; i++) array[this.size + i] = column[i] ?? NaN;
  }

  #appendTexts(key, column, count) {
    const array = this.#room(this.codes, key, count, Uint32Array);
    const codes = column.codes ? column.values.map((text) => this.#code(key, text)) : null;
    for (let i = 0; i < count; i++) array[this.size + i] = codes ? codes[column.codes[i]] : this.#code(key, column[i]);
  }

  #code(key, text) {
    const known = this.known.get(key);
    if (!known.has(text)) {
      known.set(text, this.values.get(key).length);
      this.values.get(key).push(text);
    }
    return known.get(text);
  }

  #room(arrays, key, count, kind) {
    const old = arrays.get(key) ?? new kind(0);
    if (old.length >= this.size + count) return old;
    const array = new kind(Math.max(this.size + count, 2 * old.length));
    array.set(old.subarray(0, this.size));
    arrays.set(key, array);
    return array;
  }

  // The number of a session, or null.
  number(key, i) {
    const value = this.numbers.get(key)?.[i] ?? NaN;
    return Number.isNaN(value) ? null : value;
  }

  text(key, i) {
    const codes = this.codes.get(key);
    return codes ? this.values.get(key)[codes[i]] : null;
  }

  // The sessions for which `test` holds, as places.
  where(test) {
    const places = [];
    for (let i = 0; i < this.size; i++) if (test(i)) places.push(i);
    return places;
  }

  // The sessions whose text in this column is `text`.
  withText(key, text) {
    const code = this.known.get(key).get(text);
    const codes = this.codes.get(key);
    return code === undefined ? [] : this.where((i) => codes[i] === code);
  }

  // Refined reward minus draft reward, or null.
  gain(i) {
    const draft = this.number("draft", i);
    const refined = this.number("refined", i);
    return draft === null || refined === null ? null : refined - draft;
  }
}
