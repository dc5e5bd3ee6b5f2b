// The keys of the views that are shown. `useKeys` gives a view its keys; the help dialog lists them all.
import { signal } from "@preact/signals";
import { useLayoutEffect, useRef } from "preact/hooks";

export interface Key {
  /** As `KeyboardEvent.key` names them: "j", "ArrowDown", "Enter", "?". */
  keys: string[];
  /** What it does, in a few words, for the help. */
  does: string;
  /** Return false to leave the key to views below, or to the browser. */
  run(event: KeyboardEvent): void | false;
  /** True if it works while the reader types in a field. */
  inFields?: boolean;
}

/** Keys of a higher level go before the same ones of a lower one: those of a panel before those of the view below it. */
export type Level = "page" | "view" | "panel";
const LEVELS: Level[] = ["page", "view", "panel"];

export interface KeyGroup {
  title: string;
  level: Level;
  keys: Key[];
}

/** The groups of keys of what is shown, the lowest level first. */
export const keyGroups = signal<KeyGroup[]>([]);
/** False if the reader turned keys of one character off. */
export const keysAreOn = signal(true);

/** Give a view its keys for as long as it is shown. */
export function useKeys(title: string, keys: Key[], level: Level = "view"): void {
  const latest = useRef(keys);
  latest.current = keys;
  const names = keys.map((key) => `${key.keys} ${key.does}`).join("|");
  useLayoutEffect(() => { // before the view is painted, so that no key is lost
    const group: KeyGroup = { title, level, keys: keys.map((key, at) => ({ ...key, run: (event) => latest.current[at].run(event) })) };
    keyGroups.value = [...keyGroups.value, group].sort((one, other) => LEVELS.indexOf(one.level) - LEVELS.indexOf(other.level));
    return () => { keyGroups.value = keyGroups.value.filter((each) => each !== group); };
  }, [title, names, level]);
}

/** The groups as the help lists them, the highest level first, without keys that it takes from others. */
export function listedGroups(): KeyGroup[] {
  const taken = new Set<string>();
  const listed: KeyGroup[] = [];
  for (const group of [...keyGroups.value].reverse()) {
    const keys = group.keys.map((key) => ({ ...key, keys: key.keys.filter((name) => !taken.has(name)) }));
    keys.forEach((key) => key.keys.forEach((name) => taken.add(name)));
    const left = keys.filter((key) => key.keys.length);
    if (left.length) listed.push({ ...group, keys: left });
  }
  return listed;
}

/** A key's name for the reader. */
export function keyName(key: string): string {
  const names: Record<string, string> = {
    ArrowDown: "↓", ArrowUp: "↑", ArrowLeft: "←", ArrowRight: "→", Escape: "Esc", " ": "Space", PageDown: "PgDn", PageUp: "PgUp",
  };
  return names[key] ?? key;
}

addEventListener("keydown", (event) => {
  if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
  if (document.querySelector("dialog[open]")) return; // a dialog has its own keys
  const typing = isField(event.target);
  for (const group of [...keyGroups.value].reverse())
    for (const key of group.keys) {
      if (!key.keys.includes(event.key) || (typing && !key.inFields)) continue;
      if (!keysAreOn.value && event.key.length === 1) continue;
      if (isControl(event.target) && (event.key === "Enter" || event.key === " ")) continue; // it presses the control
      if (key.run(event) === false) continue;
      event.preventDefault();
      return;
    }
});

function isField(target: EventTarget | null): boolean {
  return target instanceof HTMLElement && target.matches("input:not([type=checkbox], [type=radio]), textarea, select, [contenteditable]");
}

function isControl(target: EventTarget | null): boolean {
  return target instanceof HTMLElement && target.matches("a[href], button, summary, input[type=checkbox], input[type=radio]");
}
