// The columns of all sessions of a run, as plain lists: numbers, texts, and null where there is nothing.

class Columns {
  constructor() {
    this.clear();
  }

  clear() {
    this.size = 0;
    this.columns = new Map(); // key -> its values
  }

  // Appends the columns of the API.
  append(columns) {
    for (const [key, column] of Object.entries(columns)) {
      if (!this.columns.has(key)) this.columns.set(key, []);
      const values = this.columns.get(key);
      for (const value of listOf(column)) values.push(value);
    }
    this.size = this.columns.get("id")?.length ?? 0;
    return columns.id?.length ?? 0;
  }

  // The value of a session; null where there is none.
  number(key, i) {
    return this.columns.get(key)?.[i] ?? null;
  }

  text(key, i) {
    return this.number(key, i);
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

  // The sessions whose text in this column is `text`.
  withText(key, text) {
    return this.where((i) => this.text(key, i) === text);
  }

  // Refined reward minus draft reward, or null.
  gain(i) {
    const draft = this.number("draft", i);
    const refined = this.number("refined", i);
    return draft === null || refined === null ? null : refined - draft;
  }
}
