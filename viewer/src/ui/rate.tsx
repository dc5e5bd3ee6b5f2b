// A pass rate, printed and drawn with its interval. Python computed both.
import type { Interval as Bounds, RunEntry } from "../shapes";
import { interval, score } from "../format";

interface RateProps {
  rate: number | null;
  bounds: Bounds | null;
  /** The sentence for a rate that is not known. */
  unknown?: string;
  drawn?: boolean;
}

/** "0.720", its interval on a line from 0 to 1, and "0.680 to 0.760". */
export function Rate({ rate, bounds, unknown = "not measured", drawn = true }: RateProps) {
  if (rate === null) return <span class="rate muted">{unknown}</span>;
  return (
    <span class="rate">
      <span class="rate-value number">{score(rate)}</span>
      {drawn && <Interval rate={rate} bounds={bounds} />}
      {bounds && <span class="rate-interval number muted" title={intervalTitle(bounds)}>{interval(bounds)}</span>}
    </span>
  );
}

/** The pass rate of an eval run, or the reason why it has none. */
export function RunRate({ row, drawn }: { row: RunEntry; drawn?: boolean }) {
  return <Rate rate={row.pass_rate} bounds={row.pass_rate_interval} drawn={drawn} unknown={noRate(row)} />;
}

export function noRate(row: RunEntry): string {
  if (row.status === "running" || row.status === "pending") return "no pass rate yet";
  if (isPart(row)) return "no pass rate for a part";
  return row.measured === null ? "not known" : "not measured";
}

/** True for measured runs without a pass rate: others are missing, which could change it. */
export function isPart(row: RunEntry): boolean {
  return row.pass_rate === null && !!row.measured;
}

/** A line from `least` to `most`, with the interval as a bar and the value as a tick; `mark` is a threshold. */
export function Interval({ rate, bounds, least = 0, most = 1, mark }: {
  rate: number; bounds: Pick<Bounds, "low" | "high"> | null; least?: number; most?: number; mark?: number;
}) {
  const at = (value: number) => (100 * (Math.min(most, Math.max(least, value)) - least)) / (most - least || 1);
  return (
    <svg class="interval" viewBox="0 0 100 12" preserveAspectRatio="none" aria-hidden="true">
      <line class="interval-axis" x1="0" x2="100" y1="6" y2="6" />
      {bounds && <rect class="interval-bar" x={at(bounds.low)} y="3" height="6" width={Math.max(0.8, at(bounds.high) - at(bounds.low))} />}
      {mark !== undefined && <line class="interval-mark" x1={at(mark)} x2={at(mark)} y1="0" y2="12" />}
      <line class="interval-value" x1={at(rate)} x2={at(rate)} y1="0.5" y2="11.5" />
    </svg>
  );
}

export function intervalTitle(bounds: Bounds): string {
  return `${Math.round(100 * bounds.level)}% interval, ${bounds.method}`;
}
