// The circumstances of a run: its model, tokens, cost and times, and the command that repeats it.
import type { ComponentChildren } from "preact";
import type { Conversation, RunPage } from "../../shapes";
import { count, duration, moment, money, plural } from "../../format";
import { runId } from "../../state/run_ids";
import { CopyButton } from "../../ui/copy";
import { asText } from "./chat_shapes";
import { fieldsOf, numberOf } from "./events";
import { Escaped } from "./text";

export function Facts({ page, at, conversation }: { page: RunPage; at: number; conversation: Conversation | null }) {
  const { head, runs } = page;
  const rollout = fieldsOf(conversation?.rollout);
  const facts: [string, ComponentChildren][] = [];
  const add = (name: string, value: ComponentChildren) => { if (value !== null && value !== "" && value !== false) facts.push([name, value]); };
  const text = (value: unknown) => (typeof value === "string" && value ? <Escaped text={value} /> : null);
  const scoring = (conversation?.scores ?? []).reduce((sum, event) => sum + (numberOf(event.ms) ?? 0), 0);
  add("model", text(rollout.model) ?? text(head.models[runs.model[at]]));
  add("tokens", (conversation || runs.tokens[at] !== null) && tokensOf(rollout.usage, runs.tokens[at]));
  add("cost", runs.cost_usd[at] !== null && money(runs.cost_usd[at]));
  add("rollout", runs.duration_ms[at] !== null && duration(runs.duration_ms[at]));
  add("scoring", scoring >= 5 && duration(scoring));
  add("turns", runs.turns[at] !== null && count(runs.turns[at]));
  add("finish reason", text(rollout.finish_reason) ?? text(head.finish_reasons[runs.finish_reason[at]]));
  add("repeated requests", numberOf(rollout.retries) ? count(numberOf(rollout.retries)) : null);
  add("attempt", (numberOf(rollout.attempt) ?? 1) > 1 ? count(numberOf(rollout.attempt)) : null);
  add("stored", storedOf(rollout.stored));
  add("replicas", replicasOf(rollout.replicas));
  add("imported from", text(fieldsOf(rollout.imported).folder));
  add("ended", typeof rollout.at === "string" && moment(rollout.at));
  return (
    <dl class="run-facts">
      {facts.map(([name, value]) => <div key={name}><dt>{name}</dt><dd>{value}</dd></div>)}
    </dl>
  );
}

export function Rerun({ page, at }: { page: RunPage; at: number }) {
  if (!page.head.rerun) return null;
  const command = page.head.rerun.join(runId(page, at));
  return (
    <div class="rerun">
      <code tabIndex={0} aria-label="command that runs it again"><Escaped text={command} /></code>
      <CopyButton text={command} label="Copy command" />
    </div>
  );
}

function tokensOf(usage: unknown, sum: number | null): ComponentChildren {
  const { input_tokens: input, output_tokens: output, ...others } = fieldsOf(usage);
  if (numberOf(input) === null && numberOf(output) === null) return sum === null ? "unknown" : count(sum);
  const more = Object.entries(others).filter(([, value]) => numberOf(value));
  const title = more.map(([name, value]) => `${name.replaceAll("_", " ")} ${count(numberOf(value))}`).join(", ");
  return <span title={title || undefined}>{count(numberOf(input) ?? 0)} in, {count(numberOf(output) ?? 0)} out</span>;
}

function storedOf(stored: unknown): string | null {
  const requests = numberOf(fieldsOf(stored).requests);
  return requests === null ? null : `${plural(requests, "answer")} from a cassette or cache`;
}

function replicasOf(replicas: unknown): ComponentChildren {
  const used = Object.entries(fieldsOf(replicas));
  if (!used.length) return null;
  const one = ([name, use]: [string, unknown]) => {
    const { requests, errors } = fieldsOf(use);
    return `${name}: ${plural(numberOf(requests) ?? 0, "request")}${numberOf(errors) ? `, ${numberOf(errors)} failed` : ""}`;
  };
  return <Escaped text={used.map(one).map(asText).join("; ")} />;
}
