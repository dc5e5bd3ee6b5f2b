// A row in both eval runs: a run of each beside the other, with the words in which their answers differ.
import { useEffect, useRef } from "preact/hooks";
import type { ComparisonPage, RunPage } from "../../shapes";
import { useKeys } from "../../state/keys";
import { go, route, setQuery } from "../../state/route";
import { Chip } from "../../ui/chip";
import { tellingRuns, useRuns } from "./both_runs";
import { type KeyedRow, listedRows, rowName } from "./row_keys";
import { CHANGES, openRow } from "./rows";
import { TwoRuns } from "./two_runs";
import { Problem } from "../../ui/parts";

export function PairView({ page, row, rows }: { page: ComparisonPage; row: KeyedRow; rows: KeyedRow[] }) {
  const both = useRuns(page);
  const panel = useRef<HTMLElement>(null);
  useEffect(() => {
    panel.current?.focus({ preventScroll: true });
    panel.current?.scrollTo(0, 0);
    panel.current?.scrollIntoView({ block: "nearest" });
  }, [row.key]);
  const { glyph, word, tone } = CHANGES[row.change];
  const listed = listedRows(rows, route.value.query);
  const at = listed.findIndex((each) => each.key === row.key);
  const close = () => go({ name: "compare", a: page.a.name, b: page.b.name, digest: null }, withoutRuns());
  return (
    <aside class="compare-pair" ref={panel} aria-label={`${rowName(row)} in A and B`} tabIndex={-1}>
      <header class="row pair-head">
        <h1>{rowName(row)}</h1>
        <Chip tone={tone} glyph={glyph}>{word}</Chip>
        <span class="muted small number">A {row.a_passed} of {row.a_measured}, B {row.b_passed} of {row.b_measured} passed</span>
        <p class="pair-prompt" dir="auto" title={row.prompt}>{row.prompt}</p>
        <span class="pair-steps">
          <Step page={page} to={listed[at - 1]} title="Previous row" sign="↑" />
          <Step page={page} to={listed[at + 1]} title="Next row" sign="↓" />
          <button class="button button-small" onClick={close}>Close <kbd>Esc</kbd></button>
        </span>
      </header>
      {both.view(([a, b]) => <Pair a={a} b={b} row={row} />)}
    </aside>
  );
}

function Step({ page, to, title, sign }: { page: ComparisonPage; to: KeyedRow | undefined; title: string; sign: string }) {
  return <button class="button button-small" aria-label={title} title={title} disabled={!to} onClick={() => to && openRow(page, to, true)}>{sign}</button>;
}

function Pair({ a, b, row }: { a: RunPage; b: RunPage; row: KeyedRow }) {
  const [[runsA, toldA], [runsB, toldB]] = tellingRuns(a, b, row);
  const [wantedA, wantedB] = (route.value.query.get("runs") ?? "").split(",").map((part) => (part === "" ? NaN : Number(part)));
  const chosenA = runsA.find((at) => a.runs.run[at] === wantedA) ?? toldA;
  const chosenB = runsB.find((at) => b.runs.run[at] === wantedB) ?? toldB;
  const choose = (atA: number, atB: number) => setQuery({ runs: `${a.runs.run[atA]},${b.runs.run[atB]}` });
  const step = (by: 1 | -1, isB: boolean): void | false => {
    if (chosenA === undefined || chosenB === undefined) return false;
    const [runs, chosen] = isB ? [runsB, chosenB] : [runsA, chosenA];
    const next = runs[runs.indexOf(chosen) + by];
    if (next === undefined) return false;
    choose(isB ? chosenA : next, isB ? next : chosenB);
  };
  useKeys("Two runs of a row", [
    { keys: ["l", "ArrowRight"], does: "next run of B", run: () => step(1, true) },
    { keys: ["h", "ArrowLeft"], does: "previous run of B", run: () => step(-1, true) },
    { keys: ["L"], does: "next run of A", run: () => step(1, false) },
    { keys: ["H"], does: "previous run of A", run: () => step(-1, false) },
  ], "panel");
  if (chosenA === undefined || chosenB === undefined) return <Problem>No run of this row is there.</Problem>;
  return (
    <TwoRuns
      a={{ letter: "A", page: a, runs: runsA, at: chosenA, choose: (at) => choose(at, chosenB) }}
      b={{ letter: "B", page: b, runs: runsB, at: chosenB, choose: (at) => choose(chosenA, at) }}
    />
  );
}

function withoutRuns(): URLSearchParams {
  const query = new URLSearchParams(route.value.query);
  query.delete("runs");
  return query;
}
