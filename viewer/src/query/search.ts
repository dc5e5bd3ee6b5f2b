// The search for texts in conversations: what was found so far, text by text.
import { signal } from "@preact/signals";
import { useEffect, useMemo, useRef } from "preact/hooks";
import type { RunPage } from "../shapes";
import { source } from "../source/source";
import { problemOf } from "../state/page";

export interface TextSearch {
  text: string;
  hits: Set<number>;
  /** The runs that were searched so far. */
  searched: number;
  state: "going on" | "done" | "cancelled" | "failed";
  problem: string;
}

/** The searches for the quoted texts of a query, in their order. */
export const searches = signal<TextSearch[]>([]);

const NO_HITS: Set<number> = new Set();
/** Found runs are shown this often while a search goes on. */
const SHOWN_MS = 200;
/** An eval run that goes on is searched again this often, if it changed. */
const AGAIN_MS = 5000;

let abort: AbortController | undefined;

/** Search for texts for as long as the query has them; what was found for one is kept while others come and go. */
export function useSearches(page: RunPage, texts: string[]): void {
  const wanted = useMemo(() => [...new Set(texts.filter(Boolean))], [texts.join("\0")]);
  const name = page.head.row.name;
  useEffect(() => {
    const kept = wanted.map((text) => searches.value.find((each) => each.text === text && each.state === "done"));
    const next = wanted.map((text, at) => kept[at] ?? begun(text));
    searches.value = next;
    const control = new AbortController();
    abort = control;
    void (async () => {
      for (const each of next) if (each.state !== "done") await perform(name, page, each, control.signal);
    })();
    return () => control.abort();
  }, [wanted, name]);
  useEffect(() => () => { searches.value = []; }, [name]);
  const latest = useRef(page);
  latest.current = page;
  useEffect(() => {
    if (!source().isLive || !wanted.length) return;
    let searched = latest.current;
    const control = new AbortController();
    const timer = setInterval(() => {
      if (latest.current === searched || searches.value.some((each) => each.state !== "done")) return;
      searched = latest.current;
      for (const each of searches.value) void perform(name, latest.current, { ...each }, control.signal, false);
    }, AGAIN_MS);
    return () => {
      clearInterval(timer);
      control.abort();
    };
  }, [wanted, name]);
}

/** The runs with a text in their conversation, as far as the search has come. */
export function hitsOf(text: string): Set<number> {
  return searches.value.find((each) => each.text === text)?.hits ?? NO_HITS;
}

/** Stop searching. What was found stays. */
export function cancelSearches(): void {
  abort?.abort();
  searches.value = searches.value.map((each) => (each.state === "going on" ? { ...each, state: "cancelled" } : each));
}

function begun(text: string): TextSearch {
  return { text, hits: new Set(), searched: 0, state: "going on", problem: "" };
}

/** Search, and show what was found: `asItGoes`, or at the end. */
async function perform(name: string, page: RunPage, search: TextSearch, signal: AbortSignal, asItGoes = true): Promise<void> {
  let last = 0;
  const tell = (state: TextSearch["state"], problem = "") => {
    const next = { ...search, state, problem };
    searches.value = searches.value.map((each) => (each.text === search.text ? next : each));
    last = performance.now();
  };
  try {
    await source().search(name, page, search.text, (news) => {
      if (signal.aborted) return;
      const isFirst = search.hits.size === 0 && news.at.length > 0;
      for (const at of news.at) search.hits.add(at);
      search.searched = news.searched;
      if (asItGoes && (isFirst || performance.now() - last > SHOWN_MS)) tell("going on");
    }, signal);
    if (!signal.aborted) tell("done");
  } catch (error) {
    if (!signal.aborted) tell("failed", problemOf(error));
  }
}
