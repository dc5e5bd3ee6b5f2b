// The pages of a dashboard, asked of its server.
import type { Changes, ComparisonPage, Conversation, HistoryPage, RunPage, RunsPage, SearchHits } from "../shapes";
import { type Source, SourceError } from "./source";

const TOKEN = "osmosis-token";

export class HttpSource implements Source {
  readonly isLive = true;
  private readonly token = takeToken();

  runs(): Promise<RunsPage> {
    return this.get("runs");
  }

  run(name: string): Promise<RunPage> {
    return this.get(`runs/${encodeURIComponent(name)}`);
  }

  changes(name: string, seq: number): Promise<Changes> {
    return this.get(`runs/${encodeURIComponent(name)}/changes?from=${seq}`);
  }

  conversation(name: string, _page: RunPage, at: number): Promise<Conversation | null> {
    return this.get(`runs/${encodeURIComponent(name)}/conversations/${at}`);
  }

  async search(
    name: string,
    _page: RunPage,
    text: string,
    found: (hits: SearchHits) => void,
    signal: AbortSignal,
  ): Promise<void> {
    found(await this.get(`runs/${encodeURIComponent(name)}/search?text=${encodeURIComponent(text)}`, signal));
  }

  comparison(a: string, b: string): Promise<ComparisonPage> {
    return this.get(`comparisons/${encodeURIComponent(a)}/${encodeURIComponent(b)}`);
  }

  history(evalName: string): Promise<HistoryPage> {
    return this.get(`histories/${encodeURIComponent(evalName)}`);
  }

  private async get<T>(path: string, signal?: AbortSignal): Promise<T> {
    const response = await fetch(`api/${path}`, { headers: { Authorization: `Bearer ${this.token}` }, signal });
    if (!response.ok) throw new SourceError((await response.text()) || response.statusText);
    return response.json() as Promise<T>;
  }
}

/** The token of the printed address, `#token=...`: kept, and taken out of the address. */
function takeToken(): string {
  const match = /^#token=([\w-]+)/.exec(location.hash);
  try {
    if (!match) return localStorage.getItem(TOKEN) ?? "";
    localStorage.setItem(TOKEN, match[1]);
  } catch {
    if (!match) return ""; // storage is refused in sandboxed frames
  }
  history.replaceState(null, "", location.pathname + location.hash.slice(match![0].length).replace(/^&/, "#"));
  return match![1];
}
