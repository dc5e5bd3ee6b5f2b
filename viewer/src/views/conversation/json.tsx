// JSON for reading: objects over several lines, texts with lines of their own as they are.
import { type Layout, layoutOf, linesOf, onOneLine, sizeOf } from "./json_layout";
import { Escaped, Text } from "./text";

const LINE_CHARS = 72;

/** A text of JSON laid out if it does not fit on a line, any other text as it is. */
export function JsonText({ text }: { text: string }) {
  const layout = text.length <= LINE_CHARS && !text.includes("\n") ? null : layoutOf(text);
  if (layout === null) return <Text class="code" text={text} />;
  return <div class="json code"><Value layout={layout} comma="" /></div>;
}

/** A value that is no text any more. */
export function JsonValue({ value }: { value: unknown }) {
  const text = typeof value === "string" ? value : JSON.stringify(value) ?? "";
  const layout = typeof value === "object" ? layoutOf(text) : null;
  if (layout === null) return <Text class="code" text={text} />;
  return <div class="json code"><Value layout={layout} comma="" /></div>;
}

function Value({ layout, comma }: { layout: Layout; comma: string }) {
  if (layout.kind === "plain") {
    const lines = linesOf(layout.text);
    if (lines === null) return <><Escaped text={layout.text} />{comma}</>;
    return <Text class="json-lines" text={lines} />;
  }
  if (sizeOf(layout) <= LINE_CHARS) return <><Escaped text={onOneLine(layout)} />{comma}</>;
  const [open, close] = layout.kind === "list" ? "[]" : "{}";
  const last = layout.items.length - 1;
  return (
    <>
      {open}
      <div class="json-items">
        {layout.items.map(({ key, value }, index) => (
          <div>
            {key !== null && <><span class="json-key"><Escaped text={key} /></span>: </>}
            <Value layout={value} comma={index < last ? "," : ""} />
          </div>
        ))}
      </div>
      {close}{comma}
    </>
  );
}
