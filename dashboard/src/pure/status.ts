// Is all well? If not: what is wrong, since when, who and which rule.

import { type PageName, href } from "./route.ts";
import { count, duration, percent, rate } from "./format.ts";
import type { Rise } from "./series.ts";
import { troubles } from "./regions.ts";
import type { Emergency, Overview, RefusingRule, Regions, SwitchItem, TopKey } from "../types.ts";

export type Severity = "bad" | "warn" | "note";

/** Something that an operator should know, the worst first. */
export interface Finding {
  severity: Severity;
  text: string;
  links: { text: string; href: string }[];
}

/** What the status is judged by. */
export interface Evidence {
  overview: Overview;
  /** A rise of refusals, with the time at which it began. */
  rise: (Rise & { at: number }) | undefined;
  refusing: RefusingRule[];
  topKeys: TopKey[];
  switches: SwitchItem[];
  emergencies: Emergency[];
  /** Missing where there is one region. */
  regions?: Regions | undefined;
}

const LEVELS: Record<string, string> = {
  degraded: "some of it does not answer, and policies decide in its place",
  "local-only": "no part of it answers, and this server counts by itself",
  open: "no part of it answers, and requests pass uncounted",
};

/** From this share on, requests without a rule are worth a look. */
export const MANY_UNMATCHED = 0.5;

const RANK: Severity[] = ["bad", "warn", "note"];

export function assess(evidence: Evidence): Finding[] {
  const findings = [...storeFindings(evidence.overview), ...regionFindings(evidence), ...ruleFindings(evidence.overview), ...refusals(evidence), ...unlimited(evidence.overview), ...controls(evidence), ...losses(evidence.overview)];
  return findings.sort((one, other) => RANK.indexOf(one.severity) - RANK.indexOf(other.severity));
}

function storeFindings({ at, store }: Overview): Finding[] {
  if (store.level !== "normal") {
    const since = store.since ? ` for ${duration((Date.parse(at) - Date.parse(store.since)) / 1000)}` : "";
    return [finding("bad", `The counter store has been ${store.level}${since}: ${LEVELS[store.level] ?? "see below"}.`)];
  }
  const open = store.circuits.filter((circuit) => circuit.state !== "closed");
  return open.map(({ shard, state }) => finding("warn", `Breaker ${state}: ${shard}.`));
}

/** Other regions: what their page would say, or else the condition of the server. */
function regionFindings({ overview, regions }: Evidence): Finding[] {
  const link: [string, PageName, Record<string, string>] = ["Regions", "regions", {}];
  if (regions) return troubles(regions).map(({ text, isBad }) => finding(isBad ? "bad" : "warn", text, link));
  return overview.health.filter(({ part, degraded }) => degraded && part === "regions").map(({ why }) => finding("warn", `Degraded: regions. ${why ?? ""}`, link));
}

/** Parts that have findings of their own. */
const SAID = ["store", "rules", "regions"];

function ruleFindings({ rules, health }: Overview): Finding[] {
  const findings = health
    .filter(({ part, degraded }) => degraded && !SAID.includes(part))
    .map(({ part, why }) => finding("warn", `Degraded: ${part}. ${why ?? ""}`));
  if (!rules.valid) findings.push(finding("bad", `The rule files are invalid, and the last good rules stay in force: ${rules.last_error ?? ""}`, ["Rules", "rules", {}]));
  return findings;
}

function refusals({ overview, rise, refusing, topKeys }: Evidence): Finding[] {
  const findings: Finding[] = [];
  for (const [outcome, text] of [["shed", "are shed: too many checks are in flight"], ["assumed", "are decided by policy, without counters"]] as const) {
    if (overview.rates[outcome] > 0) findings.push(finding("bad", `${rate(overview.rates[outcome])} decisions per second ${text}.`));
  }
  if (!rise) return findings;
  const clock = new Date(rise.at * 1000).toISOString().slice(11, 19);
  const [rule, key] = [refusing[0], topKeys[0]];
  const links: [string, PageName, Record<string, string>][] = [];
  let who = "";
  if (rule && rule.rates.deny > 0) {
    const all = refusing.reduce((sum, one) => sum + one.rates.deny, 0);
    who = ` ${Math.round((100 * rule.rates.deny) / all)} % are by the rule ${rule.rule}`;
    links.push([rule.rule, "rule", { domain: rule.domain, name: rule.rule }]);
    if (key && key.rule === rule.rule && key.key !== "") who += `, and the most refused caller is ${key.key}`;
    who += ".";
  }
  if (key?.caller && !key.caller.startsWith("#")) links.push([key.caller, "caller", { domain: key.domain, name: key.caller }]);
  findings.push(finding("warn", `Refusals rose at ${clock} UTC: ${rate(rise.now)} per second, ${rate(rise.before)} before.${who}`, ...links));
  return findings;
}

/** Requests pass that no rule applies to: a wrong name of an attribute looks like this. */
function unlimited({ unmatched }: Overview): Finding[] {
  if (!unmatched || unmatched.share < MANY_UNMATCHED) return [];
  const names = (unmatched.attributes ?? []).slice(0, 3).join(", ");
  return [finding("warn", `No rule applies to ${percent(unmatched.share)} of the requests, which pass without a limit.${names ? ` No rule reads ${names}.` : ""}`, ["Rules", "rules", {}], ["Try it", "try", {}])];
}

function controls({ switches, emergencies }: Evidence): Finding[] {
  const inForce = switches.filter((one) => one.in_force);
  const findings = inForce
    .filter((one) => one.what !== "rule")
    .map((one) => finding(one.mode === "off" ? "bad" : "warn", `${one.what === "everything" ? "All rules are" : `All rules of ${one.domain} are`} switched to ${one.mode}${one.reason ? `: ${one.reason}` : ""}.`, ["Controls", "controls", {}]));
  const off = inForce.filter((one) => one.what === "rule" && one.mode === "off");
  if (off.length > 0) findings.push(finding("warn", `Switched off: ${off.map((one) => one.rule).slice(0, 5).join(", ")}${off.length > 5 ? ` and ${off.length - 5} more` : ""}.`, ["Controls", "controls", {}]));
  for (const one of emergencies.filter((emergency) => emergency.in_force)) {
    findings.push(finding("warn", `Emergency ${one.name} is in force until ${one.expires_at.slice(11, 16)} UTC: ${one.reason}.`, ["Controls", "controls", {}]));
  }
  return findings;
}

function losses({ store, log }: Overview): Finding[] {
  const findings: Finding[] = [];
  if (store.evicted > 0) findings.push(finding("warn", `${count(store.evicted)} counters in use were evicted since the start: raise max_keys.`));
  if (log.dropped > 0) findings.push(finding("note", `The decision log dropped ${count(log.dropped)} entries since the start.`));
  return findings;
}

function finding(severity: Severity, text: string, ...links: [string, PageName, Record<string, string>][]): Finding {
  return { severity, text, links: links.map(([label, page, query]) => ({ text: label, href: href(page, query) })) };
}
