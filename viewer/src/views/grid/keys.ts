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
  const aPage = Math.max(1, visible - 2);
  /** The run that Tab led to, if none was visited. */
  const from = cursor ?? first();
  /** Inside the grid, these keys move within it; elsewhere they scroll. */
  const inGrid = (at: () => number | null) => (scroller.current?.contains(document.activeElement) ? lead(at()) : false);
  const moves: Record<string, () => number | null> = {
    ArrowDown: () => from !== null ? nextRow(page, from, 1) : null,
    ArrowUp: () => from !== null ? nextRow(page, from, -1) : null,
    ArrowRight: () => from !== null ? sibling(page, from, 1) : null,
    ArrowLeft: () => from !== null ? sibling(page, from, -1) : null,
  };
  const jumps: Record<string, () => number | null> = {
    PageDown: () => rowAt(place + aPage), PageUp: () => rowAt(place - aPage), Home: () => rowAt(0), End: () => rowAt(rows.length - 1),
  };
  useKeys("Runs", [
    { keys: ["j"], does: "next row", run: () => lead(row(1)) },
    { keys: ["k"], does: "previous row", run: () => lead(row(-1)) },
    { keys: ["l"], does: "next run of the row", run: () => lead(run(1)) },
    { keys: ["h"], does: "previous run of the row", run: () => lead(run(-1)) },
    { keys: ["n"], does: "next run that did not pass", run: () => lead(nextFailure(page, cursor, 1)) },
    { keys: ["p"], does: "previous run that did not pass", run: () => lead(nextFailure(page, cursor, -1)) },
    { keys: ["Enter"], does: "open the run", run: () => (cursor === null || open !== null ? false : select(cursor)) },
    { keys: ["Escape"], does: "close the run", run: () => (open === null ? false : close()) },
    { keys: Object.keys(moves), does: "move in the grid", run: (event) => inGrid(moves[event.key]) },
    { keys: Object.keys(jumps), does: "by a page, or to an end", run: (event) => inGrid(jumps[event.key]) },
  ]);
}
