// A table that scrolls inside itself, with orders to choose by its heads.
import type { ComponentChildren } from "preact";

export interface Column<T> {
  /** Its name in the address, as in `?sort=cost`. */
  name: string;
  title: ComponentChildren;
  cell(row: T): ComponentChildren;
  isNumber?: boolean;
  /** Names each row for screen readers; one column of a table has it. */
  isHead?: boolean;
  /** Sorted by it; `first` is the order of the first click. Rows for which it gives null come last. */
  by?: (row: T) => number | string | null;
  first?: "up" | "down";
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
    <div class="table-frame" tabIndex={0} role="region" aria-label={caption}>
      <table>
        <caption class="visually-hidden">{caption}</caption>
        <thead>
          <tr>{columns.map((column) => <Head key={column.name} column={column} sort={sort} onSort={onSort} />)}</tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <tr key={keyOf(row)} aria-current={isCurrent?.(row) ? "true" : undefined}>
              {columns.map((column) => column.isHead
                ? <th key={column.name} scope="row" class={classOf(column)}>{column.cell(row)}</th>
                : <td key={column.name} class={classOf(column)}>{column.cell(row)}</td>)}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function Head<T>({ column, sort, onSort }: { column: Column<T>; sort?: string; onSort?(sort: string): void }) {
  const isUp = sort === column.name, isDown = sort === `-${column.name}`;
  const order = isUp ? "ascending" : isDown ? "descending" : undefined;
  const down = isUp || (!isDown && column.first === "down");
  return (
    <th scope="col" class={classOf(column)} aria-sort={order}>
      {column.by && onSort
        ? <button type="button" class="sort" onClick={() => onSort((down ? "-" : "") + column.name)}>
            {column.title}<span class="sort-arrow" aria-hidden="true">{isUp ? "↑" : isDown ? "↓" : ""}</span>
          </button>
        : column.title}
    </th>
  );
}

function classOf<T>(column: Column<T>): string | undefined {
  return [column.isNumber ? "number" : "", column.class ?? ""].filter(Boolean).join(" ") || undefined;
}

/** The rows in the order of a sort, ties as they were. */
export function sorted<T>(rows: readonly T[], columns: Column<T>[], sort: string | undefined): readonly T[] {
  const column = columns.find((each) => each.by && each.name === sort?.replace(/^-/, ""));
  if (!column?.by) return rows;
  const sign = sort!.startsWith("-") ? -1 : 1;
  const keyed = rows.map((row) => ({ row, key: column.by!(row) }));
  keyed.sort((one, other) => {
    if (one.key === null || other.key === null) return Number(one.key === null) - Number(other.key === null);
    return one.key < other.key ? -sign : one.key > other.key ? sign : 0;
  });
  return keyed.map(({ row }) => row);
}
