// The slices of the dataset, each of which leads to its runs.
import { count } from "../../format";
import type { RunPage, SlicesShape, SliceShape } from "../../shapes";
import { route, runAddress } from "../../state/route";
import { Empty } from "../../ui/empty";
import { Rate } from "../../ui/rate";
import { type Column, sorted, Table } from "../../ui/table";
import { setQuery } from "../../state/route";
import { sliceTerm } from "../grid/query_help";

export function Slices({ page }: { page: RunPage }) {
  const { slices, no_slices } = page.head;
  const sort = route.value.query.get("slices") ?? undefined;
  return (
    <div class="slices">
      {slices.map((each) => <SliceTable key={each.column} page={page} slices={each} sort={sort} />)}
      {no_slices && (slices.length ? <p class="muted small">No slices by columns of the dataset: {no_slices}</p> : <Empty title="No slices">{no_slices}</Empty>)}
    </div>
  );
}

function SliceTable({ page, slices, sort }: { page: RunPage; slices: SlicesShape; sort: string | undefined }) {
  const columns: Column<SliceShape>[] = [
    { name: "value", title: slices.column, isHead: true, by: (slice) => slice.value, cell: (slice) => <a href={addressOf(page, slices.column, slice)}>{slice.value === "" ? "(empty)" : slice.value}</a> },
    { name: "rows", title: "Rows", isNumber: true, by: (slice) => slice.rows.length, first: "down", cell: (slice) => count(slice.rows.length) },
    { name: "measured", title: "Measured", isNumber: true, by: (slice) => slice.measured, first: "down", cell: (slice) => `${count(slice.measured)} of ${count(slice.runs)}` },
    { name: "passed", title: "Passed", isNumber: true, by: (slice) => slice.passed, first: "down", cell: (slice) => count(slice.passed) },
    { name: "rate", title: "Pass rate", by: (slice) => slice.pass_rate, class: "slices-rate", cell: (slice) => <Rate rate={slice.pass_rate} bounds={slice.pass_rate_interval} /> },
  ];
  return (
    <section>
      <h2>By {slices.column}</h2>
      <Table caption={`Pass rates by ${slices.column}`} columns={columns} rows={sorted(slices.slices, columns, sort)} keyOf={(slice) => slice.value}
        sort={sort} onSort={(next) => setQuery({ slices: next })} />
    </section>
  );
}

/** The address of the grid with the rows of a slice. */
function addressOf(page: RunPage, column: string, slice: SliceShape): string {
  const query = new URLSearchParams(route.value.query);
  query.delete("tab");
  query.set("q", sliceTerm(column, slice.value));
  return runAddress(page.head.row.name, null, query);
}
