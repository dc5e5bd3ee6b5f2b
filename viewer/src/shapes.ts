// Made by `python viewer/shapes.py` from addons/viewer/shapes.py, where every key is explained.

export type Outcome = "passed" | "failed" | "unmeasured" | "removed" | "running" | "pending";

export interface RunDifference {
  what: string;
  area: "question" | "scoring" | "code" | "throughput" | "versions";
  a: string | null;
  b: string | null;
}

export interface RunEntry {
  name: string;
  path: string;
  status: "pending" | "running" | "finished" | "failed" | "stopped" | "unreadable";
  reason: string | null;
  eval: string | null;
  model: string | null;
  dataset: string | null;
  rollout: string | null;
  started_at: string | null;
  partial: boolean;
  pass_rate: number | null;
  passed: number | null;
  counted: number | null;
  measured: number | null;
  ended: number | null;
  selected: number | null;
  gates: string[];
  tokens: number | null;
  cost_usd: number | null;
  n_cost_unknown: number;
  duration_s: number | null;
  git_commit: string | null;
  git_dirty: boolean | null;
  problem: string | null;
  replayed: boolean;
  pass_rate_interval: Interval | null;
}

export interface Interval {
  low: number;
  high: number;
  method: string;
  level: number;
}

export interface EntryRow {
  name: string;
  run: string;
  model: string;
  pass_rate: number | null;
  pass_rate_interval: Interval | null;
  measured: number;
  runs: number;
  mean: number | null;
  tokens: number;
  cost_usd: number | null;
  duration_ms: number;
  finding: string;
}

export interface RunsPage {
  workspace: string;
  runs: RunEntry[];
  tables: EntryRow[][];
}

export interface FunctionShape {
  name: string;
  model: number;
  threshold: number;
  decides: boolean;
  statistics: Record<string, any>;
}

export interface PassCurve {
  function: string;
  model: number;
  k: number[];
  pass_at_k: (number | null)[];
  pass_hat_k: (number | null)[];
}

export interface SliceShape {
  value: string;
  rows: number[];
  runs: number;
  measured: number;
  passed: number;
  pass_rate: number | null;
  pass_rate_interval: Interval | null;
}

export interface SlicesShape {
  column: string;
  slices: SliceShape[];
}

export interface RowColumns {
  index: number[];
  prompt: string[];
}

export interface RunColumns {
  row: number[];
  run: number[];
  model: number[];
  outcome: number[];
  boundary: number[];
  error: number[];
  scores: Record<string, (number | null)[]>;
  metrics: Record<string, (number | null)[]>;
  duration_ms: (number | null)[];
  tokens: (number | null)[];
  cost_usd: (number | null)[];
  turns: (number | null)[];
  finish_reason: number[];
  chunk: number[];
  line: number[];
}

export interface RunHead {
  row: RunEntry;
  path: string;
  models: string[];
  circumstances: string[];
  remarks: string[];
  verdict: string[];
  account: string[];
  functions: FunctionShape[];
  curves: PassCurve[];
  slices: SlicesShape[];
  no_slices: string;
  results: Record<string, any>;
  outcomes: ("passed" | "failed" | "unmeasured" | "removed" | "running" | "pending")[];
  boundaries: string[];
  errors: string[];
  finish_reasons: string[];
  rerun: string[] | null;
  html_conversations: string;
}

export interface RunPage {
  head: RunHead;
  rows: RowColumns;
  runs: RunColumns;
}

export interface Conversation {
  rollout: Record<string, any>;
  scores: (Record<string, any>)[];
}

export interface SearchHits {
  at: number[];
  searched: number;
  is_whole: boolean;
}

export interface ComparedRow {
  digest: string;
  prompt: string;
  a_row: number;
  b_row: number;
  a_passed: number;
  a_measured: number;
  b_passed: number;
  b_measured: number;
  change: "better" | "worse" | "same" | "unmeasured";
  loss: number | null;
}

export interface ComparisonPage {
  a: RunEntry;
  b: RunEntry;
  problem: string;
  meaning: "better" | "worse" | "chance" | null;
  sentence: string;
  caveats: string[];
  remarks: string[];
  differs: RunDifference[];
  config_diff: string[];
  numbers: Record<string, any> | null;
  rows: ComparedRow[];
  only_a: number[];
  only_b: number[];
}

export interface HistoryChange {
  before: string;
  difference: number;
  rows: number;
}

export interface HistoryPoint {
  row: RunEntry;
  plan: string | null;
  change: HistoryChange | null;
  problem: string;
}

export interface FlippingRow {
  digest: string;
  prompt: string;
  row_index: number;
  row_indices: (number | null)[];
  passed: (number | null)[];
  measured: (number | null)[];
  flips: number;
}

export interface ModelHistory {
  model: string;
  points: HistoryPoint[];
  rows: FlippingRow[];
  n_steady: number;
}

export interface HistoryPage {
  eval: string;
  models: ModelHistory[];
  n_earlier: number;
}

export interface ReportIndex {
  list: RunsPage;
  pages: Record<string, string>;
  comparisons: Record<string, string>;
  histories: Record<string, string>;
}
