// The reasons why a comparison decides nothing, and what else limits it.
import { Glyph } from "../../ui/parts";
export function Notes({ caveats, remarks }: { caveats: string[]; remarks: string[] }) {
  if (!caveats.length && !remarks.length) return null;
  return (
    <ul class="finding-notes">
      {caveats.map((text) => <li key={text} class="finding-caveat tone-unmeasured"><Glyph>! </Glyph>{text}</li>)}
      {remarks.map((text) => <li key={text} class="muted">{text}</li>)}
    </ul>
  );
}
