// What the numbers of a gateway mean: the state of servers and upstreams, and rates from two readings.

import { count, plural, rate } from "./format.ts";
import type { GatewayFairness, GatewayRoute, GatewayServer, GatewayStatus, GatewayUpstream, RefusedByClass } from "../types.ts";

export type ServerState = "healthy" | "unhealthy" | "ejected";

/** The state of a server. Health checks outlast an ejection, so they come first. */
export function serverState({ healthy, ejected }: GatewayServer): ServerState {
  if (!healthy) return "unhealthy";
  return ejected ? "ejected" : "healthy";
}

/** Whether any server of an upstream gets requests. */
export function isUsable({ servers }: GatewayUpstream): boolean {
  return servers.some((server) => serverState(server) === "healthy");
}

/** The servers of an upstream in a few words. */
export function healthText({ servers }: GatewayUpstream): string {
  if (servers.length === 0) return "no server is known";
  const bad = (["unhealthy", "ejected"] as const).map((state) => [servers.filter((server) => serverState(server) === state).length, state] as const);
  const parts = bad.filter(([number]) => number > 0).map(([number, state]) => `${number} ${state}`);
  const all = plural(servers.length, "server");
  return parts.length === 0 ? `${all}, healthy` : `${all}: ${parts.join(", ")}`;
}

/** Responses of a route. */
export function responses(route: GatewayRoute): number {
  return route.informational + route.successful + route.redirected + route.client_errors + route.server_errors;
}

/** What a shedder refused, the least important class first; in mode `shadow`, what it would have refused. */
export function refusedText({ refused }: { refused: RefusedByClass }): string {
  const parts = (["test", "get", "post", "critical"] as const).filter((name) => refused[name] > 0).map((name) => `${count(refused[name])} ${name}`);
  return parts.length === 0 ? "none" : parts.join(", ");
}

/** All refusals of a shedder. */
export function refusals({ refused }: { refused: RefusedByClass }): number {
  return refused.test + refused.get + refused.post + refused.critical;
}

/** The tiers whose busiest callers are lowered, with the most requests per second of one of them. */
export function loweredText({ tiers }: GatewayFairness): string {
  const parts = tiers.filter(({ ceiling }) => ceiling !== null).map(({ tier, ceiling }) => `${tier} to ${rate(ceiling ?? 0)}/s`);
  return parts.length === 0 ? "nobody" : parts.join(", ");
}

/** What a fairness shedder refused by tier; in mode `shadow`, what it would have refused. */
export function refusedByTier({ tiers }: GatewayFairness): string {
  const parts = tiers.filter(({ refused }) => refused > 0).map(({ tier, refused }) => `${count(refused)} ${tier}`);
  return parts.length === 0 ? "none" : parts.join(", ");
}

/** A reading and its time in milliseconds. */
export interface Reading {
  at: number;
  status: GatewayStatus;
}

/** Requests per second of each route between two readings. A counter that fell has begun again. */
export function routeRates(before: Reading | undefined, now: Reading): Map<string, number> {
  const rates = new Map<string, number>();
  if (!before || now.at <= before.at) return rates;
  const earlier = new Map(before.status.routes.map((route) => [route.name, responses(route)]));
  for (const route of now.status.routes) {
    const [from, to] = [earlier.get(route.name), responses(route)];
    if (from !== undefined) rates.set(route.name, (to < from ? to : to - from) / ((now.at - before.at) / 1000));
  }
  return rates;
}

/** What is shed by whom, for people: only what the gateway refused, not what it would have. */
export function shedText({ shed }: GatewayStatus): string {
  const NAMES = { adaptive: "caps", fairness: "fairness", worker: "this server", fleet: "rules" };
  const parts = shed.filter((one) => refusals(one) > 0).map((one) => `${NAMES[one.by]} ${count(refusals(one))}`);
  return parts.join(", ");
}

/** Whether the shedder of the server refuses requests now. */
export function isOverloaded({ worker }: GatewayStatus): boolean {
  return worker.mode === "enforce" && worker.amount > 0;
}

/** What is protected by refusals between two readings: upstreams by their shedders, and the server itself. */
export function shedding(before: Reading | undefined, now: Reading): string[] {
  const refused = ({ cap, fairness }: GatewayUpstream) =>
    (cap.mode === "enforce" ? refusals(cap) : 0) + (fairness?.mode === "enforce" ? fairness.tiers.reduce((sum, tier) => sum + tier.refused, 0) : 0);
  const earlier = new Map(before?.status.upstreams.map((upstream) => [upstream.name, refused(upstream)]));
  const isShedding = (upstream: GatewayUpstream) => {
    const from = earlier.get(upstream.name);
    return from !== undefined && refused(upstream) > from;
  };
  const upstreams = now.status.upstreams.filter(isShedding).map(({ name }) => name);
  return isOverloaded(now.status) ? [...upstreams, "this server"] : upstreams;
}
