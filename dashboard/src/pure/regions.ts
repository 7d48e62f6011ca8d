// What is known of other regions, in words: how debits are doing, and what that means for each rule.

import { duration, plural, took } from "./format.ts";
import type { RegionLinkName, RegionRow, RegionRule, Regions } from "../types.ts";

/** Limits are lowered in so many steps before regions are apart. */
export const STEPS = 6;
/** From this lag on, limits are lowered: seconds. */
export const LATE_SECONDS = 0.5;
/** The last bound of the histogram, and the one before it. */
const [LAST_BOUND, BEFORE_LAST] = [10, 2];

/** Other regions, without the one of this server. */
export function others({ regions }: Regions): RegionRow[] {
  return regions.filter((region) => !region.this);
}

/** The region whose debits are doing worst: it decides for all rules. */
export function worst(now: Regions): RegionRow | undefined {
  return others(now).reduce<RegionRow | undefined>((worst, one) => ((one.step ?? 0) > (worst?.step ?? 0) ? one : worst), others(now)[0]);
}

/** A quantile of lag or calls, which is the upper bound of a bucket. */
export function lagText(seconds: number | null | undefined): string {
  return (seconds ?? 0) >= LAST_BOUND ? `> ${BEFORE_LAST} s` : took(seconds);
}

/** `together`, `lagging, step 3 of 6`, `apart`. */
export function linkText({ this: here, link, step }: RegionRow): string {
  if (here) return "this region";
  return link === "lagging" ? `lagging, step ${step ?? 0} of ${STEPS}` : (link ?? "?");
}

/** Whether debits are late or do not arrive. */
export function isLate({ link }: RegionRow): boolean {
  return link !== undefined && link !== "together";
}

/** The nodes of a region that do not get what is sent. */
export function brokenNodes({ nodes }: RegionRow): RegionRow["nodes"] {
  return nodes.filter(({ state }) => state !== "closed");
}

/** `3 nodes`, `1 of 3 nodes away`. */
export function nodesText(region: RegionRow): string {
  const broken = brokenNodes(region).length;
  return broken === 0 ? plural(region.nodes.length, "node") : `${broken} of ${plural(region.nodes.length, "node")} away`;
}

/** How old the oldest debit without an answer is. */
export function oldestText({ oldest_seconds: age }: RegionRow): string {
  if (age === undefined || age === 0) return "none";
  return age < 60 ? took(age) : duration(age);
}

/** What a rule does now, and whether that is other than usual. */
export function effect(rule: RegionRule, now: Regions): { text: string; isBad: boolean } {
  const as = (text: string, isBad = false) => ({ text, isBad });
  const away = others(now).filter((region) => region.nodes.length > 0 && brokenNodes(region).length === region.nodes.length);
  const names = away.map(({ name }) => name).join(", ");
  switch (rule.region) {
    case "split":
      return as("each region counts its share");
    case "home": {
      const fixed = /^home: (.+)$/.exec(rule.terms)?.[1];
      if (fixed === now.region) return as("counted here, for all regions");
      const isAway = fixed ? away.some(({ name }) => name === fixed) : away.length > 0;
      if (isAway) return as(fixed ? `${fixed} can't be reached: its \`on_failure\` decides` : `counters of ${names} can't be reached: its \`on_failure\` decides`, true);
      return as(fixed ? `counted in ${fixed}` : "counted in the home of the caller");
    }
    case "global": {
      const of = worst(now);
      const link: RegionLinkName = of?.link ?? "together";
      const regions = now.regions.length;
      if (link === "lagging") return as(`lowered by ${of?.step ?? 0} of ${STEPS} steps, towards 1/${regions} of the limit: ${of?.name ?? ""} hears of units too late`, true);
      if (link === "apart" && rule.apart === "share") return as(`lowered to 1/${regions} of the limit until ${of?.name ?? "the others"} can be reached`, true);
      if (link === "apart") return as(`the whole limit, without what ${of?.name ?? "others"} admits`, true);
      return as("what one region admits counts in all");
    }
    default:
      return as(rule.terms);
  }
}

/** What is the matter with other regions, in a sentence each. */
export function troubles(now: Regions): { text: string; isBad: boolean }[] {
  return others(now).filter((region) => isLate(region) || brokenNodes(region).length > 0).map((region) => {
    const broken = brokenNodes(region);
    const why = broken.length > 0 ? ` ${nodesText(region)}${broken[0]?.error ? `: ${broken[0].error}` : ""}.` : "";
    if (region.link === "apart") return { isBad: true, text: `${region.name} is apart: debits do not arrive there, and limits count without it.${why}` };
    if (region.link === "lagging") return { isBad: false, text: `${region.name} is lagging: the oldest debit has waited ${oldestText(region)}, and limits are lowered (step ${region.step ?? 0} of ${STEPS}).${why}` };
    return { isBad: false, text: `${region.name}:${why}` };
  });
}
