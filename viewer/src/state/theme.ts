// The theme: that of the system, unless the reader chose one.
import { effect, signal } from "@preact/signals";
import { store, stored } from "./stored";

export type Theme = "system" | "light" | "dark";
const KEY = "osmosis-theme";

export const theme = signal<Theme>(themeOf(stored(KEY)));
const prefersDark = matchMedia("(prefers-color-scheme: dark)");
const systemIsDark = signal(prefersDark.matches);
prefersDark.addEventListener("change", (event) => { systemIsDark.value = event.matches; });

const dark = [...document.styleSheets].flatMap((sheet) => [...sheet.cssRules]).find((rule) => rule.cssText.includes("color-scheme: dark")) as CSSMediaRule;
const OF_SYSTEM = dark.media.mediaText;

effect(() => { dark.media.mediaText = { system: OF_SYSTEM, light: "not all", dark: "screen" }[theme.value]; });

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
