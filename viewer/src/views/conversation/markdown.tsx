// Markdown as elements of the page. HTML in it is text, and a link shows where it leads.
import type { ComponentChildren } from "preact";
import { useMemo } from "preact/hooks";
import { type Block, blocksOf } from "./markdown_blocks";
import { type Span, spansOf } from "./markdown_spans";
import { Escaped, Text } from "./text";

/** Longer texts stay as they are: nobody reads them as a page. */
const MOST_CHARS = 200_000;

export function Markdown({ text }: { text: string }) {
  const blocks = useMemo(() => (text.length > MOST_CHARS ? null : blocksOf(text)), [text]);
  if (blocks === null) return <Text text={text} />;
  return <div class="markdown">{blocks.map(shownBlock)}</div>;
}

function shownBlock(block: Block): ComponentChildren {
  switch (block.kind) {
    case "paragraph": return <p>{shown(block.text)}</p>;
    case "heading": return <p class={`heading heading-${block.level}`} role="heading" aria-level={4}>{shown(block.text)}</p>;
    case "code": return (
      <div class="markdown-code">
        {block.language && <div class="aside"><Escaped text={block.language} /></div>}
        <Text class="code scrolls" text={block.text} />
      </div>
    );
    case "quote": return <blockquote>{block.blocks.map(shownBlock)}</blockquote>;
    case "rule": return <hr />;
    case "list": return block.start === null
      ? <ul>{block.items.map((item) => <li>{shownItem(item)}</li>)}</ul>
      : <ol start={block.start}>{block.items.map((item) => <li>{shownItem(item)}</li>)}</ol>;
    case "table": return (
      <div class="markdown-table" tabIndex={0} role="group" aria-label="table">
        <table>
          <thead><tr>{block.head.map((cell) => <th scope="col">{shown(cell)}</th>)}</tr></thead>
          <tbody>{block.rows.map((row) => <tr>{row.map((cell) => <td>{shown(cell)}</td>)}</tr>)}</tbody>
        </table>
      </div>
    );
  }
}

/** The blocks of an item, without a paragraph around a single text. */
function shownItem(blocks: Block[]): ComponentChildren {
  const [first, ...others] = blocks;
  return first?.kind === "paragraph" ? <>{shown(first.text)}{others.map(shownBlock)}</> : blocks.map(shownBlock);
}

function shown(text: string): ComponentChildren {
  return spansOf(text).map(shownSpan);
}

function shownSpan(span: Span): ComponentChildren {
  switch (span.kind) {
    case "text": return <Escaped text={span.text} />;
    case "code": return <code><Escaped text={span.text} /></code>;
    case "strong": return <strong>{span.spans.map(shownSpan)}</strong>;
    case "emphasis": return <em>{span.spans.map(shownSpan)}</em>;
    case "struck": return <s>{span.spans.map(shownSpan)}</s>;
    case "link": return <Link span={span} />;
  }
}

/** A link with its address, which can be followed only over http(s). */
function Link({ span }: { span: Span & { kind: "link" } }) {
  const text = span.spans.map(shownSpan);
  const isNamed = !(span.spans.length === 1 && span.spans[0].kind === "text" && span.spans[0].text === span.address);
  const address = isNamed && <span class="aside"> (<Escaped text={span.address} />)</span>;
  if (!/^https?:\/\//i.test(span.address)) return <>{text}{address}</>;
  return <><a href={span.address} target="_blank" rel="noopener noreferrer nofollow">{text}</a>{address}</>;
}
