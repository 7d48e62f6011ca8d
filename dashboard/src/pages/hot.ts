// Hot keys: those of which this server takes units ahead of requests; leases are switched and purged here.

import { type Child, fill, h, setText } from "../dom.ts";
import { type AppContext, type Page, missingScope, poll } from "../context.ts";
import { openLeaseSwitch, openPurge } from "../actions/leases.ts";
import { actionButton, actionColumn } from "../parts/action.ts";
import { bar } from "../parts/bar.ts";
import { keyLink, ruleLink } from "../parts/card.ts";
import { icon } from "../parts/icon.ts";
import { keyLists } from "../parts/key_lists.ts";
import { fault } from "../parts/notice.ts";
import { Pager } from "../parts/pager.ts";
import { Table, fixedColumn, textColumn } from "../parts/table.ts";
import { NONE, count, rate } from "../pure/format.ts";
import { href } from "../pure/route.ts";
import type { HotKey, Leases } from "../types.ts";

/** Keys that are requested, and those of a page. */
const KEYS = 200;
const ROWS = 15;
const REFRESH_MS = 2_000;

export function hot(app: AppContext): Page {
  let now: Leases | undefined;
  const [wrong, lead, hashed] = [fault(), h("p", { class: "lead" }), h("p", { class: "hint" })];
  const [numbers, table] = [tiles(), hotTable(app, (key) => now && openPurge(app, now.server, key, () => void load()))];
  const pager = new Pager(ROWS);
  pager.onTurn = () => now && table.show(pager.of(now.keys));
  const turn = actionButton(app, [], ["emergency"], () => now && openLeaseSwitch(app, now, () => void load()));
  const purge = actionButton(app, [icon("remove"), "Purge all…"], ["emergency"], () => now && openPurge(app, now.server, undefined, () => void load()));
  const missing = missingScope(app, "emergency");
  const tools = h("div", { class: "buttons", hidden: true }, purge, turn);
  const show = (leases: Leases) => {
    // Buttons keep the focus: they are changed only if they do something else.
    if (leases.enabled !== now?.enabled) {
      fill(turn, icon("switch"), leases.enabled ? "Switch leases off…" : "Switch leases on…");
      turn.classList.toggle("harmful", leases.enabled);
    }
    if (now === undefined) fill(lead, `Keys of which ${leases.server} takes units from Redis ahead of requests, so that most of their requests are decided without a call. Each server has its own.`);
    if (now === undefined || leases.enabled !== now.enabled) table.empty = nothing(leases);
    now = leases;
    tools.hidden = !leases.available;
    purge.hidden = !leases.enabled;
    numbers.node.hidden = !leases.available;
    numbers.set(leases);
    setText(hashed, leases.keys_shown || leases.keys.length === 0 ? "" : "Keys are hashed: the scope “audit” is required to see them.");
    table.show(pager.of(leases.keys));
  };
  const load = async () => {
    try {
      show(await app.api.get<Leases>("/admin/v1/leases", { limit: KEYS }));
      wrong.set(undefined);
    } catch (error) {
      wrong.set(error);
    }
  };
  const close = poll(REFRESH_MS, load);
  const node = h("div", {}, wrong.node, lead, h("div", { class: "tools between" }, keyLists("hot"), tools),
    missing && h("p", { class: "hint" }, `Leases can't be switched or purged here: ${missing}.`),
    numbers.node, h("section", { class: "card" }, table.node, pager.node, hashed));
  return { title: "Hot keys", node, close };
}

/** Why there is nothing, and what to do next. */
function nothing({ available, enabled }: Leases): Child {
  if (!available) return "Nothing is leased: the counters of this server are in memory, and need no calls. Leases are for counters in Redis (--store redis://…).";
  if (!enabled) return "Leases are off: Redis decides every request of this server. Switch them on to decide requests of busy keys without a call.";
  return [
    "No key is busy enough on this server. A key is leased from about 0.4 requests a second on, if its rule allows it: ",
    h("code", {}, "tollgate lint --leases rules.yaml"), " says which rules do. ", h("a", { href: href("rules") }, "See the rules in force"), ".",
  ];
}

/** The state of leases in four numbers. */
function tiles() {
  const tile = (name: string, test: string) => {
    const [value, more] = [h("strong", { class: "big", "data-test": test }, NONE), h("small", {}, "")];
    return { value, more, node: h("div", { class: "tile" }, h("span", { class: "tile-name" }, name), value, more) };
  };
  const [state, keys, held, refused] = [tile("Leases", "leases"), tile("Keys", "leased-keys"), tile("Units held", "units-held"), tile("Refused without a call", "local-refusals")];
  return {
    node: h("section", { class: "tiles", "aria-label": "Leases", hidden: true }, [state, keys, held, refused].map((one) => one.node)),
    set({ enabled, leased_keys, units_held, units, calls, refusals }: Leases) {
      setText(state.value, enabled ? "on" : "off");
      setText(state.more, enabled ? "busy keys are leased" : "Redis decides every request");
      state.node.classList.toggle("hot", !enabled);
      setText(keys.value, count(leased_keys));
      setText(keys.more, `${count(calls.miss + calls.ahead + calls.back)} calls since the start`);
      setText(held.value, count(units_held));
      setText(held.more, `${count(units.spent)} spent, ${count(units.returned)} given back`);
      setText(refused.value, count(refusals));
      setText(refused.more, "since the start");
    },
  };
}

function hotTable(app: AppContext, purge: (key: HotKey) => void): Table<HotKey> {
  return new Table<HotKey>("Hot keys", [
    fixedColumn("Key", (key) => keyLink(key.domain, key.key, key.caller), { kind: "main" }),
    fixedColumn("Rule", (key) => [ruleLink(key.domain, key.rule), h("small", {}, ` ${key.domain}`)]),
    textColumn("Units/s", (key) => rate(key.units_per_second), { kind: "number" }),
    textColumn("Last chunk", (key) => count(key.chunk), { kind: "number" }),
    textColumn("Units held", (key) => count(key.units_held), { kind: "number" }),
    { title: "Without a call", kind: "bar", cell: () => {
      const part = bar("share");
      return { node: part.node, set: (key) => part.set(key.local_share, `requests of ${key.key || key.rule} that were decided without a call`) };
    } },
    actionColumn(app, "Purge…", () => ["emergency"], purge),
  ], (key) => JSON.stringify([key.domain, key.rule, key.key]), "Loading keys.");
}
