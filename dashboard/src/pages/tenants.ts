// The tenants: tiers, who has limits of their own and until when, who is blocked, what is an emergency.

import { type Child, h, say } from "../dom.ts";
import { type House, type Page, domains, every } from "../house.ts";
import { bar } from "../parts/bar.ts";
import { fault } from "../parts/notice.ts";
import { Table, fixed, words } from "../parts/table.ts";
import { type Route, href } from "../pure/route.ts";
import { NONE, count, limit, moment, rate } from "../pure/words.ts";
import type { Block, Emergency, Listed, QuotaItem, TierRow } from "../types.ts";

const AGAIN_MS = 5_000;
const QUOTAS = 50;

export function tenants(house: House, route: Route): Page {
  const [wrong, tiers, blocks, emergencies] = [fault(), tierTable(), blockTable(), emergencyTable()];
  const quotas = quotaPart(house, route);
  const close = every(AGAIN_MS, async () => {
    try {
      tiers.show((await house.api.get<{ tiers: TierRow[] }>("/admin/v1/tiers")).tiers);
      const [blocked, held] = await Promise.all([
        house.api.get<Listed<Block>>("/admin/v1/blocks", { limit: 100 }),
        house.api.get<Listed<Emergency>>("/admin/v1/emergencies", { limit: 100 }),
      ]);
      blocks.show(blocked.items);
      emergencies.show(held.items);
      wrong.set(undefined);
    } catch (error) {
      wrong.set(error);
    }
  });
  const node = h("div", {}, wrong.node,
    part("Tiers", tiers.node),
    part("Tenants and their overrides", quotas.node),
    part("Blocks", blocks.node),
    part("Emergencies", emergencies.node));
  return { title: "Tenants", node, close };
}

function part(title: string, ...children: Child[]): HTMLElement {
  return h("section", { class: "card" }, h("h2", {}, title), children);
}

function tierTable(): Table<TierRow> {
  return new Table<TierRow>("Tiers", [
    words("Tier", (one) => (one.default ? `${one.tier} (default)` : one.tier), { kind: "main" }),
    words("Domain", (one) => one.domain),
    words("Tenants", (one) => (one.callers === null ? NONE : count(one.callers)), { kind: "number" }),
    { title: "Used by the fullest", kind: "bar", cell: () => {
      const meter = bar();
      return { node: meter.node, set: (one) => meter.set(one.utilisation, one.tier) };
    } },
    words("Allowed/s", (one) => rate(one.rates.allow), { kind: "number" }),
    words("Refused/s", (one) => rate(one.rates.deny), { kind: "number" }),
    words("Would refuse/s", (one) => rate(one.rates.would_deny), { kind: "number" }),
  ], (one) => `${one.domain}\n${one.tier}`, "No domain has tiers.");
}

/** The quotas of a domain, found by the beginning of a name and by the tier. */
function quotaPart(house: House, route: Route) {
  const wrong = fault();
  const domain = h("select", { "aria-label": "Domain" });
  const tier = h("select", { "aria-label": "Tier" });
  const prefix = h("input", { type: "search", value: route.query["prefix"] ?? "", placeholder: "name begins with", "aria-label": "Search tenants", autocomplete: "off" });
  const where = h("span", { class: "hint", role: "status" });
  const [first, next] = [h("button", { type: "button" }, "From the start"), h("button", { type: "button" }, "Next")];
  const table = quotaTable();
  let [after, following]: [string | null, string | null] = [null, null];
  let wanted = 0;
  const load = async () => {
    if (domain.value === "") return;
    const asked = ++wanted;
    try {
      const query = { domain: domain.value, tier: tier.value, prefix: prefix.value.trim(), after, limit: QUOTAS };
      const page = await house.api.get<Listed<QuotaItem>>("/admin/v1/quotas", query);
      if (asked !== wanted) return;
      table.show(page.items);
      following = page.next;
      next.disabled = following === null;
      first.disabled = after === null;
      say(where, page.items.length > 0 ? `${page.items[0]!.api_key} … ${page.items.at(-1)!.api_key}` : "");
      wrong.set(undefined);
    } catch (error) {
      if (asked === wanted) wrong.set(error);
    }
  };
  const from = (start: string | null) => {
    after = start;
    void load();
  };
  prefix.addEventListener("input", () => from(null));
  tier.addEventListener("change", () => from(null));
  first.addEventListener("click", () => from(null));
  next.addEventListener("click", () => from(following));
  void domains(house).then((all) => {
    const named = all.filter((one) => one.entity !== null);
    domain.append(...named.map(({ name }) => h("option", { value: name, selected: name === route.query["domain"] }, name)));
    const chosen = () => {
      const known = named.find(({ name }) => name === domain.value);
      tier.replaceChildren(h("option", { value: "" }, "any tier"), ...(known?.tiers ?? []).map((name) => h("option", { value: name }, name)));
      from(null);
    };
    domain.addEventListener("change", chosen);
    chosen();
  }, wrong.set);
  const tools = h("div", { class: "tools" }, domain, tier, prefix);
  return { node: h("div", {}, tools, wrong.node, table.node, h("div", { class: "pager" }, first, where, next)) };
}

function quotaTable(): Table<QuotaItem> {
  return new Table<QuotaItem>("Tenants", [
    fixed("Caller", (one) => (one.api_key.includes("*") ? one.api_key : h("a", { href: href("caller", { name: one.api_key, domain: one.domain }) }, one.api_key)), { kind: "main" }),
    words("Tier", (one) => one.tier ?? NONE),
    { title: "Overrides", kind: "wide", cell: () => {
      const list = h("ul", { class: "plain" });
      const set = (item: QuotaItem) => list.replaceChildren(...(item.overrides ?? []).map((one) => {
        const ends = one.expires_at ?? item.expires_at;
        return h("li", {}, `${one.rule ?? one.descriptor}: ${limit(one)}${ends ? `, until ${moment(ends)}` : ""}`);
      }));
      return { node: list, set };
    } },
    words("Until", (one) => (one.expires_at ? moment(one.expires_at) : "for good")),
    words("Changed", (one) => `${moment(one.updated_at)} by ${one.updated_by}`),
  ], (one) => one.api_key, "No tenant has anything of its own.");
}

function blockTable(): Table<Block> {
  return new Table<Block>("Blocks", [
    fixed("Who", (one) => (one.range || one.name.includes("*") || !one.domain ? one.name : h("a", { href: href("caller", { name: one.name, domain: one.domain }) }, one.name)), { kind: "main" }),
    words("Domain", (one) => one.domain ?? "all"),
    words("How", (one) => (one.shadow ? "marked only" : `refused with ${one.status}`)),
    words("Until", (one) => `${one.expires_at ? moment(one.expires_at) : "for good"}${one.in_force ? "" : " (over)"}`),
    words("Why", (one) => one.reason, { kind: "wide" }),
  ], (one) => `${one.domain}\n${one.name}`, "Nobody is blocked.");
}

function emergencyTable(): Table<Emergency> {
  const what = (one: Emergency) => (one.percent === undefined || one.percent === null ? limit(one) : `${one.percent} % of each limit`);
  return new Table<Emergency>("Emergencies", [
    words("Name", (one) => one.name, { kind: "main" }),
    words("Callers", (one) => one.callers ?? "*"),
    words("Rule", (one) => one.rule ?? "all that fit"),
    words("Limit", what),
    words("Until", (one) => `${moment(one.expires_at)}${one.in_force ? "" : " (over)"}`),
    words("Why", (one) => one.reason, { kind: "wide" }),
  ], (one) => `${one.domain}\n${one.name}`, "There is none.");
}
