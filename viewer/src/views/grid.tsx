// The grid of an eval run: rows x runs. Only the rows in sight are in the document, so that any number is smooth.
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import type { RunPage } from "../shapes";
import { gridLayout } from "../state/run_ids";
import type { RunQuery } from "../state/run_query";
import { closeRun, openRun } from "../state/shown_runs";
import { GridHead } from "./grid/head";
import { useGridKeys } from "./grid/keys";
import { GridRow } from "./grid/row";
import { gridSizes, ROW_PX } from "./grid/sizes";
import { rowsInSight, useWidth, useWindow } from "./grid/window";

interface GridProps {
  page: RunPage;
  shown: RunQuery;
  /** The run whose conversation is open. */
  open: number | null;
  /** False while the conversation takes the grid's place. */
  isVisible: boolean;
}

export function Grid({ page, shown, open, isVisible }: GridProps) {
  const layout = gridLayout(page);
  const scroller = useRef<HTMLDivElement>(null);
  const [visited, setVisited] = useState<number | null>(open);
  const width = useWidth(scroller);
  const longest = useMemo(() => page.rows.prompt.reduce((most, each) => Math.max(most, each.replace(/[^\0-\u024f]/g, "--").length), 0), [page.rows]);
  const sizes = useMemo(() => gridSizes(width, layout.columns.length, longest), [width, layout, longest]);
  const places = useMemo(() => placesOf(shown.rows, page.rows.index.length), [shown.rows, page.rows]);
  const at = open ?? visited;
  const cursor = at !== null && places[page.runs.row[at]] >= 0 ? at : null;
  const tabStop = cursor ?? firstRun(page, shown.rows[0]);
  const view = useWindow(scroller, shown.rows.length);
  const wantsFocus = useRef(false);

  const reveal = (run: number) => {
    const frame = scroller.current;
    const top = places[page.runs.row[run]] * ROW_PX;
    if (!frame || top < 0) return;
    const room = frame.clientHeight - sizes.headPx(page);
    if (top < frame.scrollTop) frame.scrollTop = top;
    else if (top + ROW_PX > frame.scrollTop + room) frame.scrollTop = top + ROW_PX - room;
    const column = page.runs.row[run] * layout.columns.length;
    const [left, right] = sizes.edges(layout.cells.subarray(column, column + layout.columns.length).indexOf(run));
    if (right <= frame.clientWidth) frame.scrollLeft = 0;
    else if (left < frame.scrollLeft) frame.scrollLeft = left;
    else if (right > frame.scrollLeft + frame.clientWidth) frame.scrollLeft = right - frame.clientWidth;
  };
  const focus = (run: number) => {
    setVisited(run);
    reveal(run);
    wantsFocus.current = true;
  };
  const select = useStable((run: number) => {
    setVisited(run);
    openRun(page, run);
  });
  const close = () => {
    if (open !== null) focus(open);
    closeRun(page);
  };

  useEffect(() => { if (open !== null) setVisited(open); }, [open]);
  useLayoutEffect(() => { if (open !== null && isVisible) reveal(open); }, [open, isVisible, places, sizes]);
  useLayoutEffect(() => { if (scroller.current && open === null) scroller.current.scrollTop = 0; }, [shown.order, shown.text]);
  useLayoutEffect(() => {
    if (!wantsFocus.current || !isVisible) return;
    wantsFocus.current = false;
    scroller.current?.querySelector<HTMLElement>('a[tabindex="0"]')?.focus({ preventScroll: true });
  });
  useGridKeys({ page, rows: shown.rows, places, cursor, open, scroller, visible: view.visible, go: open === null ? focus : select, select, close });

  const headRows = sizes.headRows(page);
  return (
    <div class={`grid grid-${sizes.cell}`} ref={scroller} role="grid" aria-label="Runs, by row" aria-rowcount={shown.rows.length + headRows}
      aria-colcount={layout.columns.length + 2} style={sizes.style}>
      <GridHead page={page} sizes={sizes} />
      <div class="grid-body" role="rowgroup" style={{ height: `${shown.rows.length * ROW_PX}px` }}>
        {rowsInSight(view, shown.rows.length, tabStop === null ? null : places[page.runs.row[tabStop]]).map((place) => {
          const row = shown.rows[place];
          const own = (run: number | null) => (run !== null && page.runs.row[run] === row ? run : null);
          return (
            <GridRow key={row} page={page} row={row} place={place} sizes={sizes} fn={shown.fn} holds={shown.holds}
              open={own(open)} current={own(tabStop)} onOpen={select} />
          );
        })}
      </div>
    </div>
  );
}

/** The places of all rows in the grid, -1 for those that are not shown. */
function placesOf(rows: ArrayLike<number>, nRows: number): Int32Array {
  const places = new Int32Array(nRows).fill(-1);
  for (let place = 0; place < rows.length; place++) places[rows[place]] = place;
  return places;
}

export function firstRun(page: RunPage, row: number | undefined): number | null {
  if (row === undefined) return null;
  const { columns, cells } = gridLayout(page);
  return cells.subarray(row * columns.length, (row + 1) * columns.length).find((at) => at >= 0) ?? null;
}

/** A function that stays the same object, and does what its latest version does. */
function useStable(latest: (run: number) => void): (run: number) => void {
  const held = useRef(latest);
  held.current = latest;
  return useMemo(() => (run: number) => held.current(run), []);
}
