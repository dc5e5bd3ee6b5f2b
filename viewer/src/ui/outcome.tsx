// What became of a run: a glyph and a word, never a colour alone.
import type { Outcome } from "../shapes";
import { Glyph, Unseen } from "./parts";

export const GLYPHS: Record<Outcome, string> = {
  passed: "✓", failed: "✗", unmeasured: "!", removed: "–", running: "…", pending: "○",
};
/** In the grid, a run that passed is a dot: what did not pass is to be seen. */
export const GRID_GLYPHS = { ...GLYPHS, passed: "●" };

export function OutcomeMark({ outcome, word = true }: { outcome: Outcome; word?: boolean }) {
  return (
    <span class={`outcome outcome-${outcome}`}>
      <Glyph>{GLYPHS[outcome]}</Glyph>
      {word ? ` ${outcome}` : <Unseen>{outcome}</Unseen>}
    </span>
  );
}
