import { usePage } from "../state/page";
import { route, written } from "../state/route";
import { source } from "../source/source";

export function RunsView() {
  const page = usePage(() => source().runs(), []);
  void route.value;
  return page.view((runs) => (
    <ul>{runs.runs.map((run) => <li key={run.name}><a href={written({ name: "run", run: run.name, id: null })}>{run.name}</a></li>)}</ul>
  ));
}
