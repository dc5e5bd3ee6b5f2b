// Everything else that was recorded of a run: its output, the agent's own reports, the environment's state.
import { useMemo } from "preact/hooks";
import type { Conversation } from "../../shapes";
import { asText, isFields } from "./chat_shapes";
import { fieldsOf, metricsOf, outputsOf } from "./events";
import { Fold } from "./folded";
import { JsonValue } from "./json";
import { Messages } from "./messages";
import { Metrics } from "./scores";
import { Escaped, Text } from "./text";

/** The reports of an agent have this source. */
const ROLLOUT = "rollout";
const SHOWN = new Set([
  "ev", "row", "run", "model_tag", "attempt", "at", "ms", "messages", "n_prompt", "finish_reason", "usage", "model", "retries",
  "bound", "boundary", "error", "details", "output", "samples", "environment", "replicas", "metrics", "reasons", "fields",
]);

export function Records({ conversation, isMarkdown }: { conversation: Conversation; isMarkdown: boolean }) {
  const rollout = fieldsOf(conversation.rollout);
  const metrics = metricsOf(fieldsOf(rollout.metrics)[ROLLOUT]);
  const info = fieldsOf(fieldsOf(rollout.fields)[ROLLOUT]);
  const samples = Array.isArray(rollout.samples) ? rollout.samples : [];
  const others = Object.entries(rollout).filter(([key]) => !SHOWN.has(key));
  return (
    <div class="records">
      {metrics.length > 0 && <section><h3>Metrics of the rollout</h3><Metrics metrics={metrics} /></section>}
      {Object.keys(info).length > 0 && <section><h3>Info of the rollout</h3><JsonValue value={info} /></section>}
      {outputsOf(conversation).map(([title, text]) => (
        <section key={title}><h3><Escaped text={title} /></h3><Text class="code" keep="end" text={text.replace(/\n+$/, "")} /></section>
      ))}
      {samples.map((sample, index) => <Sample key={index} sample={sample} index={index} isMarkdown={isMarkdown} />)}
      {Object.keys(fieldsOf(rollout.environment)).length > 0 && <Fold label="Environment"><JsonValue value={rollout.environment} /></Fold>}
      {isFields(rollout.replicas) && <Fold label="Replicas"><JsonValue value={rollout.replicas} /></Fold>}
      {others.length > 0 && <Fold label="Further facts of the rollout"><JsonValue value={Object.fromEntries(others)} /></Fold>}
    </div>
  );
}

/** A sample that a workflow left for its Grader besides the conversation. */
function Sample({ sample, index, isMarkdown }: { sample: unknown; index: number; isMarkdown: boolean }) {
  const { messages, ...others } = fieldsOf(sample);
  const ofSample = useMemo(() => ({ rollout: { messages, n_prompt: 0 }, scores: [] }), [sample]);
  const name = asText(others.name) || String(index);
  return (
    <Fold label={<>Sample <Escaped text={name} /></>}>
      <JsonValue value={Array.isArray(messages) ? others : sample} />
      {Array.isArray(messages) && <Messages conversation={ofSample} isMarkdown={isMarkdown} />}
    </Fold>
  );
}
