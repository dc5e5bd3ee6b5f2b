// What the address of an eval run asks for: the query, the order, the function of which cells show the score.
import { useMemo } from "preact/hooks";
import type { RunPage } from "../shapes";
import { functionNames, type Query, parsedQuery } from "../query/parse";
import { holdingRuns } from "../query/match";
import { sortRows } from "../query/order";
import { hitsOf, searches, useSearches } from "../query/search";
import { route, setQuery } from "./route";
import { isGoingOn } from "./page";
import { gridLayout } from "./run_ids";
import { type ShownRuns, shownRuns } from "./shown_runs";

export interface RunQuery extends ShownRuns {
  text: string;
  query: Query;
  order: string;
  /** The function of which cells show the score; "" for the one that decided, if several do. */
  fn: string;
}

/** The runs that are shown, for the query and the order in the address. */
export function useRunQuery(page: RunPage): RunQuery {
  const address = route.value.query;
  const text = address.get("q") ?? "";
  const order = address.get("sort") ?? orderOf(page);
  const query = useMemo(() => parsedQuery(text, page), [text, page.head]);
  useSearches(page, query.terms.flatMap((term) => (term.kind === "text" ? [term.text] : [])));
  const found = searches.value;
  const holds = useMemo(() => holdingRuns(page, query.terms, hitsOf), [page.runs, page.head, query, found]);
  const rows = useMemo(() => sortRows(page, rowsOf(page, holds, query.terms.length > 0), order), [page.runs, holds, order]);
  const shown = useMemo(() => ({ rows, holds }), [rows, holds]);
  shownRuns.value = shown;
  return { ...shown, text, query, order, fn: shownFunction(page, address.get("score")) };
}

/** Failures first; while runs end, rows stay where they are. */
export function orderOf(page: RunPage): string {
  return isGoingOn(page.head.row) ? "index" : "worst";
}

/** The rows with a run for which the query holds; all of them without a query. */
function rowsOf(page: RunPage, holds: Uint8Array, isFiltered: boolean): number[] {
  const { columns, cells } = gridLayout(page);
  const wide = columns.length;
  const found: number[] = [];
  for (let row = 0; row < page.rows.index.length; row++) {
    let isShown = !isFiltered;
    for (let place = row * wide; !isShown && place < (row + 1) * wide; place++) isShown = cells[place] >= 0 && holds[cells[place]] === 1;
    if (isShown) found.push(row);
  }
  return found;
}

function shownFunction(page: RunPage, asked: string | null): string {
  const names = functionNames(page);
  if (asked !== null && names.includes(asked)) return asked;
  if (names.includes(page.head.results.config.decide)) return page.head.results.config.decide;
  return names.length > 1 ? "" : (names[0] ?? "");
}

/** Put a term into the query of the address, or take it out if it is there. */
export function toggleTerm(text: string, term: string): void {
  setQuery({ q: toggled(text, term) });
}

export function toggled(text: string, term: string): string {
  const parts = ` ${text} `;
  return (hasTerm(text, term) ? parts.replace(` ${term} `, " ") : `${parts} ${term}`).trim();
}

export function hasTerm(text: string, term: string): boolean {
  return ` ${text} `.includes(` ${term} `);
}
