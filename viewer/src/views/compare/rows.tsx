// The rows of both eval runs, filtered by their change and opened side by side.
import { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
import { count, difference, plural } from "../../format";
import type { ComparedRow, ComparisonPage } from "../../shapes";
import { useKeys } from "../../state/keys";
import { go, route, runAddress, setQuery, written } from "../../state/route";
import { ToggleChip, type Tone } from "../../ui/chip";
import { Disclosure } from "../../ui/disclosure";
import { type KeyedRow, type Shown, listedRows, rowName, shownOf } from "./row_keys";
import { Glyph } from "../../ui/parts";
import { Escaped } from "../conversation/text";
import { type Part, wordDiff } from "../word_diff";
import { type BothRuns, tellingRuns, useRuns } from "./both_runs";
import { Parts, useAnswer } from "./two_runs";

export const CHANGES: Record<ComparedRow["change"], { glyph: string; word: string; tone: Tone }> = {
  worse: { glyph: "▼", word: "worse", tone: "failed" },
  better: { glyph: "▲", word: "better", tone: "passed" },
  same: { glyph: "=", word: "same", tone: "neutral" },
  unmeasured: { glyph: "!", word: "unmeasured", tone: "unmeasured" },
};
/** Rows that are laid out at first, and again whenever more are asked for. */
const AT_ONCE = 200;
/** Answers with more characters than this are shown without marks here. */
const MOST_COMPARED = 4000;

export function ComparedRows({ page, rows, shown: open }: { page: ComparisonPage; rows: KeyedRow[]; shown: KeyedRow | undefined }) {
  const { query } = route.value;
  const shown = shownOf(query.get("change"), rows);
  const listed = listedRows(rows, query);
  const runs = useRuns(page);
  const [most, setMost] = useState(AT_ONCE);
  const body = useRef<HTMLTableSectionElement>(null);
  const field = useRef<HTMLInputElement>(null);
  const at = open ? listed.findIndex((row) => row.key === open.key) : -1;
  const limit = Math.max(most, at + 1);

  const step = (by: 1 | -1, fits: (row: KeyedRow) => boolean = () => true): void | false => {
    let next = (open ? at : focusedAt(body.current)) + by;
    while (next >= 0 && next < listed.length && !fits(listed[next])) next += by;
    if (next < 0 || next >= listed.length) return false;
    if (open) return openRow(page, listed[next], true);
    const link = linkAt(body.current, next);
    if (link) return link.focus();
    setMost(next + AT_ONCE); // focused once it is laid out
    requestAnimationFrame(() => linkAt(body.current, next)?.focus());
  };
  useKeys("Rows", [
    { keys: ["j", "ArrowDown"], does: "next row", run: () => step(1) },
    { keys: ["k", "ArrowUp"], does: "previous row", run: () => step(-1) },
    { keys: ["n"], does: "next row that is worse", run: () => step(1, (row) => row.change === "worse") },
    { keys: ["p"], does: "previous row that is worse", run: () => step(-1, (row) => row.change === "worse") },
    { keys: ["/"], does: "find a row", run: () => field.current?.focus() },
  ]);
  const last = useRef(-1);
  useLayoutEffect(() => {
    if (at >= 0) linkAt(body.current, at)?.scrollIntoView({ block: "nearest" });
    else linkAt(body.current, last.current)?.focus(); // the row that was open
    last.current = at;
  }, [at]);

  return (
    <section class="compared" aria-label="Rows">
      <div class="row compared-tools">
        <Filters rows={rows} shown={shown} />
        <label class="choice"><span class="choice-label">Find</span>
          <input ref={field} type="search" value={query.get("q") ?? ""} placeholder="prompt or row7" onInput={(event) => setQuery({ q: event.currentTarget.value })}
            onKeyDown={(event) => { if (event.key === "Escape") { event.preventDefault(); event.stopPropagation(); event.currentTarget.blur(); } }} />
        </label>
        <label class="choice"><span class="choice-label">Order</span>
          <select value={query.get("sort") === "row" ? "row" : "loss"} onChange={(event) => setQuery({ sort: event.currentTarget.value === "row" ? "row" : null })}>
            <option value="loss">largest loss first</option>
            <option value="row">as in the dataset</option>
          </select>
        </label>
      </div>
      <p class="muted small" role="status">{count(listed.length)} of {plural(rows.length, "row")} that both have</p>
      {listed.length > 0 && (
        <div class="table-frame cards">
          <table class="compared-rows">
            <caption class="visually-hidden">Rows of both eval runs</caption>
            <thead>
              <tr><th scope="col">change</th><th scope="col">row</th><th scope="col">A</th><th scope="col">B</th></tr>
            </thead>
            <tbody ref={body}>{listed.slice(0, limit).map((row) => <Row key={row.key} page={page} runs={runs.value} row={row} isOpen={row.key === open?.key} />)}</tbody>
          </table>
        </div>
      )}
      {listed.length > limit && (
        <p><button class="button" onClick={() => setMost(limit + AT_ONCE)}>Show {count(Math.min(AT_ONCE, listed.length - limit))} more</button></p>
      )}
      <Unmatched letter="A" rows={page.only_a} run={page.a.name} />
      <Unmatched letter="B" rows={page.only_b} run={page.b.name} />
    </section>
  );
}

function Row({ page, runs, row, isOpen }: { page: ComparisonPage; runs: BothRuns | undefined; row: KeyedRow; isOpen: boolean }) {
  const { glyph, word, tone } = CHANGES[row.change];
  const frame = useRef<HTMLTableRowElement>(null);
  const [isSeen, setSeen] = useState(false);
  useEffect(() => { // answers are read when their row comes into view
    const observer = new IntersectionObserver(([{ isIntersecting }]) => { if (isIntersecting) setSeen(true); }, { rootMargin: "1500px" });
    observer.observe(frame.current!);
    return () => observer.disconnect();
  }, []);
  return (
    <tr ref={frame} aria-current={isOpen ? "true" : undefined} onClick={(event) => { if (!(event.target as HTMLElement).closest("a")) openRow(page, row, isOpen); }}>
      <td class={`change tone-${tone}`}><Glyph>{glyph}</Glyph> {word}<span class="cell-line cell-small number">{row.loss === null ? "" : difference(-row.loss)}</span></td>
      <th scope="row"><a href={written(viewOf(page, row), route.value.query)}>{rowName(row)}</a><span class="cell-small compared-text" dir="auto" title={row.prompt}>{row.prompt}</span></th>
      {isSeen && runs ? <Answers runs={runs} row={row} /> : <><Side letter="A" row={row} /><Side letter="B" row={row} /></>}
    </tr>
  );
}

/** Both answers, with the words in which they differ. */
function Answers({ runs: [a, b], row }: { runs: BothRuns; row: KeyedRow }) {
  const [[, atA], [, atB]] = tellingRuns(a, b, row);
  const of = useAnswer(a, atA), other = useAnswer(b, atB);
  const diff = useMemo(() => (of && other && of.length + other.length < MOST_COMPARED ? wordDiff(of, other) : null), [of, other]);
  return (
    <>
      <Side letter="A" row={row} answer={of} parts={diff?.a} />
      <Side letter="B" row={row} answer={other} parts={diff?.b} />
    </>
  );
}

function Side({ letter, row, answer, parts }: { letter: "A" | "B"; row: KeyedRow; answer?: string | null; parts?: Part[] }) {
  const [passed, measured] = letter === "A" ? [row.a_passed, row.a_measured] : [row.b_passed, row.b_measured];
  return (
    <td class="compared-side" data-title={letter}>
      <span class="cell-small number">{passed} of {measured} passed</span>
      <span class="compared-text" dir="auto">{parts ? <Parts letter={letter} parts={parts} /> : answer === "" ? <span class="muted">no answer</span> : answer && <Escaped text={answer} />}</span>
    </td>
  );
}

function Filters({ rows, shown }: { rows: KeyedRow[]; shown: Shown }) {
  const counts: Record<string, number> = {};
  for (const row of rows) counts[row.change] = (counts[row.change] ?? 0) + 1;
  const number = (name: Shown) => (name === "all" ? rows.length : name === "changed" ? (counts.worse ?? 0) + (counts.better ?? 0) : counts[name] ?? 0);
  const names: Shown[] = ["changed", "worse", "better", "same", "unmeasured", "all"];
  return (
    <div class="row" role="group" aria-label="Rows by change">
      {names.filter((name) => name === "all" || name === "changed" || number(name)).map((name) => {
        const change = CHANGES[name as ComparedRow["change"]];
        return (
          <ToggleChip key={name} pressed={shown === name} tone={change?.tone} glyph={change?.glyph} onClick={() => setQuery({ change: name })}>
            {name} {count(number(name))}
          </ToggleChip>
        );
      })}
    </div>
  );
}

/** The rows that only one eval run has, by their indices in its dataset. */
function Unmatched({ letter, rows, run }: { letter: string; rows: number[]; run: string }) {
  if (!rows.length) return null;
  return (
    <Disclosure summary={`${plural(rows.length, "row")} only in ${letter}`} note="their content is in no row of the other">
      <div class="compared-unmatched">
        {rows.slice(0, 1000).map((row) => <a key={row} href={runAddress(run, `row${row}-run0`)}>row{row}</a>)}
        {rows.length > 1000 && <span class="muted">and {count(rows.length - 1000)} more</span>}
      </div>
    </Disclosure>
  );
}

function viewOf(page: ComparisonPage, row: KeyedRow) {
  return { name: "compare" as const, a: page.a.name, b: page.b.name, digest: row.key };
}

export function openRow(page: ComparisonPage, row: KeyedRow, replaces: boolean): void {
  const query = new URLSearchParams(route.value.query);
  query.delete("runs"); // those of another row
  go(viewOf(page, row), query, replaces);
}

function linkAt(body: HTMLTableSectionElement | null, at: number): HTMLElement | null {
  return body?.rows[at]?.querySelector<HTMLElement>("a") ?? null;
}

/** The place of the row with the focus; -1 if the focus is elsewhere. */
function focusedAt(body: HTMLTableSectionElement | null): number {
  const row = document.activeElement?.closest("tr");
  return row && body?.contains(row) ? row.sectionRowIndex : -1;
}
