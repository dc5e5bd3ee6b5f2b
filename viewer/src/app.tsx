import { useEffect, useRef } from "preact/hooks";
import { useKeys } from "./state/keys";
import { type View, go, route, written } from "./state/route";
import { announce, Notices } from "./ui/notice";
import { CompareView } from "./views/compare";
import { Header, trailOf } from "./views/header";
import { HelpDialog, helpIsOpen } from "./views/help";
import { HistoryView } from "./views/history";
import { RunView } from "./views/run";
import { RunsView } from "./views/runs";

export function App() {
  const { view } = route.value;
  const title = titleOf(view);
  useEffect(() => { document.title = `${title} · pytest-osmosis`; }, [title]);
  useNewView(pageOf(view), title);
  useKeys("Everywhere", [
    { keys: ["?"], does: "list the keys", run: () => { helpIsOpen.value = true; } },
    { keys: ["Escape"], does: "one level up", run: () => up(route.peek().view) },
  ], "page");
  return (
    <>
      <Header />
      <main class={`main main-${view.name}`} id="main" tabIndex={-1}>
        {view.name === "run" ? <RunView name={view.run} id={view.id} />
          : view.name === "compare" ? <CompareView a={view.a} b={view.b} digest={view.digest} />
          : view.name === "history" ? <HistoryView evalName={view.eval} />
          : <RunsView />}
      </main>
      <HelpDialog />
      <Notices />
    </>
  );
}

/** Leave a conversation for its eval run, and that for the list. */
function up(view: View): void | false {
  if (view.name === "runs") return false;
  if (view.name === "run" && view.id) go({ name: "run", run: view.run, id: null }, route.value.query);
  else if (view.name === "compare" && view.digest) go({ name: "compare", a: view.a, b: view.b, digest: null }, route.value.query);
  else go({ name: "runs" });
}

/** Begin a new page at its top, and say to screen readers what is shown. */
function useNewView(page: string, title: string): void {
  const isFirst = useRef(true);
  useEffect(() => {
    if (!isFirst.current) {
      announce(title);
      scrollTo(0, 0);
    }
    isFirst.current = false;
  }, [page]);
}

/** The address of the page that a view is on, whatever is open in it. */
function pageOf(view: View): string {
  return written(view.name === "run" ? { ...view, id: null } : view.name === "compare" ? { ...view, digest: null } : view);
}

/** "row3-run1 of sums, 2026-11-29 13:27". */
function titleOf(view: View): string {
  const [home, ...below] = trailOf(view).map(({ title }) => title);
  return below.reverse().join(" of ") || home;
}
