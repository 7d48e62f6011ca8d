// Tiers, tenants with overrides, blocks and emergencies.

import { type Child, h, setText } from "../dom.ts";
import { type AppContext, type Page, domains, missingScope, poll } from "../context.ts";
import { bar } from "../parts/bar.ts";
import { fault } from "../parts/notice.ts";
import { Table, fixedColumn, textColumn } from "../parts/table.ts";
import { type Route, href } from "../pure/route.ts";
import { NONE, count, limit, timestamp, rate } from "../pure/format.ts";
import type { Block, Emergency, ListPage, QuotaItem, TierRow } from "../types.ts";

const REFRESH_MS = 5_000;
const QUOTAS = 50;
const BLOCKS = 100;
const EMERGENCIES = 100;

export function tenants(app: AppContext, route: Route): Page {
  const [wrong, tiers, emergencies] = [fault(), tierTable(), emergencyTable()];
  const [quotas, blocks] = [quotaSection(app, route), blockSection(app)];
  const close = poll(REFRESH_MS, async () => {
    try {
      tiers.show((await app.api.get<{ tiers: TierRow[] }>("/admin/v1/tiers")).tiers);
      const [declared] = await Promise.all([
        app.api.get<ListPage<Emergency>>("/admin/v1/emergencies", { limit: EMERGENCIES }),
        blocks.load(),
      ]);
      emergencies.show(declared.items);
      wrong.set(undefined);
    } catch (error) {
      wrong.set(error);
    }
  });
  const node = h("div", {}, wrong.node,
    section("Tiers", tiers.node),
    section("Tenants and their overrides", quotas.node),
    section("Blocks", blocks.node),
    section("Emergencies", emergencies.node));
  return { title: "Tenants", node, close };
}

function section(title: string, ...children: Child[]): HTMLElement {
  return h("section", { class: "card" }, h("h2", {}, title), children);
}

function tierTable(): Table<TierRow> {
  return new Table<TierRow>("Tiers", [
    textColumn("Tier", (one) => (one.default ? `${one.tier} (default)` : one.tier), { kind: "main" }),
    textColumn("Domain", (one) => one.domain),
    textColumn("Tenants", (one) => (one.callers === null ? NONE : count(one.callers)), { kind: "number" }),
    { title: "Highest utilisation", kind: "bar", cell: () => {
      const meter = bar();
      return { node: meter.node, set: (one) => meter.set(one.utilisation, one.tier) };
    } },
    textColumn("Allowed/s", (one) => rate(one.rates.allow), { kind: "number" }),
    textColumn("Refused/s", (one) => rate(one.rates.deny), { kind: "number" }),
    textColumn("Would refuse/s", (one) => rate(one.rates.would_deny), { kind: "number" }),
  ], (one) => `${one.domain}\n${one.tier}`, "No tiers.");
}

/** The quotas of a domain, filtered by prefix and tier. */
function quotaSection(app: AppContext, route: Route) {
  const missing = missingScope(app, "quota", "audit");
  if (missing) return { node: h("p", { class: "hint" }, `Tenants are not shown: ${missing}.`) };
  const wrong = fault();
  const domain = h("select", { "aria-label": "Domain" });
  const tier = h("select", { "aria-label": "Tier" });
  const prefix = h("input", { type: "search", value: route.query["prefix"] ?? "", placeholder: "name prefix", "aria-label": "Search tenants", autocomplete: "off" });
  const where = h("span", { class: "hint", role: "status" });
  const [first, next] = [h("button", { type: "button" }, "First page"), h("button", { type: "button" }, "Next")];
  const table = quotaTable();
  let [after, following]: [string | null, string | null] = [null, null];
  let latest = 0;
  const load = async () => {
    if (domain.value === "") return;
    const number = ++latest;
    try {
      const query = { domain: domain.value, tier: tier.value, prefix: prefix.value.trim(), after, limit: QUOTAS };
      const page = await app.api.get<ListPage<QuotaItem>>("/admin/v1/quotas", query);
      if (number !== latest) return;
      table.show(page.items);
      following = page.next;
      next.disabled = following === null;
      first.disabled = after === null;
      setText(where, page.items.length > 0 ? `${page.items[0]!.api_key} … ${page.items.at(-1)!.api_key}` : "");
      wrong.set(undefined);
    } catch (error) {
      if (number === latest) wrong.set(error);
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
  void domains(app).then((all) => {
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
    fixedColumn("Caller", (one) => (one.api_key.includes("*") ? one.api_key : h("a", { href: href("caller", { name: one.api_key, domain: one.domain }) }, one.api_key)), { kind: "main" }),
    textColumn("Tier", (one) => one.tier ?? NONE),
    { title: "Overrides", kind: "wide", cell: () => {
      const list = h("ul", { class: "plain" });
      const set = (item: QuotaItem) => list.replaceChildren(...(item.overrides ?? []).map((one) => {
        const ends = one.expires_at ?? item.expires_at;
        return h("li", {}, `${one.rule ?? one.descriptor}: ${limit(one)}${ends ? `, until ${timestamp(ends)}` : ""}`);
      }));
      return { node: list, set };
    } },
    textColumn("Expires", (one) => (one.expires_at ? timestamp(one.expires_at) : "never")),
    textColumn("Changed", (one) => `${timestamp(one.updated_at)} by ${one.updated_by}`),
  ], (one) => one.api_key, "No tenants with their own quota.");
}

/** The first blocks of all domains. */
function blockSection(app: AppContext) {
  const missing = missingScope(app, "emergency", "audit");
  if (missing) return { node: h("p", { class: "hint" }, `Blocks are not shown: ${missing}.`), load: async () => {} };
  const table = blockTable();
  const load = async () => table.show((await app.api.get<ListPage<Block>>("/admin/v1/blocks", { limit: BLOCKS })).items);
  return { node: table.node, load };
}

function blockTable(): Table<Block> {
  return new Table<Block>("Blocks", [
    fixedColumn("Caller or range", (one) => (one.range || one.name.includes("*") || !one.domain ? one.name : h("a", { href: href("caller", { name: one.name, domain: one.domain }) }, one.name)), { kind: "main" }),
    textColumn("Domain", (one) => one.domain ?? "all"),
    textColumn("Effect", (one) => (one.shadow ? "marked only" : `refused with ${one.status}`)),
    textColumn("Expires", (one) => `${one.expires_at ? timestamp(one.expires_at) : "never"}${one.in_force ? "" : " (expired)"}`),
    textColumn("Reason", (one) => one.reason, { kind: "wide" }),
  ], (one) => `${one.domain}\n${one.name}`, "No blocks.");
}

function emergencyTable(): Table<Emergency> {
  const emergencyLimit = (one: Emergency) => (one.percent === undefined || one.percent === null ? limit(one) : `${one.percent} % of each limit`);
  return new Table<Emergency>("Emergencies", [
    textColumn("Name", (one) => one.name, { kind: "main" }),
    textColumn("Callers", (one) => one.callers ?? "*"),
    textColumn("Rule", (one) => one.rule ?? "all"),
    textColumn("Limit", emergencyLimit),
    textColumn("Expires", (one) => `${timestamp(one.expires_at)}${one.in_force ? "" : " (expired)"}`),
    textColumn("Reason", (one) => one.reason, { kind: "wide" }),
  ], (one) => `${one.domain}\n${one.name}`, "No emergencies.");
}
