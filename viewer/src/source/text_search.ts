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

export function searcherFor(text: string): TextSearcher {
  const forms = Array.from(text, formsInJson);
  const plain = forms.map(([form]) => form).join("");
  const pattern = new RegExp(forms.map(patternOf).join(""), "g");
  const hasOneForm = forms.every((each) => each.length === 1);
  const wanted = text.toLowerCase();
  return {
    next(lines, from) {
      if (hasOneForm) return lines.indexOf(plain, from);
      pattern.lastIndex = from;
      return pattern.exec(lines)?.index ?? -1;
    },
    isSeen: (lines, begin, place, end) => isInText(lines, begin, place) || isSeen(JSON.parse(lines.slice(begin, end)), wanted),
  };
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
  for (const [key, each] of Object.entries(value)) if (!UNSEEN.has(key) && isSeen(each, wanted)) return true;
  return false;
}

/** A character in both cases, as JSON writes it. */
function formsInJson(char: string): string[] {
  const both = [char, char.toLowerCase(), char.toUpperCase()].filter((each) => each.length === char.length);
  return [...new Set(both.map(inJson))];
}

function inJson(char: string): string {
  return JSON.stringify(char).slice(1, -1).replace(/[^\x20-\x7e]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`);
}

function patternOf(forms: string[]): string {
  const escaped = forms.map((form) => form.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"));
  return forms.every((form) => form.length === 1) ? `[${escaped.join("")}]` : `(?:${escaped.join("|")})`;
}
