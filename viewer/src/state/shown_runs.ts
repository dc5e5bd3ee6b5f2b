// The runs that the grid shows, in its order: what "the next failure" and "the next row" mean everywhere.
import { signal } from "@preact/signals";
import type { RunPage } from "../shapes";
import { go, route } from "./route";
import { gridLayout, outcomeOf, runId } from "./run_ids";

export interface ShownRuns {
  /** Positions in `RunPage.rows`, in the order of the grid. */
  rows: ArrayLike<number>;
  /** By position in `RunPage.runs`: 1 if the query holds for the run. */
  holds: Uint8Array;
}

/** Null until a grid has been laid out. */
export const shownRuns = signal<ShownRuns | null>(null);

/** Open a run of this page. A step from one to another replaces the address, so that Back closes what is open. */
export function openRun(page: RunPage, at: number): void {
  const { view, query } = route.value;
  go({ name: "run", run: page.head.row.name, id: runId(page, at) }, query, view.name === "run" && view.id !== null);
}

export function closeRun(page: RunPage): void {
  go({ name: "run", run: page.head.row.name, id: null }, route.value.query);
}

/** The runs of the same row, in the order of the grid: by model, then index. */
export function siblings(page: RunPage, at: number): number[] {
  const { columns, cells } = gridLayout(page);
  const begin = page.runs.row[at] * columns.length;
  return Array.from(cells.subarray(begin, begin + columns.length)).filter((each) => each >= 0);
}

/** The run `step` places before or after one in its row; null at the end of the row. */
export function sibling(page: RunPage, at: number, step: 1 | -1): number | null {
  const all = siblings(page, at);
  return all[all.indexOf(at) + step] ?? null;
}

/** The run of the next or previous shown row, in the same column if it is there; null after the last. */
export function nextRow(page: RunPage, at: number, step: 1 | -1): number | null {
  const { columns, cells } = gridLayout(page);
  const { rows } = shown(page);
  const column = columnOf(page, at);
  for (let place = placeOf(rows, page.runs.row[at]) + step; place >= 0 && place < rows.length; place += step) {
    const begin = rows[place] * columns.length;
    if (cells[begin + column] >= 0) return cells[begin + column];
    const other = cells.subarray(begin, begin + columns.length).find((each) => each >= 0);
    if (other !== undefined) return other;
  }
  return null;
}

/** The next or previous shown run that did not pass or was not measured; null after the last. */
export function nextFailure(page: RunPage, at: number | null, step: 1 | -1): number | null {
  const { columns, cells } = gridLayout(page);
  const { rows, holds } = shown(page);
  const wide = columns.length;
  const last = rows.length * wide;
  const row = at === null ? -1 : placeOf(rows, page.runs.row[at]);
  let place = at === null || row < 0 ? (step > 0 ? -1 : last) : row * wide + columnOf(page, at);
  for (place += step; place >= 0 && place < last; place += step) {
    const each = cells[rows[Math.floor(place / wide)] * wide + (place % wide)];
    if (each >= 0 && holds[each] && isLost(page, each)) return each;
  }
  return null;
}

/** True for a run that failed or was not measured. */
export function isLost(page: RunPage, at: number): boolean {
  const outcome = outcomeOf(page, at);
  return outcome === "failed" || outcome === "unmeasured";
}

function shown(page: RunPage): ShownRuns {
  return shownRuns.value ?? { rows: page.rows.index.map((_, row) => row), holds: new Uint8Array(page.runs.row.length).fill(1) };
}

function columnOf(page: RunPage, at: number): number {
  return gridLayout(page).columns.findIndex((each) => each.model === page.runs.model[at] && each.run === page.runs.run[at]);
}

/** The place of a row in the grid; -1 if the query hides it. */
function placeOf(rows: ArrayLike<number>, row: number): number {
  return Array.prototype.indexOf.call(rows, row);
}
