// What people call an eval run: its eval, its model and its age. The name that our commands take stands small beside it.
import type { RunEntry } from "../shapes";
import { moment } from "../format";
import { runAddress } from "../state/route";

const MADE = /^(.+)-(\d{4})(\d\d)(\d\d)T(\d\d)(\d\d)\d\dZ-[0-9a-f]{6}$/;

/** The short form of a name that we made: "sums, 2026-11-29 13:27". */
export function shortName(name: string): string {
  return name.replace(MADE, "$1, $2-$3-$4 $5:$6");
}

/** The time since a moment in words, "5 min ago"; after a month its date. */
export function age(iso: string | null): string {
  if (!iso) return "-";
  const minutes = Math.floor((Date.now() - Date.parse(iso)) / 60000);
  if (!(minutes < 60 * 24 * 30)) return iso.slice(0, 10);
  if (minutes < 1) return "just now";
  if (minutes < 60) return `${minutes} min ago`;
  return minutes < 60 * 48 ? `${Math.floor(minutes / 60)} h ago` : `${Math.floor(minutes / 60 / 24)} days ago`;
}

export function Age({ row }: { row: RunEntry }) {
  return <time title={moment(row.started_at)}>{age(row.started_at)}</time>;
}

/** "sums acme/large · 5 min ago", as a heading has it. */
export function Spoken({ row }: { row: RunEntry }) {
  if (!row.eval) return <>{row.name}</>;
  return <>{row.eval} <span class="spoken-rest">{row.model ?? "-"} · <Age row={row} /></span></>;
}

/** A link to an eval run, and its name below. */
export function RunLink({ row, named = row.eval ?? row.name, class: extra = "" }: { row: RunEntry; named?: string; class?: string }) {
  return (
    <a class={`run-link ${extra}`} data-run={row.name} href={runAddress(row.name)}>
      <b class="cell-line">{named}</b> {named !== row.name && <span class="cell-line cell-small">{row.name}</span>}
    </a>
  );
}
