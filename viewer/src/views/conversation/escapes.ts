// Characters that nobody can see, or that turn the text around them, are shown as escapes: as text/safe.py escapes them.

const CONTROLS = "\\u0000-\\u0008\\u000b-\\u001f\\u007f-\\u009f\\ud800-\\udfff\\ufdd0-\\ufdef\\ufff0-\\ufffc\\ufffe\\uffff";
const DIRECTIONS = "\\u061c\\u200e\\u200f\\u2028-\\u202e\\u2066-\\u2069";
const UNSEEN =
  "\\u00ad\\u034f\\u115f\\u1160\\u17b4\\u17b5\\u180b-\\u180f\\u200b\\u2060-\\u2065\\u206a-\\u206f\\u3164" +
  "\\ufe00-\\ufe0d\\ufeff\\uffa0\\u{1bca0}-\\u{1bca3}\\u{1d173}-\\u{1d17a}\\u{e0000}-\\u{effff}";
/** Scripts and emoji that need the joiners U+200C and U+200D. */
const JOINED =
  "\\u0590-\\u1fff\\u2190-\\u2bff\\u3030\\ua800-\\uabff\\ufe0f\\u{10a00}-\\u{113ff}\\u{1f000}-\\u{1faff}";
const MARKS =
  "\\u0300-\\u036f\\u0483-\\u0489\\u0591-\\u05bd\\u064b-\\u065f\\u0e31\\u0e34-\\u0e3a\\u0e47-\\u0e4e\\u0eb1-\\u0ebc" +
  "\\u0ec8-\\u0ece\\u0f71-\\u0f84\\u1ab0-\\u1aff\\u1dc0-\\u1dff\\u20d0-\\u20ff\\ufe20-\\ufe2f";
const UNSAFE = new RegExp(
  `[${CONTROLS}${DIRECTIONS}${UNSEEN}]+|(?<![${JOINED}])[\\u200c\\u200d]+|(?<=[${MARKS}]{4})[${MARKS}]+`, "gu",
);
/** With more escapes than this in a text, they have no elements of their own. */
const MOST = 2_000;

export interface Piece {
  text: string;
  isEscape: boolean;
}

/** Split a text into pieces that are shown as they are, and escapes. */
export function pieces(text: string): Piece[] {
  const lines = text.includes("\r\n") ? text.replaceAll("\r\n", "\n") : text;
  const made: Piece[] = [];
  let end = 0;
  for (const found of lines.matchAll(UNSAFE)) {
    if (made.length > MOST) return [{ text: escaped(lines), isEscape: false }];
    if (found.index > end) made.push({ text: lines.slice(end, found.index), isEscape: false });
    made.push({ text: written(found[0]), isEscape: true });
    end = found.index + found[0].length;
  }
  if (end < lines.length) made.push({ text: end ? lines.slice(end) : lines, isEscape: false });
  return made;
}

export function escaped(text: string): string {
  return text.replace(UNSAFE, written);
}

function written(found: string): string {
  if (/^\p{M}{3}/u.test(found)) return `[${[...found].length.toLocaleString("en-US")} more marks]`;
  return Array.from(found, (char) => {
    const code = char.codePointAt(0)!;
    const hex = (digits: number) => code.toString(16).padStart(digits, "0");
    if (char === "\r") return "\\r";
    return code < 0x100 ? `\\x${hex(2)}` : code < 0x10000 ? `\\u${hex(4)}` : `\\U${hex(8)}`;
  }).join("");
}
