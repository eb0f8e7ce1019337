// Which words two texts share: the shortest edit script of Myers (1986), by words; by lines where the texts differ so much
// that this would take long.

const MOST_EDITS = 1200; // of Myers' algorithm, whose time and memory grow with their square

const wordsOf = (text) => text.match(/\s+|[\p{L}\p{N}_]+|[^\s\p{L}\p{N}_]/gu) ?? [];
const linesOf = (text) => text.match(/[^\n]*\n|[^\n]+/g) ?? [];

// The texts as pieces {text, changed}, for each side; neighbours with the same mark are one piece.
function changesBetween(before, after) {
  for (const split of [wordsOf, linesOf]) {
    const [a, b] = [split(before), split(after)];
    const shared = sharedPairs(a, b);
    if (shared) return { before: marked(a, shared.map(([i]) => i)), after: marked(b, shared.map(([, k]) => k)) };
  }
  return { before: [{ text: before, changed: true }], after: [{ text: after, changed: true }] };
}

// The places [i, k] of the longest common subsequence, in order; null if it takes more than MOST_EDITS edits.
function sharedPairs(a, b) {
  let start = 0;
  while (start < a.length && start < b.length && a[start] === b[start]) start++;
  let end = 0;
  while (end < a.length - start && end < b.length - start && a[a.length - 1 - end] === b[b.length - 1 - end]) end++;
  const middle = shortestEdit(a.slice(start, a.length - end), b.slice(start, b.length - end));
  if (!middle) return null;
  const head = Array.from({ length: start }, (_, i) => [i, i]);
  const tail = Array.from({ length: end }, (_, i) => [a.length - end + i, b.length - end + i]);
  return [...head, ...middle.map(([i, k]) => [i + start, k + start]), ...tail];
}

function shortestEdit(a, b) {
  const most = Math.min(a.length + b.length, MOST_EDITS);
  const furthest = new Int32Array(2 * most + 3); // diagonal + most + 1 -> how far `a` is read
  const trace = [];
  for (let edits = 0; edits <= most; edits++) {
    trace.push(furthest.slice(most + 1 - edits - 1, most + 1 + edits + 2)); // the diagonals that the way back reads
    for (let diagonal = -edits; diagonal <= edits; diagonal += 2) {
      const at = most + 1 + diagonal;
      const down = diagonal === -edits || (diagonal !== edits && furthest[at - 1] < furthest[at + 1]);
      let i = down ? furthest[at + 1] : furthest[at - 1] + 1;
      while (i < a.length && i - diagonal < b.length && a[i] === b[i - diagonal]) i++;
      furthest[at] = i;
      if (i >= a.length && i - diagonal >= b.length) return wayBack(trace, a.length, b.length);
    }
  }
  return null;
}

function wayBack(trace, i, k) {
  const pairs = [];
  for (let edits = trace.length - 1; edits >= 0; edits--) {
    const furthest = trace[edits];
    const centre = edits + 1;
    const diagonal = i - k;
    const down = diagonal === -edits || (diagonal !== edits && furthest[centre + diagonal - 1] < furthest[centre + diagonal + 1]);
    const from = diagonal + (down ? 1 : -1);
    const startI = edits === 0 ? 0 : furthest[centre + from];
    const startK = edits === 0 ? 0 : startI - from;
    while (i > startI && k > startK) pairs.push([--i, --k]);
    if (edits) [i, k] = [startI, startK];
  }
  return pairs.reverse();
}

// A space between two changed words counts as changed, so that a changed phrase is one mark.
function marked(pieces, shared) {
  const kept = new Set(shared);
  const bridge = (i) => !pieces[i].trim() && i > 0 && i < pieces.length - 1 && !kept.has(i - 1) && !kept.has(i + 1);
  const joined = [];
  pieces.forEach((text, i) => {
    const changed = !kept.has(i) || bridge(i);
    if (joined.at(-1)?.changed === changed) joined.at(-1).text += text;
    else joined.push({ text, changed });
  });
  return joined;
}

// The pieces as text with marks: `tag` is "del" or "ins". `requests` are those that inserted words may follow (turns.js).
function drawChanges(pieces, tag, requests) {
  const draw = (text) => h(tag, {}, tag === "ins" && requests ? requests.drawInserted(text) : text);
  return pieces.map(({ text, changed }) => (changed && text.trim() ? draw(text) : document.createTextNode(text)));
}
