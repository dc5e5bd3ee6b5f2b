// Both eval runs beside each other: what they asked, and what they came to.
import type { ComponentChildren } from "preact";
import { count, moment, plural, runCost, span } from "../../format";
import type { ComparisonPage, RunEntry } from "../../shapes";
import { route, runAddress } from "../../state/route";
import { GatesChip, StatusChip } from "../../ui/chip";
import { RunRate } from "../../ui/rate";

const FACTS: [string, (row: RunEntry) => ComponentChildren][] = [
  ["eval run", (row) => <a href={runAddress(row.name)}>{row.name}</a>],
  ["status", (row) => <StatusChip row={row} />],
  ["started", (row) => moment(row.started_at)],
  ["model", (row) => row.model ?? "-"],
  ["pass rate, all rows", (row) => <RunRate row={row} drawn={false} />],
  ["passed", passed],
  ["gates", (row) => <GatesChip gates={row.gates} />],
  ["tokens", (row) => count(row.tokens)],
  ["cost", (row) => runCost(row)],
  ["time", (row) => span(row.duration_s)],
];

function passed(row: RunEntry): string {
  if (row.passed === null || row.counted === null) return "-";
  const unmeasured = row.counted - (row.measured ?? row.counted);
  return `${count(row.passed)} of ${plural(row.counted, "run")}${unmeasured ? `, ${count(unmeasured)} not measured` : ""}`;
}

export function Sides({ page }: { page: ComparisonPage }) {
  void route.value;
  return (
    <div class="table-frame" tabIndex={0} role="region" aria-label="Both eval runs">
      <table class="sides">
        <thead><tr><td /><th scope="col">A</th><th scope="col">B</th></tr></thead>
        <tbody>
          {FACTS.map(([name, fact]) => (
            <tr key={name}><th scope="row">{name}</th><td>{fact(page.a)}</td><td>{fact(page.b)}</td></tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
