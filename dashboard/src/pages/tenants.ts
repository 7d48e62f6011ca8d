// Tiers, and tenants with a tier or overrides of their own, which can be changed here.

import { type Child, fill, h, setText } from "../dom.ts";
import { type AppContext, type Page, domains, missingScope, poll } from "../context.ts";
import { type Caller, openOverride, openRemoveOverride, openRemoveQuota, openTier, overrideName } from "../actions/quota.ts";
import { bar } from "../parts/bar.ts";
import { card } from "../parts/card.ts";
import { field, openDialog, text } from "../parts/dialog.ts";
import { icon } from "../parts/icon.ts";
import { fault, warn } from "../parts/notice.ts";
import { Table, fixedColumn, textColumn } from "../parts/table.ts";
import { type Route, href } from "../pure/route.ts";
import { NONE, count, limit, timestamp, rate } from "../pure/format.ts";
import type { Domain, ListPage, QuotaItem, TierRow } from "../types.ts";

const REFRESH_MS = 5_000;
const QUOTAS = 25;

export function tenants(app: AppContext, route: Route): Page {
  const [wrong, tiers] = [fault(), tierTable()];
  const close = poll(REFRESH_MS, async () => {
    try {
      const all = (await app.api.get<{ tiers: TierRow[] }>("/admin/v1/tiers")).tiers;
      // A domain that limits all callers alike has no tiers worth listing.
      tiers.show(all.filter((one) => one.limited || (one.callers ?? 0) > 0));
      wrong.set(undefined);
    } catch (error) {
      wrong.set(error);
    }
  });
  const quotas = quotaSection(app, route);
  const node = h("div", {}, wrong.node, card("Tiers", [tiers.node]), card("Tenants", [quotas.node], { tools: quotas.add }));
  return { title: "Tenants", node, close };
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
  ], (one) => `${one.domain}\n${one.tier}`, "No rule has limits by tier. Write `limit: {free: 100/minute, pro: 1000/minute}` in a rule to use tiers.");
}

/** The quotas of a domain, filtered by prefix and tier. */
function quotaSection(app: AppContext, route: Route): { node: HTMLElement; add?: Child } {
  const missing = missingScope(app, "quota", "audit");
  if (missing) return { node: h("p", { class: "hint" }, `Tenants are not shown: ${missing}.`) };
  const wrong = fault();
  const [domain, tier] = [h("select", { "aria-label": "Domain", hidden: true }), h("select", { "aria-label": "Tier", hidden: true })];
  const prefix = h("input", { type: "search", value: route.query["prefix"] ?? "", placeholder: "beginning of a name", "aria-label": "Search tenants", autocomplete: "off" });
  const where = h("span", { class: "hint", role: "status" });
  const [first, next] = [h("button", { type: "button", disabled: true }, "First page"), h("button", { type: "button", disabled: true }, "Next")];
  const pages = h("div", { class: "pager", hidden: true }, first, where, next);
  const table = quotaTable(app, () => void load());
  let named: Domain[] = [];
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
      pages.hidden = next.disabled && first.disabled;
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
  const lacking = missingScope(app, "quota");
  // Until the domains are known, a tenant would be of none.
  const add = h("button", { type: "button", disabled: true, title: lacking, on: { click: () => addTenant(app, domain.value) } }, "Add a tenant…");
  void domains(app).then((all) => {
    named = all.filter((one) => one.entity !== null);
    if (named.length === 0) {
      table.empty = "No domain has an entity, the attribute that names callers: add `entity: api_key` to a rule file to have tenants.";
      prefix.hidden = true;
      return;
    }
    domain.append(...named.map(({ name }) => h("option", { value: name, selected: name === route.query["domain"] }, name)));
    domain.hidden = named.length < 2;
    add.disabled = lacking !== undefined;
    const chosen = () => {
      const tiers = named.find(({ name }) => name === domain.value)?.tiers ?? [];
      tier.replaceChildren(h("option", { value: "" }, "any tier"), ...tiers.map((name) => h("option", { value: name }, name)));
      tier.hidden = tiers.length < 2;
      from(null);
    };
    domain.addEventListener("change", chosen);
    chosen();
  }, wrong.set);
  return { node: h("div", {}, h("div", { class: "tools" }, domain, tier, prefix), wrong.node, table.node, pages, lacking && h("p", { class: "hint" }, `Quotas can't be changed here: ${lacking}.`)), add };
}

/** A tenant is a caller with a quota: its page has the buttons. */
function addTenant(app: AppContext, domain: string): void {
  openDialog({
    title: "Add a tenant",
    body: [field("Caller", h("input", { name: "name", required: true, autocomplete: "off" }), "The value of the domain’s entity, such as an API key. Its tier and overrides are next.")],
    confirm: "Next",
    run: async (fields) => {
      const name = text(fields, "name");
      setTimeout(() => void openTier(app, { name, domain, quota: undefined }, () => (location.hash = href("caller", { name, domain }))).catch(warn), 0);
    },
  });
}

function quotaTable(app: AppContext, changed: () => void): Table<QuotaItem> {
  const lacking = missingScope(app, "quota");
  const caller = (item: QuotaItem): Caller => ({ name: item.api_key, domain: item.domain, quota: item });
  const small = (label: string, sign: "edit" | "remove", run: () => void) =>
    h("button", { type: "button", class: "small", disabled: lacking !== undefined, title: lacking ?? label, "aria-label": label, on: { click: run } }, icon(sign));
  return new Table<QuotaItem>("Tenants", [
    fixedColumn("Caller", (one) => (one.api_key.includes("*") ? one.api_key : h("a", { href: href("caller", { name: one.api_key, domain: one.domain }) }, one.api_key)), { kind: "main" }),
    { title: "Tier", cell: () => {
      const node = h("span", { class: "row-actions" });
      return { node, set: (item) => fill(node, item.tier ?? "default", small(`Change the tier of ${item.api_key}`, "edit", () => void openTier(app, caller(item), changed))) };
    } },
    { title: "Overrides", kind: "wide", cell: () => {
      const node = h("div", {});
      const set = (item: QuotaItem) => fill(node,
        h("ul", { class: "plain" }, (item.overrides ?? []).map((one) => {
          const ends = one.expires_at ?? item.expires_at;
          return h("li", { class: "row-actions" }, h("span", {}, `${overrideName(one)}: ${limit(one)}${ends ? `, until ${timestamp(ends)}` : ""}`),
            small(`Change the override of ${overrideName(one)}`, "edit", () => void openOverride(app, caller(item), one, changed)),
            small(`Remove the override of ${overrideName(one)}`, "remove", () => openRemoveOverride(app, caller(item), one, changed)));
        })),
        h("button", { type: "button", class: "quiet", disabled: lacking !== undefined, title: lacking, on: { click: () => void openOverride(app, caller(item), undefined, changed) } }, "Add an override…"));
      return { node, set };
    } },
    textColumn("Expires", (one) => (one.expires_at ? timestamp(one.expires_at) : "never")),
    textColumn("Changed", (one) => `${timestamp(one.updated_at)} by ${one.updated_by}`),
    { title: "Action", cell: (first) => {
      let item = first;
      const button = h("button", { type: "button", disabled: lacking !== undefined, title: lacking, on: { click: () => openRemoveQuota(app, caller(item), changed) } }, "Remove…");
      return { node: button, set: (now) => void (item = now) };
    } },
  ], (one) => `${one.api_key}\n${one.generation}`, "No tenants with their own quota.");
}
