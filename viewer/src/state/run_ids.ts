// The names of runs, as everywhere in the project ("row3-run1", "row3-run1-baseline"), and their positions.
import type { Outcome, RunPage } from "../shapes";

const NAME = /^row(\d+)-run(\d+)(-baseline)?$/;

/** The name of the run at a position of `RunPage.runs`. */
export function runId(page: RunPage, at: number): string {
  const { row, run, model } = page.runs;
  return `row${page.rows.index[row[at]]}-run${run[at]}${model[at] > 0 ? "-baseline" : ""}`;
}

/** The position of the run with a name in `RunPage.runs`; -1 if there is none. */
export function positionOf(page: RunPage, id: string): number {
  const match = NAME.exec(id);
  if (!match) return -1;
  const row = page.rows.index.indexOf(Number(match[1]));
  if (row < 0) return -1;
  const layout = gridLayout(page);
  const column = layout.columns.findIndex((each) => each.run === Number(match[2]) && each.model > 0 === !!match[3]);
  return column < 0 ? -1 : layout.cells[row * layout.columns.length + column];
}

export interface GridColumn {
  model: number;
  run: number;
}

/** The grid of rows x runs. `cells` holds positions in `RunPage.runs`, -1 where there is no run, row by row. */
export interface GridLayout {
  columns: GridColumn[];
  cells: Int32Array;
}

const layouts = new WeakMap<RunPage, GridLayout>();

/** The layout of a page's grid, made once. */
export function gridLayout(page: RunPage): GridLayout {
  const known = layouts.get(page);
  if (known) return known;
  const { row, run, model } = page.runs;
  const widths: number[] = [];
  for (let at = 0; at < row.length; at++) widths[model[at]] = Math.max(widths[model[at]] ?? 0, run[at] + 1);
  const begins: number[] = [];
  const columns: GridColumn[] = [];
  for (let each = 0; each < widths.length; each++) {
    begins[each] = columns.length;
    for (let index = 0; index < (widths[each] ?? 0); index++) columns.push({ model: each, run: index });
  }
  const cells = new Int32Array(page.rows.index.length * columns.length).fill(-1);
  for (let at = 0; at < row.length; at++) cells[row[at] * columns.length + begins[model[at]] + run[at]] = at;
  const layout = { columns, cells };
  layouts.set(page, layout);
  return layout;
}

/** What became of the run at a position. */
export function outcomeOf(page: RunPage, at: number): Outcome {
  return page.head.outcomes[page.runs.outcome[at]];
}
