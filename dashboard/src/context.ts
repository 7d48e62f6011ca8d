// The context of pages, and the interface of a page.

import type { Api } from "./api.ts";
import type { Live } from "./live.ts";
import type { Route } from "./pure/route.ts";
import type { Domain, Me, Scope } from "./types.ts";

export interface AppContext {
  api: Api;
  live: Live;
  me: Me;
}

/** A displayed page. */
export interface Page {
  title: string;
  node: HTMLElement;
  /** Whether it needs the rules' numbers from the live stream. */
  withRules?: boolean;
  /** Stops background work. */
  close?(): void;
}

export type OpenPage = (app: AppContext, route: Route) => Page;

/** Describes the missing scope, if the user has none of these. */
export function missingScope(app: AppContext, ...anyOf: Scope[]): string | undefined {
  if (anyOf.some((scope) => app.me.scopes.includes(scope))) return undefined;
  return `${app.me.name} lacks the scope ${anyOf.map((scope) => `“${scope}”`).join(" or ")}`;
}

/** The domains of the rules in force. */
export async function domains(app: AppContext): Promise<Domain[]> {
  const page = await app.api.get<{ items: Domain[] }>("/admin/v1/domains", { limit: 1000 });
  return page.items;
}

/** Runs `work` at an interval while the page is visible, one run at a time. Returns a function that stops it. */
export function poll(milliseconds: number, work: () => Promise<void>): () => void {
  let timer: ReturnType<typeof setTimeout> | undefined;
  let stopped = false;
  const run = async () => {
    if (!document.hidden) await work();
    if (!stopped) timer = setTimeout(run, milliseconds);
  };
  void run();
  return () => {
    stopped = true;
    clearTimeout(timer);
  };
}
