// Addresses of the runs that a chart counts: queries of the grid.
import type { RunPage } from "../shapes";
import { route, runAddress } from "../state/route";

/** The address of this eval run with a query in its grid. */
export function linkToRuns(page: RunPage, query: string): string {
  const next = new URLSearchParams(route.value.query);
  next.delete("tab");
  next.set("q", query);
  return runAddress(page.head.row.name, null, next);
}

export function rangeOf(name: string, low: number, high: number | null): string {
  if (high === low) return `${name}=${low}`;
  return high === null ? `${name}>=${low}` : `${name}>=${low} ${name}<${high}`;
}

/** A name as the query language takes it. */
export function quoted(name: string): string {
  return /^[\w.-]+$/.test(name) ? name : `"${name}"`;
}
