// Explains what each rule would decide about a request. Nothing is consumed.

import { type Child, h } from "../dom.ts";
import { type AppContext, type Page, domains } from "../context.ts";
import { bar } from "../parts/bar.ts";
import { ruleLink } from "../parts/card.ts";
import { field } from "../parts/dialog.ts";
import { fault } from "../parts/notice.ts";
import { Table, fixedColumn, textColumn } from "../parts/table.ts";
import { count, plural } from "../pure/format.ts";
import type { Explained, ExplainedCounter, ExplainedRule } from "../types.ts";

/** Attributes of a request. */
const MAX_ATTRIBUTES = 32;

export function tryIt(app: AppContext): Page {
  const [wrong, answer] = [fault(), h("div", { "aria-live": "polite" })];
  const domain = h("select", { name: "domain" });
  const [pairs, cost] = [h("div", { class: "pairs" }), h("input", { name: "cost", type: "number", min: 0, max: 1_000_000_000, value: 1, required: true })];
  const more = h("button", { type: "button", on: { click: () => add("", "").focus() } }, "Another attribute");
  const add = (name: string, value: string): HTMLInputElement => {
    const input = h("input", { class: "name", value: name, "aria-label": "Attribute", placeholder: "attribute", autocomplete: "off" });
    const remove = h("button", { type: "button", class: "quiet", "aria-label": "Remove this attribute", on: { click: () => (pair.remove(), (more.disabled = false)) } }, "✕");
    const pair = h("div", { class: "pair" }, input, h("input", { class: "value", value, "aria-label": "Value", placeholder: "value", autocomplete: "off" }), remove);
    pairs.append(pair);
    more.disabled = pairs.childElementCount >= MAX_ATTRIBUTES;
    return input;
  };
  const attributes = () => {
    const all: Record<string, string> = {};
    for (const pair of pairs.children) {
      const [name, value] = [...pair.querySelectorAll("input")].map((input) => input.value);
      if (!name?.trim()) continue;
      if (name.trim() in all) throw new Error(`the attribute ${name.trim()} is given twice`);
      all[name.trim()] = value ?? "";
    }
    return all;
  };
  const submit = async (event: Event) => {
    event.preventDefault();
    wrong.set(undefined);
    try {
      const body = { domain: domain.value, attributes: attributes(), cost: Number(cost.value) };
      answer.replaceChildren(shown(await app.api.request<Explained>("POST", "/admin/v1/explain", body)));
    } catch (error) {
      answer.replaceChildren();
      wrong.set(error);
    }
  };
  void domains(app).then((all) => {
    domain.append(...all.map(({ name }) => h("option", { value: name }, name)));
    add(all[0]?.entity ?? "", "");
    add("endpoint", "");
  }, wrong.set);
  const form = h("form", { class: "card", on: { submit } },
    h("p", { class: "hint" }, "A request with these attributes is evaluated by all rules. No units are consumed."),
    field("Domain", domain), h("fieldset", {}, h("legend", {}, "Attributes"), pairs, more), field("Cost", cost, "0 only reads the counters."),
    h("div", { class: "buttons" }, h("button", { type: "submit", class: "main" }, "Explain")));
  return { title: "Try it", node: h("div", {}, form, wrong.node, answer) };
}

function shown(explained: Explained): HTMLElement {
  const table = new Table<ExplainedRule>("Result of each rule", [
    fixedColumn("Rule", (rule) => ruleLink(explained.domain, rule.name), { kind: "main" }),
    textColumn("Applies", (rule) => ({ applies: "✓ applies", unlimited: "∞ unlimited", misses: "– does not apply" })[rule.fate]),
    fixedColumn("Counters", (rule) => [rule.why ?? "", rule.counters.map(counter)], { kind: "wide" }),
  ], (rule) => rule.name, "The domain has no rules.");
  // Rules that apply come first.
  const rank = { applies: 0, unlimited: 1, misses: 2 };
  table.show([...explained.rules].sort((one, other) => rank[one.fate] - rank[other.fate]));
  const none = explained.rules.every((rule) => rule.fate === "misses");
  const verdict = none ? "● No rule applies: it would pass uncounted." : explained.allowed ? "● It would pass." : "✕ It would be refused.";
  const more: Child = explained.more > 0 && h("p", { class: "hint" }, `${plural(explained.more, "other rule")} that do not apply are not shown.`);
  return h("section", { class: "card" }, h("h2", { class: explained.allowed ? "good" : "bad" }, verdict), table.node, more);
}

function counter(one: ExplainedCounter): HTMLElement {
  const meter = bar();
  // A bucket gives out its burst, which may be more than its limit.
  const all = Math.max(one.burst ?? one.limit, one.remaining, 1);
  meter.set(1 - one.remaining / all, one.key.join(" · "));
  const room = one.has_room ? "has room" : one.mode === "shadow" ? "would refuse (shadow)" : "has no room";
  const text = `${one.key.join(" · ") || "shared by all callers"}: ${count(one.remaining)} left of ${one.burst === undefined ? `${count(one.limit)} in ${one.window}` : `a burst of ${count(one.burst)}, refilled by ${count(one.limit)} in ${one.window}`}, takes ${count(one.units)}, ${room} (${one.mode}, ${one.algorithm})`;
  return h("div", { class: "counter" }, meter.node, h("small", {}, text));
}
