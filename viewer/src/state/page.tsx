// A page that is asked of the source: while it is loading, if it failed, and when it is there.
import type { ComponentChildren } from "preact";
import { useEffect, useState } from "preact/hooks";

export type PageState<T> = { value: T } | { problem: string } | undefined;

export interface Page<T> {
  value: T | undefined;
  /** Lay the page out, or say that it is loading or why it is not there. */
  view(layout: (value: T) => ComponentChildren): ComponentChildren;
}

/** A page that does not change while it is shown. For those that do, see live.ts. */
export function usePage<T>(ask: () => Promise<T>, inputs: unknown[]): Page<T> {
  const [state, setState] = useState<PageState<T>>();
  useEffect(() => {
    let isCurrent = true;
    setState(undefined);
    ask().then(
      (value) => { if (isCurrent) setState({ value }); },
      (error: unknown) => { if (isCurrent) setState({ problem: problemOf(error) }); },
    );
    return () => { isCurrent = false; };
  }, inputs);
  return pageOf(state);
}

export function pageOf<T>(state: PageState<T>): Page<T> {
  return {
    value: state && "value" in state ? state.value : undefined,
    view(layout) {
      if (!state) return <p class="loading" role="status">Loading…</p>;
      return "value" in state ? layout(state.value) : <p class="problem" role="alert">{state.problem}</p>;
    },
  };
}

export function problemOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
