// One caller: how each of its limits stands, why it was refused, and what can be done about it.

import { Refused } from "../api.ts";
import { h, say } from "../dom.ts";
import { type House, type Page, domains, every, lacks } from "../house.ts";
import { LOOKS } from "../outcomes.ts";
import { bar } from "../parts/bar.ts";
import { fault } from "../parts/notice.ts";
import { Table, fixed, words } from "../parts/table.ts";
import { type Route, href, segment } from "../pure/route.ts";
import { NONE, count, limit, moment, since } from "../pure/words.ts";
import type { Block, Counter, Counters, Listed, LoggedDecision, Override, QuotaItem } from "../types.ts";
import { actions } from "./caller/actions.ts";

const AGAIN_MS = 3_000;
const DECISIONS = 50;
/** The most domains that are offered. */
const MOST_DOMAINS = 20;

/** What is known of a caller. */
export interface Known {
  name: string;
  domain: string;
  quota: QuotaItem | undefined;
  block: Block | undefined;
  counters: Counter[];
}

export function caller(house: House, route: Route): Page {
  const name = route.query["name"] ?? "";
  const title = `Caller ${name}`;
  if (name === "") return { title: "Caller", node: h("p", {}, "Name one on the page ", h("a", { href: href("keys") }, "Keys"), ".") };
  const [wrong, quota, counters, log] = [fault(), quotaPart(), counterPart(), logPart(house)];
  let known: Known | undefined;
  const load = async () => {
    try {
      const domain = known?.domain ?? route.query["domain"] ?? (await firstDomain(house));
      known = await look(house, name, domain, counters.show);
      quota.show(known);
      buttons.show(known);
      await log.load(name, domain);
      wrong.set(undefined);
    } catch (error) {
      wrong.set(error);
    }
  };
  const buttons = actions(house, () => void load());
  const close = every(AGAIN_MS, load);
  const node = h("div", {}, wrong.node, others(house, name, route.query["domain"]),
    h("section", { class: "card" }, h("h2", {}, "What it has"), quota.node, buttons.node),
    h("section", { class: "card" }, h("h2", {}, "Limits"), counters.node),
    h("section", { class: "card" }, h("h2", {}, "Last decisions"), log.node));
  return { title, node, close };
}

/** The same name in other domains, where there are several that have callers. */
function others(house: House, name: string, shown: string | undefined): HTMLElement {
  const node = h("nav", { class: "tools", "aria-label": "Domains", hidden: true }, "In the domain");
  void domains(house).then((all) => {
    const named = all.filter((domain) => domain.entity !== null).slice(0, MOST_DOMAINS);
    node.hidden = named.length < 2;
    node.append(...named.map((domain, at) => {
      const isShown = domain.name === shown || (shown === undefined && at === 0);
      return h("a", { href: href("caller", { name, domain: domain.name }), "aria-current": isShown && "page" }, domain.name);
    }));
    // What keeps the list from being read is told by the rest of the page.
  }, () => {});
  return node;
}

/** The domain that is meant where none is named: the first that has callers. */
async function firstDomain(house: House): Promise<string> {
  const all = (await domains(house)).filter((domain) => domain.entity !== null);
  const [one] = all;
  if (!one) throw new Error("no domain of the rules says who a caller is");
  return one.name;
}

async function look(house: House, name: string, domain: string, show: (counters: Counters) => void): Promise<Known> {
  const [told, quota, block] = await Promise.all([
    house.api.get<Counters>(`/admin/v1/counters/${segment(name)}`, { domain }),
    recorded<QuotaItem>(house, "quotas", name, domain),
    recorded<Block>(house, "blocks", name, domain),
  ]);
  show(told);
  return { name, domain, quota, block, counters: told.counters };
}

/**
 * What the store of record has under a name. Where that is away, the counters are shown all the same.
 *
 * Of all names that begin like it, the name itself is the first; asking for it alone would be an error where it is not there.
 */
async function recorded<T extends { name?: string; api_key?: string }>(house: House, kind: string, name: string, domain: string): Promise<T | undefined> {
  try {
    const [first] = (await house.api.get<Listed<T>>(`/admin/v1/${kind}`, { domain, prefix: name, limit: 1 })).items;
    return (first?.api_key ?? first?.name) === name ? first : undefined;
  } catch (error) {
    if (error instanceof Refused && error.status === 503) return undefined;
    throw error;
  }
}

function quotaPart() {
  const [tier, ends, block] = [h("dd", {}, NONE), h("dd", {}, NONE), h("dd", {}, NONE)];
  const facts = [["Tier", tier], ["Until", ends], ["Blocked", block]] as const;
  const overrides = new Table<Override>("Overrides", [
    words("Override of", (one) => one.rule ?? one.descriptor ?? NONE, { kind: "main" }),
    words("Limit", limit),
    words("From", (one) => moment(one.effective_at)),
    words("Until", (one) => (one.expires_at ? moment(one.expires_at) : "as long as the rest")),
  ], (one) => JSON.stringify(one), "It has no limits of its own.");
  return {
    node: h("div", {}, h("dl", { class: "facts" }, facts.map(([name, value]) => h("div", {}, h("dt", {}, name), value))), overrides.node),
    show(known: Known) {
      const { quota } = known;
      say(tier, quota?.tier ?? "the domain’s default");
      say(ends, quota?.expires_at ? moment(quota.expires_at) : "for good");
      const held = known.block?.in_force ? known.block : undefined;
      const until = held?.expires_at ? `until ${moment(held.expires_at)}` : "for good";
      say(block, held ? `■ ${held.shadow ? "marked only" : `with ${held.status}`}, ${until}: ${held.reason}` : "no");
      block.classList.toggle("bad", held !== undefined);
      overrides.show(quota?.overrides ?? []);
    },
  };
}

function counterPart() {
  const left = h("ul", { class: "hint" });
  let at = "";
  const table = new Table<Counter>("Limits of this caller", [
    words("Rule", (one) => one.rule, { kind: "main" }),
    words("Limit", (one) => limit(one.limit)),
    { title: "Used", kind: "wide", cell: () => {
      const [part, text] = [bar(), h("small", {})];
      const set = (one: Counter) => {
        part.set(one.used / Math.max(1, one.used + one.remaining), one.rule);
        say(text, ` ${count(one.used)} used, ${count(one.remaining)} left`);
      };
      return { node: h("span", {}, part.node, text), set };
    } },
    words("Back to full", (one) => (one.used === 0 ? NONE : since(one.resets_at, Date.parse(at)))),
    words("Decided by", (one) => one.resolved_by),
    words("Key", (one) => one.key.join(" · ") || "one for all"),
  ], (one) => [one.rule, ...one.key].join("\n"), "No limit is counted by this caller’s name.");
  const show = (told: Counters) => {
    at = told.at;
    table.show(told.counters);
    left.replaceChildren(...told.left_out.map(({ rule, why }) => h("li", {}, `${rule}: ${why}`)));
    more.hidden = told.left_out.length === 0;
  };
  const more = h("details", { hidden: true }, h("summary", {}, "Rules that are not told here"), left);
  return { node: h("div", {}, table.node, more), show };
}

function logPart(house: House) {
  const may = lacks(house, "audit");
  if (may) return { node: h("p", { class: "hint" }, `The decision log is not shown: ${may}.`), load: async () => {} };
  const table = new Table<LoggedDecision>("Last decisions", [
    words("When", (one) => moment(one.at), { kind: "time" }),
    words("Outcome", (one) => `${LOOKS[one.verdict]?.sign ?? ""} ${LOOKS[one.verdict]?.label ?? one.verdict}`, { kind: "brief" }),
    fixed("Rule", (one) => one.rule ?? NONE),
    words("Why", (one) => one.why, { kind: "wide" }),
  ], (one) => JSON.stringify(one), "Nothing is in the log: refusals are within two seconds, of the rest a sample.");
  const load = async (name: string, domain: string) => {
    const told = await house.api.get<{ decisions: LoggedDecision[] }>("/admin/v1/decisions", { caller: name, domain, limit: DECISIONS });
    table.show(told.decisions);
  };
  return { node: table.node, load };
}
