// Where the pages begin: a proxy may serve them under a path of its own.

/** Address of the pages' root, with a slash at its end. */
export const ROOT = new URL("../", import.meta.url);

/** Return the address of a page, such as `/jobs/3`. */
export function addressOf(page: string): string {
  return ROOT.pathname + page.replace(/^\//, "");
}

/** Return the page that the browser's address names, with its query. */
export function pageAt(location: { pathname: string; search: string }): string {
  const path = location.pathname.startsWith(ROOT.pathname) ? location.pathname.slice(ROOT.pathname.length) : "";
  return `/${path}${location.search}`;
}
