// The pages of a report, which are all in its file.
import type { Changes, ComparisonPage, Conversation, HistoryPage, ReportIndex, RunPage, RunsPage } from "../shapes";
import { type Source, SourceError } from "./source";

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

  async changes(): Promise<Changes> {
    throw new SourceError("a report does not change");
  }

  async conversation(_name: string, page: RunPage, at: number): Promise<Conversation | null> {
    const number = page.runs.chunk[at];
    if (number < 0) return null;
    if (this.chunk?.number !== number)
      this.chunk = { number, lines: unpacked(`chunk-${number}`).then((text) => text.split("\n")) };
    return JSON.parse((await this.chunk.lines)[page.runs.line[at]]) as Conversation;
  }

  async search(): Promise<void> {
    throw new SourceError("not built yet");
  }

  async comparison(a: string, b: string): Promise<ComparisonPage> {
    const { comparisons } = await this.index;
    return page(comparisons[`${a} ${b}`] ?? comparisons[`${b} ${a}`], `${a} and ${b} are not compared in this report`);
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
