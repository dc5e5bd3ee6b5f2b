// The table of eval runs. Its numbers are those of `pytest-osmosis runs list`.
import type { RunEntry } from "../../shapes";
import { count, plural, runCost, span, UNKNOWN } from "../../format";
import { route, setQuery, written } from "../../state/route";
import { gatesText, GatesChip, StatusChip } from "../../ui/chip";
import { Rate } from "../../ui/rate";
import { type Column, Table } from "../../ui/table";
import { Age, RunLink } from "../../ui/run_name";
import { togglePick } from "./picked";
import { Unseen } from "../../ui/parts";

export const columns: Column<RunEntry>[] = [
  { name: "run", title: "eval", cell: (run) => <Name run={run} />, isHead: true, by: (run) => run.eval ?? run.name, class: "run-name" },
  { name: "model", title: "model", cell: (run) => <Model run={run} />, by: (run) => run.model, class: "run-model",
    also: [{ name: "dataset", title: "dataset", by: (run) => run.dataset }] },
  { name: "started", title: "age", cell: (run) => <Time run={run} />, by: (run) => run.started_at, first: "down", class: "run-time",
    also: [{ name: "time", title: "time", by: (run) => run.duration_s, first: "down" }] },
  { name: "rate", title: "pass rate", cell: (run) => <PassRate run={run} />, by: (run) => run.pass_rate },
  { name: "gates", title: "gates", cell: (run) => <GatesChip gates={run.gates} />, by: (run) => (run.gates.length ? gatesText(run.gates) : null) },
  { name: "status", title: "status", cell: (run) => <Status run={run} />, by: (run) => run.status },
  { name: "cost", title: "cost", cell: (run) => <Cost run={run} />, by: (run) => run.cost_usd, isNumber: true, first: "down", class: "run-cost",
    also: [{ name: "tokens", title: "tokens", by: (run) => run.tokens, first: "down" }] },
];

export function RunsTable({ rows, pair }: { rows: readonly RunEntry[]; pair: string[] }) {
  const { query } = route.value;
  const tick: Column<RunEntry> = {
    name: "pick",
    title: <Unseen>compare</Unseen>,
    class: "run-pick",
    cell: (run) => (
      <input type="checkbox" aria-label={`compare ${run.name}`} checked={pair.includes(run.name)} onChange={() => togglePick(run.name)} />
    ),
  };
  return (
    <div class="runs-table">
      <Table caption="Eval runs" columns={[tick, ...columns]} rows={rows} keyOf={(run) => run.name} sort={query.get("sort") ?? undefined}
        onSort={(sort) => setQuery({ sort })} isCurrent={(run) => pair.includes(run.name)} />
    </div>
  );
}

function Name({ run }: { run: RunEntry }) {
  return (
    <span class="run-names">
      <RunLink row={run} />
      {run.eval && <a class="small" href={written({ name: "history", eval: run.eval })} aria-label={`history of ${run.eval}`}>history</a>}
    </span>
  );
}

function Status({ run }: { run: RunEntry }) {
  const why = run.problem ?? run.reason;
  return (
    <>
      <StatusChip row={run} />
      {why && <span class="run-why cell-line cell-small" title={why}>{why}</span>}
    </>
  );
}

/** The pass rate; for a part counts, since its rate would say nothing about the whole. */
export function PassRate({ run }: { run: RunEntry }) {
  if (run.counted === null) return <Progress run={run} />;
  const unmeasured = run.counted - (run.measured ?? 0);
  const counts = run.passed === null ? (run.counted ? `none of ${count(run.counted)} measured` : "")
    : `${count(run.passed)} of ${count(run.counted)} passed${unmeasured ? `, ${count(unmeasured)} not measured` : ""}`;
  const missing = (run.selected ?? 0) - (run.ended ?? 0); // others are not needed where gates are decided
  return (
    <>
      {run.pass_rate !== null && <Rate rate={run.pass_rate} bounds={run.pass_rate_interval} />}
      <span class="run-counts cell-line cell-small number">{[counts, missing > 0 && `${count(missing)} did not run`].filter(Boolean).join(", ") || UNKNOWN}</span>
    </>
  );
}

function Progress({ run }: { run: RunEntry }) {
  if (run.ended === null || run.selected === null) return <span class="muted">{UNKNOWN}</span>;
  return (
    <span class="run-counts cell-line cell-small number">
      {count(run.ended)} of {count(run.selected)} ended
      {run.status === "running" && <progress max={run.selected || 1} value={run.ended} aria-label={`${run.ended} of ${run.selected} ended`} />}
    </span>
  );
}

function Model({ run }: { run: RunEntry }) {
  return (
    <>
      <span class="cell-line" title={run.model ?? undefined}>{run.model ?? UNKNOWN}</span>
      <span class="cell-line cell-small" title={run.dataset ?? undefined}>{run.dataset?.split("/").pop() ?? UNKNOWN}</span>
    </>
  );
}

export function Cost({ run }: { run: RunEntry }) {
  return (
    <>
      <span class="cell-line">{runCost(run)}</span>
      <span class="cell-line cell-small">{run.tokens === null ? UNKNOWN : plural(run.tokens, "token")}</span>
    </>
  );
}

function Time({ run }: { run: RunEntry }) {
  return (
    <>
      <span class="cell-line"><Age row={run} /></span>
      <span class="cell-line cell-small">{span(run.duration_s)}</span>
    </>
  );
}
