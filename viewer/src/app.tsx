import { route } from "./state/route";
import { CompareView } from "./views/compare";
import { HistoryView } from "./views/history";
import { RunView } from "./views/run";
import { RunsView } from "./views/runs";

export function App() {
  const { view } = route.value;
  return <main>{view.name === "run" ? <RunView name={view.run} id={view.id} />
    : view.name === "compare" ? <CompareView a={view.a} b={view.b} digest={view.digest} />
    : view.name === "history" ? <HistoryView evalName={view.eval} />
    : <RunsView />}</main>;
}
