// A table that scrolls inside itself, with orders to choose by its heads.
import type { ComponentChildren } from "preact";
import { Glyph } from "./parts";

export interface Order<T> {
  /** Its name in the address, as in `?sort=cost`. */
  name: string;
  title: ComponentChildren;
  /** Rows are sorted by it; `first` is the order of the first click. Rows for which it gives null come last. */
  by?: (row: T) => number | string | null;
  first?: "up" | "down";
}

export interface Column<T> extends Order<T> {
  cell(row: T): ComponentChildren;
  isNumber?: boolean;
  /** Names each row for screen readers; one column of a table has it. */
  isHead?: boolean;
  /** Further orders, of a column whose cells say several things. */
  also?: Order<T>[];
  class?: string;
}

interface TableProps<T> {
  /** Says to screen readers what the table holds. */
  caption: string;
  columns: Column<T>[];
  rows: readonly T[];
  keyOf(row: T): string;
  /** The column's name, with "-" before it if the largest comes first. */
  sort?: string;
  onSort?(sort: string): void;
  isCurrent?(row: T): boolean;
}

export function Table<T>({ caption, columns, rows, keyOf, sort, onSort, isCurrent }: TableProps<T>) {
  return (
    <div class="table-frame cards" tabIndex={0} role="region" aria-label={caption}>
      {/* The roles are said because they are lost where a narrow page lays the rows out as cards. */}
      <table role="table">
        <caption class="visually-hidden">{caption}</caption>
        <thead role="rowgroup">
          <tr role="row">{columns.map((column) => <Head key={column.name} column={column} sort={sort} onSort={onSort} />)}</tr>
        </thead>
        <tbody role="rowgroup">
          {rows.map((row) => (
            <tr key={keyOf(row)} role="row" aria-current={isCurrent?.(row) ? "true" : undefined}>
              {columns.map((column) => column.isHead
                ? <th key={column.name} scope="row" role="rowheader" class={classOf(column)}>{column.cell(row)}</th>
                : <td key={column.name} role="cell" class={classOf(column)} data-title={typeof column.title === "string" ? column.title : undefined}>{column.cell(row)}</td>)}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function Head<T>({ column, sort, onSort }: { column: Column<T>; sort?: string; onSort?(sort: string): void }) {
  const orders: Order<T>[] = [column, ...(column.also ?? [])];
  const current = orders.find((order) => order.name === sort?.replace(/^-/, ""));
  const order = current && (sort!.startsWith("-") ? "descending" : "ascending");
  return (
    <th scope="col" role="columnheader" class={classOf(column)} aria-sort={order}>
      <span class="heads">
        {orders.map((each) => each.by && onSort
          ? <SortButton key={each.name} order={each} state={each === current ? order : undefined} onSort={onSort} />
          : <span key={each.name}>{each.title}</span>)}
      </span>
    </th>
  );
}

function SortButton<T>({ order, state, onSort }: { order: Order<T>; state?: "ascending" | "descending"; onSort(sort: string): void }) {
  const down = state === "ascending" || (!state && order.first === "down");
  return (
    <button class="sort" aria-pressed={state !== undefined} onClick={() => onSort((down ? "-" : "") + order.name)}>
      {order.title}{state && <Glyph>{state === "ascending" ? "↑" : "↓"}</Glyph>}
    </button>
  );
}

function classOf<T>(column: Column<T>): string | undefined {
  return [column.isNumber ? "number" : "", column.class ?? ""].filter(Boolean).join(" ") || undefined;
}

/** The rows in the order of a sort, ties as they were. */
export function sorted<T>(rows: readonly T[], columns: Column<T>[], sort: string | undefined): readonly T[] {
  const orders: Order<T>[] = columns.flatMap((column) => [column, ...(column.also ?? [])]);
  const by = orders.find((each) => each.name === sort?.replace(/^-/, ""))?.by;
  if (!by) return rows;
  const sign = sort!.startsWith("-") ? -1 : 1;
  const keyed = rows.map((row) => ({ row, key: by(row) }));
  keyed.sort((one, other) => {
    if (one.key === null || other.key === null) return Number(one.key === null) - Number(other.key === null);
    return one.key < other.key ? -sign : one.key > other.key ? sign : 0;
  });
  return keyed.map(({ row }) => row);
}
