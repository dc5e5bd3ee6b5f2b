// The list of eval runs, with filters, an order, and two to compare.
import { useEffect } from "preact/hooks";
import type { RunsPage } from "../shapes";
import { count } from "../format";
import { source } from "../source/source";
import { useKeys } from "../state/keys";
import { isGoingOn, usePage } from "../state/page";
import { go, route, runJustLeft, setQuery } from "../state/route";
import { Empty } from "../ui/empty";
import { sorted } from "../ui/table";
import { EntryTables } from "./runs/entries";
import { Filters, filtered } from "./runs/filters";
import { columns, RunsTable } from "./runs/table";
import { comparePicked, PickedRuns, picked, togglePick } from "./runs/picked";

export function RunsView() {
  const page = usePage(() => source().runs(), [], { goesOn: (list) => list.runs.some(isGoingOn), liveMs: 1000, overMs: 2000 });
  const only = page.value && !source().isLive && page.value.runs.length === 1 && !location.hash ? page.value.runs[0].name : null;
  if (only !== null) {
    queueMicrotask(() => go({ name: "run", run: only, id: null }, undefined, true)); // a report of one eval run begins with it
    return null;
  }
  return page.view((runs) => <Runs page={runs} />);
}

/** As many rows as a browser lays out at once without a pause. */
const MOST_ROWS = 200;

function Runs({ page }: { page: RunsPage }) {
  const { query } = route.value;
  const rows = sorted(filtered(page.runs, query), columns, query.get("sort") ?? undefined);
  const shown = query.has("all") ? rows : rows.slice(0, MOST_ROWS);
  const pair = picked(page, query);
  useEffect(() => {
    const left = runJustLeft();
    const link = left === null ? null : document.querySelector<HTMLElement>(`[data-run="${CSS.escape(left)}"]`);
    link?.focus({ preventScroll: true }); // the list, and its keys, go on from where the reader was
    link?.scrollIntoView({ block: "center" });
  }, []);
  const move = (step: number) => {
    const links = [...document.querySelectorAll<HTMLElement>(".run-link")];
    const at = links.findIndex((link) => link === document.activeElement);
    links[at < 0 ? 0 : Math.min(links.length - 1, Math.max(0, at + step))]?.focus();
  };
  const focused = () => (document.activeElement?.closest(".run-link") as HTMLElement | null)?.dataset.run;
  useKeys("Eval runs", [
    { keys: ["j"], does: "next eval run", run: () => move(1) },
    { keys: ["k"], does: "previous eval run", run: () => move(-1) },
    { keys: ["x"], does: "tick to compare", run: () => { const name = focused(); if (name) togglePick(name); } },
    { keys: ["c"], does: "compare the two that are ticked", run: () => comparePicked(page) },
    { keys: ["/"], does: "filter by name", run: () => document.querySelector<HTMLElement>("#filter-text")?.focus() },
  ]);
  if (!page.runs.length)
    return (
      <Empty title="No eval runs yet">
        {source().isLive ? <>They appear here as soon as one begins in <code>{page.workspace}</code>.</> : "This report holds none."}
      </Empty>
    );
  return (
    <>
      <h1 class="visually-hidden">Eval runs</h1>
      <EntryTables tables={page.tables} />
      <Filters runs={page.runs} shown={rows.length} />
      {rows.length ? <RunsTable rows={shown} pair={pair} />
        : <Empty title="No eval run matches the filters"><button class="button" onClick={clear}>Show all {page.runs.length}</button></Empty>}
      {shown.length < rows.length && (
        <p class="more-runs"><button class="button" onClick={() => setQuery({ all: "yes" })}>Show all {count(rows.length)} eval runs</button></p>
      )}
      <PickedRuns page={page} pair={pair} />
    </>
  );
}

function clear() {
  setQuery({ status: null, model: null, dataset: null, rollout: null, eval: null, text: null });
}
