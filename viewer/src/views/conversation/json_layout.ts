// JSON laid out by its tokens, so that numbers and texts stay as they were written.

export type Layout =
  | { kind: "plain"; text: string } // a number, a word, a text
  | { kind: "list" | "fields"; items: { key: string | null; value: Layout }[]; size: number };

const DEEPEST = 100;
const MOST_CHARS = 400_000;
const TOKEN = /\s*("(?:[^"\\]|\\.)*"|-?\d[\d.eE+-]*|true|false|null|[[\]{},:])/gy;

/** Lay out an object or a list; null for other text, and for what is no JSON. */
export function layoutOf(json: string): Layout | null {
  if (!/^\s*[[{]/.test(json) || json.length > MOST_CHARS) return null;
  try {
    JSON.parse(json);
  } catch {
    return null;
  }
  const tokens = Array.from(json.matchAll(TOKEN), (found) => found[1]);
  let at = 0;
  const read = (depth: number): Layout | null => {
    const first = tokens[at++];
    if (first !== "[" && first !== "{") return { kind: "plain", text: first };
    if (depth > DEEPEST) return null;
    const end = first === "[" ? "]" : "}";
    const items: { key: string | null; value: Layout }[] = [];
    let size = 2;
    while (tokens[at] !== end) {
      if (tokens[at] === ",") at += 1;
      const key = first === "{" ? tokens[at] : null;
      if (key !== null) at += 2;
      const value = read(depth + 1);
      if (value === null) return null;
      items.push({ key, value });
      size += (key === null ? 0 : key.length + 2) + sizeOf(value) + 2;
    }
    at += 1;
    return { kind: first === "[" ? "list" : "fields", items, size };
  };
  return read(0);
}

/** The characters of a value on one line; more than any line has if a text in it has lines of its own. */
export function sizeOf(layout: Layout): number {
  if (layout.kind !== "plain") return layout.size;
  return linesOf(layout.text) === null ? layout.text.length : 1_000;
}

/** The text of a JSON string with several lines, null for any other value. */
export function linesOf(token: string): string | null {
  return token.startsWith('"') && token.includes("\\n") ? (JSON.parse(token) as string) : null;
}

export function onOneLine(layout: Layout): string {
  if (layout.kind === "plain") return layout.text;
  const items = layout.items.map(({ key, value }) => (key === null ? "" : `${key}: `) + onOneLine(value)).join(", ");
  return layout.kind === "list" ? `[${items}]` : `{${items}}`;
}
