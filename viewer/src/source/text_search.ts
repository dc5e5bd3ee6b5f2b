// The search in the lines of conversations, as the journal has them: JSON in which other characters than ASCII may be
// escaped. A line is first searched as it is. If the text is there, it must also be in what a reader sees.

/** Parts of an event that no reader sees as text: they identify, or are too long to be read. */
const UNSEEN = new Set([
  "ev", "row", "run", "model_tag", "attempt", "at", "ms", "n_prompt", "systemic", "role", "type", "id", "call_id", "tool_call_id",
  "tool_use_id", "signature", "encrypted_content", "thought_signature", "usage", "tokens", "logprobs",
]);

/** True for a line of a conversation with the text where a reader sees it, whatever its case. */
export type LineTest = (line: string) => boolean;

export interface TextSearcher {
  /** Find the first place at or behind `from` where the text may be; -1 without one. */
  next(lines: string, from: number): number;
  isSeen: LineTest;
}

export function searcherFor(text: string): TextSearcher {
  const raw = new RegExp(Array.from(text, anyForm).join(""), "g");
  const wanted = text.toLowerCase();
  return {
    next(lines, from) {
      raw.lastIndex = from;
      return raw.exec(lines)?.index ?? -1;
    },
    isSeen: (line) => isSeen(JSON.parse(line), wanted),
  };
}

function isSeen(value: unknown, wanted: string): boolean {
  if (typeof value === "string") return value.length >= wanted.length && !value.startsWith("data:") && value.toLowerCase().includes(wanted);
  if (typeof value === "number") return String(value).includes(wanted);
  if (Array.isArray(value)) return value.some((each) => isSeen(each, wanted));
  if (value === null || typeof value !== "object") return false;
  for (const [key, each] of Object.entries(value)) if (!UNSEEN.has(key) && isSeen(each, wanted)) return true;
  return false;
}

/** A pattern for all forms of a character in JSON: in both cases, escaped or not. */
function anyForm(char: string): string {
  const forms = new Set([char, char.toLowerCase(), char.toUpperCase()].flatMap(formsInJson));
  const plain = [...forms];
  return plain.length === 1 ? plain[0] : plain.every((each) => /^[a-z]$/i.test(each)) ? `[${plain.join("")}]` : `(?:${plain.join("|")})`;
}

const SHORT: Record<string, string> = { '"': '\\\\"', "\\": "\\\\\\\\", "\n": "\\\\n", "\r": "\\\\r", "\t": "\\\\t", "\b": "\\\\b", "\f": "\\\\f" };

function formsInJson(text: string): string[] {
  const escape = Array.from({ length: text.length }, (_, at) => {
    const hex = text.charCodeAt(at).toString(16).padStart(4, "0");
    return `\\\\u${hex.replace(/[a-f]/g, (digit) => `[${digit}${digit.toUpperCase()}]`)}`;
  }).join("");
  if (text in SHORT) return [SHORT[text], escape];
  if (text === "/") return ["/", "\\\\/"];
  if (/^[\x20-\x7e]$/.test(text)) return [text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")];
  return text < " " ? [escape] : [text, escape];
}
