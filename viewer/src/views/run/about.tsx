// The circumstances of an eval run: what it was of, and all that results.json says besides rows and statistics.
import type { RunPage } from "../../shapes";
import { CopyButton } from "../../ui/copy";
import { Disclosure } from "../../ui/disclosure";

export function About({ page }: { page: RunPage }) {
  const { head } = page;
  const results = Object.entries(head.results ?? {});
  return (
    <div class="about">
      <ul class="about-lines">{head.circumstances.map((line) => <li key={line}>{line}</li>)}</ul>
      <p class="row"><code class="about-path">{head.path}</code><CopyButton text={head.path} label="Copy path" /></p>
      {head.html_conversations !== "all" && (
        <p class="muted">{head.html_conversations === "none" ? "This report holds no conversations." : "This report holds the conversations of runs that did not pass."}</p>
      )}
      {results.map(([key, value]) => (typeof value === "object" && value !== null
        ? <Disclosure key={key} summary={key} open={key === "config" || key === "provenance"}><Facts value={value as Record<string, unknown>} /></Disclosure>
        : <dl key={key} class="facts"><div><dt>{key}</dt><dd>{shown(value)}</dd></div></dl>))}
    </div>
  );
}

function Facts({ value }: { value: Record<string, unknown> | unknown[] }) {
  const entries = Object.entries(value);
  if (!entries.length) return <span class="muted">none</span>;
  return (
    <dl class="facts facts-nested">
      {entries.map(([key, each]) => (
        <div key={key}>
          <dt>{key}</dt>
          <dd>{typeof each === "object" && each !== null && Object.keys(each).length ? <Facts value={each as Record<string, unknown>} /> : shown(each)}</dd>
        </div>
      ))}
    </dl>
  );
}

function shown(value: unknown): string {
  return typeof value === "string" ? value : value !== null && typeof value === "object" ? "none" : JSON.stringify(value);
}
