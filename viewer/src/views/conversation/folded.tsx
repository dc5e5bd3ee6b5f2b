// Parts that are folded, but that the browser's own search finds and opens.
import type { ComponentChildren } from "preact";
import { useId, useLayoutEffect, useRef, useState } from "preact/hooks";

interface FoldProps {
  /** The words of the button. */
  label: ComponentChildren;
  children: ComponentChildren;
  isOpen?: boolean;
  class?: string;
}

/** A part under a button that opens and closes it. */
export function Fold({ label, children, isOpen = false, class: name = "" }: FoldProps) {
  const [open, setOpen] = useState(isOpen);
  const id = useId();
  return (
    <div class={`fold ${name}`}>
      <button class="fold-button" aria-expanded={open} aria-controls={id} onClick={() => setOpen(!open)}>
        <span class="fold-mark" aria-hidden="true">{open ? "▾" : "▸"}</span> {label}
      </button>
      <UntilFound id={id} isOpen={open} open={() => setOpen(true)}>{children}</UntilFound>
    </div>
  );
}

interface UntilFoundProps {
  id: string;
  isOpen: boolean;
  open: () => void;
  children: ComponentChildren;
}

/** A part that is in the page, and hidden until it is opened or the browser's search finds something in it. */
export function UntilFound({ id, isOpen, open, children }: UntilFoundProps) {
  const element = useRef<HTMLDivElement>(null);
  useLayoutEffect(() => {
    const found = element.current!;
    if (isOpen) found.removeAttribute("hidden");
    else found.setAttribute("hidden", "until-found");
    found.addEventListener("beforematch", open);
    return () => found.removeEventListener("beforematch", open);
  }, [isOpen]);
  return <div id={id} ref={element} class="fold-body">{children}</div>;
}
