// What differs between two documents of the audit log.

/** One member that is not what it was. `undefined`: it was not there, or is not there any more. */
export interface Change {
  path: string;
  before: unknown;
  after: unknown;
}

/** The most changes that are told of one entry. */
export const MOST_CHANGES = 50;

/** All that differs, in the order of the names. `null` stands for no document. */
export function changes(before: unknown, after: unknown): Change[] {
  const found: Change[] = [];
  walk("", before ?? undefined, after ?? undefined, found);
  return found.slice(0, MOST_CHANGES);
}

function walk(path: string, before: unknown, after: unknown, found: Change[]): void {
  if (found.length > MOST_CHANGES || JSON.stringify(before) === JSON.stringify(after)) return;
  const [was, is] = [members(before), members(after)];
  // Where one side has no members at all, the other's are told one by one.
  if ((was ?? is) && (was || before === undefined) && (is || after === undefined)) {
    for (const name of [...new Set([...Object.keys(was ?? {}), ...Object.keys(is ?? {})])].sort()) {
      walk(path === "" ? name : `${path}.${name}`, was?.[name], is?.[name], found);
    }
    return;
  }
  found.push({ path, before, after });
}

/** The members of an object or a list; nothing of an empty one, which is told as it is. */
function members(value: unknown): Record<string, unknown> | undefined {
  if (typeof value !== "object" || value === null || Object.keys(value).length === 0) return undefined;
  return value as Record<string, unknown>;
}

/** A value in a line. */
export function told(value: unknown): string {
  return value === undefined ? "–" : typeof value === "string" ? value : JSON.stringify(value);
}
