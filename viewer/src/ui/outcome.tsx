// What became of a run: a glyph and a word, never a colour alone.
import type { Outcome } from "../shapes";

export const GLYPHS: Record<Outcome, string> = {
  passed: "✓", failed: "✗", unmeasured: "!", removed: "–", running: "…", pending: "·",
};

export function OutcomeMark({ outcome, word = true }: { outcome: Outcome; word?: boolean }) {
  return (
    <span class={`outcome outcome-${outcome}`}>
      <span aria-hidden="true">{GLYPHS[outcome]}</span>
      {word ? ` ${outcome}` : <span class="visually-hidden">{outcome}</span>}
    </span>
  );
}
