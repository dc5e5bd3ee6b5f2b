// The settings, code and data in which both eval runs differ.
import { plural } from "../../format";
import type { ComparisonPage, RunDifference } from "../../shapes";
import { Disclosure } from "../../ui/disclosure";
import { Glyph } from "../../ui/parts";

export function Differences({ page }: { page: ComparisonPage }) {
  const { differs, config_diff: lines } = page;
  const scored = differs.some((each) => each.area === "scoring");
  if (!differs.length && !lines.length)
    return page.problem ? null : <p class="muted small">Nothing that is recorded differs: config, model, code and data are the same.</p>;
  return (
    <Disclosure summary={plural(differs.length, "difference")} open={differs.length <= 6}
      note={differs.map((each) => each.what).slice(0, 4).join(", ") + (differs.length > 4 ? ", …" : "")}>
      {scored && <p class="finding-caveat tone-unmeasured"><Glyph>! </Glyph>The runs were scored differently, so their pass rates do not mean the same.</p>}
      {differs.length > 0 && (
        <div class="table-frame" tabIndex={0} role="region" aria-label="Differences">
          <table class="differs">
            <thead><tr><th scope="col">what differs</th><th scope="col">A</th><th scope="col">B</th></tr></thead>
            <tbody>{differs.map((each) => <Row key={each.what} found={each} />)}</tbody>
          </table>
        </div>
      )}
      {lines.length > 0 && (
        <Disclosure class="compare-toml" summary="Lines of the TOML" note={plural(lines.length, "line")}>
          <pre tabIndex={0}>{lines.map((line, at) => <span key={at} class={line.startsWith("-") ? "diff-a" : "diff-b"}>{line}{"\n"}</span>)}</pre>
        </Disclosure>
      )}
    </Disclosure>
  );
}

function Row({ found }: { found: RunDifference }) {
  const changed = found.a === null && found.b === null;
  return (
    <tr>
      <th scope="row">{found.what}</th>
      {changed ? <td colSpan={2} class="muted">changed</td> : <><td class="compare-value">{found.a ?? "-"}</td><td class="compare-value">{found.b ?? "-"}</td></>}
    </tr>
  );
}
