// The rows of a comparison: their names in addresses, which are digests, and those that the address asks for.
import type { ComparedRow } from "../../shapes";

export interface KeyedRow extends ComparedRow {
  key: string;
}

const known = new WeakMap<ComparedRow[], KeyedRow[]>();

/** The rows with their keys: the digest, with "~1" for the second row that has it. */
export function keyedRows(rows: ComparedRow[]): KeyedRow[] {
  let keyed = known.get(rows);
  if (!keyed) {
    const places = rows.map((_, at) => at).sort((one, other) => rows[one].b_row - rows[other].b_row);
    const times = new Map<string, number>();
    const keys: string[] = [];
    for (const at of places) {
      const { digest } = rows[at];
      const time = times.get(digest) ?? 0;
      keys[at] = time ? `${digest}~${time}` : digest;
      times.set(digest, time + 1);
    }
    keyed = rows.map((row, at) => ({ ...row, key: keys[at] }));
    known.set(rows, keyed);
  }
  return keyed;
}

/** The row's name in both eval runs: "row3", or "row3 (A: row5)" if it moved. */
export function rowName(row: ComparedRow): string {
  return row.a_row === row.b_row ? `row${row.b_row}` : `row${row.b_row} (A: row${row.a_row})`;
}

/** Key "change" of the address: the rows that are shown. */
export type Shown = "changed" | "worse" | "better" | "same" | "unmeasured" | "all";
export const SHOWN: Shown[] = ["changed", "worse", "better", "same", "unmeasured", "all"];

export function isShown(row: ComparedRow, shown: Shown): boolean {
  return shown === "all" || shown === row.change || (shown === "changed" && (row.change === "worse" || row.change === "better"));
}

/** The rows that are shown without a filter: those that changed, or all if none did. */
export function shownOf(value: string | null, rows: ComparedRow[]): Shown {
  if (SHOWN.includes(value as Shown)) return value as Shown;
  return rows.some((row) => isShown(row, "changed")) ? "changed" : "all";
}

/** The rows that the address asks for, in its order. */
export function listedRows(rows: KeyedRow[], query: URLSearchParams): KeyedRow[] {
  const shown = shownOf(query.get("change"), rows);
  const found = (query.get("q") ?? "").toLowerCase();
  const listed = rows.filter((row) => isShown(row, shown) && (!found || `${rowName(row)} ${row.prompt}`.toLowerCase().includes(found)));
  return query.get("sort") === "row" ? listed.sort((one, other) => one.b_row - other.b_row) : listed;
}
