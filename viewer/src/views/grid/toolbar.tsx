// What the grid shows: the query, the order, and counts of the runs that are shown.
import { count, plural } from "../../format";
import { functionNames } from "../../query/parse";
import { ordersOf } from "../../query/order";
import type { Outcome, RunPage } from "../../shapes";
import { setQuery } from "../../state/route";
import { hasTerm, orderOf, type RunQuery, toggleTerm } from "../../state/run_query";
import { Choice } from "../../ui/choice";
import { ToggleChip, type Tone } from "../../ui/chip";
import { GRID_GLYPHS } from "../../ui/outcome";
import { QueryBar } from "./query_bar";

const TONES: Partial<Record<Outcome, Tone>> = { passed: "passed", failed: "failed", unmeasured: "unmeasured", running: "accent" };
const ORDER: Outcome[] = ["failed", "unmeasured", "passed", "removed", "running", "pending"];

export function Toolbar({ page, shown }: { page: RunPage; shown: RunQuery }) {
  const functions = functionNames(page);
  const decidesAlone = functions.includes(page.head.results.config.decide);
  const all = countOutcomes(page, null);
  return (
    <div class="toolbar">
      <QueryBar page={page} shown={shown} />
      <div class="toolbar-line">
        <div class="row">
          <span class="toolbar-counts" role="status">{countsText(page, shown)}</span>
          <div class="row" role="group" aria-label="Filter by outcome">
            {ORDER.filter((outcome) => all[outcome] > 0).map((outcome) => (
              <ToggleChip key={outcome} tone={TONES[outcome]} glyph={GRID_GLYPHS[outcome]} pressed={!shown.query.problem && hasTerm(shown.text, `status:${outcome}`)}
                onClick={() => toggleTerm(shown.text, `status:${outcome}`)}>{outcome} <span class="number">{count(all[outcome])}</span></ToggleChip>
            ))}
          </div>
        </div>
        <div class="row">
          {functions.length > 1 && (
            <Choice label="Scores" value={shown.fn} options={[...(decidesAlone ? [] : [{ value: "", title: "deciding score" }]), ...functions.map((name) => ({ value: name, title: name }))]}
              onChange={(value) => setQuery({ score: value })} />
          )}
          <Choice label="Order" value={shown.order} options={ordersOf(page).map(([value, title]) => ({ value, title }))}
            onChange={(value) => setQuery({ sort: value === orderOf(page) ? null : value })} />
        </div>
      </div>
    </div>
  );
}

/** "37 of 20,000 runs in 12 rows: 30 failed, 7 unmeasured"; without a query the filters beside it have the counts. */
export function countsText(page: RunPage, shown: RunQuery): string {
  const total = page.runs.row.length;
  const isFiltered = shown.query.terms.length > 0;
  const outcomes = countOutcomes(page, isFiltered ? shown.holds : null);
  const parts = ORDER.filter((outcome) => outcomes[outcome] > 0).map((outcome) => `${count(outcomes[outcome])} ${outcome}`);
  const n = ORDER.reduce((sum, outcome) => sum + outcomes[outcome], 0);
  const rows = `in ${plural(shown.rows.length, "row")}`;
  if (!isFiltered) return `${plural(total, "run")} ${rows}`;
  return `${count(n)} of ${plural(total, "run")} ${rows}${parts.length ? `: ${parts.join(", ")}` : ""}`;
}

function countOutcomes(page: RunPage, holds: Uint8Array | null): Record<Outcome, number> {
  const counts: Record<Outcome, number> = { passed: 0, failed: 0, unmeasured: 0, removed: 0, running: 0, pending: 0 };
  const { outcome } = page.runs;
  for (let at = 0; at < outcome.length; at++) if (!holds || holds[at]) counts[page.head.outcomes[outcome[at]]]++;
  return counts;
}
