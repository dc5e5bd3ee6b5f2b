// The pass rates of eval runs one after the other, with their intervals. Each point is a link to its eval run.
import { useLayoutEffect, useRef, useState } from "preact/hooks";
import { difference, interval, moment, plural, score } from "../format";
import type { HistoryChange, HistoryPoint } from "../shapes";
import { runAddress } from "../state/route";
import { noRate } from "../ui/rate";

const HEIGHT = 220;
const LEFT = 44, RIGHT = 12, TOP = 14, BOTTOM = 28;
/** The least range of the axis, so that noise does not look like a trend. */
const LEAST_RANGE = 0.2;

/** The difference to the eval run before. */
export function changeText({ difference: rise, rows }: HistoryChange): string {
  return `${difference(rise)} over ${plural(rows, "row")}`;
}

export function Trend({ points }: { points: HistoryPoint[] }) {
  const frame = useRef<HTMLDivElement>(null);
  const [width, setWidth] = useState(800);
  useLayoutEffect(() => {
    const measure = () => setWidth(Math.max(240, frame.current!.clientWidth));
    measure();
    const observer = new ResizeObserver(measure);
    observer.observe(frame.current!);
    return () => observer.disconnect();
  }, []);
  const [least, most] = rangeOf(points);
  const step = (width - LEFT - RIGHT) / points.length;
  const x = (at: number) => LEFT + step * (at + 0.5);
  const y = (rate: number) => TOP + (1 - (rate - least) / (most - least)) * (HEIGHT - TOP - BOTTOM);
  const isOneDay = points.every((point) => dateOf(point) === dateOf(points[0]));
  const every = Math.ceil(58 / step);
  return (
    <div class="trend" ref={frame}>
      <svg width={width} height={HEIGHT} viewBox={`0 0 ${width} ${HEIGHT}`} role="group" aria-label="Pass rate of each eval run, the oldest first; the table below has the numbers">
        {ticksOf(least, most).map((tick) => (
          <g key={tick} aria-hidden="true">
            <line class="trend-grid" x1={LEFT} x2={width - RIGHT} y1={y(tick)} y2={y(tick)} />
            <text class="trend-label" x={LEFT - 6} y={y(tick) + 4} text-anchor="end">{tick.toFixed(most - least > 0.5 ? 1 : 2)}</text>
          </g>
        ))}
        {linesOf(points, x, y).map((line, at) => <polyline key={at} class="trend-line" points={line} aria-hidden="true" />)}
        {points.map((point, at) => at > 0 && point.plan !== points[at - 1].plan && (
          <line key={at} class="trend-plan" x1={x(at) - step / 2} x2={x(at) - step / 2} y1={TOP} y2={HEIGHT - BOTTOM} aria-hidden="true" />
        ))}
        {points.map((point, at) => <Point key={point.row.name} point={point} x={x(at)} y={y} />)}
        {points.map((point, at) => at % every === 0 && (
          <text key={at} class="trend-label" x={x(at)} y={HEIGHT - 6} text-anchor="middle" aria-hidden="true">{isOneDay ? timeOf(point) : dateOf(point)}</text>
        ))}
      </svg>
    </div>
  );
}

function Point({ point: { row, change }, x, y }: { point: HistoryPoint; x: number; y: (rate: number) => number }) {
  const { pass_rate: rate, pass_rate_interval: bounds } = row;
  const known = rate === null ? noRate(row) : `pass rate ${score(rate)}${bounds ? `, ${interval(bounds)}` : ""}`;
  const title = `${row.name}, ${moment(row.started_at)}: ${known}${row.partial ? ", partial" : ""}${change ? `; ${changeText(change)}` : ""}`;
  const isWhole = row.status === "finished" && !row.partial && row.ended === row.selected;
  return (
    <a class="trend-point" href={runAddress(row.name)} aria-label={title}>
      <title>{title}</title>
      <rect class="trend-target" x={x - 11} y={TOP} width={22} height={HEIGHT - TOP - BOTTOM} />
      {rate === null
        ? <text class="trend-unmeasured" x={x} y={HEIGHT - BOTTOM - 4} text-anchor="middle">!</text>
        : <>
            {bounds && <line class="trend-bounds" x1={x} x2={x} y1={y(bounds.high)} y2={y(bounds.low)} />}
            {bounds && [bounds.low, bounds.high].map((end) => <line key={end} class="trend-bounds" x1={x - 4} x2={x + 4} y1={y(end)} y2={y(end)} />)}
            <circle class={isWhole ? "trend-dot" : "trend-dot trend-dot-partial"} cx={x} cy={y(rate)} r={4} />
          </>}
    </a>
  );
}

/** The range of the axis: all intervals, in steps of 0.1. */
function rangeOf(points: HistoryPoint[]): [number, number] {
  const ends = points.flatMap(({ row }) => (row.pass_rate === null ? [] : [row.pass_rate_interval?.low ?? row.pass_rate, row.pass_rate_interval?.high ?? row.pass_rate]));
  if (!ends.length) return [0, 1];
  let least = Math.floor(10 * Math.min(...ends)) / 10, most = Math.ceil(10 * Math.max(...ends)) / 10;
  while (most - least < LEAST_RANGE - 1e-9) { least = Math.max(0, least - 0.1); most = Math.min(1, most + 0.1); }
  return [least, most];
}

function ticksOf(least: number, most: number): number[] {
  const step = most - least > 0.5 ? 0.2 : most - least > 0.25 ? 0.1 : 0.05;
  const ticks: number[] = [];
  for (let tick = Math.ceil(least / step - 1e-9); tick * step <= most + 1e-9; tick++) ticks.push(tick * step);
  return ticks;
}

/** Lines between neighbours that ask the same question. */
function linesOf(points: HistoryPoint[], x: (at: number) => number, y: (rate: number) => number): string[] {
  const lines: string[] = [];
  let line: string[] = [];
  points.forEach((point, at) => {
    if (at > 0 && point.plan !== points[at - 1].plan) { lines.push(line.join(" ")); line = []; }
    if (point.row.pass_rate !== null) line.push(`${x(at)},${y(point.row.pass_rate)}`);
  });
  return [...lines, line.join(" ")].filter((each) => each.includes(" "));
}

function timeOf({ row }: HistoryPoint): string {
  return row.started_at?.slice(11, 16) ?? "";
}

function dateOf({ row }: HistoryPoint): string {
  return row.started_at?.slice(5, 10) ?? "";
}
