// The rows that pass in some eval runs and not in others: a cell for each eval run, the oldest first.
import { useState } from "preact/hooks";
import { count, plural } from "../../format";
import type { FlippingRow, ModelHistory } from "../../shapes";
import { useKeys } from "../../state/keys";
import { runAddress } from "../../state/route";
import { Glyph, Unseen } from "../../ui/parts";

const AT_ONCE = 100;
const GLYPHS = { passed: "✓", failed: "✗", half: "½" };

export function FlippingRows({ page }: { page: ModelHistory }) {
  const [most, setMost] = useState(AT_ONCE);
  const move = (by: 1 | -1): void | false => {
    const rows = [...document.querySelectorAll(".flip-rows tbody tr")]; // those of all models
    const next = rows[rows.indexOf(document.activeElement!.closest("tr")!) + by]?.querySelector("a");
    if (!next) return false;
    next.focus();
  };
  useKeys("Rows that flip", [
    { keys: ["j", "ArrowDown"], does: "next row", run: () => move(1) },
    { keys: ["k", "ArrowUp"], does: "previous row", run: () => move(-1) },
  ]);
  const isWide = page.rows.some((row) => row.measured.some((each) => each !== null && each > 1));
  const steady = `${plural(page.n_steady, "row")} never flipped.`;
  const plans = new Set(page.points.map((point) => point.plan)).size;
  if (!page.rows.length && !page.n_steady) return <p class="muted">No row was measured in two eval runs.</p>;
  if (!page.rows.length) return <p class="muted">No row passed in one eval run and failed in another. {steady}</p>;
  return (
    <section class="flips" aria-label={`Rows of ${page.model} that flip`}>
      <div class="row history-head">
        <h3>{plural(page.rows.length, "row")} that flip</h3>
        <span class="muted small">A row passes if more than half of its measured runs do, and fails if fewer do; half is neither. {plans > 1 && "Eval runs of all plans count. "}Rows that pass only sometimes flip by chance. {steady}</span>
      </div>
      <div class="table-frame cards" tabIndex={0} role="region" aria-label={`Rows that flip, by eval run of ${page.model}`}>
        <table class="flip-rows">
          <thead>
            <tr><th scope="col">row</th><th scope="col" class="number">flips</th><th scope="col">{plural(page.points.length, "eval run")}, the newest on the right</th><th scope="col">prompt</th></tr>
          </thead>
          <tbody>{page.rows.slice(0, most).map((row) => <Row key={`${row.digest} ${row.row_index}`} page={page} row={row} isWide={isWide} />)}</tbody>
        </table>
      </div>
      {page.rows.length > most && (
        <p><button class="button" onClick={() => setMost(most + AT_ONCE)}>Show {count(Math.min(AT_ONCE, page.rows.length - most))} more</button></p>
      )}
    </section>
  );
}

function Row({ page, row, isWide }: { page: ModelHistory; row: FlippingRow; isWide: boolean }) {
  return (
    <tr>
      <th scope="row">row{row.row_index}</th>
      <td class="number" data-title="flips">{row.flips}</td>
      <td><span class={isWide ? "flip-cells flip-cells-wide" : "flip-cells"}>{page.points.map((_, at) => <Cell key={at} page={page} row={row} at={at} />)}</span></td>
      <td class="flip-prompt" dir="auto" title={row.prompt}>{row.prompt}</td>
    </tr>
  );
}

function Cell({ page, row, at }: { page: ModelHistory; row: FlippingRow; at: number }) {
  const { name } = page.points[at].row;
  const passed = row.passed[at], measured = row.measured[at], index = row.row_indices[at];
  if (passed === null || measured === null || index === null)
    return <span class="flip-cell flip-unmeasured" title={`${name}: not measured`}><Glyph>·</Glyph><Unseen>not measured</Unseen></span>;
  const side = 2 * passed === measured ? "half" : 2 * passed > measured ? "passed" : "failed";
  const text = `${name}: ${passed} of ${measured} passed`;
  return (
    <a class={`flip-cell flip-${side}`} href={runAddress(name, `row${index}-run0`)} title={text} aria-label={`${passed}/${measured} passed in ${name}`}>
      <Glyph>{GLYPHS[side]}{measured > 1 && passed > 0 && passed < measured && <small>{passed}/{measured}</small>}</Glyph>
    </a>
  );
}
