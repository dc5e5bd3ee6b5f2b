// A text as it really was: every character of it, in the lines and spaces that it has.
import { useId, useState } from "preact/hooks";
import { pieces } from "./escapes";
import { UntilFound } from "./folded";

const LINES = 60;
const CHARS = 8_000;
/** Longer texts are laid out in blocks of about this many characters, each only when it comes into view. */
const BLOCK_CHARS = 30_000;

interface TextProps {
  text: string;
  class?: string;
  /** The part of a long text that is not folded. */
  keep?: "start" | "end";
  /** The lines, and the characters, of which more are folded. */
  lines?: number;
  chars?: number;
}

/** A text, of which a long one is folded; the browser's search finds what is folded. */
export function Text({ text, class: name = "", keep = "start", lines = LINES, chars = CHARS }: TextProps) {
  const [isOpen, setOpen] = useState(false);
  const id = useId();
  const cut = keep === "start" ? cutAfterStart(text, lines, chars) : cutBeforeEnd(text, lines, chars);
  const frame = { class: `text ${name}`, tabIndex: name.includes("scrolls") ? 0 : undefined }; // by keys too
  if (cut === null) return <div {...frame}><Escaped text={text} /></div>;
  const [first, rest] = [text.slice(0, cut), text.slice(cut)];
  const folded = keep === "start" ? rest : first;
  const body = <UntilFound id={id} isOpen={isOpen} open={() => setOpen(true)}><Blocks text={folded} /></UntilFound>;
  const button = (
    <button class="more" aria-expanded={isOpen} aria-controls={id} onClick={() => setOpen(!isOpen)}>
      {isOpen ? "Show less" : `Show ${sizeOf(folded)} ${keep === "start" ? "more" : "before"}`}
    </button>
  );
  return (
    <div {...frame}>
      {keep === "start" && <div><Escaped text={first.replace(/\n$/, "")} /></div>}
      {keep === "end" && button}
      {body}
      {keep === "start" && button}
      {keep === "end" && <div><Escaped text={rest} /></div>}
    </div>
  );
}

function Blocks({ text }: { text: string }) {
  const blocks: string[] = [];
  for (let at = 0; at < text.length; ) {
    const line = text.length - at <= BLOCK_CHARS ? -1 : text.indexOf("\n", at + BLOCK_CHARS);
    const end = line < 0 ? text.length : line + 1;
    blocks.push(text.slice(at, end));
    at = end;
  }
  return <>{blocks.map((block, index) => <div key={index} class="text-block"><Escaped text={block} /></div>)}</>;
}

/** A text in which characters that nobody can see are escapes. */
export function Escaped({ text }: { text: string }) {
  const parts = pieces(text);
  if (parts.length === 1 && !parts[0].isEscape) return <>{parts[0].text}</>;
  return <>{parts.map((part) => (part.isEscape ? <span class="escape">{part.text}</span> : part.text))}</>;
}

/** The place after which a text is folded; null if it is short. A few lines more are no reason to fold. */
function cutAfterStart(text: string, lines: number, chars: number): number | null {
  const end = nthLine(text, lines);
  if (text.length <= chars && (end < 0 || nthLine(text, lines + lines / 6) < 0)) return null;
  if (end >= 0 && end < chars) return end + 1;
  const line = text.lastIndexOf("\n", chars);
  return whole(text, line > chars / 2 ? line + 1 : chars);
}

function cutBeforeEnd(text: string, lines: number, chars: number): number | null {
  let start = text.length;
  for (let n = 0; n < lines && start > 0; n += 1) start = text.lastIndexOf("\n", start - 1);
  if (text.length <= chars && start <= 0) return null;
  if (start > 0 && text.length - start <= chars) return start + 1;
  const line = text.indexOf("\n", text.length - chars);
  return whole(text, line >= 0 && line < text.length - chars / 2 ? line + 1 : text.length - chars);
}

function nthLine(text: string, n: number): number {
  let at = -1;
  for (let line = 0; line < n; line += 1) {
    at = text.indexOf("\n", at + 1);
    if (at < 0) return -1;
  }
  return at;
}

/** A place that does not divide a character of two units. */
function whole(text: string, at: number): number {
  const unit = text.charCodeAt(at);
  return unit >= 0xdc00 && unit <= 0xdfff ? at + 1 : at;
}

function sizeOf(text: string): string {
  let lines = 0;
  for (let at = text.indexOf("\n"); at >= 0; at = text.indexOf("\n", at + 1)) lines += 1;
  const named = (count: number, noun: string) => `${count.toLocaleString("en-US")} ${noun}${count === 1 ? "" : "s"}`;
  return lines > 1 ? named(lines, "line") : named(text.length, "character");
}
