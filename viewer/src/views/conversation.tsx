import type { RunPage } from "../shapes";

export function ConversationView({ id }: { name: string; page: RunPage; id: string }) {
  return <h2>{id}</h2>;
}
