// Cards, facts and small parts that several pages use.

import { type Child, h, setText } from "../dom.ts";
import { NONE } from "../pure/format.ts";
import { href } from "../pure/route.ts";

/** A section with a heading, and tools next to the heading. */
export function card(title: string, children: Child[], options: { style?: string; tools?: Child } = {}): HTMLElement {
  const head = options.tools ? h("div", { class: "card-head" }, h("h2", {}, title), options.tools) : h("h2", {}, title);
  return h("section", { class: `card ${options.style ?? ""}`.trim() }, head, children);
}

/** A list of names and values. Bad values are marked by more than colour. */
export function facts<T>(rows: [string, (now: T) => string, ((now: T) => boolean)?][]) {
  const parts = rows.map(([name, text, isBad]) => ({ name, text, isBad, value: h("dd", {}, NONE) }));
  const node = h("dl", { class: "facts" }, parts.map(({ name, value }) => h("div", {}, h("dt", {}, name), value)));
  const set = (now: T) => {
    for (const { text, isBad, value } of parts) {
      const bad = isBad?.(now) ?? false;
      setText(value, bad ? `⚠ ${text(now)}` : text(now));
      value.classList.toggle("bad", bad);
    }
  };
  return { node, set };
}

/** The server lists blocked callers under this name. */
const BLOCK = "block";

/** The name of a rule, which leads to its page; blocks are among the controls. */
export function ruleLink(domain: string, rule: string): HTMLElement {
  return h("a", { href: rule === BLOCK ? href("controls") : href("rule", { domain, name: rule }) }, rule);
}

/** The name of a caller, which leads to its page, or the key as it is: hashed keys have no page. */
export function keyLink(domain: string, key: string, caller: string | null): HTMLElement {
  if (caller && !caller.startsWith("#")) return h("a", { href: href("caller", { name: caller, domain }) }, key || caller);
  return h("span", { class: key ? "" : "muted" }, key || "shared by all callers");
}

/** A mode as a badge; `shadow` and others differ by border and sign. */
export function modeBadge(mode: string | null | undefined): HTMLElement {
  const name = mode ?? "?";
  return h("span", { class: "badge", "data-mode": name.split(" ")[0] ?? "" }, name);
}

/** A choice of a few options, as buttons of which one is pressed. */
export function segmented<T extends string>(label: string, options: readonly (readonly [T, string])[], chosen: T, choose: (value: T) => void): HTMLElement {
  const buttons = options.map(([value, text]) => {
    const button = h("button", { type: "button", "aria-pressed": String(value === chosen), on: { click: () => press(value) } }, text);
    return { value, button };
  });
  const press = (value: T) => {
    for (const one of buttons) one.button.setAttribute("aria-pressed", String(one.value === value));
    choose(value);
  };
  return h("div", { class: "segmented", role: "group", "aria-label": label }, buttons.map((one) => one.button));
}

/** The ranges of charts: name, label, and seconds. */
export const RANGES = [["10m", "10 min"], ["2h", "2 h"], ["24h", "24 h"]] as const;
export type Range = (typeof RANGES)[number][0];
export const RANGE_SECONDS: Record<Range, number> = { "10m": 600, "2h": 7_200, "24h": 86_400 };
