// Raised signals: many distinct values of an attribute behind one value of another, such as accounts behind an address.

import { type Child, h, setText } from "../dom.ts";
import { type AppContext, type Page, poll } from "../context.ts";
import { keyLists } from "../parts/key_lists.ts";
import { fault } from "../parts/notice.ts";
import { Pager } from "../parts/pager.ts";
import { Table, fixedColumn, textColumn } from "../parts/table.ts";
import { count, duration, plural, timestamp } from "../pure/format.ts";
import type { RaisedSignal, Signals } from "../types.ts";

/** Signals that are requested, and those of a page. */
const LISTED = 200;
const ROWS = 15;
const REFRESH_MS = 2_000;

export function signals(app: AppContext): Page {
  let now: Signals | undefined;
  const [wrong, lead, hint] = [fault(), h("p", { class: "lead" }), h("p", { class: "hint" })];
  const table = raisedTable();
  const pager = new Pager(ROWS);
  pager.onTurn = () => now && table.show(pager.of(now.items));
  const show = (next: Signals) => {
    if (now === undefined || now.signals.length !== next.signals.length) table.empty = nothing(next);
    now = next;
    setText(lead, summary(next));
    setText(hint, hints(next));
    table.show(pager.of(next.items));
  };
  const load = async () => {
    try {
      show(await app.api.get<Signals>("/admin/v1/signals", { limit: LISTED }));
      wrong.set(undefined);
    } catch (error) {
      wrong.set(error);
    }
  };
  const close = poll(REFRESH_MS, load);
  const node = h("div", {}, wrong.node, lead, h("div", { class: "tools between" }, keyLists("signals")),
    h("section", { class: "card" }, table.node, pager.node, hint));
  return { title: "Signals", node, close };
}

function summary({ signals }: Signals): string {
  const keys = signals.reduce((sum, one) => sum + one.keys, 0);
  return signals.length === 0 ? "" : `${plural(signals.length, "signal")} of the rules in force, ${plural(keys, "key")} counted on this server. Values count once in their window, on all servers together.`;
}

function hints({ keys_shown, items, omitted }: Signals): string {
  const hidden = keys_shown || items.length === 0 ? [] : ["Keys are hashed, and there are no examples: the scope “audit” is required to see them."];
  const more = omitted > 0 ? [`${count(omitted)} more are raised and not listed.`] : [];
  return [...hidden, ...more].join(" ");
}

/** Why there is nothing, and what to do next. */
function nothing({ signals }: Signals): Child {
  if (signals.length > 0) return "No signal is raised.";
  return ["The rules have no signals. Write ", h("code", {}, "signals:"), " in a domain to count, for instance, the accounts that are tried from one address."];
}

function raisedTable(): Table<RaisedSignal> {
  return new Table<RaisedSignal>("Raised signals", [
    fixedColumn("Key", (one) => [h("span", { class: "mono" }, one.key), h("small", {}, ` ${one.per.join(", ")}`)], { kind: "main" }),
    fixedColumn("Signal", (one) => [one.signal, h("small", {}, ` ${one.domain}`)]),
    textColumn("Distinct values", (one) => `${count(one.count)} ${one.distinct}`, { kind: "number" }),
    textColumn("Threshold", (one) => `${count(one.threshold)} in ${duration(one.window_seconds)}`, { kind: "number" }),
    textColumn("Since", (one) => timestamp(one.since)),
    textColumn("Examples", (one) => one.examples.join(", ")),
  ], (one) => JSON.stringify([one.domain, one.signal, one.key]), "Loading signals.");
}
