// The pages of a dashboard, asked of its server.
import type { Changes, ComparisonPage, Conversation, HistoryPage, RunPage, RunsPage, SearchHits } from "../shapes";
import { store, stored } from "../state/stored";
import { type Source, SourceError } from "./source";

const TOKEN = "osmosis-token";

export class HttpSource implements Source {
  readonly isLive = true;
  private readonly token = taken();

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
    const path = `runs/${encodeURIComponent(name)}/search?text=${encodeURIComponent(text)}`;
    let hits: SearchHits = { at: [], searched: 0, is_whole: false };
    while (!hits.is_whole && !signal.aborted) {
      hits = await this.get<SearchHits>(`${path}&from=${hits.searched}`, signal);
      found(hits);
    }
  }

  comparison(a: string, b: string): Promise<ComparisonPage> {
    return this.get(`comparisons/${encodeURIComponent(a)}/${encodeURIComponent(b)}`);
  }

  history(evalName: string): Promise<HistoryPage> {
    return this.get(`histories/${encodeURIComponent(evalName)}`);
  }

  private async get<T>(path: string, signal?: AbortSignal): Promise<T> {
    const headers = bearer(await this.token);
    const response = await fetch(`api/${path}`, { headers, signal }).catch((error: unknown) => {
      if (signal?.aborted) throw error;
      throw new SourceError("The dashboard does not answer. Is pytest-osmosis view still running?");
    });
    if (!response.ok) throw new SourceError((await response.text()) || response.statusText);
    return response.json() as Promise<T>;
  }
}

function bearer(token: string) {
  return { Authorization: `Bearer ${token}` };
}

/**
 * The token: of the printed address (`#token=...`), or asked for with the key of the address that the dashboard opened
 * (`#once=...`), which is good for one request. It is kept, and taken out of the address.
 */
async function taken(): Promise<string> {
  const match = /^#(token|once)=([\w-]+)/.exec(location.hash);
  if (!match) return stored(TOKEN) ?? "";
  history.replaceState(null, "", location.pathname + location.hash.slice(match[0].length).replace(/^&/, "#"));
  const token = match[1] === "once" ? await exchanged(match[2]) : match[2];
  if (!token) return stored(TOKEN) ?? "";
  store(TOKEN, token);
  return token;
}

async function exchanged(key: string): Promise<string | null> {
  const response = await fetch("api/token", { headers: bearer(key) });
  return response.ok ? ((await response.json()) as { token: string }).token : null;
}
