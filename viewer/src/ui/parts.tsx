// Small parts of a page that every view has.
import type { ComponentChildren } from "preact";

interface Held {
  children: ComponentChildren;
}

/** A sign that a word beside it says too, so that it is not read aloud. */
export function Glyph({ children }: Held) {
  return <span aria-hidden="true">{children}</span>;
}

/** A text for those who hear the page. */
export function Unseen({ children }: Held) {
  return <span class="visually-hidden">{children}</span>;
}

export function Loading() {
  return <p class="loading" role="status">Loading…</p>;
}

export function Problem({ children }: Held) {
  return <p class="problem" role="alert">{children}</p>;
}
