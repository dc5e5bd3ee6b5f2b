// The spans of a line of Markdown: code, emphasis, links. Marks within words and numbers are no emphasis, as
// in `def __init__`.

export type Span =
  | { kind: "text"; text: string }
  | { kind: "code"; text: string }
  | { kind: "strong" | "emphasis" | "struck"; spans: Span[] }
  | { kind: "link"; spans: Span[]; address: string };

const PUNCTUATION = /[!-/:-@[-`{-~]/;
const NEXT = /[\\`*_~[!]|https?:\/\//g;
const LINK = /\[((?:[^[\]\\]|\\.|\[[^[\]]{0,200}\]){0,1000})\]\(\s*<?([^\s<>()]{0,2000}(?:\([^\s<>()]{0,200}\)[^\s<>()]{0,200})?)>?(?:\s+"[^"]{0,500}")?\s*\)/y;
const BARE = /https?:\/\/[^\s<>"'`]{1,2000}/y;
/** The longest emphasised text: a mark without an end is not sought for further than this. */
const LONGEST = 2_000;
/** The marks that may end it: more are not tried. */
const MOST_ENDS = 40;
const DEEPEST = 8;

export function spansOf(text: string, depth = 0): Span[] {
  const spans: Span[] = [];
  let plain = "";
  const add = (span: Span) => {
    if (plain) spans.push({ kind: "text", text: plain });
    plain = "";
    spans.push(span);
  };
  let at = 0;
  while (at < text.length) {
    NEXT.lastIndex = at;
    const next = NEXT.exec(text);
    if (!next || depth > DEEPEST) break;
    plain += text.slice(at, next.index);
    at = next.index;
    if (text[at] === "\\" && PUNCTUATION.test(text[at + 1] ?? "")) {
      plain += text[at + 1];
      at += 2;
      continue;
    }
    const found = spanAt(text, at, depth);
    if (found) {
      add(found.span);
      at = found.end;
    } else {
      const run = /^[*_~`]+/.exec(text.slice(at, at + LONGEST))?.[0] ?? next[0];
      plain += run;
      at += run.length;
    }
  }
  plain += text.slice(at);
  if (plain) spans.push({ kind: "text", text: plain });
  return spans;
}

function spanAt(text: string, at: number, depth: number): { span: Span; end: number } | null {
  const char = text[at];
  if (char === "`") return code(text, at);
  if (char === "[" || (char === "!" && text[at + 1] === "[")) {
    const start = char === "!" ? at + 1 : at;
    LINK.lastIndex = start;
    const link = LINK.exec(text);
    if (!link) return null;
    const spans = spansOf(char === "!" ? `image: ${link[1]}` : link[1], depth + 1);
    return { span: { kind: "link", spans, address: link[2] }, end: start + link[0].length };
  }
  if (char === "h") {
    BARE.lastIndex = at;
    const found = BARE.exec(text)?.[0].replace(/[.,;:!?)\]*_]+$/, "");
    return found && /[^\w]$|^$/.test(text.slice(Math.max(0, at - 1), at))
      ? { span: { kind: "link", spans: [{ kind: "text", text: found }], address: found }, end: at + found.length } : null;
  }
  return char === "*" || char === "_" || char === "~" ? emphasis(text, at, depth) : null;
}

function code(text: string, at: number): { span: Span; end: number } | null {
  const mark = /^`+/.exec(text.slice(at, at + 50))![0];
  for (let end = text.indexOf(mark, at + mark.length); end >= 0 && end - at < LONGEST; end = text.indexOf(mark, end + 1)) {
    if (text[end + mark.length] === "`" || text[end - 1] === "`") continue;
    const inner = text.slice(at + mark.length, end).replace(/\n/g, " ");
    return { span: { kind: "code", text: /^ .*\S.* $/.test(inner) ? inner.slice(1, -1) : inner }, end: end + mark.length };
  }
  return null;
}

function emphasis(text: string, at: number, depth: number): { span: Span; end: number } | null {
  const char = text[at];
  const run = /^(?:\*+|_+|~+)/.exec(text.slice(at, at + 10))![0].length;
  const width = char === "~" ? 2 : Math.min(run, 2);
  if (run > 3 || run < width) return null;
  const mark = char.repeat(width);
  // 2*3*4 and 2**3**4 are no emphasis either, but scripts without spaces have it within a line.
  const before = text[at - 1] ?? "";
  const isWordBefore = char === "_" ? /[\p{L}\p{N}_]/u.test(before) : char === "*" && /[\w)\]]/.test(before);
  if (/^\s?$/.test(text[at + run] ?? "") || isWordBefore) return null;
  let tried = 0;
  for (let end = text.indexOf(mark, at + run); end >= 0 && end - at < LONGEST; end = text.indexOf(mark, end + 1)) {
    if (++tried > MOST_ENDS) return null;
    if (/\s/.test(text[end - 1]) || text[end - 1] === "\\") continue;
    let close = end;
    while (text[close + width] === char) close += 1; // the last of a run closes the outermost
    if (width === 1 && (close > end || text[end - 1] === char)) { end = close; continue; }
    if (char === "_" && /[\p{L}\p{N}]/u.test(text[close + width] ?? "")) continue;
    const inner = text.slice(at + width, close);
    if (isOpen(inner)) continue;
    if (mark === "__" && /^\w+$/.test(inner)) return null; // a name of Python
    const spans = spansOf(inner, depth + 1);
    return { span: { kind: char === "~" ? "struck" : width === 2 ? "strong" : "emphasis", spans }, end: close + width };
  }
  return null;
}

/** True if a text ends within a link or code, which emphasis does not cut. */
function isOpen(text: string): boolean {
  const link = text.lastIndexOf("](");
  return (link >= 0 && text.indexOf(")", link) < 0) || (text.split("`").length - 1) % 2 === 1;
}
