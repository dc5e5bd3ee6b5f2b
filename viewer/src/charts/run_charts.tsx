// The charts of one eval run: scores with their thresholds, pass@k and pass^k, latency, tokens, cost, metrics.
import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import type { FunctionShape, PassCurve, RunPage } from "../shapes";
import { count, latency, money, plain, plural } from "../format";
import { Choice } from "../ui/choice";
import { Empty } from "../ui/empty";
import { PassCurves } from "./curves";
import { Histogram, type Part } from "./histogram";
import { linkToRuns, quoted, rangeOf } from "./run_links";
import { Scatter } from "./scatter";

const OUTCOMES: Part[] = [
  { name: "passed", tone: "passed" }, { name: "failed", tone: "failed" }, { name: "unmeasured or removed", tone: "other" },
];

export function RunCharts({ page }: { page: RunPage }) {
  const [model, setModel] = useState(0);
  const { head, runs } = page;
  const isOf = (at: number) => runs.model[at] === model;
  const outcomes = head.outcomes.map((outcome) => (outcome === "passed" ? 0 : outcome === "failed" ? 1 : outcome === "pending" || outcome === "running" ? -1 : 2));
  const byOutcome = (at: number) => (isOf(at) ? outcomes[runs.outcome[at]] : -1);
  const linkTo = (term: string) => linkToRuns(page, head.models.length > 1 ? `${term} model:${model ? "baseline" : "primary"}` : term);
  const over = (name: string) => (low: number, high: number | null) => linkTo(rangeOf(name, low, high));
  const charts: ComponentChildren[] = [
    ...head.functions.filter((each) => each.model === model).map((each) => <Scores key={each.name} page={page} of={each} linkTo={over(`fn:${quoted(each.name)}`)} />),
    ...curvesOf(head.curves.filter((each) => each.model === model && each.k.length > 1)).map((each) => (
      <PassCurves key={`curve ${each.function}`} curve={each} title={each.function || "runs that pass"} />
    )),
    <Amounts key="ms" title="latency" note="time of a rollout" values={runs.duration_ms} partOf={byOutcome} text={latency} linkTo={over("ms")} />,
    <Amounts key="tokens" title="tokens" note="of a run" values={runs.tokens} partOf={byOutcome} text={count} linkTo={over("tokens")} />,
    <Amounts key="cost" title="cost" note="of a run" values={runs.cost_usd} partOf={byOutcome} text={money} linkTo={over("cost")} />,
    <Amounts key="turns" title="turns" note="of a run" values={runs.turns} partOf={byOutcome} text={plain} linkTo={over("turns")} />,
    ...Object.entries(runs.metrics).map(([name, values]) => (
      <Histogram key={`metric ${name}`} title={name} note="metric" values={values} partOf={byOutcome} parts={OUTCOMES} text={plain} linkTo={over(`metric:${quoted(name)}`)} />
    )),
  ];
  if (!runs.outcome.some((_, at) => byOutcome(at) >= 0)) return <Empty title="No run has ended yet" />;
  return (
    <>
      {head.models.length > 1 && (
        <Choice label="model" value={String(model)} onChange={(value) => setModel(Number(value))}
          options={head.models.map((name, at) => ({ value: String(at), title: at ? `${name} (baseline)` : name }))} />
      )}
      <div class="charts" key={model}>
        <Patterns />
        {charts}
        <Scatter page={page} partOf={byOutcome} />
      </div>
    </>
  );
}

/** The curves, without that of a function which alone decides: it is that of runs. */
function curvesOf(curves: PassCurve[]): PassCurve[] {
  const numbers = ({ pass_at_k: at, pass_hat_k: hat }: PassCurve) => JSON.stringify([at, hat]);
  const ofRuns = curves.find((each) => each.function === "");
  return curves.filter((each) => each === ofRuns || !ofRuns || numbers(each) !== numbers(ofRuns));
}

/** Bars differ by pattern too, and not by colour alone. */
function Patterns() {
  return (
    <svg class="patterns" aria-hidden="true">
      <pattern id="pattern-failed" width="4" height="4" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
        <rect class="part-failed-ground" width="4" height="4" /><rect class="part-failed-line" width="2" height="4" />
      </pattern>
      <pattern id="pattern-other" width="3" height="3" patternUnits="userSpaceOnUse">
        <rect class="part-other-ground" width="3" height="3" /><rect class="part-other-line" width="3" height="1.5" />
      </pattern>
    </svg>
  );
}

/** The scores of one function: those that reach its threshold, and those that do not. */
function Scores({ page, of, linkTo }: { page: RunPage; of: FunctionShape; linkTo(low: number, high: number | null): string }) {
  const values = page.runs.scores[of.name] ?? [];
  const parts: Part[] = [{ name: "reach the threshold", tone: "passed" }, { name: "below it", tone: "failed" }];
  const ended = page.head.outcomes.map((outcome) => ["passed", "failed", "unmeasured"].includes(outcome));
  const missing = page.runs.outcome.filter((outcome, at) => ended[outcome] && page.runs.model[at] === of.model && (values[at] ?? null) === null).length;
  const isShare = values.every((value) => value === null || (value >= 0 && value <= 1));
  return (
    <Histogram title={of.name} note={`score${of.decides ? ", decides" : ""}${missing ? `; ${plural(missing, "run")} without one` : ""}`} values={values} parts={parts} text={plain} threshold={of.threshold}
      partOf={(at) => (page.runs.model[at] !== of.model ? -1 : values[at]! >= of.threshold ? 0 : 1)} bounds={isShare ? [0, 1] : undefined} linkTo={linkTo} />
  );
}

interface AmountsProps {
  title: string;
  note: string;
  values: ArrayLike<number | null>;
  partOf(at: number): number;
  text(value: number): string;
  linkTo(low: number, high: number | null): string;
}

/** Amounts of runs; nothing if none is known, or all are the same. */
function Amounts(props: AmountsProps) {
  const known = Array.prototype.filter.call(props.values, (value: number | null) => value !== null);
  if (known.every((value) => value === known[0])) return null;
  return <Histogram {...props} parts={OUTCOMES} />;
}
