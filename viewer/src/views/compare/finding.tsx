// The finding of a comparison: what it means, in one sentence and drawn. "May be chance" is as plain as a regression.
import { difference, interval, score } from "../../format";
import type { ComparisonPage, Interval as Bounds } from "../../shapes";
import type { Tone } from "../../ui/chip";
import { Interval } from "../../ui/rate";
import { Notes } from "./notes";
import { Glyph } from "../../ui/parts";

const MEANINGS: Record<string, { glyph: string; tone: Tone }> = {
  worse: { glyph: "▼", tone: "failed" },
  better: { glyph: "▲", tone: "passed" },
  chance: { glyph: "≈", tone: "accent" },
  nothing: { glyph: "!", tone: "unmeasured" },
};

interface Numbers {
  a: { pass_rate: number; pass_rate_interval: Bounds };
  b: { pass_rate: number; pass_rate_interval: Bounds };
  difference: number;
  difference_interval: Bounds;
}

export function Finding({ page }: { page: ComparisonPage }) {
  const { glyph, tone } = MEANINGS[page.meaning ?? "nothing"];
  const [word, sentence] = page.sentence.split(/: (.*)/s); // its meaning, and the rest
  const numbers = page.numbers as unknown as Numbers;
  const bounds = numbers.difference_interval;
  const most = Math.min(1, Math.max(0.05, 1.15 * Math.max(Math.abs(bounds.low), Math.abs(bounds.high))));
  return (
    <section class={`finding tone-${tone}`} aria-label="Finding">
      <p class="finding-word"><Glyph>{glyph}</Glyph> {word}</p>
      <p class="finding-sentence">{sentence.charAt(0).toUpperCase() + sentence.slice(1)}</p>
      <Notes caveats={page.caveats} remarks={page.remarks} />
      <table class="finding-numbers">
        <caption class="visually-hidden">Pass rates over the compared rows, with their 95% intervals</caption>
        <tbody>
          {(["a", "b"] as const).map((side) => (
            <tr key={side}>
              <th scope="row">{side.toUpperCase()}</th>
              <td class="number finding-value">{score(numbers[side].pass_rate)}</td>
              <td class="number muted">{interval(numbers[side].pass_rate_interval)}</td>
              <td><Interval rate={numbers[side].pass_rate} bounds={numbers[side].pass_rate_interval} /></td>
              <td class="finding-scale muted">0 to 1</td>
            </tr>
          ))}
          <tr>
            <th scope="row">B − A</th>
            <td class="number finding-value">{difference(numbers.difference)}</td>
            <td class="number muted">{difference(bounds.low)} to {difference(bounds.high)}</td>
            <td><Interval rate={numbers.difference} bounds={bounds} least={-most} most={most} mark={0} /></td>
            <td class="finding-scale muted">dashed: 0</td>
          </tr>
        </tbody>
      </table>
    </section>
  );
}
