// The reason why a run has no score: its error, where it broke, and the traceback.
import type { Conversation, RunPage } from "../../shapes";
import { asText } from "./chat_shapes";
import { fieldsOf } from "./events";
import { Escaped, Text } from "./text";

export function Failure({ page, at, conversation }: { page: RunPage; at: number; conversation: Conversation | null }) {
  const { head, runs } = page;
  const rollout = fieldsOf(conversation?.rollout);
  // The functions that gave no score tell of it themselves.
  const isOfScoring = (conversation?.scores ?? []).some((event) => Object.keys(fieldsOf(event.errors)).length > 0);
  const boundary = typeof rollout.boundary === "string" ? rollout.boundary : isOfScoring ? undefined : head.boundaries[runs.boundary[at]];
  const error = typeof rollout.error === "string" ? rollout.error : isOfScoring ? undefined : head.errors[runs.error[at]];
  const details = asText(rollout.details);
  const bound = asText(rollout.bound);
  const isBoundTold = bound === "" || (error ?? "").includes(bound);
  if (!boundary && !error && isBoundTold) return null;
  const outcome = head.outcomes[runs.outcome[at]];
  return (
    <section class={`failure failure-${boundary || error ? outcome : "none"}`} aria-label={boundary || error ? "error" : "bound"}>
      {boundary && <p class="failure-boundary">broke at boundary <strong><Escaped text={boundary} /></strong></p>}
      {error && <Text class="error-message" text={error} />}
      {!isBoundTold && <p>It met <Escaped text={bound} />: the model was not asked again.</p>}
      {details && <Text class="code scrolls traceback" keep="end" lines={20} text={details} />}
    </section>
  );
}
