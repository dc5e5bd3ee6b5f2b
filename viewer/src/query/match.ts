// The runs for which a query holds.
import type { RunPage } from "../shapes";
import type { Comparison, NumberKind, Term } from "./parse";

type Test = (at: number) => boolean;

/** Mark the runs for which all terms hold. `hits` are the runs with a text in their conversation, as far as known. */
export function holdingRuns(page: RunPage, terms: Term[], hits: (text: string) => Set<number>): Uint8Array {
  const tests = terms.map((term) => signed(term, test(page, term, hits)));
  const holds = new Uint8Array(page.runs.row.length);
  for (let at = 0; at < holds.length; at++) holds[at] = tests.every((each) => each(at)) ? 1 : 0;
  return holds;
}

function signed(term: Term, holds: Test): Test {
  return term.isNegated ? (at) => !holds(at) : holds;
}

function test(page: RunPage, term: Term, hits: (text: string) => Set<number>): Test {
  const { head, rows, runs } = page;
  switch (term.kind) {
    case "word": return either(inPrompt(page, term.text), inError(page, term.text));
    case "prompt": return inPrompt(page, term.text);
    case "error": return inError(page, term.text);
    case "text": {
      const found = hits(term.text);
      return (at) => found.has(at);
    }
    case "status": {
      const wanted = head.outcomes.map((outcome) => term.values.includes(outcome));
      const errors = term.values.includes("error");
      return (at) => wanted[runs.outcome[at]] || (errors && runs.boundary[at] >= 0);
    }
    case "boundary": return named(runs.boundary, head.boundaries, term.values);
    case "finish": return named(runs.finish_reason, head.finish_reasons, term.values);
    case "model": return (at) => term.models.includes(runs.model[at]);
    case "row": return (at) => inRanges(rows.index[runs.row[at]], term.ranges);
    case "run": return (at) => inRanges(runs.run[at], term.ranges);
    case "slice": return inSlices(page, term.column, term.values);
    case "number": {
      const numbers = numbersOf(page, term.of, term.name);
      const holds = COMPARISONS[term.comparison];
      return (at) => {
        const value = numbers[at];
        return value !== null && value !== undefined && holds(value, term.value);
      };
    }
  }
}

const COMPARISONS: Record<Comparison, (value: number, bound: number) => boolean> = {
  "<": (value, bound) => value < bound,
  "<=": (value, bound) => value <= bound,
  ">": (value, bound) => value > bound,
  ">=": (value, bound) => value >= bound,
  "=": (value, bound) => value === bound,
  "!=": (value, bound) => value !== bound,
};

/** The numbers of all runs under a name. */
export function numbersOf(page: RunPage, of: NumberKind, name: string): ArrayLike<number | null> {
  const { runs } = page;
  switch (of) {
    case "fn": return runs.scores[name] ?? [];
    case "metric": return runs.metrics[name] ?? [];
    case "cost": return runs.cost_usd;
    case "ms": return runs.duration_ms;
    case "tokens": return runs.tokens;
    case "turns": return runs.turns;
  }
}

function either(one: Test, other: Test): Test {
  return (at) => one(at) || other(at);
}

function inPrompt(page: RunPage, text: string): Test {
  const found = page.rows.prompt.map((prompt) => contains(prompt, text));
  return (at) => found[page.runs.row[at]];
}

function inError(page: RunPage, text: string): Test {
  const found = page.head.errors.map((error) => contains(error, text));
  return (at) => page.runs.error[at] >= 0 && found[page.runs.error[at]];
}

function contains(text: string, part: string): boolean {
  return text.toLowerCase().includes(part.toLowerCase());
}

/** `any` holds for a run that has one, `none` for one that has not. */
function named(positions: number[], names: string[], values: string[]): Test {
  const wanted = names.map((name) => values.includes(name) || values.includes("any"));
  const none = values.includes("none");
  return (at) => (positions[at] >= 0 ? wanted[positions[at]] : none);
}

function inRanges(value: number, ranges: [number, number][]): boolean {
  return ranges.some(([first, last]) => first <= value && value <= last);
}

function inSlices(page: RunPage, column: string, values: string[]): Test {
  const rows = new Uint8Array(page.rows.index.length);
  for (const each of page.head.slices)
    if (each.column === column)
      for (const slice of each.slices) if (values.includes(slice.value)) for (const row of slice.rows) rows[row] = 1;
  return (at) => rows[page.runs.row[at]] === 1;
}
