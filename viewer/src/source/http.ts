// The pages of a dashboard, asked of its server.
import type { ComparisonPage, Conversation, HistoryPage, RunPage, RunsPage, SearchHits } from "../shapes";
import { store, stored } from "../state/stored";
import { type Source, SourceError } from "./source";

const TOKEN = "osmosis-token";
const NOT_MODIFIED = 304;

export class HttpSource implements Source {
  readonly isLive = true;
  private readonly token = taken();
  /** The page that was asked for last, with its ETag: the server sends it again only once it is another. */
  private last: { path: string; tag: string; page: unknown } | undefined;

  runs(): Promise<RunsPage> {
    return this.page("runs");
  }

  run(name: string): Promise<RunPage> {
    return this.page(`runs/${encodeURIComponent(name)}`);
  }

  async conversation(name: string, _page: RunPage, at: number): Promise<Conversation | null> {
    return (await this.get(`runs/${encodeURIComponent(name)}/conversations/${at}`)).json();
  }

  async search(
    name: string,
    _page: RunPage,
    text: string,
    found: (hits: SearchHits) => void,
    signal: AbortSignal,
  ): Promise<void> {
    const path = `runs/${encodeURIComponent(name)}/search`;
    let hits: SearchHits = { at: [], searched: 0, is_whole: false };
    while (!hits.is_whole && !signal.aborted) {
      hits = (await (await this.get(`${path}/${hits.searched}?text=${encodeURIComponent(text)}`, {}, signal)).json()) as SearchHits;
      found(hits);
    }
  }

  comparison(a: string, b: string): Promise<ComparisonPage> {
    return this.page(`comparisons/${encodeURIComponent(a)}/${encodeURIComponent(b)}`);
  }

  history(evalName: string): Promise<HistoryPage> {
    return this.page(`histories/${encodeURIComponent(evalName)}`);
  }

  private async page<T>(path: string): Promise<T> {
    const last = this.last?.path === path ? this.last : undefined;
    const response = await this.get(path, last && { "If-None-Match": last.tag });
    if (last && response.status === NOT_MODIFIED) return last.page as T;
    const page = (await response.json()) as T;
    this.last = { path, tag: response.headers.get("ETag")!, page };
    return page;
  }

  private async get(path: string, condition: Record<string, string> = {}, signal?: AbortSignal): Promise<Response> {
    const headers = { ...bearer(await this.token), ...condition };
    const response = await fetch(`api/${path}`, { headers, signal }).catch((error: unknown) => {
      if (signal?.aborted) throw error;
      throw new SourceError("The dashboard does not answer. Is pytest-osmosis view still running?");
    });
    if (!response.ok && response.status !== NOT_MODIFIED) throw new SourceError((await response.text()) || response.statusText);
    return response;
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
