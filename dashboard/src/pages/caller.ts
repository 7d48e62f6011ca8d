// One caller: what was refused, its limits, its quota, its recent decisions, and actions.

import { ApiError } from "../api.ts";
import { h } from "../dom.ts";
import { type AppContext, type Page, domains, missingScope, poll } from "../context.ts";
import { openBlock, openUnblock } from "../actions/blocks.ts";
import { openOverride, openReset, openTier } from "../actions/quota.ts";
import { card } from "../parts/card.ts";
import { fault } from "../parts/notice.ts";
import { type Route, href, segment } from "../pure/route.ts";
import type { Block, Counters, ListPage, QuotaItem, Scope } from "../types.ts";
import { counterSection } from "./caller/counters.ts";
import { logSection } from "./caller/log.ts";
import { quotaSection } from "./caller/quota.ts";

const REFRESH_MS = 3_000;
/** Domains that are offered. */
const MAX_DOMAINS = 20;

/** The data of a caller. */
export interface CallerData {
  name: string;
  domain: string;
  quota: QuotaItem | undefined;
  block: Block | undefined;
  tier: Counters["tier"];
  tierFrom: string | null;
}

export function caller(app: AppContext, route: Route): Page {
  const name = route.query["name"] ?? "";
  const title = `Caller ${name}`;
  if (name === "") return { title: "Caller", node: h("p", {}, "Choose a caller on the page ", h("a", { href: href("keys") }, "Keys"), ".") };
  const [wrong, counters, log] = [fault(), counterSection(), logSection(app, name)];
  let data: CallerData | undefined;
  const load = async () => {
    try {
      const domain = data?.domain ?? route.query["domain"] ?? (await firstDomain(app));
      data = await loadCaller(app, name, domain, (now) => counters.show(now, domain));
      quota.show(data);
      buttons.show(data);
      await log.load(domain);
      wrong.set(undefined);
    } catch (error) {
      wrong.set(error);
    }
  };
  const changed = () => void load();
  const [quota, buttons] = [quotaSection(app, changed), actions(app, changed)];
  const stop = poll(REFRESH_MS, load);
  const node = h("div", {}, wrong.node, others(app, name, route.query["domain"]), buttons.node,
    card("Limits", [counters.node]),
    card("Refusals per second", [log.chart], { tools: log.ranges }),
    card("Recent decisions", [log.node]),
    card("Quota", [quota.node]));
  const close = () => {
    stop();
    log.close();
  };
  return { title, node, close };
}

function actions(app: AppContext, changed: () => void) {
  let current: CallerData | undefined;
  const button = (label: string, scope: Scope, action: (caller: CallerData) => void, style = "") => {
    const lacking = missingScope(app, scope);
    return h("button", { type: "button", class: style, disabled: lacking !== undefined, title: lacking, on: { click: () => current && action(current) } }, label);
  };
  const block = button("Block…", "emergency", ({ name, domain }) => void openBlock(app, { caller: name, domain }, changed), "harmful");
  const unblock = button("End the block…", "emergency", ({ block }) => block && openUnblock(app, block, changed));
  unblock.hidden = true;
  const lacking = [missingScope(app, "quota"), missingScope(app, "emergency")].filter((one) => one !== undefined);
  const buttons = h("div", { class: "buttons" },
    button("Override a limit…", "quota", (caller) => void openOverride(app, caller, undefined, changed)),
    button("Change the tier…", "quota", (caller) => void openTier(app, caller, changed)),
    button("Reset counters…", "quota", (caller) => openReset(app, caller, changed)),
    block, unblock);
  return {
    node: h("div", {}, buttons, lacking.length > 0 && h("p", { class: "hint" }, `Some actions are not allowed: ${lacking.join("; ")}.`)),
    show(now: CallerData) {
      current = now;
      block.hidden = now.block?.in_force ?? false;
      unblock.hidden = !block.hidden;
    },
  };
}

/** The same name in other domains, where there are several that have callers. */
function others(app: AppContext, name: string, shown: string | undefined): HTMLElement {
  const node = h("nav", { class: "tools", "aria-label": "Domains", hidden: true }, "Domain");
  void domains(app).then((all) => {
    const named = all.filter((domain) => domain.entity !== null).slice(0, MAX_DOMAINS);
    node.hidden = named.length < 2;
    node.append(...named.map((domain, at) => {
      const isShown = domain.name === shown || (shown === undefined && at === 0);
      return h("a", { href: href("caller", { name, domain: domain.name }), "aria-current": isShown && "page" }, domain.name);
    }));
    // Errors are shown by the rest of the page.
  }, () => {});
  return node;
}

/** The default domain: the first one with callers. */
async function firstDomain(app: AppContext): Promise<string> {
  const [one] = (await domains(app)).filter((domain) => domain.entity !== null);
  if (!one) throw new Error("no domain of the rules has an entity, the attribute that names callers: add `entity: api_key` to the rule file");
  return one.name;
}

async function loadCaller(app: AppContext, name: string, domain: string, show: (counters: Counters) => void): Promise<CallerData> {
  const [counters, quota, block] = await Promise.all([
    app.api.get<Counters>(`/admin/v1/counters/${segment(name)}`, { domain }),
    findRecord<QuotaItem>(app, "quotas", name, domain),
    findRecord<Block>(app, "blocks", name, domain),
  ]);
  show(counters);
  return { name, domain, quota, block, tier: counters.tier, tierFrom: counters.tier_from };
}

/**
 * The record of a name. Without the store of record only the counters are shown.
 *
 * It is requested as a list: a missing record of its own would be an error.
 */
async function findRecord<T>(app: AppContext, kind: string, name: string, domain: string): Promise<T | undefined> {
  try {
    return (await app.api.get<ListPage<T>>(`/admin/v1/${kind}`, { domain, name, limit: 1 })).items[0];
  } catch (error) {
    if (error instanceof ApiError && error.status === 503) return undefined;
    throw error;
  }
}
