// The pages of both eval runs, and the runs of a row that tell of its change.
import type { ComparisonPage, RunPage } from "../../shapes";
import { source } from "../../source/source";
import { type Page, usePage } from "../../state/page";
import { gridLayout, outcomeOf } from "../../state/run_ids";
import type { KeyedRow } from "./row_keys";

export type BothRuns = [RunPage, RunPage];

export function useRuns({ a, b }: ComparisonPage): Page<BothRuns> {
  return usePage(() => Promise.all([source().run(a.name), source().run(b.name)]), [a.name, b.name]);
}

/** For each side the positions of the row's runs, and of the one that tells of the change. */
export function tellingRuns(a: RunPage, b: RunPage, row: KeyedRow): [number[], number | undefined][] {
  const runsA = runsOf(a, row.a_row), runsB = runsOf(b, row.b_row);
  return [[runsA, telling(a, runsA, row.change !== "better")], [runsB, telling(b, runsB, row.change === "better")]];
}

/** The positions of the runs of a row by the eval's own model. */
function runsOf(page: RunPage, index: number): number[] {
  const row = page.rows.index.indexOf(index);
  if (row < 0) return [];
  const { columns, cells } = gridLayout(page);
  return columns.flatMap((column, at) => (column.model === 0 ? [cells[row * columns.length + at]] : [])).filter((at) => at >= 0);
}

/** The first run that tells of the change: one that passed or one that failed; else the first that is measured. */
function telling(page: RunPage, runs: number[], passed: boolean): number | undefined {
  const outcome = (at: number) => outcomeOf(page, at);
  return runs.find((at) => outcome(at) === (passed ? "passed" : "failed"))
    ?? runs.find((at) => ["passed", "failed"].includes(outcome(at))) ?? runs[0];
}
