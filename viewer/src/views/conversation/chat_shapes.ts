// Messages in the shapes of several APIs, read as one: OpenAI's chat and Responses, Anthropic's and Bedrock's blocks.
// An agent may return anything as a message, and nothing of it is dropped. As report/message_text.py reads them.

/** A part of a message, in the order in which it was sent. */
export type Item =
  | { kind: "text"; text: string }
  | { kind: "reasoning"; text: string }
  | { kind: "refusal"; text: string }
  | { kind: "other"; name: string; detail: string; raw: unknown } // an image, a sound, a file
  | Call;

export interface Call {
  kind: "call";
  id: string | null;
  /** "" for something in the place of a call that is none. */
  name: string;
  /** As they were sent: a text of JSON, or an object. */
  arguments: unknown;
}

/** One message to show: most often one that was stored, or a part of one that holds calls and results. */
export interface Message {
  /** Its position among the stored messages. */
  index: number;
  role: string;
  name: string;
  /** The call that it answers. */
  answers: string | null;
  items: Item[];
  /** Keys that are not shown otherwise, and their values. */
  also: Record<string, unknown>;
  raw: unknown;
}

type Fields = Record<string, unknown>;

const SHOWN_KEYS = new Set([
  "role", "content", "tool_calls", "function_call", "tool_call_id", "refusal", "name", "reasoning", "reasoning_content",
  "audio",
]);

export function isFields(value: unknown): value is Fields {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** Read a stored message, which is shown as several if it holds results of tools beside other parts. */
export function readMessage(raw: unknown, index: number): Message[] {
  if (!isFields(raw)) return [{ ...nothing(raw, index), role: "not a message", items: [text(asText(raw))] }];
  if (raw.type === "function_call") {
    const call: Call = { kind: "call", id: idOf(raw.call_id), name: String(raw.name), arguments: raw.arguments };
    return [{ ...nothing(raw, index), role: "assistant", items: [call] }];
  }
  if (raw.type === "function_call_output")
    return [{ ...nothing(raw, index), role: "tool", answers: idOf(raw.call_id), items: itemsOf(raw.output) }];
  if (raw.type === "reasoning" && raw.role === undefined)
    return [{ ...nothing(raw, index), role: "assistant", items: reasoning(raw.summary ?? raw.content) }];
  const blocks = Array.isArray(raw.content) ? raw.content : [];
  const results = blocks.map(resultIn).filter((result) => result !== null);
  if (!results.length) return [whole(raw, index)];
  const made = results.map(({ id, content }) => ({ ...nothing(raw, index), role: "tool", answers: id, items: itemsOf(content) }));
  const others = blocks.filter((block) => resultIn(block) === null);
  return others.length ? [...made, whole({ ...raw, content: others }, index)] : made;
}

function whole(raw: Fields, index: number): Message {
  const items = [
    ...reasoning(raw.reasoning_content || raw.reasoning),
    ...itemsOf(raw.content),
    ...(typeof raw.refusal === "string" && raw.refusal ? [{ kind: "refusal" as const, text: raw.refusal }] : []),
    ...(isFields(raw.audio) ? [audio(raw.audio)] : []),
    ...calls(raw),
  ];
  const also = Object.entries(raw).filter(([key, value]) => !SHOWN_KEYS.has(key) && !isEmpty(value));
  return {
    ...nothing(raw, index),
    role: String(raw.role ?? raw.type ?? "no role"),
    name: typeof raw.name === "string" ? raw.name : "",
    answers: idOf(raw.tool_call_id),
    items,
    also: Object.fromEntries(also),
  };
}

function nothing(raw: unknown, index: number): Message {
  return { index, role: "", name: "", answers: null, items: [], also: {}, raw };
}

/** The parts of a message's content: neighbouring texts are one. */
export function itemsOf(content: unknown): Item[] {
  if (content === null || content === undefined || content === "") return [];
  if (!Array.isArray(content)) return [text(asText(content))];
  const items: Item[] = [];
  for (const part of content) {
    const piece = typeof part === "string" ? part : isFields(part) && typeof part.text === "string" ? part.text : null;
    const last = items.at(-1);
    if (piece === null) items.push(...block(part));
    else if (last?.kind === "text") last.text += piece;
    else items.push(text(piece));
  }
  return items.filter((item) => item.kind !== "text" || item.text.trim() !== "" || items.length === 1);
}

/** A part that is no text. */
function block(part: unknown): Item[] {
  if (!isFields(part)) return [text(asText(part))];
  const kind = typeof part.type === "string" ? part.type : "part";
  if (kind === "refusal" && typeof part.refusal === "string") return [{ kind: "refusal", text: part.refusal }];
  if (kind === "thinking" && typeof part.thinking === "string") return [{ kind: "reasoning", text: part.thinking }];
  if (kind === "tool_use")
    return [{ kind: "call", id: idOf(part.id), name: String(part.name), arguments: part.input }];
  if (isFields(part.toolUse)) {
    const use = part.toolUse;
    return [{ kind: "call", id: idOf(use.toolUseId), name: String(use.name), arguments: use.input }];
  }
  const inner = part[kind];
  const detail = detailOf(isFields(inner) ? inner : typeof inner === "string" ? { url: inner } : part);
  return [{ kind: "other", name: kind, detail, raw: part }];
}

/** The result of a call, and its id, that a block of a message holds. */
function resultIn(part: unknown): { id: string | null; content: unknown } | null {
  if (!isFields(part)) return null;
  if (part.type === "tool_result") return { id: idOf(part.tool_use_id), content: part.content };
  if (isFields(part.toolResult)) return { id: idOf(part.toolResult.toolUseId), content: part.toolResult.content };
  return null;
}

/** The address, file name or size of an image, a sound or a file; "" if it has none. */
function detailOf(part: Fields): string {
  const from = isFields(part.source) ? part.source : part;
  const { url, data } = from;
  if (typeof url === "string" && url.startsWith("data:")) {
    const comma = url.indexOf(",");
    return `${url.slice(5, comma).split(";")[0]}, ${counted(url.length - comma - 1)}`;
  }
  const first = (...keys: string[]) => keys.map((key) => from[key]).find((value) => typeof value === "string");
  const size = typeof data === "string" ? counted(data.length) : undefined;
  return [first("filename", "file_id", "url"), first("media_type", "format"), size].filter(Boolean).join(", ");
}

function audio(raw: Fields): Item {
  return { kind: "other", name: "audio", detail: typeof raw.transcript === "string" ? raw.transcript : "", raw };
}

function reasoning(content: unknown): Item[] {
  const texts = itemsOf(content).map((item) => ("text" in item ? item.text : item.kind === "other" ? item.detail : ""));
  return texts.some(Boolean) ? [{ kind: "reasoning", text: texts.join("\n") }] : [];
}

function calls(raw: Fields): Call[] {
  const made = Array.isArray(raw.tool_calls) ? raw.tool_calls.map(call) : [];
  const old = raw.function_call;
  if (isFields(old)) made.push({ kind: "call", id: null, name: String(old.name), arguments: old.arguments });
  return made;
}

function call(raw: unknown): Call {
  const made = isFields(raw) && isFields(raw.function) ? raw.function : null;
  if (!isFields(raw) || !made) return { kind: "call", id: null, name: "", arguments: raw };
  return { kind: "call", id: idOf(raw.id), name: String(made.name), arguments: made.arguments };
}

function idOf(value: unknown): string | null {
  return typeof value === "string" ? value : null;
}

function text(value: string): Item {
  return { kind: "text", text: value };
}

/** A text as it is, anything else as JSON on one line. */
export function asText(value: unknown): string {
  if (typeof value === "string" || value === undefined) return value ?? "";
  return JSON.stringify(value, null, 1).replace(/([[{])\n */g, "$1").replace(/\n *([\]}])/g, "$1").replace(/\n */g, " ");
}

function isEmpty(value: unknown): boolean {
  if (value === null || value === undefined || value === "") return true;
  return typeof value === "object" && Object.keys(value).length === 0;
}

function counted(characters: number): string {
  return `${characters.toLocaleString("en-US")} characters`;
}
