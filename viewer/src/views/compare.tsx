// Two eval runs compared: what it came to, in what they differ, and every row, the largest loss first.
import { moment } from "../format";
import type { ComparisonPage, RunEntry } from "../shapes";
import { source } from "../source/source";
import { isGoingOn, usePage } from "../state/page";
import { written } from "../state/route";
import { Empty } from "../ui/empty";
import { Differences } from "./compare/differences";
import { Finding } from "./compare/finding";
import { PairView } from "./compare/pair";
import { ComparedRows } from "./compare/rows";
import { keyedRows } from "./compare/row_keys";
import { Sides } from "./compare/sides";
import { Problem } from "../ui/parts";

export function CompareView({ a, b, digest }: { a: string; b: string; digest: string | null }) {
  const goesOn = (compared: ComparisonPage) => isGoingOn(compared.a) || isGoingOn(compared.b);
  const page = usePage(() => source().comparison(a, b), [a, b], { goesOn, liveMs: 10000 });
  return page.view((compared) => <Comparison page={compared} digest={digest} />);
}

function Comparison({ page, digest }: { page: ComparisonPage; digest: string | null }) {
  const rows = keyedRows(page.rows);
  const shown = digest === null ? undefined : rows.find((row) => row.key === digest);
  const Title = shown ? "h2" : "h1"; // the open row has the title of the page
  return (
    <div class="compare" data-open={shown ? "true" : undefined}>
      <div class="compare-main">
        <div class="row compare-head">
          <Title>{titleOf(page)}</Title>
          {source().isLive && <a class="button button-small" href={written({ name: "compare", a: page.b.name, b: page.a.name, digest: null })}>⇄ Swap A and B</a>}
        </div>
        <div class="compare-top">
          {page.problem ? <div class="finding"><Empty title="These eval runs cannot be compared">{page.problem}</Empty></div> : <Finding page={page} />}
          <Sides page={page} />
        </div>
        <Differences page={page} />
        {(page.rows.length > 0 || page.only_a.length + page.only_b.length > 0) && <ComparedRows page={page} rows={rows} shown={shown} />}
        {digest !== null && !shown && <Problem>No compared row has the digest {digest}.</Problem>}
      </div>
      {shown && <PairView page={page} row={shown} rows={rows} />}
    </div>
  );
}

/** "sums: acme/small compared with acme/large": in what the eval runs differ, by their models or else by their age. */
function titleOf({ a, b }: ComparisonPage): string {
  if (a.eval !== b.eval) return `${b.eval ?? b.name} compared with ${a.eval ?? a.name}`;
  const said = (row: RunEntry) => (a.model === b.model ? moment(row.started_at, 19) : row.model ?? "-");
  return `${b.eval ?? b.name}: ${said(b)} compared with ${said(a)}`;
}
