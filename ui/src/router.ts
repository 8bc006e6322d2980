// The page that is shown, and its query: both are the browser's address, so that every view is a link.
import { computed, signal } from "@preact/signals";
import { addressOf, pageAt } from "./root";

const shown = signal(pageAt(location));
export const path = computed(() => shown.value.split("?")[0] ?? "/");
export const query = computed(() => new URLSearchParams(shown.value.split("?")[1] ?? ""));

/** Show a page, such as `/jobs?state=waiting`. */
export function go(page: string, how: { replace?: boolean } = {}): void {
  if (page === shown.value) return;
  history[how.replace ? "replaceState" : "pushState"](null, "", addressOf(page));
  const moved = page.split("?")[0] !== path.value;
  shown.value = page;
  if (moved) {
    scrollTo(0, 0);
    document.getElementById("main")?.focus({ preventScroll: true });
  }
}

/** Set values of the query of the page that is shown; empty ones are left out. */
export function setQuery(values: Record<string, string>, how: { replace?: boolean } = { replace: true }): void {
  const next = new URLSearchParams(query.value);
  for (const [name, value] of Object.entries(values)) {
    if (value) next.set(name, value);
    else next.delete(name);
  }
  const text = next.toString();
  go(path.value + (text ? `?${text}` : ""), how);
}

addEventListener("popstate", () => (shown.value = pageAt(location)));

/** Follow links within the pages without loading them anew. */
export function onClick(event: MouseEvent): void {
  const link = (event.target as Element | null)?.closest?.("a");
  if (!link || event.defaultPrevented || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey) return;
  if (link.origin !== location.origin || link.target || link.hasAttribute("download")) return;
  event.preventDefault();
  go(pageAt(link));
}
