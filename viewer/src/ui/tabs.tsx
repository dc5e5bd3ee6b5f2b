// Tabs, chosen by a click or by the arrow keys.
import type { ComponentChildren } from "preact";

export interface Tab {
  id: string;
  title: ComponentChildren;
  /** A number beside the title. */
}

export function Tabs({ label, tabs, current, onSelect }: { label: string; tabs: Tab[]; current: string; onSelect(id: string): void }) {
  const move = (event: KeyboardEvent) => {
    const steps: Record<string, number> = { ArrowRight: 1, ArrowLeft: -1 };
    const at = tabs.findIndex((tab) => tab.id === current);
    const next = event.key === "Home" ? 0 : event.key === "End" ? tabs.length - 1
      : event.key in steps ? (at + steps[event.key] + tabs.length) % tabs.length : -1;
    if (next < 0) return;
    event.preventDefault();
    onSelect(tabs[next].id);
    const list = event.currentTarget as HTMLElement;
    (list.children[next] as HTMLElement).focus();
  };
  return (
    <div class="tabs" role="tablist" aria-label={label} onKeyDown={move}>
      {tabs.map((tab) => (
        <button key={tab.id} role="tab" id={`tab-${tab.id}`} aria-controls={`panel-${tab.id}`} class="tab"
          aria-selected={tab.id === current} tabIndex={tab.id === current ? 0 : -1} onClick={() => onSelect(tab.id)}>
          {tab.title}
        </button>
      ))}
    </div>
  );
}

export function TabPanel({ id, children }: { id: string; children: ComponentChildren }) {
  return <div role="tabpanel" id={`panel-${id}`} aria-labelledby={`tab-${id}`} class="tab-panel">{children}</div>;
}
