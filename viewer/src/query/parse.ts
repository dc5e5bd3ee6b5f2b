// The query language: `status:failed fn:reward<0.5 cost>0.1 -"timed out" primes`. All terms must hold.
import type { RunPage } from "../shapes";
import { type Operator, type Piece, QueryProblem, Scanner } from "./scanner";

export type Comparison = Exclude<Operator, ":">;

/** The numbers that a run has under one name. */
export type NumberKind = "fn" | "metric" | "cost" | "ms" | "tokens" | "turns";

export type Term = { isNegated: boolean; begin: number; end: number } & (
  | { kind: "word"; text: string } // in the prompt or the error
  | { kind: "text"; text: string } // in the conversation
  | { kind: "status"; values: string[] }
  | { kind: "boundary" | "finish"; values: string[] }
  | { kind: "model"; models: number[] }
  | { kind: "row" | "run"; ranges: [number, number][] }
  | { kind: "prompt" | "error"; text: string }
  | { kind: "slice"; column: string; values: string[] }
  | { kind: "number"; of: NumberKind; name: string; comparison: Comparison; value: number }
);

export interface Query {
  terms: Term[];
  problem: QueryProblem | null;
}

const STATUSES = ["passed", "failed", "unmeasured", "removed", "running", "pending", "error"];
const NUMBERS = ["cost", "ms", "tokens", "turns"];
const KEYS = ["status", "fn", "metric", "row", "run", "model", "boundary", "finish", "prompt", "error", "slice"];
const ENDS = '<>=!:"';

/** Read a query on a page. After a problem there are no terms: half a query would show the wrong runs. */
export function parsedQuery(text: string, page: RunPage): Query {
  const scanner = new Scanner(text);
  const terms: Term[] = [];
  try {
    for (scanner.skipSpace(); !scanner.isAtEnd; scanner.skipSpace()) terms.push(termOf(scanner, page));
    return { terms, problem: null };
  } catch (problem) {
    if (!(problem instanceof QueryProblem)) throw problem;
    return { terms: [], problem };
  }
}

function termOf(scanner: Scanner, page: RunPage): Term {
  const begin = scanner.place;
  const isNegated = scanner.takes("-");
  const key = scanner.piece(ENDS);
  const operator = scanner.operator();
  if (!operator) {
    if (key.text === "") throw new QueryProblem(`${at(scanner)} is neither a word nor a key`, begin, scanner.place + 1);
    return { isNegated, begin, end: scanner.place, kind: key.isQuoted ? "text" : "word", text: key.text };
  }
  const term = keyed(scanner, page, key, operator);
  return { isNegated, begin, end: scanner.place, ...term } as Term;
}

function at(scanner: Scanner): string {
  return scanner.isAtEnd ? "the end" : `"${scanner.text[scanner.place]}"`;
}

type Meaning = Term extends infer T ? (T extends Term ? Omit<T, "isNegated" | "begin" | "end"> : never) : never;

function keyed(scanner: Scanner, page: RunPage, key: Piece, operator: Operator): Meaning {
  const name = key.text;
  if (!key.isQuoted && (name === "fn" || name === "metric")) return scored(scanner, page, key, operator);
  if (!key.isQuoted && NUMBERS.includes(name))
    return { kind: "number", of: name as NumberKind, name: "", ...compared(scanner, key, operator) };
  if (operator === ":" || operator === "=") {
    const column = page.head.slices.find((each) => each.column === name);
    if (column && (key.isQuoted || !KEYS.includes(name))) return sliced(scanner, page, name);
    if (!key.isQuoted && KEYS.includes(name)) return listed(scanner, page, key);
  }
  const metric = matching(metricNames(page), name);
  if (metric.length === 1) return { kind: "number", of: "metric", name: metric[0], ...compared(scanner, key, operator) };
  const fn = matching(functionNames(page), name);
  if (fn.length === 1) return { kind: "number", of: "fn", name: fn[0], ...compared(scanner, key, operator) };
  const names = [...KEYS, ...NUMBERS, ...page.head.slices.map((each) => each.column)];
  const near = names.find((each) => isNear(each, name));
  const hint = near ? `did you mean "${near}"?` : `keys: ${[...KEYS, ...NUMBERS].join(", ")}`;
  throw new QueryProblem(`unknown key "${name}": ${hint} To search for the text, put it in quotes.`, key.begin, key.end);
}

function scored(scanner: Scanner, page: RunPage, key: Piece, operator: Operator): Meaning {
  const of = key.text as "fn" | "metric";
  const known = of === "fn" ? functionNames(page) : metricNames(page);
  const word = of === "fn" ? "function" : "metric";
  if (operator !== ":") throw new QueryProblem(`write ${key.text}:NAME ${operator} NUMBER`, key.begin, scanner.place);
  const name = scanner.piece('<>=!"');
  const names = matching(known, name.text);
  if (names.length !== 1) {
    const problem = names.length ? `"${name.text}" may be ${names.join(" or ")}` : `no ${word} "${name.text}"`;
    throw new QueryProblem(`${problem}: there ${known.length === 1 ? "is" : "are"} ${known.join(", ") || "none"}`, name.begin, name.end);
  }
  const comparison = scanner.operator();
  if (!comparison || comparison === ":")
    throw new QueryProblem(`write a comparison behind it, like ${key.text}:${name.text}<0.5`, key.begin, scanner.place);
  return { kind: "number", of, name: names[0], ...compared(scanner, name, comparison) };
}

function compared(scanner: Scanner, key: Piece, operator: Operator): { comparison: Comparison; value: number } {
  const piece = scanner.piece("");
  const value = piece.text === "" ? NaN : Number(piece.text);
  if (Number.isNaN(value))
    throw new QueryProblem(`"${piece.text}" is not a number: write it like ${key.text}>0.5`, piece.begin, Math.max(piece.end, piece.begin + 1));
  return { comparison: operator === ":" ? "=" : operator, value };
}

function listed(scanner: Scanner, page: RunPage, key: Piece): Meaning {
  const kind = key.text;
  if (kind === "slice") {
    const column = scanner.piece('="');
    if (!page.head.slices.some((each) => each.column === column.text))
      throw oneOf("column", column, page.head.slices.map((each) => each.column));
    if (!scanner.takes("=")) throw new QueryProblem("write slice:COLUMN=VALUE", key.begin, scanner.place);
    return sliced(scanner, page, column.text);
  }
  const pieces = values(scanner);
  if (kind === "prompt" || kind === "error") return { kind, text: pieces.map((each) => each.text).join(",") };
  if (kind === "row" || kind === "run") return { kind, ranges: pieces.map(range) };
  if (kind === "model") return { kind, models: pieces.flatMap((each) => modelsOf(page, each)) };
  const known: Record<string, string[]> = {
    status: STATUSES,
    boundary: [...page.head.boundaries, "any", "none"],
    finish: [...page.head.finish_reasons, "none"],
  };
  for (const piece of pieces) if (!known[kind].includes(piece.text)) throw oneOf(kind, piece, known[kind]);
  return { kind: kind as "status" | "boundary" | "finish", values: pieces.map((each) => each.text) };
}

function sliced(scanner: Scanner, page: RunPage, column: string): Meaning {
  const known = page.head.slices.filter((each) => each.column === column).flatMap((each) => each.slices.map((slice) => slice.value));
  const pieces = values(scanner);
  for (const piece of pieces) if (!known.includes(piece.text)) throw oneOf(column, piece, known);
  return { kind: "slice", column, values: pieces.map((each) => each.text) };
}

function values(scanner: Scanner): Piece[] {
  const pieces: Piece[] = [];
  do pieces.push(scanner.piece(",")); while (scanner.takes(","));
  for (const piece of pieces)
    if (piece.text === "" && !piece.isQuoted)
      throw new QueryProblem("a value is missing here", Math.max(0, piece.begin - 1), piece.end + 1);
  return pieces;
}

function range(piece: Piece): [number, number] {
  const match = /^(\d+)(?:-(\d+))?$/.exec(piece.text);
  if (!match) throw new QueryProblem(`"${piece.text}" is neither a number nor a range like 3-7`, piece.begin, piece.end);
  return [Number(match[1]), Number(match[2] ?? match[1])];
}

function modelsOf(page: RunPage, piece: Piece): number[] {
  const { models } = page.head;
  const text = piece.text.toLowerCase();
  const found = text === "primary" ? [0] : text === "baseline" ? models.map((_, index) => index).slice(1)
    : models.flatMap((name, index) => (name.toLowerCase().includes(text) ? [index] : []));
  if (!found.length) throw oneOf("model", piece, [...models, "primary", ...(models.length > 1 ? ["baseline"] : [])]);
  return found;
}

function oneOf(kind: string, piece: Piece, known: string[]): QueryProblem {
  const near = known.find((each) => isNear(each, piece.text));
  const valid = near ? `did you mean ${near}?` : known.length ? `valid: ${known.slice(0, 12).join(", ")}` : "there is none";
  return new QueryProblem(`no ${kind} "${piece.text}": ${valid}`, piece.begin, Math.max(piece.end, piece.begin + 1));
}

export function functionNames(page: RunPage): string[] {
  return [...new Set(page.head.functions.map((each) => each.name))];
}

export function metricNames(page: RunPage): string[] {
  return Object.keys(page.runs.metrics);
}

/** The names that are `name`, or else end with it behind a colon, a dot or a space. */
function matching(known: string[], name: string): string[] {
  if (known.includes(name)) return [name];
  return name ? known.filter((each) => each.endsWith(name) && /[:. ]/.test(each[each.length - name.length - 1] ?? "")) : [];
}

/** True if two words differ in a letter, or in the order of two. */
function isNear(known: string, typed: string): boolean {
  if (Math.abs(known.length - typed.length) > 1 || typed.length < 3) return false;
  let first = 0;
  while (first < typed.length && known[first] === typed[first]) first++;
  const rest = (word: string, skipped: number) => word.slice(first + skipped);
  return rest(known, 1) === rest(typed, 1) || rest(known, 1) === rest(typed, 0) || rest(known, 0) === rest(typed, 1)
    || (known[first] === typed[first + 1] && known[first + 1] === typed[first] && rest(known, 2) === rest(typed, 2));
}
