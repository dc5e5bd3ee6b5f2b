// How wide the grid's columns are, for the room that there is.
import type { RunPage } from "../../shapes";

export const ROW_PX = 34;
const HEAD_PX = 30;
const PROMPT_PX = 240;
const NARROW_PROMPT_PX = 136;
const TALLY_PX = 62;
const LETTER_PX = 7;

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

/** `longest` is the width of the longest prompt, in letters. */
export function gridSizes(width: number, nColumns: number, longest: number): GridSizes {
  const isNarrow = width < 640;
  const promptPx = isNarrow ? NARROW_PROMPT_PX : PROMPT_PX;
  const mostPx = Math.max(promptPx, 56 + LETTER_PX * longest);
  const room = (width - promptPx - TALLY_PX) / Math.max(1, nColumns);
  const cell = isNarrow && nColumns > 1 ? "slim" : room >= WIDE_PX ? "wide" : nColumns <= 8 || room >= MIDDLE_PX ? "middle" : "slim";
  const cellPx = { wide: WIDE_PX, middle: MIDDLE_PX, slim: SLIM_PX }[cell];
  const headRows = (page: RunPage) => (page.head.models.length > 1 ? 2 : 1);
  return {
    cell,
    headRows,
    headPx: (page) => HEAD_PX * headRows(page),
    edges: (column) => {
      const promptsPx = Math.min(mostPx, Math.max(promptPx, width - nColumns * cellPx - TALLY_PX));
      return [column * cellPx, promptsPx + (column + 1) * cellPx];
    },
    style: {
      "--cols": `minmax(${promptPx}px, ${mostPx}px) repeat(${nColumns}, ${cellPx}px) ${TALLY_PX}px`,
      "--wide": `${promptPx + nColumns * cellPx + TALLY_PX}px`,
      "--tall": `${ROW_PX}px`,
      "--head": `${HEAD_PX}px`,
    },
  };
}
