// What every page has at hand, and what a page is.

import type { Api } from "./api.ts";
import type { Live } from "./live.ts";
import type { Route } from "./pure/route.ts";
import type { Domain, Me, Scope } from "./types.ts";

export interface House {
  api: Api;
  live: Live;
  me: Me;
}

/** A page that is shown. */
export interface Page {
  title: string;
  node: HTMLElement;
  /** Whether it wants the rules' numbers from the live stream. */
  withRules?: boolean;
  /** Ends whatever goes on behind it. */
  close?(): void;
}

export type Open = (house: House, route: Route) => Page;

/** What somebody lacks for something, in words; nothing if they may. */
export function lacks(house: House, ...anyOf: Scope[]): string | undefined {
  if (anyOf.some((scope) => house.me.scopes.includes(scope))) return undefined;
  return `${house.me.name} lacks the scope ${anyOf.map((scope) => `“${scope}”`).join(" or ")}`;
}

/** The domains of the rules in force. */
export async function domains(house: House): Promise<Domain[]> {
  const answer = await house.api.get<{ items: Domain[] }>("/admin/v1/domains", { limit: 1000 });
  return answer.items;
}

/** Does something now and then every so many milliseconds while the page can be seen, one at a time; ends by what it returns. */
export function every(milliseconds: number, work: () => Promise<void>): () => void {
  let timer: ReturnType<typeof setTimeout> | undefined;
  let ended = false;
  const turn = async () => {
    if (!document.hidden) await work();
    if (!ended) timer = setTimeout(turn, milliseconds);
  };
  void turn();
  return () => {
    ended = true;
    clearTimeout(timer);
  };
}
