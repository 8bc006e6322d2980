// Keyboard: one table of shortcuts, which the help shows. Off in fields, and by choice everywhere (WCAG 2.1.4).
import { signal } from "@preact/signals";
import { go } from "./router";
import { keep, kept } from "./store";

export const enabled = signal(kept("keys", true));
export const helpOpen = signal(false);
export const PAGES: Record<string, string> = {
  o: "/", j: "/jobs", n: "/nodes", q: "/queues", t: "/timeline", u: "/usage", c: "/money", w: "/whatif", e: "/schedules", s: "/submit", a: "/admin", l: "/audit",
};
const PAUSE_MS = 1_200;
let first = "";
let firstMs = 0;

export function setEnabled(on: boolean): void {
  enabled.value = on;
  keep("keys", on);
}

function typing(target: EventTarget | null): boolean {
  return target instanceof HTMLElement && (target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName));
}

export function onKey(event: KeyboardEvent): void {
  if (event.key === "Escape") helpOpen.value = false;
  if (!enabled.value || event.ctrlKey || event.metaKey || event.altKey || typing(event.target)) return;
  if (document.querySelector("dialog[open]")) return;
  if (first === "g" && event.timeStamp - firstMs < PAUSE_MS && PAGES[event.key]) {
    event.preventDefault();
    go(PAGES[event.key]!);
  } else if (event.key === "/") {
    const search = document.querySelector<HTMLInputElement>("[data-search]");
    if (search) {
      event.preventDefault();
      search.focus();
      search.select();
    }
  } else if (event.key === "?") {
    helpOpen.value = !helpOpen.value;
  } else if (event.key === "j" || event.key === "k") {
    moveRow(event.key === "j" ? 1 : -1);
  }
  first = event.key;
  firstMs = event.timeStamp;
}

/** Move the focus between the rows of the table that is shown. */
export function moveRow(by: number): void {
  const rows = [...document.querySelectorAll<HTMLElement>("[data-row]")];
  const at = rows.findIndex((row) => row.contains(document.activeElement));
  const next = rows[at < 0 ? 0 : Math.min(rows.length - 1, Math.max(0, at + by))];
  (next?.querySelector<HTMLElement>("a,button") ?? next)?.focus();
}
