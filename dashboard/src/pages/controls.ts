// What operators put in force at once: switches, emergencies, blocks.

import { h } from "../dom.ts";
import { type AppContext, type Page, missingScope, poll } from "../context.ts";
import { openBlock, openUnblock } from "../actions/blocks.ts";
import { openEmergency, openEnd } from "../actions/emergencies.ts";
import { openSwitch, openUnswitch } from "../actions/switches.ts";
import { actionButton, actionColumn } from "../parts/action.ts";
import { card, modeBadge, ruleLink } from "../parts/card.ts";
import { type IconName, icon } from "../parts/icon.ts";
import { fault } from "../parts/notice.ts";
import { Table, fixedColumn, textColumn } from "../parts/table.ts";
import { limit, timestamp } from "../pure/format.ts";
import { href } from "../pure/route.ts";
import type { Block, Emergency, ListPage, Scope, SwitchItem } from "../types.ts";

const REFRESH_MS = 4_000;
const ITEMS = 100;

export function controls(app: AppContext): Page {
  const wrong = fault();
  const [switches, emergencies] = [switchTable(app, () => void load()), emergencyTable(app, () => void load())];
  const blocks = blockSection(app, () => void load());
  const load = async () => {
    try {
      const [switched, declared] = await Promise.all([
        app.api.get<ListPage<SwitchItem>>("/admin/v1/switches", { limit: ITEMS }),
        app.api.get<ListPage<Emergency>>("/admin/v1/emergencies", { limit: ITEMS }),
        blocks.load(),
      ]);
      switches.show(switched.items);
      emergencies.show(declared.items);
      wrong.set(undefined);
    } catch (error) {
      wrong.set(error);
    }
  };
  const close = poll(REFRESH_MS, load);
  const button = (label: string, sign: IconName, scopes: Scope[], open: () => void) => actionButton(app, [icon(sign), label], scopes, open, "harmful");
  const lacking = [missingScope(app, "rules", "emergency"), missingScope(app, "emergency")].filter((one) => one !== undefined);
  const node = h("div", {}, wrong.node,
    h("p", { class: "lead" }, "Changes from here are in force on every server within a second, and each is in the ", h("a", { href: href("audit") }, "audit log"), "."),
    lacking.length > 0 && h("p", { class: "hint" }, `Some actions are not allowed: ${[...new Set(lacking)].join("; ")}.`),
    card("Switches", [h("p", { class: "hint" }, "A switch sets the mode of rules, whatever their files say. A single rule is switched on its own page."), switches.node],
      { tools: button("Switch all rules…", "switch", ["rules", "emergency"], () => void openSwitch(app, () => void load())) }),
    card("Emergencies", [h("p", { class: "hint" }, "A temporary limit that goes before all others, for an hour by default."), emergencies.node],
      { tools: button("Declare an emergency…", "emergency", ["emergency"], () => void openEmergency(app, () => void load())) }),
    card("Blocks", [blocks.node], { tools: button("Block…", "block", ["emergency"], () => void openBlock(app, undefined, () => void load())) }));
  return { title: "Controls", node, close };
}

function ends(item: { expires_at: string | null; in_force: boolean }): string {
  if (item.expires_at === null) return "never";
  return `${timestamp(item.expires_at)}${item.in_force ? "" : " (expired)"}`;
}

function switchTable(app: AppContext, changed: () => void): Table<SwitchItem> {
  return new Table<SwitchItem>("Switches", [
    fixedColumn("What", (one) => (one.what === "everything" ? "all rules" : one.what === "domain" ? `all rules of ${one.domain}` : ruleLink(one.domain ?? "", one.rule ?? "")), { kind: "main" }),
    fixedColumn("Mode", (one) => modeBadge(one.mode)),
    textColumn("Expires", ends),
    textColumn("Reason", (one) => one.reason, { kind: "wide" }),
    actionColumn(app, "Remove…", (one) => (one.mode === "off" ? ["emergency"] : ["rules", "emergency"]), (one) => openUnswitch(app, one, changed)),
  ], (one) => JSON.stringify([one.domain, one.rule, one.mode]), "No switches: every rule has the mode of its file.");
}

function emergencyTable(app: AppContext, changed: () => void): Table<Emergency> {
  const emergencyLimit = (one: Emergency) => (one.percent === undefined || one.percent === null ? limit(one) : `${one.percent} % of each limit`);
  return new Table<Emergency>("Emergencies", [
    textColumn("Name", (one) => one.name, { kind: "main" }),
    textColumn("Domain", (one) => one.domain ?? "all"),
    textColumn("Callers", (one) => one.callers ?? "*"),
    textColumn("Rule", (one) => one.rule ?? "all"),
    textColumn("Limit", emergencyLimit),
    textColumn("Expires", ends),
    textColumn("Reason", (one) => one.reason, { kind: "wide" }),
    actionColumn(app, "End…", () => ["emergency"], (one) => openEnd(app, one, changed)),
  ], (one) => `${one.domain}\n${one.name}`, "No emergencies.");
}

/** The first blocks of all domains. */
function blockSection(app: AppContext, changed: () => void) {
  const missing = missingScope(app, "emergency", "audit");
  if (missing) return { node: h("p", { class: "hint" }, `Blocks are not shown: ${missing}.`), load: async () => {} };
  const table = new Table<Block>("Blocks", [
    fixedColumn("Blocked", (one) => (one.range || one.name.includes("*") ? one.name : h("a", { href: href("caller", { name: one.name, domain: one.domain }) }, one.name)), { kind: "main" }),
    textColumn("Domain", (one) => one.domain ?? "all"),
    textColumn("Response", (one) => (one.shadow ? "served, and marked" : String(one.status))),
    textColumn("Expires", ends),
    textColumn("Reason", (one) => one.reason, { kind: "wide" }),
    actionColumn(app, "End…", () => ["emergency"], (one) => openUnblock(app, one, changed)),
  ], (one) => `${one.domain}\n${one.name}\n${one.range}`, "Nobody is blocked.");
  const load = async () => table.show((await app.api.get<ListPage<Block>>("/admin/v1/blocks", { limit: ITEMS })).items);
  return { node: table.node, load };
}
