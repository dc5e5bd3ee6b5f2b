// A dialog over the page. Esc, its button, or a click beside it closes it.
import type { ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";

export function Dialog({ title, onClose, children }: { title: string; onClose(): void; children: ComponentChildren }) {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    const before = document.activeElement;
    dialog.current!.showModal();
    return () => { if (before instanceof HTMLElement) before.focus(); };
  }, []);
  return (
    <dialog ref={dialog} class="dialog" aria-labelledby="dialog-title" onClose={onClose}
      onClick={(event) => { if (event.target === dialog.current) dialog.current!.close(); }}>
      <div class="dialog-body">
        <header class="dialog-head">
          <h2 id="dialog-title">{title}</h2>
          <button class="button button-quiet" aria-label="Close" onClick={() => dialog.current!.close()}>×</button>
        </header>
        {children}
      </div>
    </dialog>
  );
}
