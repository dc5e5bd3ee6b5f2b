// The answer that was scored beside the expected one.
import type { Conversation } from "../../shapes";
import { asText } from "./chat_shapes";
import { expectedOf, messagesOf, promptLength } from "./events";
import { answerOf } from "./joined";
import { JsonValue } from "./json";
import { Text } from "./text";
import { Glyph } from "../../ui/parts";

/** Most answers say at their end what they come to, and the conversation has the whole. */
const SHORT = { keep: "end", lines: 4, chars: 300 } as const;

const FAULTS = {
  none: "The rollout has no assistant message.",
  calls: "The assistant's messages only call tools.",
  empty: "The answer is empty.",
};

export function Answer({ conversation }: { conversation: Conversation }) {
  const own = messagesOf(conversation).slice(promptLength(conversation));
  const expected = expectedOf(conversation);
  const answer = answerOf(own);
  if (expected === null && answer !== null && answer !== "") return null; // the conversation shows it
  const fault = answer === null ? (own.some(isByAssistant) ? FAULTS.calls : FAULTS.none) : answer === "" ? FAULTS.empty : null;
  const truth = asText(expected).trim();
  return (
    <section class="answer" aria-label="answer">
      <div class="answer-side">
        <h3>Answered</h3>
        {fault ? <p class="aside">{fault}</p> : <Text text={answer!} {...SHORT} />}
      </div>
      {expected !== null && (
        <div class="answer-side">
          <h3>Expected {!fault && typeof expected !== "object" && <Sameness answer={answer!} expected={truth} />}</h3>
          {typeof expected === "string" ? <Text text={truth} {...SHORT} /> : <JsonValue value={expected} />}
        </div>
      )}
    </section>
  );
}

/** Only about the texts: the functions decide what is right. */
function Sameness({ answer, expected }: { answer: string; expected: string }) {
  if (answer === expected) return <span class="sameness same"><Glyph>=</Glyph> the same text</span>;
  const isPart = answer.includes(expected);
  return <span class="sameness"><Glyph>{isPart ? "⊂" : "≠"}</Glyph> {isPart ? "contained in the answer" : "not the same text"}</span>;
}

function isByAssistant(message: unknown): boolean {
  return (message as { role?: unknown } | null)?.role === "assistant";
}
