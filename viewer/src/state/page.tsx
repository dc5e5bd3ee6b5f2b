// A page that is asked of the source: while it is loading, if it failed, when it is there, and as it changes.
import { signal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect, useState } from "preact/hooks";
import { source } from "../source/source";
import { Loading, Problem } from "../ui/parts";

/** "live" while something that is shown goes on, "gone" if the server does not answer. */
export const connection = signal<{ state: "quiet" | "live" | "gone"; problem?: string }>({ state: "quiet" });

type PageState<T> = { value: T } | { problem: string } | undefined;

export interface Page<T> {
  value: T | undefined;
  /** Lay the page out, or say that it is loading or why it is not there. */
  view(layout: (value: T) => ComponentChildren): ComponentChildren;
}

interface Polling<T> {
  goesOn: (value: T) => boolean;
  /** A page is asked for again after this time while it goes on, and before it was there. */
  liveMs: number;
  /** The same once it is over; without it, what is over does not change. */
  overMs?: number;
}

/** A page of the source. With `polling`, a dashboard is asked for it again and again while the browser shows it. */
export function usePage<T>(ask: () => Promise<T>, inputs: unknown[], polling?: Polling<T>): Page<T> {
  const [state, setState] = useState<PageState<T>>();
  useEffect(() => {
    const polls = source().isLive ? polling : undefined;
    let isCurrent = true;
    let isAsking = false;
    let timer: ReturnType<typeof setTimeout> | undefined;
    let latest: T | undefined;
    setState(undefined);

    const poll = async () => {
      clearTimeout(timer);
      if (isAsking || !isCurrent) return;
      isAsking = true;
      try {
        const value = await ask();
        if (!isCurrent) return;
        if (value !== latest) setState({ value });
        latest = value;
        if (polls) connection.value = { state: polls.goesOn(value) ? "live" : "quiet" };
      } catch (error) {
        if (!isCurrent) return;
        const problem = problemOf(error);
        if (latest === undefined) setState({ problem });
        else connection.value = { state: "gone", problem };
      } finally {
        isAsking = false;
      }
      const wait = latest === undefined || polls?.goesOn(latest) ? polls?.liveMs : polls?.overMs;
      if (wait !== undefined && !document.hidden) timer = setTimeout(poll, wait);
    };
    const onVisible = () => {
      if (document.hidden) clearTimeout(timer);
      else void poll();
    };

    void poll();
    if (!polls) return () => { isCurrent = false; };
    document.addEventListener("visibilitychange", onVisible);
    return () => {
      isCurrent = false;
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", onVisible);
      connection.value = { state: "quiet" };
    };
  }, inputs);
  return {
    value: state && "value" in state ? state.value : undefined,
    view(layout) {
      if (!state) return <Loading />;
      return "value" in state ? layout(state.value) : <Problem>{state.problem}</Problem>;
    },
  };
}

export function isGoingOn(row: { status: string }): boolean {
  return row.status === "running" || row.status === "pending";
}

export function problemOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
