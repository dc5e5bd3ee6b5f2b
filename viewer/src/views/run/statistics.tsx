// The statistics of the reward functions, as results.json has them.
import { count, interval, score } from "../../format";
import { RunCharts } from "../../charts/run_charts";
import type { FunctionShape, Interval as Ends, RunPage } from "../../shapes";
import { route, runAddress } from "../../state/route";
import { Interval, isPart } from "../../ui/rate";
import { type Column, Table } from "../../ui/table";
import { escaped } from "../conversation/escapes";

export function Statistics({ page }: { page: RunPage }) {
  const { functions } = page.head;
  return (
    <div class="statistics">
      {functions.length > 0 && (
        <section>
          <h2>Functions</h2>
          {isPart(page.head.row) && <p class="muted">Of a part: runs are missing that could change all of this, so there are no pass rates and no intervals.</p>}
          <Table caption="Statistics of reward functions" columns={estimates(page)} rows={functions} keyOf={keyOf} />
          {!isPart(page.head.row) && <Table caption="The spread of scores" columns={spread(page)} rows={functions} keyOf={keyOf} />}
        </section>
      )}
      <section>
        <h2>Charts</h2>
        <RunCharts page={page} />
      </section>
      <Metrics page={page} />
      <Causes page={page} />
      <Account page={page} />
    </div>
  );
}

function keyOf(fn: FunctionShape): string {
  return `${fn.name} ${fn.model}`;
}

function names(page: RunPage): Column<FunctionShape>[] {
  const model: Column<FunctionShape> = { name: "model", title: "Model", cell: (fn) => page.head.models[fn.model] };
  return [
    { name: "name", title: "Function", isHead: true, cell: (fn) => <>{fn.name}{fn.decides && <span class="muted"> (decides)</span>}</> },
    ...(page.head.models.length > 1 ? [model] : []),
  ];
}

function estimates(page: RunPage): Column<FunctionShape>[] {
  return [
    ...names(page),
    number("threshold", "Threshold", (fn) => `>= ${Number(fn.threshold.toPrecision(12))}`),
    statistic("measured", "Measured", count),
    statistic("mean", "Mean", score),
    ...(isPart(page.head.row) ? [] : intervals()),
  ];
}

function intervals(): Column<FunctionShape>[] {
  return [
    { name: "mean_interval", title: "95% interval", class: "statistics-interval", cell: (fn) => <Bounds fn={fn} value="mean" bounds="mean_interval" /> },
    statistic("pass_rate", "Pass rate", score),
    { name: "pass_rate_interval", title: "95% interval", class: "statistics-interval", cell: (fn) => <Bounds fn={fn} value="pass_rate" bounds="pass_rate_interval" /> },
  ];
}

function spread(page: RunPage): Column<FunctionShape>[] {
  return [
    ...names(page),
    ...["std", "min", "p5", "p25", "median", "p75", "p95", "max"].map((name) => statistic(name, name, score)),
    statistic("standard_error", "standard error", score),
    statistic("variance_within_rows", "variance within rows", score),
    statistic("variance_between_rows", "between rows", score),
    statistic("mixed_rows", "mixed rows", count),
  ];
}

function number(name: string, title: string, cell: (fn: FunctionShape) => string): Column<FunctionShape> {
  return { name, title, isNumber: true, cell };
}

function statistic(name: string, title: string, text: (value: number | null | undefined) => string): Column<FunctionShape> {
  return number(name, title, (fn) => text(name === "measured" || fn.statistics.measured ? (fn.statistics[name] as number | null | undefined) : null));
}

function Bounds({ fn, value, bounds }: { fn: FunctionShape; value: string; bounds: string }) {
  const held = (fn.statistics[bounds] ?? null) as Ends | null;
  const at = fn.statistics[value] as number | null | undefined;
  if (!held || !fn.statistics.measured || at === null || at === undefined) return <span class="muted">{interval(null)}</span>;
  const isShare = held.low >= 0 && held.high <= 1;
  return (
    <span title={`${Math.round(100 * held.level)}% interval, ${held.method}`}>
      <span class="number">{interval(held)}</span>
      {isShare && <Interval rate={at} bounds={held} mark={bounds === "mean_interval" && fn.threshold <= 1 ? fn.threshold : undefined} />}
    </span>
  );
}

function Account({ page }: { page: RunPage }) {
  const { account } = page.head;
  if (!account.length) return null;
  return (
    <section>
      <h2>Account</h2>
      <ul class="account small">{account.map((line, at) => <li key={at} class={line.startsWith(" ") ? "account-more" : ""}>{escaped(line.trim())}</li>)}</ul>
    </section>
  );
}

type Row = [name: string, statistics: Record<string, number | null>];

function Metrics({ page }: { page: RunPage }) {
  const metrics = (page.head.results.summary.metrics ?? {}) as Record<string, unknown>;
  const rows = flat(metrics, "");
  if (!rows.length) return null;
  const keys = [...new Set(rows.flatMap(([, values]) => Object.keys(values)))];
  const columns: Column<Row>[] = [
    { name: "name", title: "Metric", isHead: true, cell: ([name]) => name },
    ...keys.map((key): Column<Row> => ({ name: key, title: key.replaceAll("_", " "), isNumber: true,
      cell: ([, values]) => (Number.isInteger(values[key]) ? count(values[key]) : score(values[key])) })),
  ];
  return <section><h2>Metrics</h2><Table caption="Metrics" columns={columns} rows={rows} keyOf={([name]) => name} /></section>;
}

/** Metrics by name, whose source may be a level of its own. */
function flat(metrics: Record<string, unknown>, prefix: string): Row[] {
  return Object.entries(metrics).flatMap(([name, value]): Row[] => {
    if (typeof value !== "object" || value === null) return [];
    const entries = Object.entries(value as Record<string, unknown>);
    const numbers = entries.filter(([, each]) => typeof each === "number" || each === null) as [string, number | null][];
    const inner = Object.fromEntries(entries.filter(([, each]) => typeof each === "object" && each !== null && !("low" in each)));
    return [...(numbers.length ? [[`${prefix}${name}`, Object.fromEntries(numbers)] as Row] : []), ...flat(inner, `${prefix}${name}: `)];
  });
}

interface Cause {
  text: string;
  boundary: string;
  runs: number;
  first_runs: string[];
}

function Causes({ page }: { page: RunPage }) {
  const causes = (page.head.results.summary.causes ?? []) as Cause[];
  if (!causes.length) return null;
  const columns: Column<Cause>[] = [
    { name: "text", title: "Error", isHead: true, class: "cause-text", cell: (cause) => escaped(cause.text) },
    { name: "boundary", title: "Boundary", cell: (cause) => cause.boundary },
    { name: "runs", title: "Runs", isNumber: true, cell: (cause) => count(cause.runs) },
    { name: "first", title: "First runs", class: "cause-runs", cell: (cause) => cause.first_runs.map((id) => <a key={id} href={addressOf(page, id)}>{id}</a>) },
  ];
  return <section><h2>Causes of errors</h2><Table caption="Causes of errors" columns={columns} rows={causes} keyOf={(cause) => `${cause.boundary} ${cause.text}`} /></section>;
}

function addressOf(page: RunPage, id: string): string {
  return runAddress(page.head.row.name, id, route.value.query);
}
