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

  // What changed since this row and revision: {revision, reset, gone: [[first id, last id], ...], columns}.
  columns(run, after = 0, revision = "") {
    return this.#get(`run/${encodeURIComponent(run)}/index?after=${after}&revision=${revision}`);
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
    const { columns } = await this.#index();
    return { revision: 0, reset: false, gone: [], columns };
  }

  async #places() {
    const { starts, columns } = await this.#index();
    this.parts ??= new Parts(starts);
    this.places ??= new Map(listOf(columns.id).map((id, i) => [id, i]));
    return this.places;
  }

  async session(_run, id) {
    const places = await this.#places();
    if (!places.has(id)) throw new Error("this session is not in the file");
    return this.parts.line(places.get(id));
  }

  async *search(_run, text) {
    const places = await this.#places();
    const ids = [...places.keys()];
    for await (const [share, hits] of this.parts.search(text, ids.keys(), textsOf)) yield [share, hits.map((i) => ids[i])];
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
