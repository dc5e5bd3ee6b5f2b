// A run as it really was: what became of it, its scores and answer, and its conversation, whole.
import type { ComponentChildren } from "preact";
import { useEffect, useErrorBoundary, useLayoutEffect, useRef } from "preact/hooks";
import type { Conversation, RunPage } from "../shapes";
import { source } from "../source/source";
import { route, setQuery } from "../state/route";
import { outcomeOf, positionOf } from "../state/run_ids";
import { Empty } from "../ui/empty";
import { Answer } from "./conversation/answer";
import { scoredBy } from "./conversation/events";
import { Facts, Rerun } from "./conversation/facts";
import { Failure } from "./conversation/failure";
import { Hits, soughtIn } from "./conversation/hits";
import { Head } from "./conversation/head";
import { useConversation } from "./conversation/load";
import { Messages } from "./conversation/messages";
import { Records } from "./conversation/records";
import { Scores } from "./conversation/scores";
import { Loading, Problem } from "../ui/parts";

export { Messages };

export function ConversationView({ name, page, id }: { name: string; page: RunPage; id: string }) {
  const at = positionOf(page, id);
  if (at < 0) return <Empty title={`${name} has no run ${id}`}>Its runs are in the grid.</Empty>;
  return <Guarded name={name} id={id}><RunOfRow name={name} page={page} at={at} /></Guarded>;
}

/** Says what went wrong, if something that nobody expected cannot be laid out. */
function Guarded({ name, id, children }: { name: string; id: string; children: ComponentChildren }) {
  const [error, retry] = useErrorBoundary();
  useEffect(retry, [id]);
  if (!error) return <>{children}</>;
  return (
    <Empty title="This run cannot be shown">
      {String(error)}. Its events are as they were in the journal: <code>pytest-osmosis show {name}</code>
    </Empty>
  );
}

function RunOfRow({ name, page, at }: { name: string; page: RunPage; at: number }) {
  const loaded = useConversation(name, page, at);
  const isMarkdown = route.value.query.get("text") === "markdown";
  const toggleMarkdown = () => setQuery({ text: isMarkdown ? null : "markdown" });
  const element = useRef<HTMLElement>(null);
  useLayoutEffect(() => element.current?.parentElement?.scrollTo({ top: 0 }), [at]);
  const scroll = (share: number) => element.current?.parentElement?.scrollBy({ top: share * element.current.parentElement.clientHeight });
  const conversation = loaded.state === "there" ? loaded.conversation : null;
  const outcome = outcomeOf(page, at);
  const hasEnded = outcome !== "running" && outcome !== "pending";
  return (
    <article class="conversation" ref={element}>
      <Head page={page} at={at} toggleMarkdown={toggleMarkdown} scroll={scroll} />
      <Failure page={page} at={at} conversation={conversation} />
      {hasEnded && <Scores scores={scoredBy(page, at, conversation)} isScored={page.runs.boundary[at] < 0} />}
      {conversation && !conversation.rollout.boundary && <Answer conversation={conversation} />}
      <Facts page={page} at={at} conversation={conversation} />
      <Rerun page={page} at={at} />
      {loaded.state === "loading" && <Loading />}
      {loaded.state === "problem" && <Problem>{loaded.problem}</Problem>}
      {loaded.state === "absent" && <Absent page={page} at={at} />}
      {conversation && <Whole key={at} page={page} conversation={conversation} isMarkdown={isMarkdown} toggleMarkdown={toggleMarkdown} />}
    </article>
  );
}

interface WholeProps {
  page: RunPage;
  conversation: Conversation;
  isMarkdown: boolean;
  toggleMarkdown: () => void;
}

function Whole({ page, conversation, isMarkdown, toggleMarkdown }: WholeProps) {
  const whole = useRef<HTMLDivElement>(null);
  const sought = soughtIn(route.value.query.get("q") ?? "", page);
  return (
    <>
      <div class="conversation-bar">
        <h3>Conversation</h3>
        <div class="text-modes" role="group" aria-label="texts">
          <button class="button button-small" aria-pressed={!isMarkdown} onClick={() => isMarkdown && toggleMarkdown()}>Raw</button>
          <button class="button button-small" aria-pressed={isMarkdown} onClick={() => isMarkdown || toggleMarkdown()}>Markdown</button>
        </div>
      </div>
      {sought.texts.length > 0 && <Hits root={whole} sought={sought} of={String(isMarkdown)} />}
      <div class="conversation-whole" ref={whole}>
        <Messages conversation={conversation} isMarkdown={isMarkdown} />
        <Records conversation={conversation} isMarkdown={isMarkdown} />
      </div>
    </>
  );
}

function NotYet() {
  return <Empty title="The rollout has not ended">Its messages are here once it has.</Empty>;
}

/** In place of a conversation that is not here. */
function Absent({ page, at }: { page: RunPage; at: number }) {
  const { head, runs } = page;
  const outcome = head.outcomes[runs.outcome[at]];
  if (outcome === "running" || outcome === "pending") return <NotYet />;
  const kept = head.html_conversations;
  const isLeftOut = !source().isLive && (kept === "none" || (kept === "failed" && outcome === "passed"));
  if (!isLeftOut) return <Empty title="No conversation of this run is stored" />;
  return (
    <Empty title="This report does not hold this conversation">
      It was written with html_conversations = "{kept}". The dashboard shows all: <code>pytest-osmosis view {head.row.name}</code>
    </Empty>
  );
}
