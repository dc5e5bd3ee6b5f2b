// How often runs have which value, as bars. Each bar leads to its runs.
import { useMemo } from "preact/hooks";
import { count, plain } from "../format";
import { type Bin, binned, ticks, total } from "./bins";
import { across, Axes, Figure, FRAME, up } from "./figure";

/** A part of each bar, with its place in the order from the bottom. */
export interface Part {
  name: string;
  tone: "passed" | "failed" | "plain" | "other";
}

interface HistogramProps {
  title: string;
  note?: string;
  values: ArrayLike<number | null>;
  /** The part that the run at a position belongs to; -1 if it is not counted. */
  partOf(at: number): number;
  parts: Part[];
  text(value: number): string;
  bounds?: [number, number];
  threshold?: number;
  /** The address of the runs with a value from `low` on and below `high`; or of exactly `low` if they are equal. */
  linkTo?(low: number, high: number | null): string;
}

export function Histogram({ title, note, values, partOf, parts, text = plain, bounds, threshold, linkTo }: HistogramProps) {
  const { bins, isDiscrete, most } = useMemo(() => binned(values, partOf, parts.length, bounds), [values, parts.length, threshold]);
  if (!bins.length) return null;
  const least = bins[0].low, end = bins[bins.length - 1];
  // A discrete value has a slot of its own; ranges lie where their numbers are, the open one beside them.
  const step = isDiscrete ? 1 : bins[0].high - bins[0].low;
  const first = isDiscrete ? 0 : least;
  const last = isDiscrete ? bins.length : end.high + (end.isOpen ? step : 0);
  const x = across(first, last);
  const y = up(0, most);
  const begin = (at: number) => (isDiscrete ? at : bins[at].low);
  const label = (bin: Bin) => (isDiscrete ? text(bin.low) : bin.isOpen ? `from ${text(bin.low)}` : `${text(bin.low)} to ${text(bin.high)}`);
  const address = (bin: Bin) => linkTo?.(bin.low, isDiscrete ? bin.low : bin.isOpen || bin === end ? null : bin.high);
  const xTicks = isDiscrete ? bins.map((bin, at) => ({ at: at + 0.5, text: text(bin.low) })) : ticks(first, end.high).map((at) => ({ at, text: text(at) }));
  const summary = `${title}: ${count(bins.reduce((sum, bin) => sum + total(bin), 0))} runs`;
  const shows = parts.filter((_, part) => bins.some((bin) => bin.counts[part]));
  return (
    <Figure title={title} note={note} summary={summary}
      table={{
        head: ["value", ...parts.map((part) => part.name)],
        rows: bins.filter((bin) => total(bin)).map((bin) => [linkTo ? <a href={address(bin)}>{label(bin)}</a> : label(bin), ...bin.counts.map(count)]),
      }}>
      <svg viewBox={`0 0 ${FRAME.width} ${FRAME.height}`} class="chart" aria-hidden="true">
        <Axes x={x} y={y} xTicks={xTicks} yTicks={ticks(0, most, 3).filter(Number.isInteger).map((at) => ({ at, text: count(at) }))} />
        {bins.map((bin, at) => <Bar key={at} bin={bin} parts={parts} x={x(begin(at))} width={x(begin(at) + step) - x(begin(at))} y={y} href={address(bin)}
          title={`${label(bin)}: ${bin.counts.map((n, part) => (n ? `${count(n)} ${parts[part].name}` : "")).filter(Boolean).join(", ")}`} />)}
        {threshold !== undefined && !isDiscrete && threshold >= first && threshold <= last && (
          <line class="threshold" x1={x(threshold)} x2={x(threshold)} y1={FRAME.top - 8} y2={FRAME.height - FRAME.bottom} />
        )}
      </svg>
      {(shows.length > 1 || threshold !== undefined) && (
        <p class="legend">
          {shows.length > 1 && shows.map((part) => <span key={part.name}><i class={`swatch part-${part.tone}`} />{part.name}</span>)}
          {threshold !== undefined && <span>{!isDiscrete && <i class="swatch swatch-line" />}threshold {text(threshold)}</span>}
        </p>
      )}
    </Figure>
  );
}

function Bar({ bin, parts, x, width, y, href, title }: { bin: Bin; parts: Part[]; x: number; width: number; y(value: number): number; href?: string; title: string }) {
  if (!total(bin)) return null;
  const gap = Math.max(Math.min(1, width / 8), (width - 48) / 2);
  let below = 0;
  const bars = bin.counts.map((n, part) => {
    if (!n) return null;
    const top = y(below + n), height = Math.max(1, y(below) - top);
    below += n;
    return <rect key={part} class={`part-${parts[part].tone}`} x={x + gap} y={top} width={width - 2 * gap} height={height} />;
  });
  const whole = <><title>{title}</title><rect class="bar-area" x={x} y={FRAME.top} width={width} height={FRAME.height - FRAME.top - FRAME.bottom} />{bars}</>;
  // The same link is in the table, where the keyboard finds it.
  return href ? <a class="bar" href={href} tabindex={-1}>{whole}</a> : <g class="bar">{whole}</g>;
}

