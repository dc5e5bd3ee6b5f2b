// The two eval runs that are ticked to be compared.
import type { RunsPage } from "../../shapes";
import { Spoken } from "../../ui/run_name";
import { go, route, setQuery, written } from "../../state/route";

const SEPARATOR = " ";

/** The names that are ticked, as in the address. */
export function ticked(query: URLSearchParams): string[] {
  return query.get("pick")?.split(SEPARATOR).filter(Boolean) ?? [];
}

/** The ticked eval runs that exist, the older one first: the newer one is compared with it. */
export function picked(page: RunsPage, query: URLSearchParams): string[] {
  const names = new Set(ticked(query));
  return page.runs.filter((run) => names.has(run.name)).map((run) => run.name).reverse();
}

/** Tick an eval run, or take its tick away. A third one takes the place of the first. */
export function togglePick(name: string): void {
  const names = ticked(route.value.query);
  const next = names.includes(name) ? names.filter((each) => each !== name) : [...names, name].slice(-2);
  setQuery({ pick: next.join(SEPARATOR) || null });
}

/** Compare the two that are ticked, if they are two. */
export function comparePicked(page: RunsPage): void {
  const [a, b] = picked(page, route.value.query);
  if (b) go({ name: "compare", a, b, digest: null });
}

/** A bar at the foot of the list, while any is ticked. */
export function PickedRuns({ page, pair }: { page: RunsPage; pair: string[] }) {
  if (!pair.length) return null;
  const [a, b] = pair;
  const said = (name: string) => <b><Spoken row={page.runs.find((run) => run.name === name)!} /></b>;
  return (
    <div class="picked panel row" role="region" aria-label="Compare">
      <span class="picked-names">{b && <>{said(b)} <span class="muted">compared with</span> </>}{said(a)}{!b && <span class="muted"> tick another one to compare</span>}</span>
      <span class="row">
        {b && <a class="button button-primary" href={written({ name: "compare", a, b, digest: null })}>Compare <kbd>c</kbd></a>}
        <button class="button button-quiet" onClick={() => setQuery({ pick: null })}>Clear</button>
      </span>
    </div>
  );
}
