// How wide the grid's columns are, for the room that there is.
import type { RunPage } from "../../shapes";

export const ROW_PX = 34;
const HEAD_PX = 30;
const PROMPT_PX = 240;
const NARROW_PROMPT_PX = 136;
const TALLY_PX = 62;

/** Cells with a score or a boundary; with a score; with a glyph. */
const WIDE_PX = 92;
const MIDDLE_PX = 70;
const SLIM_PX = 28;

export interface GridSizes {
  cell: "wide" | "middle" | "slim";
  headRows(page: RunPage): number;
  headPx(page: RunPage): number;
  /** The places to scroll to so that a column is in sight, beside the prompts and whole. */
  edges(column: number): [left: number, right: number];
  style: Record<string, string>;
}

export function gridSizes(width: number, nColumns: number): GridSizes {
  const promptPx = width < 640 ? NARROW_PROMPT_PX : PROMPT_PX;
  const room = (width - promptPx - TALLY_PX) / Math.max(1, nColumns);
  const cell = room >= WIDE_PX ? "wide" : nColumns <= 8 || room >= MIDDLE_PX ? "middle" : "slim";
  const cellPx = { wide: WIDE_PX, middle: MIDDLE_PX, slim: SLIM_PX }[cell];
  const headRows = (page: RunPage) => (page.head.models.length > 1 ? 2 : 1);
  return {
    cell,
    headRows,
    headPx: (page) => HEAD_PX * headRows(page),
    edges: (column) => {
      const promptsPx = Math.max(promptPx, width - nColumns * cellPx - TALLY_PX);
      return [column * cellPx, promptsPx + (column + 1) * cellPx];
    },
    style: {
      "--grid-columns": `minmax(${promptPx}px, 1fr) repeat(${nColumns}, ${cellPx}px) ${TALLY_PX}px`,
      "--grid-width": `${promptPx + nColumns * cellPx + TALLY_PX}px`,
      "--grid-row": `${ROW_PX}px`,
      "--grid-head": `${HEAD_PX}px`,
    },
  };
}
