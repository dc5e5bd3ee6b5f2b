// The eval runs of a history in a table, the newest first, each compared with the one before of its plan.
import { changeText } from "../../charts/trend";
import { moment, runCost } from "../../format";
import type { HistoryPage, HistoryPoint } from "../../shapes";
import { route, runAddress, setQuery, written } from "../../state/route";
import { GatesChip, StatusChip } from "../../ui/chip";
import { RunRate } from "../../ui/rate";
import { type Column, Table, sorted } from "../../ui/table";

const COLUMNS: Column<HistoryPoint>[] = [
  { name: "started", title: "eval run", isHead: true, by: ({ row }) => row.started_at, first: "down", cell: ({ row }) => (
    <span class="history-run"><a href={runAddress(row.name)}>{row.name}</a><span class="muted number">{moment(row.started_at)}</span></span>
  ) },
  { name: "status", title: "status", cell: ({ row }) => <StatusChip row={row} /> },
  { name: "rate", title: "pass rate", isNumber: true, first: "down", by: ({ row }) => row.pass_rate,
    cell: ({ row }) => <RunRate row={row} /> },
  { name: "change", title: "against the one before", by: ({ change }) => change?.difference ?? null,
    cell: (point) => <Change point={point} /> },
  { name: "gates", title: "gates", cell: ({ row }) => <GatesChip gates={row.gates} /> },
  { name: "model", title: "model", by: ({ row }) => row.model, cell: ({ row }) => row.model ?? "-" },
  { name: "cost", title: "cost", isNumber: true, first: "down", by: ({ row }) => row.cost_usd, cell: ({ row }) => runCost(row) },
  { name: "commit", title: "commit", cell: ({ row }) => <Commit point={row} /> },
];

export function PastRuns({ page }: { page: HistoryPage }) {
  const sort = route.value.query.get("sort") ?? "-started";
  return (
    <Table caption={`Eval runs of ${page.eval}`} columns={COLUMNS} rows={sorted([...page.points].reverse(), COLUMNS, sort)} keyOf={({ row }) => row.name}
      sort={sort} onSort={(next) => setQuery({ sort: next })} />
  );
}

/** The comparison with the one before, which is a link to it. */
function Change({ point: { row, change, problem } }: { point: HistoryPoint }) {
  if (problem) return <span class="tone-unmeasured" title={problem}>! its rows are not known</span>;
  if (!change) return <span class="muted">-</span>;
  return (
    <a class="history-change number" href={written({ name: "compare", a: change.before, b: row.name, digest: null })} title={`compared with ${change.before}`}>{changeText(change)}</a>
  );
}

function Commit({ point }: { point: HistoryPoint["row"] }) {
  if (!point.git_commit) return <span class="muted">-</span>;
  return <span class="mono">{point.git_commit.slice(0, 10)}{point.git_dirty && <span class="muted" title="with uncommitted changes">+</span>}</span>;
}
