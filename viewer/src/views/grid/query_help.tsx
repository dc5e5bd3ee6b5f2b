// How to write a query, with the names of this eval run. A click on an example puts it into the query.
import { functionNames, metricNames } from "../../query/parse";
import { written } from "../../query/scanner";
import type { RunPage } from "../../shapes";

interface Example {
  term: string;
  means: string;
}

export function QueryHelp({ page, onPick }: { page: RunPage; onPick(term: string): void }) {
  return (
    <details class="query-help">
      <summary class="button button-quiet" title="How to write a query" aria-label="How to write a query">?</summary>
      <div class="query-help-body panel">
        <p>All terms must hold. A <code>-</code> before a term negates it, a comma separates alternatives.</p>
        <ul>
          {examples(page).map(({ term, means }) => (
            <li key={term}>
              <button class="query-example" onClick={(event) => { event.currentTarget.closest("details")!.open = false; onPick(term); }}>
                <code>{term}</code>
              </button>
              <span class="muted">{means}</span>
            </li>
          ))}
        </ul>
      </div>
    </details>
  );
}

function examples(page: RunPage): Example[] {
  const [fn] = functionNames(page);
  const [metric] = metricNames(page);
  const slice = page.head.slices.find((each) => each.slices.length && each.column !== "finish reason");
  return [
    { term: "primes", means: "a word of the prompt or of the error" },
    { term: '"two words"', means: "a text in conversations" },
    { term: "status:failed,unmeasured", means: "passed, failed, unmeasured, removed, running, pending; error: the run broke" },
    ...(fn ? [{ term: `fn:${written(fn)}<0.5`, means: "the score of a function" }] : []),
    ...(metric ? [{ term: `metric:${written(metric)}>1`, means: "a metric" }] : []),
    ...(slice ? [{ term: sliceTerm(slice.column, slice.slices[0].value), means: "a column of the dataset" }] : []),
    { term: `boundary:${page.head.boundaries[0] ?? "provider"}`, means: "where the run broke; any, none" },
    { term: "error:timeout", means: "a text in the error" },
    { term: "prompt:primes", means: "a text in the prompt" },
    { term: "row:0-9", means: "rows of the dataset" },
    { term: "run:0", means: "runs of each row" },
    ...(page.head.models.length > 1 ? [{ term: "model:baseline", means: "primary, baseline, or a part of a model's name" }] : []),
    ...(page.head.finish_reasons.length ? [{ term: `finish:${written(page.head.finish_reasons[0])}`, means: "the finish reason" }] : []),
    { term: "cost>0.1", means: "US dollars" },
    { term: "ms>1000", means: "milliseconds" },
    { term: "tokens>500", means: "tokens" },
    { term: "turns>3", means: "assistant messages of the rollout" },
  ];
}

/** The term that holds for the rows of a slice; for one by finish reason, for its runs. */
export function sliceTerm(column: string, value: string): string {
  if (column === "finish reason") return `finish:${written(value)}`;
  return `slice:${written(column)}=${written(value)}`;
}
