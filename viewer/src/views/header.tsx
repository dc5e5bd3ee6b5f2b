// The head of every page: where the reader is, the state of the connection, theme and help.
import { source } from "../source/source";
import { connection } from "../state/page";
import { route, runAddress, type View, written } from "../state/route";
import { isDark, switchTheme } from "../state/theme";
import { helpIsOpen } from "./help";
import { shortName } from "../ui/run_name";
import { Glyph } from "../ui/parts";

export function Header() {
  const trail = trailOf(route.value.view);
  const theme = `Use ${isDark() ? "light" : "dark"} colours`;
  return (
    <header class="header">
      <nav aria-label="Breadcrumb">
        <ol class="trail">
          {trail.map((step, at) => (
            <li key={at}>
              {step.address && at < trail.length - 1
                ? <a href={step.address}>{step.title}</a>
                : <span aria-current={at === trail.length - 1 ? "page" : undefined}>{step.title}</span>}
            </li>
          ))}
        </ol>
      </nav>
      <div class="header-tools">
        {source().isLive && <Connection />}
        <button class="button button-quiet" onClick={switchTheme} aria-label={theme}
          title={theme}>{isDark() ? "☀" : "☾"}</button>
        <button class="button button-quiet" aria-label="Keys" title="Keys (?)" onClick={() => { helpIsOpen.value = true; }}>?</button>
      </div>
    </header>
  );
}

function Connection() {
  const { state, problem } = connection.value;
  if (state === "gone") return <span class="connection connection-gone" role="alert" title={problem}>⚠ {problem}</span>;
  if (state === "live") return <span class="connection connection-live"><Glyph>●</Glyph> live</span>;
  return null;
}

interface Step {
  title: string;
  address?: string;
}

export function trailOf(view: View): Step[] {
  const home = { title: "Eval runs", address: written({ name: "runs" }) };
  if (view.name === "run") {
    const run = { title: shortName(view.run), address: runAddress(view.run) };
    return view.id ? [home, run, { title: view.id }] : [home, run];
  }
  if (view.name === "compare") return [home, { title: `${shortName(view.a)} and ${shortName(view.b)}` }];
  if (view.name === "history") return [home, { title: `History of ${view.eval}` }];
  return [home];
}
