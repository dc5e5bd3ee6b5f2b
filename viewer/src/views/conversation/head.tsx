// The head of a conversation: which run it is, the other runs of its row, and the ways to the next one.
import { useKeys } from "../../state/keys";
import { route, runAddress } from "../../state/route";
import { outcomeOf, runId } from "../../state/run_ids";
import { closeRun, nextFailure, openRun, siblings } from "../../state/shown_runs";
import type { RunPage } from "../../shapes";
import { copyText } from "../../ui/copy";
import { announce, notify } from "../../ui/notice";
import { GLYPHS, OutcomeMark } from "../../ui/outcome";
import { useEffect } from "preact/hooks";
import { Glyph, Unseen } from "../../ui/parts";

interface HeadProps {
  page: RunPage;
  at: number;
  toggleMarkdown: () => void;
  /** Scroll by a share of what is in sight. */
  scroll: (share: number) => void;
}

export function Head({ page, at, toggleMarkdown, scroll }: HeadProps) {
  const outcome = outcomeOf(page, at);
  const row = page.rows.index[page.runs.row[at]];
  const toFailure = (step: 1 | -1) => {
    const next = nextFailure(page, at, step);
    if (next !== null) openRun(page, next);
    else notify(`No failure ${step > 0 ? "after" : "before"} this one`);
  };
  useKeys("Conversation", [
    { keys: ["d"], does: "scroll the conversation down", run: () => scroll(0.8) },
    { keys: ["u"], does: "scroll it up", run: () => scroll(-0.8) },
    { keys: ["m"], does: "Markdown, or the texts as they are", run: toggleMarkdown },
    { keys: ["y"], does: "copy a link to this run", run: () => void copyLink() },
  ], "panel");
  useEffect(() => announce(`${runId(page, at)}, ${outcome}`), [at, outcome]);
  return (
    <header class="row conversation-head">
      <h2 class="conversation-title">Row {row}, run {page.runs.run[at]}{page.runs.model[at] > 0 && " of the baseline"}</h2>
      <OutcomeMark outcome={outcome} />
      <Siblings page={page} at={at} />
      <div class="conversation-steps">
        <button class="button button-small" onClick={() => toFailure(-1)} title="previous failure (p)">‹<Unseen> previous failure</Unseen></button>
        <span class="aside" aria-hidden="true">failures</span>
        <button class="button button-small" onClick={() => toFailure(1)} title="next failure (n)">›<Unseen> next failure</Unseen></button>
        <button class="button button-small" onClick={() => void copyLink()} title="copy a link to this run (y)">Copy link</button>
        <button class="button button-small button-quiet" onClick={() => closeRun(page)} title="close (Esc)"><Glyph>×</Glyph><Unseen>close</Unseen></button>
      </div>
    </header>
  );
}

/** The runs of the same row, each a link. */
function Siblings({ page, at }: { page: RunPage; at: number }) {
  const all = siblings(page, at);
  if (all.length < 2) return null;
  const name = page.head.row.name;
  return (
    <nav class="siblings" aria-label="runs of this row">
      {all.map((each) => {
        const id = runId(page, each);
        const outcome = outcomeOf(page, each);
        const title = `run ${page.runs.run[each]}${page.runs.model[each] > 0 ? " of the baseline" : ""}: ${outcome}`;
        return (
          <a key={each} class={`sibling outcome-${outcome}`} href={runAddress(name, id, route.value.query)}
            aria-current={each === at ? "true" : undefined} aria-label={title} title={title}
            onClick={(event) => { if (!event.ctrlKey && !event.metaKey && !event.shiftKey) { event.preventDefault(); openRun(page, each); } }}>
            <Glyph>{GLYPHS[outcome]}</Glyph>
          </a>
        );
      })}
    </nav>
  );
}

async function copyLink(): Promise<void> {
  notify((await copyText(location.href)) ? "Copied the link" : "The browser refused to copy. The address bar has the link.");
}
