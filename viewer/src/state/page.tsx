// A page that is asked of the source: while it is loading, if it failed, and when it is there.
import type { ComponentChildren } from "preact";
import { useEffect, useState } from "preact/hooks";

type State<T> = { value: T } | { problem: string } | undefined;

export interface Page<T> {
  value: T | undefined;
  /** Lay the page out, or say that it is loading or why it is not there. */
  view(layout: (value: T) => ComponentChildren): ComponentChildren;
}

export function usePage<T>(ask: () => Promise<T>, inputs: unknown[]): Page<T> {
  const [state, setState] = useState<State<T>>();
  useEffect(() => {
    let isCurrent = true;
    setState(undefined);
    ask().then(
      (value) => { if (isCurrent) setState({ value }); },
      (error: unknown) => { if (isCurrent) setState({ problem: error instanceof Error ? error.message : String(error) }); },
    );
    return () => { isCurrent = false; };
  }, inputs);
  return {
    value: state && "value" in state ? state.value : undefined,
    view(layout) {
      if (!state) return <p class="loading" role="status">Loading…</p>;
      return "value" in state ? layout(state.value) : <p class="problem" role="alert">{state.problem}</p>;
    },
  };
}
