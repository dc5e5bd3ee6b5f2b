// A row of the grid: its prompt, a cell a run, and how many runs passed.
import { score as scoreText } from "../../format";
import { countsOf } from "../../query/order";
import type { Outcome, RunPage } from "../../shapes";
import { route, runAddress } from "../../state/route";
import { gridLayout, outcomeOf, runId } from "../../state/run_ids";
import { memo } from "../../ui/memo";
import { GRID_GLYPHS } from "../../ui/outcome";
import { escaped } from "../conversation/escapes";
import { type GridSizes, ROW_PX } from "./sizes";

interface RowProps {
  page: RunPage;
  row: number;
  place: number;
  sizes: GridSizes;
  fn: string;
  holds: Uint8Array;
  /** The run that is open, and the one that Tab leads to, if they are in this row. */
  open: number | null;
  current: number | null;
  onOpen(at: number): void;
}

export const GridRow = memo(function GridRow({ page, row, place, sizes, fn, holds, open, current, onOpen }: RowProps) {
  const { columns, cells } = gridLayout(page);
  const own = cells.subarray(row * columns.length, (row + 1) * columns.length);
  const { passed, failed } = countsOf(page, row);
  const first = own.find((at) => at >= 0 && holds[at] === 1);
  const isKnown = own.some((at) => at >= 0 && !["pending", "running"].includes(outcomeOf(page, at)));
  const prompt = escaped(page.rows.prompt[row]);
  return (
    <div class={`grid-line grid-row${open !== null ? " grid-row-open" : ""}`} role="row" aria-rowindex={place + 1 + sizes.headRows(page)}
      style={{ transform: `translateY(${place * ROW_PX}px)` }}>
      <div class="grid-prompt" role="rowheader" aria-colindex={1} title={prompt} onClick={() => first !== undefined && onOpen(first)}>
        <span class="grid-index">{page.rows.index[row]}</span> <span class="grid-text">{prompt || (isKnown ? "(no prompt)" : "(not rolled out)")}</span>
      </div>
      {Array.from(own, (at, column) => (
        <div key={column} role="gridcell" aria-colindex={column + 2} aria-selected={at >= 0 && at === open}>
          {at >= 0 && <Cell page={page} at={at} sizes={sizes} fn={fn} holds={holds[at] === 1} isCurrent={at === current} isOpen={at === open} onOpen={onOpen} />}
        </div>
      ))}
      <div class="grid-tally number" role="gridcell" aria-colindex={columns.length + 2}>
        {passed + failed ? `${passed}/${passed + failed}` : "-"}
      </div>
    </div>
  );
});

interface CellProps {
  page: RunPage;
  at: number;
  sizes: GridSizes;
  fn: string;
  holds: boolean;
  isCurrent: boolean;
  isOpen: boolean;
  onOpen(at: number): void;
}

function Cell({ page, at, sizes, fn, holds, isCurrent, isOpen, onOpen }: CellProps) {
  const outcome = outcomeOf(page, at);
  const id = runId(page, at);
  const text = cellText(page, at, outcome, fn);
  const open = (event: MouseEvent) => {
    if (event.ctrlKey || event.metaKey || event.shiftKey || event.button !== 0) return;
    event.preventDefault();
    onOpen(at);
  };
  return (
    <a class={`cell cell-${outcome}${holds ? "" : " cell-other"}${isOpen ? " cell-open" : ""}`} tabIndex={isCurrent ? 0 : -1}
      href={runAddress(page.head.row.name, id, route.value.query)} onClick={open}
      aria-label={`${id}: ${outcome}${text && text !== outcome ? `, ${text}` : ""}`} aria-current={isOpen ? "true" : undefined}
      title={titleOf(page, at, `${id}: ${outcome}`)}>
      <span class="cell-glyph" aria-hidden="true">{GRID_GLYPHS[outcome]}</span>
      {sizes.cell !== "slim" && text !== "1.000" && <span class="cell-text">{text}</span>}
    </a>
  );
}

/** The score, or where the run broke, or else what became of it. */
function cellText(page: RunPage, at: number, outcome: Outcome, fn: string): string {
  const value = fn === "" ? decidingScore(page, at, outcome) : page.runs.scores[fn]?.[at];
  if (value !== null && value !== undefined) return scoreText(value);
  const boundary = page.runs.boundary[at];
  return boundary >= 0 ? page.head.boundaries[boundary] : outcome;
}

/** Of several functions that decide, the score of the first that made the run pass, or fail. */
function decidingScore(page: RunPage, at: number, outcome: Outcome): number | null {
  for (const { name, model, threshold, decides } of page.head.functions) {
    const value = page.runs.scores[name]?.[at];
    if (decides && model === page.runs.model[at] && value !== null && value !== undefined && value >= threshold === (outcome === "passed")) return value;
  }
  return null;
}

/** A line for each score, and one for the error, where the pointer rests. */
function titleOf(page: RunPage, at: number, name: string): string {
  const error = page.runs.error[at];
  const scores = Object.entries(page.runs.scores).flatMap(([fn, values]) => (values[at] === null ? [] : [`${fn}: ${scoreText(values[at])}`]));
  return [name, ...scores, ...(error >= 0 ? [escaped(page.head.errors[error])] : [])].join("\n");
}
