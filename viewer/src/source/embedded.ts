// The pages of a report, which are all in its file.
import type { ComparisonPage, Conversation, HistoryPage, ReportIndex, RunPage, RunsPage, SearchHits } from "../shapes";
import { type Source, SourceError } from "./source";
import { searcherFor, type TextSearcher } from "./text_search";

/** Chunks that are unpacked at the same time during a search: the browser does so beside the page's own thread. */
const AHEAD = 4;
/** The page has its thread back at least this often. */
const BUSY_MS = 40;

export class EmbeddedSource implements Source {
  readonly isLive = false;
  private index = unpacked("index").then((text) => JSON.parse(text) as ReportIndex);
  /** The chunk that was read last, which holds the conversations beside the one that was opened. */
  private chunk: { number: number; lines: Promise<string[]> } | undefined;

  async runs(): Promise<RunsPage> {
    return (await this.index).list;
  }

  async run(name: string): Promise<RunPage> {
    return page((await this.index).pages[name], `no eval run ${name} in this report`);
  }

  async conversation(_name: string, page: RunPage, at: number): Promise<Conversation | null> {
    const number = page.runs.chunk[at];
    if (number < 0) return null;
    if (this.chunk?.number !== number)
      this.chunk = { number, lines: unpacked(`chunk-${number}`).then((text) => text.split("\n")) };
    return JSON.parse((await this.chunk.lines)[page.runs.line[at]]) as Conversation;
  }

  async search(_name: string, page: RunPage, text: string, found: (hits: SearchHits) => void, signal: AbortSignal): Promise<void> {
    const searcher = searcherFor(text);
    const chunks = runsByChunk(page);
    if (!chunks.length) throw new SourceError("this report holds no conversations");
    const unpacking: Promise<string>[] = [];
    let searched = 0;
    let since = performance.now();
    for (let at = 0; at < chunks.length; at++) {
      for (let next = unpacking.length; next < Math.min(chunks.length, at + AHEAD); next++) {
        unpacking.push(unpacked(`chunk-${chunks[next].number}`));
        unpacking[next].catch(() => undefined); // told when its turn comes
      }
      const lines = await unpacking[at];
      unpacking[at] = Promise.resolve("");
      if (signal.aborted) return;
      searched += chunks[at].runs.size;
      found({ at: runsWith(searcher, lines, chunks[at].runs), searched, is_whole: at === chunks.length - 1 });
      if (performance.now() - since > BUSY_MS) {
        await new Promise((done) => setTimeout(done));
        since = performance.now();
      }
    }
  }

  async comparison(a: string, b: string): Promise<ComparisonPage> {
    const { comparisons } = await this.index;
    return page(comparisons[`${a} ${b}`] ?? comparisons[`${b} ${a}`], `${a} and ${b} are not compared in this report. Make one with both: pytest-osmosis html ${a} ${b}`);
  }

  async history(evalName: string): Promise<HistoryPage> {
    return page((await this.index).histories[evalName], `no history of ${evalName} in this report`);
  }
}

/** A page, by the id of its element. */
async function page<T>(id: string | undefined, problem: string): Promise<T> {
  if (id === undefined) throw new SourceError(problem);
  return JSON.parse(await unpacked(id)) as T;
}

interface ChunkRuns {
  number: number;
  /** Positions in `RunPage.runs`, by line. */
  runs: Map<number, number>;
}

/** The chunks with the conversations of a page, in their order. */
function runsByChunk(page: RunPage): ChunkRuns[] {
  const chunks = new Map<number, ChunkRuns>();
  page.runs.chunk.forEach((number, at) => {
    if (number < 0) return;
    let chunk = chunks.get(number);
    if (!chunk) chunks.set(number, (chunk = { number, runs: new Map() }));
    chunk.runs.set(page.runs.line[at], at);
  });
  return [...chunks.values()];
}

function runsWith(searcher: TextSearcher, lines: string, runs: Map<number, number>): number[] {
  const hits: number[] = [];
  let line = 0;
  let begin = 0;
  for (let place = searcher.next(lines, 0); place >= 0; place = searcher.next(lines, begin)) {
    for (let end = lines.indexOf("\n", begin); end >= 0 && end < place; end = lines.indexOf("\n", begin)) {
      begin = end + 1;
      line++;
    }
    const next = lines.indexOf("\n", place);
    const end = next < 0 ? lines.length : next;
    const run = runs.get(line);
    if (run !== undefined && searcher.isSeen(lines, begin, place, end)) hits.push(run);
    if (next < 0) break;
    begin = end + 1;
    line++;
  }
  return hits;
}

/** The text of a script element, which holds base64 of raw deflate of UTF-8. */
async function unpacked(id: string): Promise<string> {
  const element = await elementOf(id);
  if (!element) throw new SourceError(`the report is cut off: ${id} is missing`);
  const bytes = fromBase64(element.textContent!);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
  return new Response(stream).text();
}

/** An element of the report, as soon as the browser has read it: the front end starts before the chunks are there. */
function elementOf(id: string): Promise<HTMLElement | null> {
  return new Promise((resolve) => {
    const look = () => {
      const element = document.getElementById(id);
      const isWhole = document.readyState !== "loading" || (element !== null && element.nextSibling !== null);
      if (isWhole) resolve(element);
      else setTimeout(look, 20);
    };
    look();
  });
}

function fromBase64(text: string): Uint8Array<ArrayBuffer> {
  const built = (Uint8Array as unknown as { fromBase64?: (text: string) => Uint8Array<ArrayBuffer> }).fromBase64;
  return built ? built(text) : Uint8Array.from(atob(text), (char) => char.charCodeAt(0));
}
