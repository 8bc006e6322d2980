// Light, dark, or as the system is.
import { effect, signal } from "@preact/signals";
import { keep, kept } from "./store";

export type Theme = "system" | "light" | "dark";
export const THEMES: Theme[] = ["system", "light", "dark"];
export const theme = signal<Theme>(kept<Theme>("theme", "system"));
const system = matchMedia("(prefers-color-scheme: dark)");
/** Whether dark is shown; canvases draw by it. */
export const dark = signal(false);

function settle(): void {
  dark.value = theme.value === "dark" || (theme.value === "system" && system.matches);
  document.documentElement.dataset.theme = dark.value ? "dark" : "light";
}

effect(() => {
  settle();
  keep("theme", theme.value);
});
system.addEventListener("change", settle);

/** Return the present value of a colour of the style sheet, such as `--ink`. */
export function colour(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}
