// The circumstances of an eval run: what it was of, and all that results.json says besides rows and statistics.
import type { RunPage } from "../../shapes";
import { CopyButton } from "../../ui/copy";
import { Disclosure } from "../../ui/disclosure";
import { escaped } from "../conversation/escapes";

export function About({ page }: { page: RunPage }) {
  const { head } = page;
  const results = Object.entries(head.results).filter(([, value]) => value !== null);
  const isFolded = (value: unknown) => typeof value === "object" && value !== null && Object.keys(value).length > 0;
  return (
    <div class="about">
      <p class="row"><code class="about-path">{head.path}</code><CopyButton text={head.path} label="Copy path" /></p>
      <p class="small narrow-only">{head.circumstances.join(" · ")}</p>
      {head.html_conversations !== "all" && (
        <p>{head.html_conversations === "none" ? "This report holds no conversations." : "This report holds the conversations of runs that did not pass."}</p>
      )}
      {results.length > 0 && <h2>In results.json</h2>}
      <Facts value={Object.fromEntries(results.filter(([, value]) => !isFolded(value)))} />
      {results.filter(([, value]) => isFolded(value)).map(([key, value]) => (
        <Disclosure key={key} summary={key} open={key === "config" || key === "provenance"}><Facts value={value as Record<string, unknown>} /></Disclosure>
      ))}
    </div>
  );
}

function Facts({ value }: { value: Record<string, unknown> | unknown[] }) {
  const entries = Object.entries(value);
  return (
    <dl class="facts">
      {entries.map(([key, each]) => (
        <div key={key}>
          <dt>{key}</dt>
          <dd>{isNested(each) ? <Facts value={each} /> : shown(each)}</dd>
        </div>
      ))}
    </dl>
  );
}

function isNested(value: unknown): value is Record<string, unknown> | unknown[] {
  if (Array.isArray(value)) return value.some((each) => typeof each === "object" && each !== null);
  return typeof value === "object" && value !== null && Object.keys(value).length > 0;
}

function shown(value: unknown): string {
  if (Array.isArray(value)) return value.length ? value.map(shown).join(", ") : "none";
  if (value === null || typeof value === "object") return "none";
  return typeof value === "string" ? escaped(value) || '""' : JSON.stringify(value);
}
