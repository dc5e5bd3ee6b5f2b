// The query over the grid: what it says, what is wrong with it, and how to write one.
import { useEffect, useRef, useState } from "preact/hooks";
import { count } from "../../format";
import { cancelSearches, searches, type TextSearch } from "../../query/search";
import type { RunPage } from "../../shapes";
import { useKeys } from "../../state/keys";
import { setQuery } from "../../state/route";
import type { RunQuery } from "../../state/run_query";
import { QueryHelp } from "./query_help";

/** A query is applied when nothing was typed for so long. */
const TYPING_MS = 150;

export function QueryBar({ page, shown }: { page: RunPage; shown: RunQuery }) {
  const field = useRef<HTMLInputElement>(null);
  const [typed, setTyped] = useState(shown.text);
  const timer = useRef<ReturnType<typeof setTimeout>>();
  useEffect(() => { if (timer.current === undefined) setTyped(shown.text); }, [shown.text]);
  const apply = (text: string) => {
    clearTimeout(timer.current);
    timer.current = undefined;
    setQuery({ q: text.trim() || null });
  };
  const type = (text: string) => {
    setTyped(text);
    clearTimeout(timer.current);
    timer.current = setTimeout(() => apply(text), TYPING_MS);
  };
  useKeys("Query", [{ keys: ["/"], does: "write a query", run: () => field.current?.select() }]);
  const press = (event: KeyboardEvent) => {
    if (event.key !== "Enter" && event.key !== "Escape") return;
    event.preventDefault(); // Escape would empty the field
    if (event.key === "Enter") apply(typed);
    else field.current?.blur();
  };
  const { problem } = shown.query;
  return (
    <div class="query">
      <div class="query-line" role="search">
        <input ref={field} class="query-field" type="search" value={typed} spellcheck={false} autocomplete="off" autocapitalize="off"
          aria-label="Query on runs" placeholder='Filter: words, status:failed, fn:reward<0.5, "text in conversations"'
          aria-invalid={problem !== null} aria-describedby={problem ? "query-problem" : undefined}
          onKeyDown={press} onInput={(event) => type(event.currentTarget.value)} />
        <QueryHelp page={page} onPick={(term) => { type(`${typed} ${term}`.trim()); field.current?.focus(); }} />
      </div>
      {problem && (
        <p class="query-problem" id="query-problem" role="alert">
          <code>
            {shown.text.slice(0, problem.begin)}<mark>{shown.text.slice(problem.begin, problem.end) || "\u00a0"}</mark>{shown.text.slice(problem.end)}
          </code>
          <span>{problem.message.replace(/[.?]?$/, (end) => end || ".")} The query is not applied.</span>
        </p>
      )}
      {searches.value.map((search) => <SearchLine key={search.text} search={search} page={page} />)}
    </div>
  );
}

function SearchLine({ search, page }: { search: TextSearch; page: RunPage }) {
  const total = page.runs.row.length;
  const found = `${count(search.hits.size)} ${search.hits.size === 1 ? "run has" : "runs have"} it`;
  const what = <>“{search.text}” in conversations: </>;
  if (search.state === "failed") return <p class="query-search query-search-failed" role="alert">{what}{search.problem}</p>;
  if (search.state === "done") return <p class="query-search">{what}{found}, of {count(search.searched)} that were searched</p>;
  return (
    <p class="query-search">
      {what}{found} so far, {count(search.searched)} of {count(total)} searched{" "}
      {search.state === "cancelled" ? "(cancelled)" : (
        <>
          <progress aria-label="Search" max={total} value={search.searched} />
          <button class="button button-small" onClick={cancelSearches}>Cancel</button>
        </>
      )}
    </p>
  );
}
