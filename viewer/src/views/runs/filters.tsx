// Filters of the list of eval runs, which are kept in the address.
import { useState } from "preact/hooks";
import type { RunEntry } from "../../shapes";
import { count } from "../../format";
import { route, setQuery } from "../../state/route";
import { Choice } from "../../ui/choice";

const KEYS = ["status", "model", "dataset", "rollout", "eval"] as const;
type Key = (typeof KEYS)[number];

/** The eval runs for which all filters hold. */
export function filtered(runs: readonly RunEntry[], query: URLSearchParams): readonly RunEntry[] {
  const text = query.get("text")?.toLowerCase();
  const wanted = KEYS.map((key) => [key, query.get(key)] as const).filter(([, value]) => value !== null);
  return runs.filter((run) =>
    wanted.every(([key, value]) => run[key] === value)
    && (!text || [run.name, run.eval, run.model].some((each) => each?.toLowerCase().includes(text))));
}

/** The orders for a narrow page, which has no heads to click on. */
const ORDERS = [
  { value: "", title: "newest first" }, { value: "rate", title: "lowest pass rate first" }, { value: "-cost", title: "highest cost first" },
];

export function Filters({ runs, shown }: { runs: readonly RunEntry[]; shown: number }) {
  const { query } = route.value;
  const [isOpen, setOpen] = useState(false);
  const isFiltered = KEYS.some((key) => query.has(key)) || query.has("text");
  return (
    <div class={`row filters${isOpen ? " filters-open" : ""}`} role="search">
      <input type="search" id="filter-text" autocomplete="off" placeholder="Filter by name" aria-label="Filter by name" value={query.get("text") ?? ""}
        onInput={(event) => setQuery({ text: event.currentTarget.value || null })}
        onKeyDown={(event) => { if (event.key === "Escape") { event.currentTarget.blur(); event.stopPropagation(); } }} />
      <button class="button narrow-only" aria-expanded={isOpen} onClick={() => setOpen(!isOpen)}>Filters</button>
      {KEYS.map((key) => <Filter key={key} name={key} runs={runs} value={query.get(key)} />)}
      <Choice label="order" hidesLabel class="narrow-only" value={query.get("sort") ?? ""} options={ORDERS} onChange={(sort) => setQuery({ sort: sort || null })} />
      <span class="filters-shown muted number" role="status">
        {isFiltered ? `${count(shown)} of ${count(runs.length)} eval runs` : `${count(runs.length)} eval run${runs.length === 1 ? "" : "s"}`}
      </span>
    </div>
  );
}

function Filter({ name, runs, value }: { name: Key; runs: readonly RunEntry[]; value: string | null }) {
  const counts = new Map<string, number>();
  for (const run of runs) {
    const each = run[name];
    if (each !== null) counts.set(each, (counts.get(each) ?? 0) + 1);
  }
  if (value !== null && !counts.has(value)) counts.set(value, 0);
  if (counts.size < 2 && value === null) return null;
  const options = [...counts].sort(([one], [other]) => (one < other ? -1 : 1)).map(([each, n]) => ({ value: each, title: `${each} (${count(n)})` }));
  return (
    <Choice label={name} hidesLabel class={value === null ? "" : "choice-set"} value={value ?? ""}
      options={[{ value: "", title: `any ${name}` }, ...options]} onChange={(next) => setQuery({ [name]: next || null })} />
  );
}
