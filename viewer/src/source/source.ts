// Where the pages come from: a report holds them all, a dashboard is asked for each.
import type { ComparisonPage, Conversation, HistoryPage, RunPage, RunsPage, SearchHits } from "../shapes";

/** A page that is asked for again is the same object if nothing has changed. */
export interface Source {
  /** True for a dashboard: eval runs may change, and more may begin. */
  readonly isLive: boolean;
  runs(): Promise<RunsPage>;
  run(name: string): Promise<RunPage>;
  /** The conversation of the run at a position of `RunPage.runs`; null if it is not here. */
  conversation(name: string, page: RunPage, at: number): Promise<Conversation | null>;
  /** Search all conversations for a text, ignoring case, and tell of new hits as they are found. */
  search(
    name: string,
    page: RunPage,
    text: string,
    found: (hits: SearchHits) => void,
    signal: AbortSignal,
  ): Promise<void>;
  comparison(a: string, b: string): Promise<ComparisonPage>;
  history(evalName: string): Promise<HistoryPage>;
}

/** An error to show to the reader. */
export class SourceError extends Error {}

let current: Source;

export function setSource(source: Source): void {
  current = source;
}

export function source(): Source {
  return current;
}
