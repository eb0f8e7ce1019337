// The samples in the page. The index is unpacked at once, the texts part by part when needed; the last few parts stay
// unpacked.

const PARTS_KEPT = 4;
const known = JSON.parse(document.getElementById("known").textContent);
const kept = new Map(); // part -> promise of its lines, the last used one last

function bytesOf(base64) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(base64);
  return Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
}

async function unpack(id) {
  const bytes = bytesOf(document.getElementById(id).textContent);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).text();
}

// Entries as lines of JSON, in parts that are unpacked when needed.
class Parts {
  // starts: the entry with which each part begins.
  constructor(starts) {
    this.starts = starts;
  }

  // The part of entry i.
  of(i) {
    let low = 0;
    let high = this.starts.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (this.starts[middle] <= i) low = middle;
      else high = middle - 1;
    }
    return low;
  }

  // The lines (JSON) of a part.
  lines(part) {
    const lines = kept.get(part) ?? unpack(`part-${part}`).then((text) => text.split("\n"));
    kept.delete(part);
    kept.set(part, lines);
    if (kept.size > PARTS_KEPT) kept.delete(kept.keys().next().value);
    return lines;
  }

  async line(i) {
    const part = this.of(i);
    return JSON.parse((await this.lines(part))[i - this.starts[part]]);
  }

  // Searches these entries part by part. Yields [share of parts that are searched, matching entries of this part].
  // texts: function from an entry to its searchable texts.
  async *search(text, among, texts) {
    const wanted = text.toLowerCase();
    const escaped = JSON.stringify(text).slice(1, -1).toLowerCase();
    const byPart = new Map();
    for (const i of among) {
      const part = this.of(i);
      if (!byPart.has(part)) byPart.set(part, []);
      byPart.get(part).push(i);
    }
    let read = 0;
    for (const [part, places] of byPart) {
      const lines = await this.lines(part);
      const start = this.starts[part];
      const hits = places.filter((i) => {
        const line = lines[i - start];
        return line.toLowerCase().includes(escaped) && texts(JSON.parse(line)).some((t) => t.toLowerCase().includes(wanted));
      });
      yield [++read / byPart.size, hits];
    }
  }
}

class Store {
  static async open() {
    const store = new this();
    store.index = JSON.parse(await unpack("index"));
    store.parts = new Parts(store.index.starts);
    store.size = store.index.set.length;
    store.places = new Map();
    for (let i = 0; i < store.size; i++) store.places.set(store.link(i), i);
    return store;
  }

  // The part of a link to a sample after "#".
  link(i) {
    const { set, number, sample } = this.index;
    return `${encodeURIComponent(known.sets[set[i]].name)}/${number[i]}/${sample[i]}`;
  }

  set(i) {
    return known.sets[this.index.set[i]].name;
  }

  // The place of the sample that a link names; undefined if there is none.
  find(link) {
    return this.places.get(link);
  }

  line(i) {
    return this.parts.line(i);
  }

  search(text, among) {
    return this.parts.search(text, among, (line) => this.texts(line));
  }

  // The searchable texts of a sample: its conversation, critique, failure and record.
  texts({ draft, record }) {
    const { seats, critique, failure } = draft;
    const turns = Object.values(seats ?? {}).flatMap((messages) => messages.map((message) => message.content));
    return [...turns, critique ?? "", failure?.detail ?? "", ...leaves(record)];
  }
}

function leaves(value) {
  if (value !== null && typeof value === "object") return Object.values(value).flatMap(leaves);
  return value === null ? [] : [String(value)];
}
