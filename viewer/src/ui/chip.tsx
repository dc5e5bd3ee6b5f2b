// A word in a small frame: a state, a filter, a fact.
import type { ComponentChildren } from "preact";
import type { RunEntry } from "../shapes";
import { Glyph } from "./parts";

export type Tone = "passed" | "failed" | "unmeasured" | "accent" | "neutral";

interface ChipProps {
  tone?: Tone;
  /** A sign before the word, since colours alone say nothing. */
  glyph?: string;
  title?: string;
  children: ComponentChildren;
}

export function Chip({ tone = "neutral", glyph, title, children }: ChipProps) {
  return (
    <span class={`chip chip-${tone}`} title={title}>
      {glyph && <Glyph>{glyph}</Glyph>}
      {children}
    </span>
  );
}

interface ToggleChipProps extends ChipProps {
  pressed: boolean;
  onClick(): void;
}

/** A chip that turns something on and off, as a filter. */
export function ToggleChip({ tone = "neutral", glyph, title, children, pressed, onClick }: ToggleChipProps) {
  return (
    <button class={`chip chip-button chip-${tone}`} aria-pressed={pressed} title={title} onClick={onClick}>
      {glyph && <Glyph>{glyph}</Glyph>}
      {children}
    </button>
  );
}

const STATUSES: Record<RunEntry["status"], { tone: Tone; glyph: string }> = {
  pending: { tone: "neutral", glyph: "·" },
  running: { tone: "accent", glyph: "▶" },
  finished: { tone: "neutral", glyph: "■" },
  stopped: { tone: "unmeasured", glyph: "◼" },
  failed: { tone: "failed", glyph: "⚠" },
  unreadable: { tone: "failed", glyph: "?" },
};

/** The status of an eval run: not what its gates say. */
export function StatusChip({ row }: { row: Pick<RunEntry, "status" | "reason" | "problem" | "partial" | "replayed"> }) {
  const { tone, glyph } = STATUSES[row.status];
  const marks = [...(row.partial ? ["partial"] : []), ...(row.replayed ? ["replayed"] : [])];
  return <Chip tone={tone} glyph={glyph} title={row.problem ?? row.reason ?? undefined}>{[row.status, ...marks].join(", ")}</Chip>;
}

export const GATES: Record<string, { tone: Tone; glyph: string }> = {
  holds: { tone: "passed", glyph: "✓" },
  fails: { tone: "failed", glyph: "✗" },
  "not measured": { tone: "unmeasured", glyph: "!" },
};

/** The states of all gates of an eval run in few words, as `pytest-osmosis runs list` has them. */
export function gatesText(gates: readonly string[]): string {
  const fails = gates.filter((gate) => gate === "fails").length;
  if (!gates.length) return "-";
  if (fails) return gates.length === 1 ? "fails" : `${fails} of ${gates.length} ${fails === 1 ? "fails" : "fail"}`;
  if (new Set(gates).size === 1) return gates[0] === "holds" && gates.length > 1 ? "hold" : gates[0];
  return gates.includes("not measured") ? "not measured" : "not decided";
}

export function GatesChip({ gates }: { gates: readonly string[] }) {
  if (!gates.length) return <span class="muted">-</span>;
  const worst = gates.includes("fails") ? "fails" : gates.includes("not measured") ? "not measured"
    : gates.every((gate) => gate === "holds") ? "holds" : "not decided";
  const { tone, glyph } = GATES[worst] ?? { tone: "neutral" as Tone, glyph: "·" };
  return <Chip tone={tone} glyph={glyph} title={gates.join(", ")}>{gatesText(gates)}</Chip>;
}
