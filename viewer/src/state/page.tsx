// A page that is asked of the source: while it is loading, if it failed, and when it is there.
import type { ComponentChildren } from "preact";
import { useEffect, useState } from "preact/hooks";
import { source } from "../source/source";
import { Loading, Problem } from "../ui/parts";

export type PageState<T> = { value: T } | { problem: string } | undefined;

export interface Page<T> {
  value: T | undefined;
  /** Lay the page out, or say that it is loading or why it is not there. */
  view(layout: (value: T) => ComponentChildren): ComponentChildren;
}

const AGAIN_MS = 10000;

/** A page that changes little while it is shown: it is asked for again while `goesOn`. For others, see live.ts. */
export function usePage<T>(ask: () => Promise<T>, inputs: unknown[], goesOn: (value: T) => boolean = () => false): Page<T> {
  const [state, setState] = useState<PageState<T>>();
  useEffect(() => {
    let isCurrent = true;
    let timer: ReturnType<typeof setTimeout> | undefined;
    let shown = "";
    const take = (value: T) => {
      if (!isCurrent) return;
      const waits = source().isLive && goesOn(value);
      const text = waits || shown ? JSON.stringify(value) : "";
      if (!shown || text !== shown) setState({ value });
      shown = text;
      if (waits) again();
    };
    const again = () => {
      timer = setTimeout(() => { ask().then(take, () => { if (isCurrent) again(); }); }, AGAIN_MS);
    };
    setState(undefined);
    ask().then(take, (error: unknown) => { if (isCurrent) setState({ problem: problemOf(error) }); });
    return () => { isCurrent = false; clearTimeout(timer); };
  }, inputs);
  return pageOf(state);
}

export function pageOf<T>(state: PageState<T>): Page<T> {
  return {
    value: state && "value" in state ? state.value : undefined,
    view(layout) {
      if (!state) return <Loading />;
      return "value" in state ? layout(state.value) : <Problem>{state.problem}</Problem>;
    },
  };
}

export function problemOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
