// The places of the query's texts in a conversation: marked, counted, and the first one brought into view.
import type { RefObject } from "preact";
import { useEffect, useState } from "preact/hooks";
import { plural } from "../../format";
import { parsedQuery } from "../../query/parse";
import type { RunPage } from "../../shapes";
import { useKeys } from "../../state/keys";
import { Unseen } from "../../ui/parts";

const MOST = 1_000;

export interface Sought {
  /** The texts and words that a query looks for. */
  texts: string[];
  /** True if it looks for them in conversations; words are looked for in prompts and errors. */
  isInConversations: boolean;
}

export function soughtIn(query: string, page: RunPage): Sought {
  const terms = query ? parsedQuery(query, page).terms : [];
  const found = terms.flatMap((term) => (!term.isNegated && (term.kind === "text" || term.kind === "word") && term.text.trim() ? [term] : []));
  return { texts: found.map((term) => term.text), isInConversations: found.some((term) => term.kind === "text") };
}

interface HitsProps {
  root: RefObject<HTMLElement>;
  sought: Sought;
  /** Changes with the conversation. */
  of: string;
}

export function Hits({ root, sought, of }: HitsProps) {
  const { texts } = sought;
  const [ranges, setRanges] = useState<Range[]>([]);
  const [current, setCurrent] = useState(0);
  useEffect(() => {
    let timer: ReturnType<typeof setTimeout> | undefined;
    let isFirst = true;
    const look = () => {
      const found = rangesOf(root.current, texts);
      mark("hit", found);
      setRanges(found);
      if (isFirst && found.length) show(found, 0);
      isFirst &&= !found.length;
    };
    const observer = new MutationObserver(() => { clearTimeout(timer); timer = setTimeout(look, 50); });
    observer.observe(root.current!, { childList: true, subtree: true });
    look();
    return () => {
      observer.disconnect();
      clearTimeout(timer);
      mark("hit", []);
      mark("current-hit", []);
    };
  }, [of, texts.join("\n")]);

  const show = (all: Range[], place: number) => {
    setCurrent(place);
    mark("current-hit", [all[place]]);
    reveal(all[place]);
  };
  const step = (by: number) => ranges.length > 0 && show(ranges, (current + by + ranges.length) % ranges.length);
  useKeys("Hits of the query", [
    { keys: ["."], does: "next hit in the conversation", run: () => void step(1) },
    { keys: [","], does: "previous hit", run: () => void step(-1) },
  ], "panel");
  if (!ranges.length && !sought.isInConversations) return null;
  return (
    <div class="row hits">
      <span>{texts.map((text) => `“${text}”`).join(", ")}: {plural(ranges.length, "hit")}{ranges.length === MOST && " or more"} in this conversation</span>
      {ranges.length > 1 && (
        <>
          <button class="button button-small" onClick={() => step(-1)}>‹<Unseen> previous hit</Unseen></button>
          <span>{current + 1}</span>
          <button class="button button-small" onClick={() => step(1)}>›<Unseen> next hit</Unseen></button>
        </>
      )}
    </div>
  );
}

function rangesOf(root: HTMLElement | null, texts: string[]): Range[] {
  if (!root || !texts.length) return [];
  const sought = new RegExp(texts.map((text) => text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")).join("|"), "gi");
  const nodes = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
  const ranges: Range[] = [];
  for (let node = nodes.nextNode(); node && ranges.length < MOST; node = nodes.nextNode()) {
    if (node.parentElement?.closest("button")) continue;
    for (const found of (node as Text).data.matchAll(sought)) {
      const range = document.createRange();
      range.setStart(node, found.index);
      range.setEnd(node, found.index + found[0].length);
      if (ranges.push(range) >= MOST) break;
    }
  }
  return ranges;
}

/** Colour ranges, where the browser can. */
function mark(name: string, ranges: Range[]): void {
  if (typeof CSS === "undefined" || !("highlights" in CSS)) return;
  if (ranges.length) CSS.highlights.set(name, new Highlight(...ranges));
  else CSS.highlights.delete(name);
}

/** Bring a range into view, out of a folded part too. */
function reveal(range: Range): void {
  const element = range.startContainer.parentElement;
  for (let fold = element?.closest("[hidden]"); fold; fold = fold.parentElement?.closest("[hidden]")) {
    fold.dispatchEvent(new Event("beforematch"));
    fold.removeAttribute("hidden");
  }
  // What was out of sight is laid out only once it comes near, and then its place changes.
  const approach = (tries: number) => requestAnimationFrame(() => {
    const frame = scrollerOf(element);
    const top = frame === document.scrollingElement ? 0 : frame.getBoundingClientRect().top;
    const way = range.getBoundingClientRect().top - top - frame.clientHeight / 3;
    frame.scrollBy({ top: way, behavior: "instant" });
    if (tries > 0 && Math.abs(way) > 1) approach(tries - 1);
  });
  approach(10);
}

function scrollerOf(element: Element | null): Element {
  for (let each = element; each; each = each.parentElement)
    if (/auto|scroll/.test(getComputedStyle(each).overflowY) && each.scrollHeight > each.clientHeight) return each;
  return document.scrollingElement!;
}
