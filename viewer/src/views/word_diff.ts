// The difference of two texts by words, and by lines where they differ too much for that.
//
// Both sides get parts in order, whose texts joined are the side's whole text. Words of scripts without spaces are single
// characters. Myers 1986, "An O(ND) Difference Algorithm and Its Variations", Algorithmica 1, 251.

export interface Part {
  text: string;
  /** False for a part that the other side does not have here. */
  isSame: boolean;
}

export interface WordDiff {
  a: Part[];
  b: Part[];
}

const WORDS = /[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Thai}]|(?:(?![\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Thai}])[\p{L}\p{M}\p{N}_])+|\s+|./gsu;
const LINES = /[^\n]*\n|[^\n]+$/g;
/** More steps than this take too long, and memory is their square. */
const MOST_STEPS = 1500;
const MOST_TOKENS = 60000;

export function wordDiff(a: string, b: string): WordDiff {
  if (a === b) return { a: parts([[a, true]]), b: parts([[b, true]]) };
  return smoothed(differing(a, b, WORDS) ?? byLines(a, b));
}

/** The share of the longer text that both have in common. */
export function shareInCommon({ a, b }: WordDiff): number {
  const length = (parts: Part[]) => parts.reduce((sum, part) => sum + part.text.length, 0);
  return length(a.filter((part) => part.isSame)) / Math.max(1, length(a), length(b));
}

/** One step of the way from A to B: texts that both have, or that one of them has. */
type Step = { kind: "same" | "a" | "b"; text: string };

/** Lines that both have, and between them words. */
function byLines(a: string, b: string): Step[] {
  const lines = differing(a, b, LINES) ?? [{ kind: "a", text: a }, { kind: "b", text: b }];
  const steps: Step[] = [];
  let onlyA = "", onlyB = "";
  const flush = () => {
    if (!onlyA && !onlyB) return;
    const words = onlyA && onlyB ? differing(onlyA, onlyB, WORDS) : null;
    steps.push(...(words ?? ([{ kind: "a", text: onlyA }, { kind: "b", text: onlyB }] as Step[])));
    onlyA = onlyB = "";
  };
  for (const step of lines) {
    if (step.kind === "a") onlyA += step.text;
    else if (step.kind === "b") onlyB += step.text;
    else { flush(); steps.push(step); }
  }
  flush();
  return steps;
}

/** The steps from A to B, token by token; null if they are too many. */
function differing(a: string, b: string, tokens: RegExp): Step[] | null {
  const before = a.match(tokens) ?? [], after = b.match(tokens) ?? [];
  if (before.length + after.length > MOST_TOKENS) return null;
  let begin = 0, endA = before.length, endB = after.length;
  while (begin < endA && begin < endB && before[begin] === after[begin]) begin++;
  while (endA > begin && endB > begin && before[endA - 1] === after[endB - 1]) { endA--; endB--; }
  const middle = shortest(before.slice(begin, endA), after.slice(begin, endB));
  if (!middle) return null;
  const same = (text: string): Step[] => (text ? [{ kind: "same", text }] : []);
  return [...same(before.slice(0, begin).join("")), ...middle, ...same(before.slice(endA).join(""))];
}

/** The shortest way from one list to another; null beyond MOST_STEPS. */
function shortest(a: string[], b: string[]): Step[] | null {
  const most = Math.min(a.length + b.length, MOST_STEPS);
  const reach = new Int32Array(2 * most + 3);
  const trail: Int32Array[] = [];
  for (let d = 0; d <= most; d++) {
    trail.push(reach.slice(most + 1 - d, most + 2 + d)); // diagonals -d to d, as the step before left them
    for (let k = -d; k <= d; k += 2) {
      const down = k === -d || (k !== d && reach[most + k] < reach[most + 2 + k]);
      let x = down ? reach[most + 2 + k] : reach[most + k] + 1;
      while (x < a.length && x - k < b.length && a[x] === b[x - k]) x++;
      reach[most + 1 + k] = x;
      if (x >= a.length && x - k >= b.length) return walkedBack(a, b, trail, d);
    }
  }
  return null;
}

function walkedBack(a: string[], b: string[], trail: Int32Array[], last: number): Step[] {
  const steps: Step[] = [];
  let x = a.length, y = b.length;
  for (let d = last; d > 0; d--) {
    const reach = (k: number) => (Math.abs(k) > d ? -1 : trail[d][k + d]);
    const k = x - y;
    const down = k === -d || (k !== d && reach(k - 1) < reach(k + 1));
    const previousX = down ? reach(k + 1) : reach(k - 1);
    const previousY = previousX - (down ? k + 1 : k - 1);
    while (x > previousX && y > previousY && x > 0 && y > 0) { steps.push({ kind: "same", text: a[--x] }); y--; }
    steps.push(down ? { kind: "b", text: b[previousY] } : { kind: "a", text: a[previousX] });
    x = previousX;
    y = previousY;
  }
  while (x > 0) steps.push({ kind: "same", text: a[--x] });
  return steps.reverse();
}

/** A change: what A has, and what B has in its place; or a text that both have. */
type Piece = { same: string } | { a: string; b: string };

/** The parts of both sides. A short text in common between larger changes belongs to them: it is there by accident. */
function smoothed(steps: Step[]): WordDiff {
  const pieces: Piece[] = [];
  for (const piece of piecesOf(steps)) {
    const [before, common] = pieces.slice(-2);
    if ("a" in piece && pieces.length > 1 && "a" in before && "same" in common && isAccident(common.same, before, piece)) {
      pieces.splice(-2, 2, { a: before.a + common.same + piece.a, b: before.b + common.same + piece.b });
    } else pieces.push(piece);
  }
  const side = (letter: "a" | "b") => parts(pieces.map((piece) => ("same" in piece ? [piece.same, true] : [piece[letter], false])));
  return { a: side("a"), b: side("b") };
}

function isAccident(common: string, before: { a: string; b: string }, after: { a: string; b: string }): boolean {
  if (common.includes("\n")) return false;
  const size = (change: { a: string; b: string }) => Math.max(change.a.length, change.b.length);
  return !common.trim() || common.length <= Math.min(size(before), size(after));
}

/** Neighbouring steps of one kind, joined. */
function piecesOf(steps: Step[]): Piece[] {
  const pieces: Piece[] = [];
  for (const { kind, text } of steps) {
    const last = pieces[pieces.length - 1];
    if (kind === "same") {
      if (last && "same" in last) last.same += text;
      else pieces.push({ same: text });
    } else if (last && "a" in last) last[kind] += text;
    else pieces.push(kind === "a" ? { a: text, b: "" } : { a: "", b: text });
  }
  return pieces;
}

/** Neighbours of one kind, joined. */
function parts(pieces: [string, boolean][]): Part[] {
  const joined: Part[] = [];
  for (const [text, isSame] of pieces) {
    const last = joined[joined.length - 1];
    if (!text) continue;
    if (last?.isSame === isSame) last.text += text;
    else joined.push({ text, isSame });
  }
  return joined;
}
