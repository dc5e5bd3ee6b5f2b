// The search in the lines of conversations, as the journal has them: JSON in ASCII, with lower-case escapes. A line is
// first searched as it is. If the text is there, it must also be in what a reader sees: in a value, not in a key or id.

/** Parts of an event that no reader sees as text: they identify, or are too long to be read. */
const UNSEEN = new Set([
  "ev", "row", "run", "model_tag", "attempt", "at", "ms", "n_prompt", "systemic", "role", "type", "id", "call_id", "tool_call_id",
  "tool_use_id", "signature", "encrypted_content", "thought_signature", "usage", "tokens", "logprobs",
]);

export interface TextSearcher {
  /** The first place at or behind `from` where the text may be; -1 without one. */
  next(lines: string, from: number): number;
  /** True if a reader sees the text in the line from `begin` to `end`, in which it may be at `place`. */
  isSeen(lines: string, begin: number, place: number, end: number): boolean;
}

/** Characters that JSON writes in another way, and those around which a value that is laid out has other spaces. */
const SPECIAL = /["\\\x00-\x1f\x7f]/;

export function searcherFor(text: string): TextSearcher {
  const wanted = text.toLowerCase();
  const part = longestPlain(text);
  const pattern = new RegExp(Array.from(part, formsInJson).map(patternOf).join(""), "g");
  const isWhole = part === text;
  return {
    next(lines, from) {
      pattern.lastIndex = from;
      return pattern.exec(lines)?.index ?? -1;
    },
    isSeen: (lines, begin, place, end) => (isWhole && isInText(lines, begin, place)) || isSeen(JSON.parse(lines.slice(begin, end)), wanted),
  };
}

/** The longest part of a text without special characters, which a line with the text has in any case; else the text. */
function longestPlain(text: string): string {
  const parts = text.split(SPECIAL).map((part) => part.trim()).filter(Boolean);
  return SPECIAL.test(text) && parts.length ? parts.reduce((longest, part) => (part.length > longest.length ? part : longest)) : text;
}

/** Values under these keys are read. Inside a string of JSON, a quote is escaped: so this can only be a key. */
const READ = /"(?:content|text|arguments|reasoning_content|reasoning|thinking|error|details)":$/;
const LONGEST_READ = 20;

/** True if the string that holds a place is the value of a key that is read: most hits are, and need no parsing. */
function isInText(lines: string, begin: number, place: number): boolean {
  let quote = lines.lastIndexOf('"', place - 1);
  while (quote > begin && isEscaped(lines, quote)) quote = lines.lastIndexOf('"', quote - 1);
  return quote > begin && READ.test(lines.slice(Math.max(begin, quote - LONGEST_READ), quote));
}

function isEscaped(lines: string, at: number): boolean {
  let slashes = 0;
  while (lines[at - 1 - slashes] === "\\") slashes++;
  return slashes % 2 === 1;
}

function isSeen(value: unknown, wanted: string): boolean {
  if (typeof value === "string") return value.length >= wanted.length && !value.startsWith("data:") && value.toLowerCase().includes(wanted);
  if (typeof value === "number") return String(value).includes(wanted);
  if (Array.isArray(value)) return value.some((each) => isSeen(each, wanted));
  if (value === null || typeof value !== "object") return false;
  for (const [key, each] of Object.entries(value)) {
    if (UNSEEN.has(key)) continue;
    if (isSeen(each, wanted) || (key === "arguments" && typeof each === "string" && isInArguments(each, wanted))) return true;
  }
  return false;
}

/** True if the arguments of a tool call, which are JSON in a text, have the text where they are laid out. */
function isInArguments(text: string, wanted: string): boolean {
  try {
    const value: unknown = JSON.parse(text);
    return isSeen(JSON.stringify(value, null, 2), wanted) || isSeen(value, wanted);
  } catch {
    return false;
  }
}

/** A character in both cases, as JSON writes it. */
function formsInJson(char: string): string[] {
  const both = [char, char.toLowerCase(), char.toUpperCase()].filter((each) => each.length === char.length);
  return [...new Set(both.map(inJson))];
}

function inJson(char: string): string {
  return JSON.stringify(char).slice(1, -1).replace(/[^\x20-\x7e]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`);
}

/** A pattern of a character. JSON that is put into JSON has more backslashes. */
function patternOf(forms: string[]): string {
  const escaped = forms.map((form) => form.replace(/[.*+?^${}()|[\]\\]/g, "\\$&").replace(/\\\\(?=u)/g, "\\\\+"));
  return forms.every((form) => form.length === 1) && forms.length > 1 ? `[${escaped.join("")}]` : `(?:${escaped.join("|")})`;
}
