// Two runs beside each other: outcome, scores, the words in which the answers differ, and both conversations.
import { useMemo } from "preact/hooks";
import type { Conversation, RunPage } from "../../shapes";
import { runAddress } from "../../state/route";
import { outcomeOf, runId } from "../../state/run_ids";
import { OutcomeMark } from "../../ui/outcome";
import { asText } from "../conversation/chat_shapes";
import { expectedOf, scoredBy } from "../conversation/events";
import { Failure } from "../conversation/failure";
import { answerOf } from "../conversation/joined";
import { type Loaded, useConversation } from "../conversation/load";
import { Messages } from "../conversation/messages";
import { Scores } from "../conversation/scores";
import { Escaped, Text } from "../conversation/text";
import { type Part, shareInCommon, wordDiff } from "../word_diff";
import { Glyph, Loading, Problem } from "../../ui/parts";

/** Longer answers with less in common than this are shown without marks, which would be everywhere. */
const LEAST_IN_COMMON = 0.15;
const LONG = 400;

export interface SideRun {
  letter: "A" | "B";
  page: RunPage;
  /** The runs of the row, and the one that is shown. */
  runs: number[];
  at: number;
  choose(at: number): void;
}

export function TwoRuns({ a, b }: { a: SideRun; b: SideRun }) {
  const loadedA = useConversation(a.page.head.row.name, a.page, a.at);
  const loadedB = useConversation(b.page.head.row.name, b.page, b.at);
  const [of, other] = [conversationOf(loadedA), conversationOf(loadedB)];
  const answers = [answerIn(of), answerIn(other)] as const;
  const diff = useMemo(() => (answers[0] === null || answers[1] === null ? null : wordDiff(...(answers as [string, string]))), answers);
  const isSame = diff !== null && answers[0] === answers[1];
  const isOther = diff !== null && Math.max(answers[0]!.length, answers[1]!.length) > LONG && shareInCommon(diff) < LEAST_IN_COMMON;
  const expected = (of && expectedOf(of)) ?? (other && expectedOf(other));
  return (
    <>
      {expected !== null && expected !== undefined && (
        <section class="panel pair-expected" aria-label="Expected answer"><h2>Expected</h2><Text text={asText(expected).trim()} /></section>
      )}
      {isSame && <p class="pair-same"><Glyph>=</Glyph> Both gave the same answer.</p>}
      {isOther && <p class="pair-same"><Glyph>≠</Glyph> The answers have few words in common, so no words are marked.</p>}
      <div class="pair">
        <Result side={a} loaded={loadedA} parts={isOther ? undefined : diff?.a} isSame={isSame} />
        <Result side={b} loaded={loadedB} parts={isOther ? undefined : diff?.b} isSame={isSame} />
      </div>
      <div class="pair">
        {of && <Whole letter="A" conversation={of} />}
        {other && <Whole letter="B" conversation={other} />}
      </div>
    </>
  );
}

/** What became of a run: its error, its scores and its answer. */
function Result({ side, loaded, parts, isSame }: { side: SideRun; loaded: Loaded; parts: Part[] | undefined; isSame: boolean }) {
  const { letter, page, at } = side;
  const conversation = conversationOf(loaded);
  const name = page.head.row.name;
  return (
    <article class="conversation pair-side" aria-label={`${letter}: ${runId(page, at)}`}>
      <header class="row pair-side-head">
        <strong>{letter}</strong>
        <Runs side={side} />
        <a class="small" href={runAddress(name, runId(page, at))}>open {runId(page, at)}</a>
      </header>
      <Failure page={page} at={at} conversation={conversation} />
      <Scores scores={scoredBy(page, at, conversation)} isScored={page.runs.boundary[at] < 0} />
      <section class="pair-answer" aria-label={`Answer of ${letter}`}>
        <h2>Answer {parts && !isSame && <span class={`diff-key diff-${letter.toLowerCase()}`}>only in {letter}</span>}</h2>
        <Answer letter={letter} answer={answerIn(conversation)} loaded={loaded} parts={parts} />
      </section>
    </article>
  );
}

function Whole({ letter, conversation }: { letter: "A" | "B"; conversation: Conversation }) {
  return (
    <section class="conversation pair-whole" aria-label={`Conversation of ${letter}`}>
      <h2>Conversation of {letter}</h2>
      <Messages conversation={conversation} />
    </section>
  );
}

/** A button for each run of the row, with its outcome. */
function Runs({ side: { letter, page, runs, at, choose } }: { side: SideRun }) {
  return (
    <div class="pair-runs" role="group" aria-label={`Runs of ${letter}`}>
      {runs.map((each) => (
        <button key={each} class="pair-run" aria-pressed={each === at} onClick={() => choose(each)}>
          <OutcomeMark outcome={outcomeOf(page, each)} word={each === at} />
          <span class="muted">{each === at ? `run${page.runs.run[each]}` : page.runs.run[each]}</span>
        </button>
      ))}
    </div>
  );
}

function Answer({ letter, answer, loaded, parts }: { letter: "A" | "B"; answer: string | null; loaded: Loaded; parts: Part[] | undefined }) {
  if (loaded.state === "loading") return <Loading />;
  if (loaded.state === "problem") return <Problem>{loaded.problem}</Problem>;
  if (loaded.state === "absent") return <p class="aside">This report does not hold this conversation.</p>;
  if (answer === null) return <p class="aside">There is no answer.</p>;
  if (answer === "") return <p class="aside">The answer is empty.</p>;
  if (!parts) return <Text text={answer} />;
  return (
    <div class="text pair-text" tabIndex={0} role="region" aria-label={`Text of the answer of ${letter}`}>
      <Parts letter={letter} parts={parts} />
    </div>
  );
}

export function Parts({ letter, parts }: { letter: "A" | "B"; parts: Part[] }) {
  return <>{parts.map((part, index) => (part.isSame
    ? <Escaped key={index} text={part.text} />
    : <mark key={index} class={`diff-${letter.toLowerCase()}`}><Escaped text={part.text} /></mark>))}</>;
}

/** The answer of a run, "" without one; null if it is not loaded. */
export function useAnswer(page: RunPage, at: number | undefined): string | null {
  const conversation = conversationOf(useConversation(page.head.row.name, page, at));
  return conversation && (answerIn(conversation) ?? "");
}

function conversationOf(loaded: Loaded): Conversation | null {
  return loaded.state === "there" ? loaded.conversation : null;
}

/** The answer of a rollout; null if there is none, or if it is not loaded. */
function answerIn(conversation: Conversation | null): string | null {
  const rollout = conversation?.rollout;
  return rollout ? answerOf((rollout.messages ?? []).slice(rollout.n_prompt ?? 0)) : null;
}
