// The eval runs of a history in a table, the newest first, each compared with the one before of its plan.
import { changeText } from "../../charts/trend";
import { moment, runCost } from "../../format";
import type { HistoryPoint, ModelHistory } from "../../shapes";
import { route, setQuery, written } from "../../state/route";
import { GatesChip, StatusChip } from "../../ui/chip";
import { RunRate } from "../../ui/rate";
import { age, RunLink } from "../../ui/run_name";
import { type Column, Table, sorted } from "../../ui/table";

const COLUMNS: Column<HistoryPoint>[] = [
  { name: "started", title: "eval run", isHead: true, by: ({ row }) => row.started_at, first: "down", cell: ({ row }) => <RunLink row={row} named={`${age(row.started_at)} · ${moment(row.started_at)}`} /> },
  { name: "rate", title: "pass rate", isNumber: true, first: "down", by: ({ row }) => row.pass_rate,
    cell: ({ row }) => <RunRate row={row} /> },
  { name: "change", title: "change", by: ({ change }) => change?.difference ?? null,
    cell: (point) => <Change point={point} /> },
  { name: "gates", title: "gates", cell: ({ row }) => <GatesChip gates={row.gates} /> },
  { name: "status", title: "status", cell: ({ row }) => <StatusChip row={row} /> },
  { name: "cost", title: "cost", isNumber: true, first: "down", by: ({ row }) => row.cost_usd, cell: ({ row }) => runCost(row) },
  { name: "commit", title: "commit", cell: ({ row }) => <Commit point={row} /> },
];

export function PastRuns({ page }: { page: ModelHistory }) {
  const sort = route.value.query.get("sort") ?? "-started";
  return (
    <Table caption={`Eval runs of ${page.model}`} columns={COLUMNS} rows={sorted([...page.points].reverse(), COLUMNS, sort)} keyOf={({ row }) => row.name}
      sort={sort} onSort={(next) => setQuery({ sort: next })} />
  );
}

/** The comparison with the one before, which is a link to it. */
function Change({ point: { row, change, problem } }: { point: HistoryPoint }) {
  if (problem) return <span class="tone-unmeasured">! {problem}</span>;
  if (!change) return <span class="muted">-</span>;
  return (
    <a class="history-change number" href={written({ name: "compare", a: change.before, b: row.name, digest: null })} title={`compared with ${change.before}`}>{changeText(change)}</a>
  );
}

function Commit({ point }: { point: HistoryPoint["row"] }) {
  if (!point.git_commit) return <span class="muted">-</span>;
  return <span class="mono">{point.git_commit.slice(0, 10)}{point.git_dirty && <span class="muted" title="with uncommitted changes">+</span>}</span>;
}
