// Both eval runs beside each other: what they asked, and what they came to.
import type { ComponentChildren } from "preact";
import { moment, span } from "../../format";
import type { ComparisonPage, RunEntry } from "../../shapes";
import { Age, RunLink } from "../../ui/run_name";
import { GatesChip, StatusChip } from "../../ui/chip";
import { Cost, PassRate } from "../runs/table";

const FACTS: [string, (row: RunEntry) => ComponentChildren][] = [
  ["eval", (row) => <RunLink row={row} />],
  ["model", (row) => row.model ?? "-"],
  ["started", (row) => <><Age row={row} /> <span class="muted">{moment(row.started_at)}</span></>],
  ["status", (row) => <StatusChip row={row} />],
  ["pass rate, all rows", (row) => <PassRate run={row} />],
  ["gates", (row) => <GatesChip gates={row.gates} />],
  ["cost", (row) => <Cost run={row} />],
  ["time", (row) => span(row.duration_s)],
];

export function Sides({ page }: { page: ComparisonPage }) {
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
