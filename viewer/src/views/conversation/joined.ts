// A conversation as its messages are shown: the results of tools below the calls that they answer.
import { type Call, isFields, type Message, readMessage } from "./chat_shapes";

export interface Shown extends Message {
  /** The results of its calls, by the call. */
  results: Map<Call, Message>;
}

/** Join messages with the results of their calls: only other calls and results may stand between the two. */
export function joined(stored: readonly unknown[]): Shown[] {
  const shown: Shown[] = [];
  let open = new Map<string, { call: Call; asker: Shown }>();
  let wasResult = false;
  for (const message of stored.flatMap(readMessage)) {
    const asked = message.role === "tool" && message.answers !== null ? open.get(message.answers) : undefined;
    if (asked) {
      asked.asker.results.set(asked.call, message);
      open.delete(message.answers!);
      wasResult = true;
      continue;
    }
    const next: Shown = { ...message, results: new Map() };
    shown.push(next);
    if (message.role === "tool") continue;
    // Calls that the Responses API stores one by one are open together.
    if (wasResult || message.role !== "assistant") open = new Map();
    wasResult = false;
    for (const item of message.items) if (item.kind === "call" && item.id !== null) open.set(item.id, { call: item, asker: next });
  }
  return shown;
}

/** The text of the last message by the assistant that is more than calls; null without one. As Python finds it. */
export function answerOf(own: readonly unknown[]): string | null {
  for (const raw of [...own].reverse()) {
    if (!isFields(raw) || raw.role !== "assistant") continue;
    const text = textOf(raw.content);
    if (text.trim() || !usesTools(raw)) return text.trim();
  }
  return null;
}

function textOf(content: unknown): string {
  if (!Array.isArray(content)) return typeof content === "string" ? content : "";
  const texts = content.map((part) => (isFields(part) ? part.text : part));
  return texts.filter((text) => typeof text === "string").join("");
}

function usesTools(raw: Record<string, unknown>): boolean {
  const blocks = Array.isArray(raw.content) ? raw.content.filter(isFields) : [];
  const calls = Array.isArray(raw.tool_calls) ? raw.tool_calls.length > 0 : Boolean(raw.tool_calls);
  return calls || Boolean(raw.function_call) || blocks.some((block) => isFields(block.toolUse) || block.type === "tool_use");
}
