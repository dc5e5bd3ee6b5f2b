// The head of an eval run: its status, its verdict, and what the numbers are not.
import type { RunPage } from "../../shapes";
import { count } from "../../format";
import { written } from "../../state/route";
import { GATES, StatusChip } from "../../ui/chip";
import { RunRate } from "../../ui/rate";
import { Spoken } from "../../ui/run_name";

export function RunHeading({ page, isShort }: { page: RunPage; isShort: boolean }) {
  const { row } = page.head;
  return (
    <div class="run-head">
      <div class="row run-title">
        <h1><Spoken row={row} /></h1>
        <StatusChip row={row} />
        {row.status === "running" && row.ended !== null && row.selected !== null && (
          <span class="run-progress small">
            <progress max={row.selected} value={row.ended} aria-label="Runs that ended" />
            <span class="number">{count(row.ended)} of {count(row.selected)} ended</span>
          </span>
        )}
        {isShort
          ? <RunRate row={row} drawn={false} />
          : row.eval !== null && <a class="small" href={written({ name: "history", eval: row.eval })}>History of {row.eval}</a>}
      </div>
      {!isShort && (
        <>
          <p class="run-circumstances muted small">{[...(row.eval ? [row.name] : []), ...page.head.circumstances].join(" · ")}</p>
          <Verdict page={page} />
          {page.head.remarks.length > 0 && (
            <ul class="run-remarks small">
              {page.head.remarks.map((remark) => <li key={remark}><span class="remark-glyph" aria-hidden="true">⚠</span> {remark}</li>)}
            </ul>
          )}
        </>
      )}
    </div>
  );
}

function Verdict({ page }: { page: RunPage }) {
  const { row, verdict, results } = page.head;
  return (
    <div class="verdict">
      <div class="verdict-rate"><RunRate row={row} /></div>
      {verdict.length > 0 && (
        <ul class="verdict-lines">
          {verdict.map((line, at) => <VerdictLine key={at} line={line} gates={results.gates} isFirst={at === 0} />)}
        </ul>
      )}
    </div>
  );
}

/** The parts of the line on the pass rate that stand beside it, in large. */
const SHOWN_BESIDE = /^pass rate [0-9.]+: (.+); 95% interval .*$/;

/** A line of the verdict, as the terminal prints it, with the mark of the gate that it is about. */
function VerdictLine({ line, gates, isFirst }: { line: string; gates: { gate: string; state: string }[]; isFirst: boolean }) {
  const gate = gates.find((each) => line.startsWith(`gate ${each.gate}:`));
  const { glyph, tone } = gate ? (GATES[gate.state] ?? { glyph: "·", tone: "pending" }) : { glyph: "", tone: "" };
  const kind = line.startsWith(" ") ? "muted" : isFirst ? "verdict-first" : "";
  return (
    <li class={kind}>
      <span class={`verdict-mark${tone && ` outcome-${tone}`}`} aria-hidden="true">{glyph}</span>
      <span>{line.trim().replace(SHOWN_BESIDE, "$1")}</span>
    </li>
  );
}
