// The conversation of a run: asked again once the run's facts have changed, and shown meanwhile as it was.
import { useEffect, useState } from "preact/hooks";
import type { Conversation, RunPage } from "../../shapes";
import { source } from "../../source/source";
import { problemOf } from "../../state/page";

export type Loaded =
  | { state: "loading" }
  | { state: "there"; conversation: Conversation }
  | { state: "absent" } // a report without this conversation
  | { state: "problem"; problem: string };

const LOADING: Loaded = { state: "loading" };

export function useConversation(name: string, page: RunPage, at: number | undefined): Loaded {
  const place = `${name} ${at}`;
  const [held, setHeld] = useState<{ place: string; loaded: Loaded }>({ place, loaded: LOADING });
  useEffect(() => {
    if (at === undefined) return;
    let isCurrent = true;
    const take = (loaded: Loaded) => { if (isCurrent) setHeld({ place, loaded }); };
    source().conversation(name, page, at).then(
      (conversation) => take(conversation === null ? { state: "absent" } : { state: "there", conversation }),
      (error: unknown) => take({ state: "problem", problem: problemOf(error) }),
    );
    return () => { isCurrent = false; };
  }, [place, at !== undefined && factsOf(page, at)]);
  return held.place === place ? held.loaded : LOADING;
}

/** All facts of a run in the columns, which change with its events. */
function factsOf(page: RunPage, at: number): string {
  const { runs } = page;
  const plain = [runs.outcome, runs.boundary, runs.duration_ms, runs.tokens, runs.cost_usd, runs.turns];
  const named = [...Object.values(runs.scores), ...Object.values(runs.metrics)];
  return JSON.stringify([...plain, ...named].map((column) => column[at]));
}
