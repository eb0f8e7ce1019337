// Where the page gets its data: from the server of `soul view`, or from the file itself. Both answer the same addresses
// (agents/soul/pages/api.py), so no view knows which of them it reads.

const known = JSON.parse(document.getElementById("known").textContent);
const NO_TEXT = "This file has all numbers, and the texts of chosen sessions only; soul view shows the others.";

const addressOf = (...parts) => parts.map((part) => encodeURIComponent(part)).join("/");

const decodedOf = (address) => address.split("/").map(decodeURIComponent).join("/");

class ServedSource {
  live = true;

  async get(address, query = {}) {
    const asked = new URLSearchParams(Object.entries(query).filter(([, value]) => value !== undefined && value !== ""));
    return this.#answer(await fetch(`api/${address}${asked.size ? `?${asked}` : ""}`, { cache: "no-store" }));
  }

  async post(address, body) {
    const headers = { "Content-Type": "application/json" };
    return this.#answer(await fetch(`api/${address}`, { method: "POST", headers, body: JSON.stringify(body) }));
  }

  async #answer(answer) {
    const value = await answer.json().catch(() => ({ error: `the server answered ${answer.status}` }));
    if (!answer.ok) throw new Error(value.error);
    return value;
  }

  has() {
    return true;
  }

  // Yields [share that is searched, ids of sessions with this text]; the server answers in parts.
  async *search(run, text) {
    for (let after = 0; after !== null; ) {
      const found = await this.get(addressOf("run", run, "search"), { text, after });
      ({ after } = found);
      yield [found.share, found.hits];
    }
  }
}

// The answers in the file: small ones by their address, single texts as lines of parts that are unpacked when needed.
class EmbeddedSource {
  live = false;

  static async open() {
    const source = new EmbeddedSource();
    const { addresses, starts } = JSON.parse(await unpack("texts"));
    const places = new Map(addresses.map((address, i) => [address, i]));
    return Object.assign(source, { addresses, starts, places }); // `starts`: the text with which each part begins
  }

  async get(encoded) {
    const address = decodedOf(encoded);
    if (this.places.has(address)) return this.#text(this.places.get(address));
    if (!document.getElementById(`data:${address}`)) throw new Error(NO_TEXT);
    return JSON.parse(await unpack(`data:${address}`));
  }

  has(encoded) {
    return this.places.has(decodedOf(encoded));
  }

  #lines(part) {
    if (part !== this.part) this.lines = unpack(`part-${part}`).then((text) => text.split("\n"));
    this.part = part; // the last one is kept
    return this.lines;
  }

  async #text(i) {
    const part = this.starts.findLastIndex((start) => start <= i);
    return JSON.parse((await this.#lines(part))[i - this.starts[part]]);
  }

  async *search(run, text) {
    const wanted = text.toLowerCase();
    const escaped = JSON.stringify(text).slice(1, -1).toLowerCase();
    const prefix = `run/${run}/session/`;
    for (let part = 0; part < this.starts.length; part++) {
      const lines = await this.#lines(part);
      const found = lines.flatMap((line, k) => {
        const address = this.addresses[this.starts[part] + k];
        if (!address.startsWith(prefix) || !line.toLowerCase().includes(escaped)) return [];
        const hit = textsOf(JSON.parse(line)).some((one) => one.toLowerCase().includes(wanted));
        return hit ? [Number(address.slice(prefix.length))] : [];
      });
      yield [(part + 1) / this.starts.length, found];
    }
  }
}

async function unpack(id) {
  const base64 = document.getElementById(id).textContent;
  const bytes = Uint8Array.fromBase64?.(base64) ?? Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
}

// What can be searched, as agents/soul/pages/sessions.py has it: conversations, calls, critiques, feedback, failures, the record.
function textsOf({ draft, refined, feedback, feedback_failure, redacted, record, groups }) {
  const attempts = [draft, refined].filter(Boolean).flatMap(({ seats, calls = [], critique, episode, failure, ended }) => {
    const said = [...Object.values(seats ?? {}), ...calls.map(({ request }) => request)].flat().map(({ content }) => content);
    return [...said, ...[calls.map(({ reply }) => reply), critique, episode, failure, ended].flatMap(leaves)];
  });
  return [...attempts, ...[feedback, feedback_failure, redacted, record, groups].flatMap(leaves)];
}
