// Routes live behind the `#`, so that the server needs only one page.

/** The pages, in the order of the menu. */
export const PAGES = ["overview", "rules", "keys", "tenants", "gateway", "regions", "controls", "try", "audit", "caller", "rule", "hot", "signals"] as const;
export type PageName = (typeof PAGES)[number];

/** A page and its parameters. */
export interface Route {
  page: PageName;
  query: Record<string, string>;
}

/** Parses the hash of an address; unknown routes are the overview. */
export function parse(hash: string): Route {
  const [path = "", query = ""] = split(hash.replace(/^#\/?/, ""));
  const page = PAGES.find((name) => name === path);
  return page ? { page, query: Object.fromEntries(new URLSearchParams(query)) } : { page: "overview", query: {} };
}

/** The hash of a route. Empty parameters are omitted. */
export function href(page: PageName, query: Record<string, string | null | undefined> = {}): string {
  const pairs = Object.entries(query).filter((pair): pair is [string, string] => !!pair[1]);
  return pairs.length === 0 ? `#/${page}` : `#/${page}?${new URLSearchParams(pairs)}`;
}

/**
 * A name as a segment of a path.
 *
 * Browsers resolve `.` and `..` even when escaped, and would request another path.
 */
export function segment(name: string): string {
  if (name === "" || name === "." || name === "..") throw new Error(`the name “${name}” can't be requested here`);
  return encodeURIComponent(name);
}

function split(text: string): [string, string] {
  const at = text.indexOf("?");
  return at < 0 ? [text, ""] : [text.slice(0, at), text.slice(at + 1)];
}
