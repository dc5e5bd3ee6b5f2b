// Each run as a point, by two of its numbers. A click opens a run, a box asks the grid for the runs in it.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import type { RunPage } from "../shapes";
import { count, latency, money, plain } from "../format";
import { go } from "../state/route";
import { runId } from "../state/run_ids";
import { Choice } from "../ui/choice";
import { drawn, ticks } from "./bins";
import { across, Axes, type Frame, up } from "./figure";
import { linkToRuns, quoted } from "./run_links";

interface Axis {
  name: string;
  /** As the query language names it. */
  term: string;
  values: ArrayLike<number | null>;
  text(value: number): string;
}

interface Point {
  x: number;
  y: number;
}

const GROUPS = ["passed", "failed", "other"] as const;
/** The distance in pixels from which a click still means a point. */
const NEAR = 12;

export function Scatter({ page, partOf }: { page: RunPage; partOf(at: number): number }) {
  const axes = axesOf(page);
  const [xName, setX] = useState("latency");
  const [yName, setY] = useState("tokens");
  const x = axes.find((axis) => axis.name === xName) ?? axes[0];
  const y = axes.find((axis) => axis.name === yName) ?? axes[axes.length - 1];
  if (axes.length < 2) return null;
  const options = axes.map((axis) => ({ value: axis.name, title: axis.name }));
  return (
    <figure class="figure panel figure-wide" aria-label={`Runs by ${x.name} and ${y.name}. The same numbers are in the grid of runs.`}>
      <figcaption class="row">
        <span class="figure-title">runs</span>
        <Choice label="by" value={x.name} options={options} onChange={setX} />
        <Choice label="and" value={y.name} options={options} onChange={setY} />
        <span class="muted figure-note">click a point to open its run, draw a box to list the runs in it</span>
      </figcaption>
      <Points page={page} x={x} y={y} partOf={partOf} />
      <p class="legend">
        <span><i class="swatch swatch-round part-passed" />passed</span>
        <span><i class="swatch swatch-solid part-failed" />failed</span>
        <span><i class="swatch swatch-solid swatch-diamond part-other" />unmeasured or removed</span>
      </p>
    </figure>
  );
}

/** The numbers of runs that differ between them. */
function axesOf({ head, runs }: RunPage): Axis[] {
  const all: Axis[] = [
    { name: "latency", term: "ms", values: runs.duration_ms, text: latency },
    { name: "tokens", term: "tokens", values: runs.tokens, text: count },
    { name: "cost", term: "cost", values: runs.cost_usd, text: money },
    { name: "turns", term: "turns", values: runs.turns, text: plain },
    ...[...new Set(head.functions.map((each) => each.name))].map((name) => ({ name, term: `fn:${quoted(name)}`, values: (runs.scores[name] ?? []).map(drawn), text: plain })),
    ...Object.entries(runs.metrics).map(([name, values]) => ({ name, term: `metric:${quoted(name)}`, values: values.map(drawn), text: plain })),
  ];
  return all.filter(({ values }) => {
    const known = Array.prototype.filter.call(values, (value: number | null) => value !== null);
    return known.some((value) => value !== known[0]);
  });
}

function Points({ page, x, y, partOf }: { page: RunPage; x: Axis; y: Axis; partOf(at: number): number }) {
  const holder = useRef<HTMLDivElement>(null);
  const width = useWidth(holder);
  const frame: Frame = { width, height: 240, left: 56, right: 12, top: 10, bottom: 22 };
  const shown = useMemo(() => positionsOf(x, y, partOf), [page.runs, x.name, y.name]);
  const [xEnds, yEnds] = [endsOf(x, shown), endsOf(y, shown)];
  const [xAt, yAt] = [across(...xEnds, frame), up(...yEnds, frame)];
  const [box, setBox] = useState<{ from: Point; to: Point } | null>(null);

  const finish = (to: Point) => {
    const from = box!.from;
    setBox(null);
    if (Math.hypot(to.x - from.x, to.y - from.y) < 5) {
      const at = nearest(shown, (each) => xAt(x.values[each]!), (each) => yAt(y.values[each]!), to);
      if (at !== null) go({ name: "run", run: page.head.row.name, id: runId(page, at) });
      return;
    }
    const bounds = [
      ...bound(x.term, valueAt(Math.min(from.x, to.x), frame.left, width - frame.right, xEnds), valueAt(Math.max(from.x, to.x), frame.left, width - frame.right, xEnds)),
      ...bound(y.term, valueAt(Math.max(from.y, to.y), frame.height - frame.bottom, frame.top, yEnds), valueAt(Math.min(from.y, to.y), frame.height - frame.bottom, frame.top, yEnds)),
    ];
    location.hash = linkToRuns(page, bounds.join(" "));
  };
  return (
    <div ref={holder} class="scatter" aria-hidden="true">
      <svg width={width} height={frame.height} viewBox={`0 0 ${width} ${frame.height}`} class="chart-fixed"
        onPointerDown={(event) => { event.currentTarget.setPointerCapture(event.pointerId); const at = placeOf(event); setBox({ from: at, to: at }); }}
        onPointerMove={(event) => { if (box) setBox({ ...box, to: placeOf(event) }); }}
        onPointerUp={(event) => { if (box) finish(placeOf(event)); }}
        onPointerCancel={() => setBox(null)}>
        <Axes frame={frame} x={xAt} y={yAt} xTicks={ticks(...xEnds, width / 110).map((at) => ({ at, text: x.text(at) }))} yTicks={ticks(...yEnds).map((at) => ({ at, text: y.text(at) }))} />
        {GROUPS.map((group, number) => (
          <path key={group} class={`points points-${group}`} d={marksOf(shown.filter((at) => partOf(at) === number), (at) => xAt(x.values[at]!), (at) => yAt(y.values[at]!), group)} />
        ))}
        {box && <rect class="box" x={Math.min(box.from.x, box.to.x)} y={Math.min(box.from.y, box.to.y)} width={Math.abs(box.to.x - box.from.x)} height={Math.abs(box.to.y - box.from.y)} />}
      </svg>
    </div>
  );
}

function positionsOf(x: Axis, y: Axis, partOf: (at: number) => number): number[] {
  const positions: number[] = [];
  for (let at = 0; at < x.values.length; at++) if (x.values[at] !== null && (y.values[at] ?? null) !== null && partOf(at) >= 0) positions.push(at);
  return positions;
}

function endsOf(axis: Axis, positions: number[]): [number, number] {
  let least = Infinity, most = -Infinity;
  for (const at of positions) {
    least = Math.min(least, axis.values[at]!);
    most = Math.max(most, axis.values[at]!);
  }
  return [least > 0 && least < most / 2 ? 0 : least, most];
}

/** The marks of a group in one path: lines without length, whose caps are circles or squares, or diamonds. */
function marksOf(positions: number[], x: (at: number) => number, y: (at: number) => number, group: (typeof GROUPS)[number]): string {
  const places = new Set(positions.map((at) => `M${Math.round(x(at))} ${Math.round(y(at))}`)); // those on the same pixel once
  const mark = group === "other" ? "m-4 0l4-4 4 4-4 4z" : "h0";
  return [...places].map((place) => place + mark).join("");
}

function nearest(positions: number[], x: (at: number) => number, y: (at: number) => number, to: Point): number | null {
  let best: number | null = null, least = NEAR ** 2;
  for (const at of positions) {
    const distance = (x(at) - to.x) ** 2 + (y(at) - to.y) ** 2;
    if (distance < least) [least, best] = [distance, at];
  }
  return best;
}

function valueAt(place: number, begin: number, end: number, [least, most]: [number, number]): number {
  return least + ((place - begin) / (end - begin)) * (most - least);
}

function bound(term: string, low: number, high: number): string[] {
  return [`${term}>=${plain(Number(low.toPrecision(3)))}`, `${term}<=${plain(Number(high.toPrecision(3)))}`];
}

function placeOf(event: PointerEvent & { currentTarget: Element }): Point {
  const { left, top } = event.currentTarget.getBoundingClientRect();
  return { x: event.clientX - left, y: event.clientY - top };
}

function useWidth(holder: { current: HTMLElement | null }): number {
  const [width, setWidth] = useState(320);
  useEffect(() => {
    const observer = new ResizeObserver(() => setWidth(holder.current!.clientWidth));
    observer.observe(holder.current!);
    return () => observer.disconnect();
  }, []);
  return width;
}
