// Which words two texts share: a longest common subsequence of words; of lines where that would take long.

const MOST_CELLS = 4e6; // of the table of lengths, which has one for each pair of words

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

// The places [i, k] of the longest common subsequence, in order; null if the table would be too large.
function sharedPairs(a, b) {
  let start = 0;
  while (start < a.length && start < b.length && a[start] === b[start]) start++;
  let end = 0;
  while (end < a.length - start && end < b.length - start && a[a.length - 1 - end] === b[b.length - 1 - end]) end++;
  const [rows, columns] = [a.length - end - start, b.length - end - start];
  if (rows * columns > MOST_CELLS) return null;
  const length = Array.from({ length: rows + 1 }, () => new Uint16Array(columns + 1)); // of what is shared from i and k on
  for (let i = rows - 1; i >= 0; i--) {
    for (let k = columns - 1; k >= 0; k--) length[i][k] = a[start + i] === b[start + k] ? length[i + 1][k + 1] + 1 : Math.max(length[i + 1][k], length[i][k + 1]);
  }
  const pairs = Array.from({ length: start }, (_, i) => [i, i]);
  for (let [i, k] = [0, 0]; i < rows && k < columns; ) {
    if (a[start + i] === b[start + k]) pairs.push([start + i++, start + k++]);
    else if (length[i + 1][k] >= length[i][k + 1]) i++;
    else k++;
  }
  return [...pairs, ...Array.from({ length: end }, (_, i) => [a.length - end + i, b.length - end + i])];
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
