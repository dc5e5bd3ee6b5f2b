// The scores of a run against their thresholds, with what each function said about it.
import { count, distinguishable, duration, plural, short } from "../../format";
import { asText } from "./chat_shapes";
import { fieldsOf, numberOf, type Scored } from "./events";
import { Fold } from "./folded";
import { JsonValue } from "./json";
import { Escaped, Text } from "./text";

export function Scores({ scores, isScored }: { scores: Scored[]; isScored: boolean }) {
  if (!scores.length) return null;
  return (
    <ul class="panel scores" aria-label="scores">
      {scores.map((each) => <ScoreItem key={each.name} scored={each} isScored={isScored} />)}
    </ul>
  );
}

function ScoreItem({ scored, isScored }: { scored: Scored; isScored: boolean }) {
  const { score, threshold, error } = scored;
  const isMet = score !== null && threshold !== null ? score >= threshold : null;
  const tone = isMet === null ? (error ? "unmeasured" : "none") : isMet ? "passed" : "failed";
  return (
    <li class="score">
      <div class="score-line">
        <span class={`score-mark outcome-${tone}`} aria-hidden="true">{{ passed: "✓", failed: "✗", unmeasured: "!", none: "·" }[tone]}</span>
        <span class="score-name"><Escaped text={scored.name} /></span>
        <span class={`score-value outcome-${tone}`}><Value scored={scored} isScored={isScored} /></span>
        <span class="score-asides">
          {!scored.decides && <span>does not decide</span>}
          {scored.judges.map((judge) => <Judge judge={judge} />)}
          {scored.ms !== null && scored.ms >= 5 && <span>{duration(scored.ms)}</span>}
        </span>
      </div>
      {scored.reason && <Text class="reason" text={scored.reason} />}
      {error && <Text class="error-message" text={error.message} />}
      {error?.details && <Text class="code scrolls traceback" keep="end" lines={20} text={error.details} />}
      <Metrics metrics={scored.metrics} />
      {scored.fields && <Fold label="extra fields"><JsonValue value={scored.fields} /></Fold>}
    </li>
  );
}

function Value({ scored: { score, threshold, error, isRemoved }, isScored }: { scored: Scored; isScored: boolean }) {
  if (isRemoved) return <>took the run out</>;
  if (score === null) return <>{error ? `no score, boundary ${error.boundary}` : isScored ? "no score" : "not scored"}</>;
  if (threshold === null) return <>{short(score)}</>;
  const [value, bound] = distinguishable(score, threshold);
  return <><strong>{value}</strong> {score >= threshold ? "≥" : "<"} {bound}</>;
}

function Judge({ judge }: { judge: Record<string, unknown> }) {
  const usage = fieldsOf(judge.usage);
  const tokens = (numberOf(usage.input_tokens) ?? 0) + (numberOf(usage.output_tokens) ?? 0);
  const calls = numberOf(judge.calls) ?? 0;
  return <span>judge <Escaped text={asText(judge.model)} />, {plural(calls, "call")}{tokens > 0 && `, ${count(tokens)} tokens`}</span>;
}

export function Metrics({ metrics }: { metrics: [string, number][] }) {
  if (!metrics.length) return null;
  return (
    <dl class="metrics">
      {metrics.map(([name, value]) => <div><dt><Escaped text={name} /></dt><dd>{short(value)}</dd></div>)}
    </dl>
  );
}
