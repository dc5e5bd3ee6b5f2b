// A button that copies a text, also where the clipboard's API is refused.
import { useState } from "preact/hooks";
import { notify } from "./notice";

export function CopyButton({ text, label = "Copy", class: extra = "" }: { text: string | (() => string); label?: string; class?: string }) {
  const [done, setDone] = useState(false);
  const copy = async () => {
    if (!(await copyText(typeof text === "string" ? text : text()))) return notify("The browser refused to copy. Select the text and copy it.");
    notify("Copied");
    setDone(true);
    setTimeout(() => setDone(false), 1500);
  };
  return <button class={`button button-small ${extra}`} onClick={copy}>{done ? "✓ Copied" : label}</button>;
}

/** Copy a text; false if the browser refuses. */
export async function copyText(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return copiedBySelection(text);
  }
}

function copiedBySelection(text: string): boolean {
  const field = document.createElement("textarea");
  const focused = document.activeElement;
  field.value = text;
  field.className = "visually-hidden";
  document.body.append(field);
  field.select();
  try {
    return document.execCommand("copy");
  } catch {
    return false;
  } finally {
    field.remove();
    if (focused instanceof HTMLElement) focused.focus();
  }
}
