// The address of what is shown: every view, row and filter has one, and opens the same in a fresh page.
import { computed, signal } from "@preact/signals";

export type View =
  | { name: "runs" }
  | { name: "run"; run: string; id: string | null } // id: "row3-run1", "row3-run1-baseline"
  | { name: "compare"; a: string; b: string; digest: string | null }
  | { name: "history"; eval: string };

export interface Route {
  view: View;
  /** Filters, the query and the order of the view. */
  query: URLSearchParams;
}

/** Read `#/run/NAME/row3-run1?q=...`. Anything unknown is the list. */
export function parsed(hash: string): Route {
  const [, path, query = ""] = /^#?([^?]*)\??(.*)$/s.exec(hash)!;
  const [kind, first, second, third] = path.split("/").slice(1).map(decoded);
  return { view: viewOf(kind, first, second, third), query: new URLSearchParams(query) };
}

export function written(view: View, query?: URLSearchParams): string {
  const parts: Record<View["name"], () => (string | null)[]> = {
    runs: () => [],
    run: () => { const run = view as View & { name: "run" }; return ["run", run.run, run.id]; },
    compare: () => { const pair = view as View & { name: "compare" }; return ["compare", pair.a, pair.b, pair.digest]; },
    history: () => ["history", (view as View & { name: "history" }).eval],
  };
  const path = parts[view.name]().filter((part): part is string => part !== null).map(inAddress).join("/");
  const text = query?.toString();
  return `#/${path}${text ? `?${text}` : ""}`;
}

/** The address of an eval run, or of a run of it. */
export function runAddress(run: string, id: string | null = null, query?: URLSearchParams): string {
  return written({ name: "run", run, id }, query);
}

const hash = signal("");
/** The view before this one; null in a fresh page. */
let before: View | null = null;

function show(address: string): void {
  if (address === hash.peek()) return;
  before = route.peek().view;
  hash.value = address;
}

/** The eval run that the reader just left; null if there is none. */
export function runJustLeft(): string | null {
  return before?.name === "run" ? before.run : null;
}

/** Show what the address says, now and whenever it changes. The source has taken its token out of the address before. */
export function followAddress(): void {
  hash.value = location.hash;
  addEventListener("hashchange", () => {
    if (/^#(token|once)=/.test(location.hash)) location.reload(); // a newly printed address, opened in an old page
    else show(location.hash);
  });
}

export const route = computed(() => parsed(hash.value));

/** Go to a view. Back leads to the one before, unless this `replaces` it. */
export function go(view: View, query?: URLSearchParams, replaces = false): void {
  const address = written(view, query);
  if (replaces) history.replaceState(null, "", address);
  else if (address !== location.hash) location.hash = address;
  show(address);
}

/** Change filters, the query or the order, and nothing else: the address is replaced, so that Back leaves the view. */
export function setQuery(changes: Record<string, string | null>): void {
  const { view, query } = route.value;
  const next = new URLSearchParams(query);
  for (const [key, value] of Object.entries(changes)) value ? next.set(key, value) : next.delete(key);
  go(view, next, true);
}

function viewOf(kind?: string, first?: string, second?: string, third?: string): View {
  if (kind === "run" && first) return { name: "run", run: first, id: second || null };
  if (kind === "compare" && first && second) return { name: "compare", a: first, b: second, digest: third || null };
  if (kind === "history" && first) return { name: "history", eval: first };
  return { name: "runs" };
}

function decoded(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** A part of an address. A folder's name may hold bytes that are no text, which an address cannot. */
function inAddress(part: string): string {
  return encodeURIComponent(part.replace(/\p{Cs}/gu, "\ufffd"));
}
