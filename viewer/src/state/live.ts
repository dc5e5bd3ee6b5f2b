// Pages that change while they are shown: asked again each second, each 10 seconds while the page is hidden.
import { signal } from "@preact/signals";
import { useEffect, useRef, useState } from "preact/hooks";
import type { Changes, RowColumns, RunColumns, RunPage, RunsPage } from "../shapes";
import { source } from "../source/source";
import { type Page, type PageState, pageOf, problemOf } from "./page";

/** "live" while something that is shown goes on, "gone" if the server does not answer. */
export const connection = signal<{ state: "quiet" | "live" | "gone"; problem?: string }>({ state: "quiet" });

const SHOWN_MS = 1000;
const HIDDEN_MS = 10000;
/** A list changes when an eval run begins. */
const LIST_MS = 2000;
/** An eval run that is over may go on again, or be scored again. */
const OVER_MS = 10000;

/** An eval run, with its changes as they come. Its rows and positions stay the same. */
export function useRunPage(name: string): Page<RunPage> {
  return useLive(
    () => source().run(name),
    async (page) => {
      const changes = await source().changes(name, page.seq);
      // A server that was started again counts anew, and so does one whose eval run has other runs now.
      return changes.seq < page.seq ? source().run(name) : changed(page, changes);
    },
    (page) => isGoingOn(page.head.row),
    OVER_MS,
    [name],
  );
}

/** The list of eval runs, with its changes as they come. */
export function useRunsPage(): Page<RunsPage> {
  return useLive(
    () => source().runs(),
    async (page) => {
      const next = await source().runs();
      return JSON.stringify(next) === JSON.stringify(page) ? page : next;
    },
    (page) => page.runs.some(isGoingOn),
    LIST_MS,
    [],
  );
}

export function isGoingOn(row: { status: string }): boolean {
  return row.status === "running" || row.status === "pending";
}

/** The page after changes; the same object if there are none. */
export function changed(page: RunPage, changes: Changes): RunPage {
  if (!changes.head) return changes.seq === page.seq ? page : { ...page, seq: changes.seq };
  const runs = changes.runs ? merged(page.runs, changes.at, changes.runs) : page.runs;
  const rows = changes.rows ? merged(page.rows, changes.rows_at, changes.rows) : page.rows;
  return { ...page, seq: changes.seq, head: changes.head, rows, runs };
}

/** Columns with other values at some positions. */
function merged<T extends RunColumns | RowColumns>(columns: T, at: number[], news: T): T {
  const length = Math.max(...Object.values(columns).map((each) => (Array.isArray(each) ? each.length : 0)));
  const column = <V>(old: V[], values: V[]): V[] => {
    if (!values.length) return old; // a dashboard has no chunks
    const next = old.slice();
    at.forEach((position, index) => { next[position] = values[index]; });
    return next;
  };
  const named = (old: Record<string, (number | null)[]>, values: Record<string, (number | null)[]>) => {
    const next = { ...old };
    for (const [name, list] of Object.entries(values))
      next[name] = column(old[name] ?? new Array<number | null>(length).fill(null), list);
    return next;
  };
  const old = columns as unknown as Record<string, unknown>;
  const next = { ...old };
  for (const [name, values] of Object.entries(news))
    next[name] = Array.isArray(values)
      ? column(old[name] as unknown[], values)
      : named(old[name] as Record<string, (number | null)[]>, values as Record<string, (number | null)[]>);
  return next as unknown as T;
}

/** Ask for a page, then for its changes for as long as it is shown. */
function useLive<T>(
  ask: () => Promise<T>,
  again: (value: T) => Promise<T>,
  goesOn: (value: T) => boolean,
  quietMs: number,
  inputs: unknown[],
): Page<T> {
  const [state, setState] = useState<PageState<T>>();
  const latest = useRef<T>();
  useEffect(() => {
    let isShown = true;
    let timer: ReturnType<typeof setTimeout> | undefined;
    let isAsking = false;
    latest.current = undefined;
    setState(undefined);

    const poll = async () => {
      clearTimeout(timer);
      if (isAsking || !isShown) return;
      isAsking = true;
      const before = latest.current;
      try {
        const value = before === undefined ? await ask() : await again(before);
        if (!isShown) return;
        latest.current = value;
        if (value !== before) setState({ value });
        if (source().isLive) connection.value = { state: goesOn(value) ? "live" : "quiet" };
      } catch (error) {
        if (!isShown) return;
        const problem = problemOf(error);
        if (before === undefined) setState({ problem });
        else connection.value = { state: "gone", problem };
      } finally {
        isAsking = false;
      }
      if (!source().isLive) return;
      const wait = latest.current !== undefined && !goesOn(latest.current) ? quietMs : SHOWN_MS;
      timer = setTimeout(poll, document.hidden ? HIDDEN_MS : wait);
    };
    const onShown = () => { if (!document.hidden) void poll(); };

    void poll();
    if (source().isLive) document.addEventListener("visibilitychange", onShown);
    return () => {
      isShown = false;
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", onShown);
      connection.value = { state: "quiet" };
    };
  }, inputs);
  return pageOf(state);
}
