// One caller: its quota, its limits, its last decisions, and actions.

import { ApiError } from "../api.ts";
import { h, setText } from "../dom.ts";
import { type AppContext, type Page, domains, poll, missingScope } from "../context.ts";
import { OUTCOME_STYLES } from "../outcomes.ts";
import { bar } from "../parts/bar.ts";
import { fault } from "../parts/notice.ts";
import { Table, fixedColumn, textColumn } from "../parts/table.ts";
import { type Route, href, segment } from "../pure/route.ts";
import { NONE, count, limit, timestamp, since } from "../pure/format.ts";
import type { Block, Counter, Counters, ListPage, LoggedDecision, Override, QuotaItem } from "../types.ts";
import { actions } from "./caller/actions.ts";

const REFRESH_MS = 3_000;
const DECISIONS = 50;
/** Domains that are offered. */
const MAX_DOMAINS = 20;

/** The data of a caller. */
export interface CallerData {
  name: string;
  domain: string;
  quota: QuotaItem | undefined;
  block: Block | undefined;
  counters: Counter[];
}

export function caller(app: AppContext, route: Route): Page {
  const name = route.query["name"] ?? "";
  const title = `Caller ${name}`;
  if (name === "") return { title: "Caller", node: h("p", {}, "Choose a caller on the page ", h("a", { href: href("keys") }, "Keys"), ".") };
  const [wrong, quota, counters, log] = [fault(), quotaSection(), counterSection(), logSection(app)];
  let data: CallerData | undefined;
  const load = async () => {
    try {
      const domain = data?.domain ?? route.query["domain"] ?? (await firstDomain(app));
      data = await loadCaller(app, name, domain, counters.show);
      quota.show(data);
      buttons.show(data);
      await log.load(name, domain);
      wrong.set(undefined);
    } catch (error) {
      wrong.set(error);
    }
  };
  const buttons = actions(app, () => void load());
  const close = poll(REFRESH_MS, load);
  const node = h("div", {}, wrong.node, others(app, name, route.query["domain"]),
    h("section", { class: "card" }, h("h2", {}, "Quota"), quota.node, buttons.node),
    h("section", { class: "card" }, h("h2", {}, "Limits"), counters.node),
    h("section", { class: "card" }, h("h2", {}, "Last decisions"), log.node));
  return { title, node, close };
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
  const all = (await domains(app)).filter((domain) => domain.entity !== null);
  const [one] = all;
  if (!one) throw new Error("no domain of the rules has an entity");
  return one.name;
}

async function loadCaller(app: AppContext, name: string, domain: string, show: (counters: Counters) => void): Promise<CallerData> {
  const [counters, quota, block] = await Promise.all([
    app.api.get<Counters>(`/admin/v1/counters/${segment(name)}`, { domain }),
    findRecord<QuotaItem>(app, "quotas", name, domain),
    findRecord<Block>(app, "blocks", name, domain),
  ]);
  show(counters);
  return { name, domain, quota, block, counters: counters.counters };
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

function quotaSection() {
  const [tier, ends, block] = [h("dd", {}, NONE), h("dd", {}, NONE), h("dd", {}, NONE)];
  const facts = [["Tier", tier], ["Expires", ends], ["Blocked", block]] as const;
  const overrides = new Table<Override>("Overrides", [
    textColumn("Override of", (one) => one.rule ?? one.descriptor ?? NONE, { kind: "main" }),
    textColumn("Limit", limit),
    textColumn("From", (one) => timestamp(one.effective_at)),
    textColumn("Until", (one) => (one.expires_at ? timestamp(one.expires_at) : "with the quota")),
  ], (one) => JSON.stringify(one), "No overrides.");
  return {
    node: h("div", {}, h("dl", { class: "facts" }, facts.map(([name, value]) => h("div", {}, h("dt", {}, name), value))), overrides.node),
    show(data: CallerData) {
      const { quota } = data;
      setText(tier, quota?.tier ?? "the domain’s default");
      setText(ends, quota?.expires_at ? timestamp(quota.expires_at) : "never");
      const active = data.block?.in_force ? data.block : undefined;
      const until = active?.expires_at ? `until ${timestamp(active.expires_at)}` : "permanently";
      setText(block, active ? `■ ${active.shadow ? "marked only" : `with ${active.status}`}, ${until}: ${active.reason}` : "no");
      block.classList.toggle("bad", active !== undefined);
      overrides.show(quota?.overrides ?? []);
    },
  };
}

function counterSection() {
  const left = h("ul", { class: "hint" });
  let at = "";
  const table = new Table<Counter>("Limits of this caller", [
    textColumn("Rule", (one) => one.rule, { kind: "main" }),
    textColumn("Limit", (one) => limit(one.limit)),
    { title: "Used", kind: "wide", cell: () => {
      const [part, text] = [bar(), h("small", {})];
      const set = (one: Counter) => {
        part.set(one.used / Math.max(1, one.used + one.remaining), one.rule);
        setText(text, ` ${count(one.used)} used, ${count(one.remaining)} left`);
      };
      return { node: h("span", {}, part.node, text), set };
    } },
    textColumn("Full again", (one) => (one.used === 0 ? NONE : since(one.resets_at, Date.parse(at)))),
    textColumn("Resolved by", (one) => one.resolved_by),
    textColumn("Key", (one) => one.key.join(" · ") || "shared by all callers"),
  ], (one) => [one.rule, ...one.key].join("\n"), "No limit has this caller in its key.");
  const show = (counters: Counters) => {
    at = counters.at;
    table.show(counters.counters);
    left.replaceChildren(...counters.left_out.map(({ rule, why }) => h("li", {}, `${rule}: ${why}`)));
    more.hidden = counters.left_out.length === 0;
  };
  const more = h("details", { hidden: true }, h("summary", {}, "Rules that are not shown"), left);
  return { node: h("div", {}, table.node, more), show };
}

function logSection(app: AppContext) {
  const missing = missingScope(app, "audit");
  if (missing) return { node: h("p", { class: "hint" }, `The decision log is not shown: ${missing}.`), load: async () => {} };
  const table = new Table<LoggedDecision>("Last decisions", [
    textColumn("When", (one) => timestamp(one.at), { kind: "time" }),
    textColumn("Outcome", (one) => `${OUTCOME_STYLES[one.verdict]?.sign ?? ""} ${OUTCOME_STYLES[one.verdict]?.label ?? one.verdict}`, { kind: "brief" }),
    fixedColumn("Rule", (one) => one.rule ?? NONE),
    textColumn("Why", (one) => one.why, { kind: "wide" }),
  ], (one) => JSON.stringify(one), "No decisions are logged: refusals appear within two seconds, other decisions are sampled.");
  const load = async (name: string, domain: string) => {
    const log = await app.api.get<{ decisions: LoggedDecision[] }>("/admin/v1/decisions", { caller: name, domain, limit: DECISIONS });
    table.show(log.decisions);
  };
  return { node: table.node, load };
}
