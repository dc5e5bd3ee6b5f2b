// A part that is folded until it is opened.
import type { ComponentChildren } from "preact";

interface DisclosureProps {
  summary: ComponentChildren;
  /** Beside the summary, in muted text. */
  note?: ComponentChildren;
  open?: boolean;
  onToggle?(open: boolean): void;
  class?: string;
  children: ComponentChildren;
}

export function Disclosure({ summary, note, open, onToggle, class: extra = "", children }: DisclosureProps) {
  return (
    <details class={`disclosure ${extra}`} open={open} onToggle={(event) => onToggle?.(event.currentTarget.open)}>
      <summary>{summary}{note !== undefined && <span class="muted"> {note}</span>}</summary>
      <div class="disclosure-body">{children}</div>
    </details>
  );
}
