// Each run as a point, by two of its numbers. A click opens the run.
import { useEffect, useRef, useState } from "preact/hooks";
import uPlot from "uplot";
import type { RunPage } from "../shapes";
import { count, duration, money, plain } from "../format";
import { go } from "../state/route";
import { runId } from "../state/run_ids";
import { isDark, theme } from "../state/theme";
import { Choice } from "../ui/choice";

interface Axis {
  name: string;
  values: ArrayLike<number | null>;
  text(value: number): string;
}

const GROUPS = ["passed", "failed", "unmeasured"] as const;
const HEIGHT = 240;
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
        <span class="muted figure-note">click a point to open its run</span>
      </figcaption>
      <Points page={page} x={x} y={y} partOf={partOf} />
      <p class="legend">
        <span><i class="swatch swatch-round part-passed" />passed</span>
        <span><i class="swatch swatch-solid part-failed" />failed</span>
        <span><i class="swatch swatch-solid swatch-diamond part-other" />not measured or removed</span>
      </p>
    </figure>
  );
}

function axesOf({ head, runs }: RunPage): Axis[] {
  const all: Axis[] = [
    { name: "latency", values: runs.duration_ms, text: duration },
    { name: "tokens", values: runs.tokens, text: count },
    { name: "cost", values: runs.cost_usd, text: money },
    { name: "turns", values: runs.turns, text: plain },
    ...[...new Set(head.functions.map((each) => each.name))].map((name) => ({ name, values: runs.scores[name] ?? [], text: plain })),
    ...Object.entries(runs.metrics).map(([name, values]) => ({ name, values, text: plain })),
  ];
  return all.filter((axis) => Array.prototype.some.call(axis.values, (value: number | null) => value));
}

function Points({ page, x, y, partOf }: { page: RunPage; x: Axis; y: Axis; partOf(at: number): number }) {
  const frame = useRef<HTMLDivElement>(null);
  useEffect(() => {
    const { data, positions } = dataOf(x, y, partOf);
    if (!data[0].length) return;
    const plot = new uPlot(optionsOf(frame.current!, x, y, (at) => go({ name: "run", run: page.head.row.name, id: runId(page, positions[at]) })), data, frame.current!);
    const observer = new ResizeObserver(() => plot.setSize({ width: frame.current!.clientWidth, height: HEIGHT }));
    observer.observe(frame.current!);
    return () => {
      observer.disconnect();
      plot.destroy();
    };
  }, [page.runs, x.name, y.name, theme.value, isDark()]);
  return <div ref={frame} class="scatter" aria-hidden="true" />;
}

/** Points by x, which uPlot needs sorted, with a list of y for each group. */
function dataOf(x: Axis, y: Axis, partOf: (at: number) => number): { data: uPlot.AlignedData; positions: number[] } {
  const positions: number[] = [];
  for (let at = 0; at < x.values.length; at++) if (x.values[at] !== null && (y.values[at] ?? null) !== null && partOf(at) >= 0) positions.push(at);
  positions.sort((one, other) => x.values[one]! - x.values[other]!);
  const groups = GROUPS.map((_, group) => positions.map((at) => (partOf(at) === group ? y.values[at]! : null)));
  return { data: [positions.map((at) => x.values[at]!), ...groups], positions };
}

function optionsOf(frame: HTMLElement, x: Axis, y: Axis, open: (at: number) => void): uPlot.Options {
  const style = getComputedStyle(frame);
  const colour = (name: string) => style.getPropertyValue(name).trim();
  const axis = (text: (value: number) => string, size: number): uPlot.Axis => ({
    stroke: colour("--muted"), grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line"), width: 1 }, size,
    font: `11px ${style.fontFamily}`, values: (_, values) => values.map((value) => (value === null ? "" : text(value))),
  });
  const colours = [colour("--passed"), colour("--failed"), colour("--unmeasured")];
  return {
    width: frame.clientWidth,
    height: HEIGHT,
    legend: { show: false },
    cursor: { drag: { x: true, y: true, uni: 20 }, points: { show: false } },
    scales: { x: { time: false }, y: {} },
    axes: [{ ...axis(x.text, 28), space: 70 }, axis(y.text, 62)],
    series: [{}, ...GROUPS.map((name, group): uPlot.Series => ({ label: name, stroke: colours[group], paths: () => null, points: { show: true, paths: shapes(group), stroke: colours[group], fill: colours[group], size: 5 } }))],
    hooks: {
      ready: [(plot) => {
        let pressed = { x: 0, y: 0 };
        plot.over.addEventListener("mousedown", (event) => { pressed = { x: event.offsetX, y: event.offsetY }; });
        plot.over.addEventListener("click", (event) => {
          if (Math.hypot(event.offsetX - pressed.x, event.offsetY - pressed.y) > 4) return; // the end of a drag, which zooms
          const at = nearest(plot, event.offsetX, event.offsetY);
          if (at !== null) open(at);
        });
      }],
    },
  };
}

/** Points of a group: circles, squares or diamonds. */
function shapes(group: number): uPlot.Series.Points.PathBuilder {
  const draw = (plot: uPlot, series: number, first: number, last: number): uPlot.Series.Points.Paths => {
    const path = new Path2D();
    const size = 2.5 * devicePixelRatio;
    const values = plot.data[series] as (number | null)[];
    for (let at = first; at <= last; at++) {
      const value = values[at];
      if (value === null || value === undefined) continue;
      const x = plot.valToPos(plot.data[0][at], "x", true), y = plot.valToPos(value, "y", true);
      if (group === 0) {
        path.moveTo(x + size, y);
        path.arc(x, y, size, 0, 2 * Math.PI);
      } else if (group === 1) path.rect(x - size, y - size, 2 * size, 2 * size);
      else {
        path.moveTo(x, y - 1.5 * size);
        path.lineTo(x + 1.5 * size, y);
        path.lineTo(x, y + 1.5 * size);
        path.lineTo(x - 1.5 * size, y);
        path.closePath();
      }
    }
    return { stroke: path, fill: path, clip: null, flags: 3 };
  };
  return draw as uPlot.Series.Points.PathBuilder;
}

function nearest(plot: uPlot, left: number, top: number): number | null {
  let best: number | null = null, least = NEAR ** 2;
  for (let at = 0; at < plot.data[0].length; at++)
    for (let series = 1; series < plot.data.length; series++) {
      const value = plot.data[series][at];
      if (value === null || value === undefined) continue;
      const distance = (plot.valToPos(plot.data[0][at], "x") - left) ** 2 + (plot.valToPos(value, "y") - top) ** 2;
      if (distance < least) [least, best] = [distance, at];
    }
  return best;
}
