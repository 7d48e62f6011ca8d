// Which page, and of what. Routes live behind the `#`, so that the server needs to know only one page.

/** The pages, in the order of the menu. */
export const PAGES = ["overview", "rules", "keys", "tenants", "try", "audit", "caller"] as const;
export type PageName = (typeof PAGES)[number];

/** A place in the dashboard. */
export interface Route {
  page: PageName;
  query: Record<string, string>;
}

/** What an address's hash means; anything unknown is the overview. */
export function parse(hash: string): Route {
  const [path = "", query = ""] = split(hash.replace(/^#\/?/, ""));
  const page = PAGES.find((name) => name === path);
  return page ? { page, query: Object.fromEntries(new URLSearchParams(query)) } : { page: "overview", query: {} };
}

/** The hash of a place. What is empty is left out. */
export function href(page: PageName, query: Record<string, string | null | undefined> = {}): string {
  const pairs = Object.entries(query).filter((pair): pair is [string, string] => !!pair[1]);
  return pairs.length === 0 ? `#/${page}` : `#/${page}?${new URLSearchParams(pairs)}`;
}

/**
 * A name as a part of a path.
 *
 * A browser takes `.` and `..` for steps in the path however they are written, and would ask for something else.
 */
export function segment(name: string): string {
  if (name === "" || name === "." || name === "..") throw new Error(`a caller named “${name}” can't be asked for here`);
  return encodeURIComponent(name);
}

function split(text: string): [string, string] {
  const at = text.indexOf("?");
  return at < 0 ? [text, ""] : [text.slice(0, at), text.slice(at + 1)];
}
