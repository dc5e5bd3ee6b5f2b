// One eval run: the verdict first, then its runs, statistics, slices and circumstances.
import { useEffect, useState } from "preact/hooks";
import type { RunPage } from "../shapes";
import { source } from "../source/source";
import { isGoingOn, usePage } from "../state/page";
import { route, setQuery } from "../state/route";
import { positionOf } from "../state/run_ids";
import { useRunQuery } from "../state/run_query";
import { Empty } from "../ui/empty";
import { TabPanel, Tabs, type Tab } from "../ui/tabs";
import { ConversationView } from "./conversation";
import { Grid } from "./grid";
import { Toolbar } from "./grid/toolbar";
import { About } from "./run/about";
import { RunHeading } from "./run/heading";
import { Slices } from "./run/slices";
import { Statistics } from "./run/statistics";

/** From this width on, a conversation is beside the grid; below, it takes its place. */
const BESIDE = "(min-width: 1000px)";

export function RunView({ name, id }: { name: string; id: string | null }) {
  const run = usePage(() => source().run(name), [name], { goesOn: (page) => isGoingOn(page.head.row), liveMs: 1000, overMs: 10000 });
  return run.view((page) => <RunPageView key={name} name={name} page={page} id={id} />);
}

function RunPageView({ name, page, id }: { name: string; page: RunPage; id: string | null }) {
  const shown = useRunQuery(page);
  const isWide = useMedia(BESIDE);
  const at = id === null ? -1 : positionOf(page, id);
  const open = at >= 0 ? at : null;
  const tabs = tabsOf(page);
  const asked = route.value.query.get("tab") ?? "runs";
  const tab = id !== null || !tabs.some((each) => each.id === asked) ? "runs" : asked;
  const isGridVisible = id === null || isWide;
  return (
    <div class={`run${id !== null ? " run-open" : ""}${tab === "runs" ? " run-fills" : ""}`}>
      {isGridVisible ? <RunHeading page={page} isShort={id !== null} /> : <h1 class="visually-hidden">{name}</h1>}
      {id === null && (
        <Tabs label="Parts of the eval run" tabs={tabs} current={tab} onSelect={(each) => setQuery({ tab: each === "runs" ? null : each })} />
      )}
      {tab === "statistics" && <TabPanel id={tab}><Statistics page={page} /></TabPanel>}
      {tab === "slices" && <TabPanel id={tab}><Slices page={page} /></TabPanel>}
      {tab === "about" && <TabPanel id={tab}><About page={page} /></TabPanel>}
      {tab === "runs" && (
        <div class="run-body" role={id === null ? "tabpanel" : undefined} id="panel-runs" aria-labelledby={id === null ? "tab-runs" : undefined}>
          <section class="run-grid" hidden={!isGridVisible} aria-label="Runs">
            <Toolbar page={page} shown={shown} />
            {shown.rows.length ? <Grid page={page} shown={shown} open={open} isVisible={isGridVisible} /> : <NoRuns page={page} />}
          </section>
          {id !== null && (
            <aside class="run-conversation" aria-label={`Conversation of ${id}`}>
              {open === null
                ? <Empty title={`There is no run ${id} in this eval run`}>Runs are named like row3-run1, for row 3 of the dataset.</Empty>
                : <ConversationView name={name} page={page} id={id} />}
            </aside>
          )}
        </div>
      )}
    </div>
  );
}

function NoRuns({ page }: { page: RunPage }) {
  if (!page.runs.row.length) return <Empty title="No run has begun">{page.head.row.reason ?? page.head.row.problem}</Empty>;
  return (
    <Empty title="No run is like this">
      <button class="button" onClick={() => setQuery({ q: null })}>Clear the query</button>
    </Empty>
  );
}

function tabsOf(page: RunPage): Tab[] {
  return [
    { id: "runs", title: "Runs" },
    { id: "statistics", title: "Statistics" },
    { id: "slices", title: "Slices" },
    { id: "about", title: "About" },
  ].filter((tab) => tab.id !== "slices" || page.head.slices.length > 0 || page.head.no_slices !== "");
}

function useMedia(query: string): boolean {
  const [holds, setHolds] = useState(() => matchMedia(query).matches);
  useEffect(() => {
    const media = matchMedia(query);
    const look = () => setHolds(media.matches);
    look();
    media.addEventListener("change", look);
    return () => media.removeEventListener("change", look);
  }, [query]);
  return holds;
}
