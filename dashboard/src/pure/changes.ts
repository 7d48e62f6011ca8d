// Differences between two documents of the audit log.

/** A changed member. `undefined`: it was added or removed. */
export interface Change {
  path: string;
  before: unknown;
  after: unknown;
}

/** Changes shown of one entry. */
export const MAX_CHANGES = 50;

/** All changes, ordered by name. `null` is no document. */
export function changes(before: unknown, after: unknown): Change[] {
  const found: Change[] = [];
  walk("", before ?? undefined, after ?? undefined, found);
  return found.slice(0, MAX_CHANGES);
}

function walk(path: string, before: unknown, after: unknown, found: Change[]): void {
  if (found.length > MAX_CHANGES || JSON.stringify(before) === JSON.stringify(after)) return;
  const [was, is] = [members(before), members(after)];
  // If one side has no members, those of the other are listed one by one.
  if ((was ?? is) && (was || before === undefined) && (is || after === undefined)) {
    for (const name of [...new Set([...Object.keys(was ?? {}), ...Object.keys(is ?? {})])].sort()) {
      walk(path === "" ? name : `${path}.${name}`, was?.[name], is?.[name], found);
    }
    return;
  }
  found.push({ path, before, after });
}

/** The members of an object or list; `undefined` for an empty one, which is shown as it is. */
function members(value: unknown): Record<string, unknown> | undefined {
  if (typeof value !== "object" || value === null || Object.keys(value).length === 0) return undefined;
  return value as Record<string, unknown>;
}

/** A value as text. */
export function valueText(value: unknown): string {
  return value === undefined ? "–" : typeof value === "string" ? value : JSON.stringify(value);
}
