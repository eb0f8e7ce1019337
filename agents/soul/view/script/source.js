// Where the page gets its data: from the viewer's server, or from the file itself. Both answer the same calls, so no view
// knows which of them it reads.

class Source {
  static here() {
    return known.served ? new ServedSource() : new EmbeddedSource();
  }
}

class ServedSource extends Source {
  live = true;

  async #get(path) {
    const answer = await fetch(`api/${path}`, { cache: "no-store" });
    if (!answer.ok) throw new Error(`the server answered ${answer.status} to ${path}: ${(await answer.text()).slice(0, 300)}`);
    return answer.json();
  }

  async folders() {
    return (await this.#get("folders")).folders;
  }

  // All numbers of a run; {revision, unchanged: true} if this revision is still the last one.
  overview(run, from = "") {
    return this.#get(`run/${encodeURIComponent(run)}/overview?from=${from}`);
  }

  // What changed since this row and revision: {revision, reset, columns}.
  columns(run, after = 0, revision = "") {
    return this.#get(`run/${encodeURIComponent(run)}/index?after=${after}&revision=${revision}`);
  }

  // The prompts of two runs (agents/soul/view/against.py).
  against(run, other) {
    return this.#get(`run/${encodeURIComponent(run)}/against/${encodeURIComponent(other)}`);
  }

  has() {
    return true;
  }

  session(run, id) {
    return this.#get(`run/${encodeURIComponent(run)}/session/${id}`);
  }

  // Yields [share that is searched, ids of sessions with this text], as the server finds them.
  // A search that nobody waits for any more ends, at the server too.
  async *search(run, text) {
    const stop = new AbortController();
    try {
      yield* this.#hits(run, text, stop.signal);
    } finally {
      stop.abort();
    }
  }

  async *#hits(run, text, signal) {
    const answer = await fetch(`api/run/${encodeURIComponent(run)}/search?text=${encodeURIComponent(text)}`, { signal });
    if (!answer.ok) throw new Error(`the server answered ${answer.status} to the search: ${(await answer.text()).slice(0, 300)}`);
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    let share = 0;
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      const lines = (rest + value).split("\n");
      rest = lines.pop();
      const said = lines.filter(Boolean).map((line) => JSON.parse(line));
      share = said.reduce((last, one) => one.progress ?? last, share);
      yield [share, said.flatMap((one) => one.hit ?? [])];
    }
  }
}

class EmbeddedSource extends Source {
  live = false;

  async folders() {
    const { columns } = await this.#index();
    const tasks = [...new Set(columns.task.values ?? columns.task)];
    return [
      { id: "run", path: known.run, name: known.run, kind: "training", steps: new Set(listOf(columns.step)).size, tasks, running: false },
    ];
  }

  #index() {
    this.index ??= unpack("index").then(JSON.parse);
    return this.index;
  }

  async overview() {
    return JSON.parse(await unpack("overview"));
  }

  async columns() {
    const { starts, columns, texts } = await this.#index();
    this.parts = new Parts(starts);
    this.texts = texts; // the ids of the sessions with texts, in their order
    this.places = new Map(texts.map((id, i) => [id, i]));
    return { revision: 0, reset: false, columns };
  }

  has(id) {
    return this.places?.has(id) ?? false;
  }

  async session(_run, id) {
    if (!this.has(id)) throw new Error(NO_TEXT);
    return this.parts.line(this.places.get(id));
  }

  async *search(_run, text) {
    for await (const [share, hits] of this.parts.search(text, this.texts.keys(), textsOf)) yield [share, hits.map((i) => this.texts[i])];
  }
}

// What can be searched, as agents/soul/view/sessions.py has it: conversations, critiques, feedback, failures, the record.
function textsOf({ draft, refined, feedback, feedback_failure, redacted, record, groups }) {
  const attempts = [draft, refined].filter(Boolean).flatMap(({ seats, critique, episode, failure, ended }) => {
    const turns = Object.values(seats ?? {}).flatMap((messages) => messages.map(({ content }) => content));
    return [...turns, ...[critique, episode, failure, ended].flatMap((one) => leaves(one ?? null))];
  });
  return [...attempts, ...[feedback, feedback_failure, redacted, record, groups].flatMap((one) => leaves(one ?? null))];
}

// A column as a plain list: texts that repeat come as {values, codes}.
function listOf(column) {
  return column.codes ? column.codes.map((code) => column.values[code]) : column;
}
