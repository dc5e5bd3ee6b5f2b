// The eval runs of one eval by model: their pass rates over time, and the rows that pass in some of them and not in others.
import { Trend } from "../charts/trend";
import { count, plural } from "../format";
import type { HistoryPage, ModelHistory } from "../shapes";
import { source } from "../source/source";
import { isGoingOn, usePage } from "../state/page";
import { Empty } from "../ui/empty";
import { FlippingRows } from "./history/flips";
import { PastRuns } from "./history/past_runs";

export function HistoryView({ evalName }: { evalName: string }) {
  const goesOn = (history: HistoryPage) => history.models.some(({ points }) => points.some(({ row }) => isGoingOn(row)));
  const page = usePage(() => source().history(evalName), [evalName], { goesOn, liveMs: 10000 });
  return page.view((history) => <History page={history} />);
}

function History({ page }: { page: HistoryPage }) {
  const n = page.models.reduce((sum, { points }) => sum + points.length, 0);
  if (!n) return <Empty title={`${page.eval} has no eval runs`} />;
  return (
    <div class="history">
      <div class="row history-head">
        <h1>{page.eval}</h1>
        <span class="muted">{plural(n, "eval run")}{page.n_earlier > 0 && `, the newest; ${count(page.n_earlier)} earlier`}</span>
      </div>
      {page.models.map((each) => <OfModel key={each.model} page={each} />)}
    </div>
  );
}

function OfModel({ page }: { page: ModelHistory }) {
  const plans = new Set(page.points.map((point) => point.plan)).size;
  return (
    <section class="history" aria-label={page.model}>
      <h2>{page.model}</h2>
      <section class="panel history-trend" aria-label={`Pass rate of ${page.model} over eval runs`}>
        <Trend points={page.points} />
        <p class="muted small history-legend">
          <span>pass rate of each eval run with its 95% interval</span>
          <span>○ incomplete, <span class="tone-unmeasured">!</span> no pass rate</span>
          {plans > 1 && <span>dashed: another plan begins (rows, n, functions or thresholds)</span>}
          {page.points.some((point) => point.change) && <span>a difference may be chance: open it to see</span>}
        </p>
      </section>
      <PastRuns page={page} />
      <FlippingRows page={page} />
    </section>
  );
}
