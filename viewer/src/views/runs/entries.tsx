// The tables over evals, like those of one config, each compared with the first.
import type { EntryRow } from "../../shapes";
import { count, duration, money, score } from "../../format";
import { source } from "../../source/source";
import { runAddress, written } from "../../state/route";
import { Disclosure } from "../../ui/disclosure";
import { Rate } from "../../ui/rate";
import { shortName } from "../../ui/run_name";
import { type Column, Table } from "../../ui/table";

export function EntryTables({ tables }: { tables: readonly EntryRow[][] }) {
  const isOpen = !source().isLive || tables.length === 1;
  return (
    <>
      {tables.filter((table) => table.length).map((table) => (
        <Disclosure key={table[0].run} class="entries" open={isOpen} summary={`${count(table.length)} eval runs compared`} note={`with ${shortName(table[0].name)}`}>
          <Table caption={`Eval runs compared with ${shortName(table[0].name)}`} columns={columnsOf(table)} rows={table} keyOf={(entry) => entry.run} />
        </Disclosure>
      ))}
    </>
  );
}

function columnsOf(table: readonly EntryRow[]): Column<EntryRow>[] {
  const first = table[0];
  return [
    { name: "eval", title: "eval", isHead: true, cell: (entry) => <a href={runAddress(entry.run)} title={entry.run}>{shortName(entry.name)}</a> },
    { name: "model", title: "model", cell: (entry) => entry.model },
    { name: "rate", title: "pass rate", cell: (entry) => <Rate rate={entry.pass_rate} bounds={entry.pass_rate_interval} unknown={entry.measured ? "no pass rate for a part" : undefined} /> },
    { name: "mean", title: "mean", cell: (entry) => score(entry.mean), isNumber: true },
    { name: "finding", title: "to the first", cell: (entry) => <Finding entry={entry} first={first} />, class: "entry-finding" },
    { name: "measured", title: "measured", cell: (entry) => `${count(entry.measured)} of ${count(entry.runs)}`, isNumber: true },
    { name: "tokens", title: "tokens", cell: (entry) => count(entry.tokens), isNumber: true },
    { name: "cost", title: "cost", cell: (entry) => (entry.cost_usd === null ? "unknown" : money(entry.cost_usd)), isNumber: true },
    { name: "time", title: "time", cell: (entry) => duration(entry.duration_ms), isNumber: true },
  ];
}

function Finding({ entry, first }: { entry: EntryRow; first: EntryRow }) {
  if (entry.run === first.run) return <span class="muted">first</span>;
  return <a href={written({ name: "compare", a: first.run, b: entry.run, digest: null })}>{entry.finding || "compare"}</a>;
}
