import { usePage } from "../state/page";
import { source } from "../source/source";
import { ConversationView } from "./conversation";

export function RunView({ name, id }: { name: string; id: string | null }) {
  const page = usePage(() => source().run(name), [name]);
  return page.view((run) => (
    <>
      <h1>{run.head.row.name}</h1>
      {id && <ConversationView name={name} page={run} id={id} />}
    </>
  ));
}
