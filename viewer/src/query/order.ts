// The orders of the grid's rows.
import type { RunPage } from "../shapes";
import { gridLayout, outcomeOf } from "../state/run_ids";
import { functionNames } from "./parse";

/** Orders by name, as the address has them. One by a function is "fn:NAME". */
export const ORDERS: Record<string, string> = {
  worst: "failures first",
  index: "dataset order",
  mixed: "mixed results first",
  cost: "most expensive first",
  latency: "slowest first",
  tokens: "most tokens first",
};

export function ordersOf(page: RunPage): [string, string][] {
  return [...Object.entries(ORDERS), ...functionNames(page).map((name): [string, string] => [`fn:${name}`, `lowest ${name} first`])];
}

/** Sort positions of rows, those that come first first; rows that are alike keep the dataset's order. */
export function sortRows(page: RunPage, rows: number[], order: string): number[] {
  const key = keyOf(page, order);
  if (!key) return rows;
  const keys = new Map(rows.map((row) => [row, key(row)]));
  return rows.sort((a, b) => keys.get(a)! - keys.get(b)! || a - b);
}

/** A number for each row, the smallest first. Rows of which the number is not known come last. */
function keyOf(page: RunPage, order: string): ((row: number) => number) | null {
  const { runs } = page;
  switch (order) {
    case "worst": return (row) => worst(page, row);
    case "mixed": return (row) => mixed(page, row);
    case "cost": return (row) => -largest(page, row, runs.cost_usd);
    case "latency": return (row) => -largest(page, row, runs.duration_ms);
    case "tokens": return (row) => -largest(page, row, runs.tokens);
  }
  const scores = order.startsWith("fn:") ? runs.scores[order.slice(3)] : undefined;
  return scores ? (row) => smallest(page, row, scores) : null;
}

interface Counts {
  passed: number;
  failed: number;
  unmeasured: number;
}

/** The outcomes of a row's runs by the eval's own model. */
export function countsOf(page: RunPage, row: number): Counts {
  const counts = { passed: 0, failed: 0, unmeasured: 0 };
  for (const at of runsOf(page, row)) {
    if (page.runs.model[at] > 0) continue;
    const outcome = outcomeOf(page, at);
    if (outcome in counts) counts[outcome as keyof Counts]++;
  }
  return counts;
}

export function runsOf(page: RunPage, row: number): number[] {
  const { columns, cells } = gridLayout(page);
  const found = [];
  for (let place = row * columns.length; place < (row + 1) * columns.length; place++) if (cells[place] >= 0) found.push(cells[place]);
  return found;
}

/** Rows with a smaller share of passed runs come first, of equal ones those with more failed runs. Unmeasured rows come before those that passed. */
function worst(page: RunPage, row: number): number {
  const { passed, failed, unmeasured } = countsOf(page, row);
  const measured = passed + failed;
  if (!measured) return unmeasured ? 0.9999 : 3;
  return passed / measured - failed / 1e6;
}

/** Rows with as many passed as failed runs come first. */
function mixed(page: RunPage, row: number): number {
  const { passed, failed } = countsOf(page, row);
  return -Math.min(passed, failed) / Math.max(1, passed + failed);
}

function largest(page: RunPage, row: number, values: ArrayLike<number | null>): number {
  return runsOf(page, row).reduce((found, at) => Math.max(found, values[at] ?? -1), -1);
}

function smallest(page: RunPage, row: number, values: ArrayLike<number | null>): number {
  return runsOf(page, row).reduce((found, at) => Math.min(found, values[at] ?? Infinity), Infinity);
}
