// The frame of a chart: its title, the drawing, and the same numbers as a table.
import type { ComponentChildren } from "preact";

export interface ChartTable {
  head: string[];
  rows: ComponentChildren[][];
}

interface FigureProps {
  title: ComponentChildren;
  /** What the drawing shows, in a sentence, for those who do not see it. */
  summary: string;
  note?: ComponentChildren;
  table: ChartTable;
  children: ComponentChildren;
  class?: string;
}

export function Figure({ title, summary, note, table, children, class: extra = "" }: FigureProps) {
  return (
    <figure class={`figure panel ${extra}`} aria-label={summary}>
      <figcaption><span class="figure-title">{title}</span>{note && <span class="muted figure-note">{note}</span>}</figcaption>
      {children}
      <details class="figure-table">
        <summary>Numbers</summary>
        <div class="figure-scroll" tabIndex={0} role="region" aria-label={`Numbers: ${summary}`}>
          <table>
            <thead><tr>{table.head.map((title) => <th key={title} scope="col">{title}</th>)}</tr></thead>
            <tbody>
              {table.rows.map((row, at) => (
                <tr key={at}>{row.map((cell, place) => (place ? <td key={place}>{cell}</td> : <th key={place} scope="row">{cell}</th>))}</tr>
              ))}
            </tbody>
          </table>
        </div>
      </details>
    </figure>
  );
}

export interface Frame {
  width: number;
  height: number;
  left: number;
  right: number;
  top: number;
  bottom: number;
}

/** The drawing's own units, which the page scales. */
export const FRAME: Frame = { width: 340, height: 150, left: 36, right: 10, top: 12, bottom: 22 };

/** Place numbers along an axis. */
export function across(least: number, most: number, { width, left, right }: Frame = FRAME): (value: number) => number {
  return (value) => left + ((value - least) / (most - least || 1)) * (width - left - right);
}

export function up(least: number, most: number, { height, top, bottom }: Frame = FRAME): (value: number) => number {
  return (value) => height - bottom - ((value - least) / (most - least || 1)) * (height - top - bottom);
}

interface AxesProps {
  x: (value: number) => number;
  y: (value: number) => number;
  xTicks: { at: number; text: string }[];
  yTicks: { at: number; text: string }[];
  frame?: Frame;
}

export function Axes({ x, y, xTicks, yTicks, frame = FRAME }: AxesProps) {
  const floor = frame.height - frame.bottom;
  return (
    <g aria-hidden="true">
      {yTicks.map(({ at, text }) => (
        <g key={at}>
          <line class="grid-line" x1={frame.left} x2={frame.width - frame.right} y1={y(at)} y2={y(at)} />
          <text x={frame.left - 5} y={y(at) + 3} text-anchor="end">{text}</text>
        </g>
      ))}
      {xTicks.map(({ at, text }) => <text key={at} x={x(at)} y={floor + 14} text-anchor="middle">{text}</text>)}
      <line class="axis-line" x1={frame.left} x2={frame.width - frame.right} y1={floor} y2={floor} />
    </g>
  );
}
