// The theme: that of the system, unless the reader chose one.
import { effect, signal } from "@preact/signals";
import { store, stored } from "./stored";

export type Theme = "system" | "light" | "dark";
const KEY = "osmosis-theme";

export const theme = signal<Theme>(themeOf(stored(KEY)));
const prefersDark = matchMedia("(prefers-color-scheme: dark)");
const systemIsDark = signal(prefersDark.matches);
prefersDark.addEventListener("change", (event) => { systemIsDark.value = event.matches; });

effect(() => {
  if (theme.value === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme.value;
});

/** True if dark colours are shown: for what is drawn on a canvas, which takes no variables of CSS. */
export function isDark(): boolean {
  return theme.value === "dark" || (theme.value === "system" && systemIsDark.value);
}

/** Change to the theme that is not shown now. One that equals the system's follows the system again. */
export function switchTheme(): void {
  const wanted = isDark() ? "light" : "dark";
  theme.value = (wanted === "dark") === systemIsDark.value ? "system" : wanted;
  store(KEY, theme.value === "system" ? null : theme.value);
}

function themeOf(text: string | null): Theme {
  return text === "light" || text === "dark" ? text : "system";
}
