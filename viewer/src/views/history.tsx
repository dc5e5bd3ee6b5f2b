// The eval runs of one eval: their pass rates over time, and the rows that pass in some of them and not in others.
import { Trend } from "../charts/trend";
import { count, plural } from "../format";
import type { HistoryPage } from "../shapes";
import { source } from "../source/source";
import { isGoingOn, usePage } from "../state/page";
import { Empty } from "../ui/empty";
import { FlippingRows } from "./history/flips";
import { PastRuns } from "./history/past_runs";

export function HistoryView({ evalName }: { evalName: string }) {
  const goesOn = (history: HistoryPage) => history.points.some(({ row }) => isGoingOn(row));
  const page = usePage(() => source().history(evalName), [evalName], { goesOn, liveMs: 10000 });
  return page.view((history) => <History page={history} />);
}

function History({ page }: { page: HistoryPage }) {
  if (!page.points.length) return <Empty title={`${page.eval} has no eval runs`} />;
  const plans = new Set(page.points.map((point) => point.plan)).size;
  return (
    <div class="history">
      <div class="row history-head">
        <h1>{page.eval}</h1>
        <span class="muted">{plural(page.points.length, "eval run")}{page.n_earlier > 0 && `, the newest; ${count(page.n_earlier)} earlier`}</span>
      </div>
      <section class="panel history-trend" aria-label="Pass rate over eval runs">
        <Trend points={page.points} />
        <p class="muted small history-legend">
          <span>pass rate of each eval run with its 95% interval</span>
          <span>○ not whole, <span class="tone-unmeasured">!</span> no pass rate</span>
          {plans > 1 && <span>dashed: another plan begins (rows, n, model, functions or thresholds)</span>}
        </p>
      </section>
      <PastRuns page={page} />
      <FlippingRows page={page} />
    </div>
  );
}
