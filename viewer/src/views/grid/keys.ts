// The keys of the grid, which also lead from one open conversation to another.
import type { RefObject } from "preact";
import type { RunPage } from "../../shapes";
import { useKeys } from "../../state/keys";
import { nextFailure, nextRow, sibling } from "../../state/shown_runs";
import { firstRun } from "../grid";

interface GridKeys {
  page: RunPage;
  rows: ArrayLike<number>;
  places: Int32Array;
  /** The run that was visited last, if it is shown. */
  cursor: number | null;
  open: number | null;
  scroller: RefObject<HTMLElement>;
  /** Rows in sight. */
  visible: number;
  /** Lead to a run: open it if one is open, else put the focus on its cell. */
  go(at: number): void;
  select(at: number): void;
  close(): void;
}

export function useGridKeys({ page, rows, places, cursor, open, scroller, visible, go, select, close }: GridKeys): void {
  const lead = (at: number | null): void | false => {
    if (at === null) return;
    go(at);
  };
  const first = () => firstRun(page, rows[0]);
  const row = (step: 1 | -1) => (cursor === null ? first() : nextRow(page, cursor, step));
  const run = (step: 1 | -1) => (cursor === null ? first() : sibling(page, cursor, step));
  const rowAt = (place: number) => firstRun(page, rows[Math.max(0, Math.min(rows.length - 1, place))]);
  const place = cursor === null ? 0 : places[page.runs.row[cursor]];
  const page_ = Math.max(1, visible - 2);
  /** The run that Tab led to, if none was visited. */
  const from = cursor ?? first();
  /** Inside the grid, these keys move within it; elsewhere they scroll. */
  const inGrid = (at: () => number | null) => (scroller.current?.contains(document.activeElement) ? lead(at()) : false);
  useKeys("Runs", [
    { keys: ["j"], does: "next row", run: () => lead(row(1)) },
    { keys: ["k"], does: "row before", run: () => lead(row(-1)) },
    { keys: ["l"], does: "next run of the row", run: () => lead(run(1)) },
    { keys: ["h"], does: "run before, in the row", run: () => lead(run(-1)) },
    { keys: ["n"], does: "next run that did not pass", run: () => lead(nextFailure(page, cursor, 1)) },
    { keys: ["p"], does: "run before that did not pass", run: () => lead(nextFailure(page, cursor, -1)) },
    { keys: ["Enter"], does: "open the run", run: () => (cursor === null || open !== null ? false : select(cursor)) },
    { keys: ["Escape"], does: "close the run", run: () => (open === null ? false : close()) },
    { keys: ["ArrowDown"], does: "down, in the grid", run: () => inGrid(() => from !== null ? nextRow(page, from, 1) : null) },
    { keys: ["ArrowUp"], does: "up, in the grid", run: () => inGrid(() => from !== null ? nextRow(page, from, -1) : null) },
    { keys: ["ArrowRight"], does: "right, in the grid", run: () => inGrid(() => from !== null ? sibling(page, from, 1) : null) },
    { keys: ["ArrowLeft"], does: "left, in the grid", run: () => inGrid(() => from !== null ? sibling(page, from, -1) : null) },
    { keys: ["PageDown"], does: "down by a page, in the grid", run: () => inGrid(() => rowAt(place + page_)) },
    { keys: ["PageUp"], does: "up by a page, in the grid", run: () => inGrid(() => rowAt(place - page_)) },
    { keys: ["Home"], does: "first row, in the grid", run: () => inGrid(() => rowAt(0)) },
    { keys: ["End"], does: "last row, in the grid", run: () => inGrid(() => rowAt(rows.length - 1)) },
  ]);
}
