// Other regions, as this server sees them: whether debits arrive and how late, what waits, and what that means for each rule.

import { type Child, fill, h, setText } from "../dom.ts";
import { type AppContext, type Page, poll } from "../context.ts";
import { card, modeBadge, ruleLink } from "../parts/card.ts";
import { fault } from "../parts/notice.ts";
import { Pager } from "../parts/pager.ts";
import { type Column, Table, fixedColumn, textColumn } from "../parts/table.ts";
import { NONE, count, plural, rate } from "../pure/format.ts";
import { LATE_SECONDS, brokenNodes, effect, isLate, lagText, linkText, nodesText, oldestText, others, worst } from "../pure/regions.ts";
import { href } from "../pure/route.ts";
import type { RegionRow, RegionRule, Regions } from "../types.ts";

/** Rules of a page. */
const ROWS = 15;
const REFRESH_MS = 1_000;

export function regions(app: AppContext): Page {
  if (!app.me.regions) return { title: "Regions", node: withoutRegions() };
  let now: Regions | undefined;
  const [wrong, lead, status, hint] = [fault(), h("p", { class: "lead" }), tiles(), h("p", { class: "hint" })];
  const [table, units, nodes] = [regionTable(), unitTable(), nodeTable()];
  const rules = ruleTable(() => now);
  const pager = new Pager(ROWS);
  const showRules = () => now && rules.show(pager.of(now.rules));
  pager.onTurn = showRules;
  const show = (next: Regions) => {
    if (now === undefined) fill(lead, h("strong", {}, next.server), ` in ${next.region ?? "?"}, and what it sees of the other regions. Every server sees them by itself.`);
    now = next;
    status.set(next);
    table.show(next.regions);
    units.show(others(next));
    nodes.show(others(next).flatMap((region) => region.nodes.map((node) => ({ ...node, region: region.name }))));
    showRules();
    setText(hint, next.omitted > 0 ? `${count(next.omitted)} more are not listed.` : "");
  };
  const load = async () => {
    try {
      show(await app.api.get<Regions>("/admin/v1/regions"));
      wrong.set(undefined);
    } catch (error) {
      wrong.set(error);
    }
  };
  const node = h("div", {}, wrong.node, lead, status.node,
    card("Regions", [table.node, h("p", { class: "hint" }, "Lag is the time from a unit that is taken here to the answer of the other region, and calls are those for limits whose home it is; both in the last minute. Counters wait until a part of their limit is used. Servers are those that share a store of record in PostgreSQL.")]),
    card("Limits over several regions", [rules.node, pager.node, hint]),
    card("Units that other regions count, too", [h("p", { class: "hint" }, "What rules with ", h("code", {}, "region: global"), " took here since the start, by what became of it in each other region."), units.node]),
    card("Nodes of other regions", [nodes.node]));
  return { title: "Regions", node, close: poll(REFRESH_MS, load) };
}

/** What regions are, and how to have some. */
function withoutRegions(): HTMLElement {
  return h("div", {}, h("section", { class: "card" },
    h("p", { class: "empty" }, "This server knows no other regions: its limits count here. With several regions, each with its own Redis, a rule can say what its limit means in all of them together."),
    h("p", {}, "Start the servers of each region with the Redis of all of them:"),
    h("pre", {}, h("code", {}, "region: us-east\nstore: rediss://redis.us-east:6379\nregions:\n  us-west: rediss://redis.us-west:6379\n  eu-west: rediss://redis.eu-west:6379\n")),
    h("p", {}, "and write ", h("code", {}, "region: home"), ", ", h("code", {}, "split"), " or ", h("code", {}, "global"), " in ", h("a", { href: href("rules") }, "rules"), ".")));
}

/** Other regions in four numbers. */
function tiles() {
  const tile = (name: string, test: string) => {
    const [value, more] = [h("strong", { class: "big", "data-test": test }, NONE), h("small", {}, "")];
    return { value, more, node: h("div", { class: "tile" }, h("span", { class: "tile-name" }, name), value, more) };
  };
  const [link, lag, oldest, waiting] = [tile("Other regions", "regions-link"), tile("Lag p99", "regions-lag"), tile("Oldest debit", "regions-oldest"), tile("Waiting", "regions-waiting")];
  return {
    node: h("section", { class: "tiles", "aria-label": "Regions" }, [link, lag, oldest, waiting].map((one) => one.node)),
    set(now: Regions) {
      const all = others(now);
      const late = all.filter(isLate);
      setText(link.value, worst(now)?.link ?? "together");
      setText(link.more, late.length > 0 ? `⚠ ${late.map((region) => `${region.name}: ${linkText(region)}`).join("; ")}` : `debits arrive in ${plural(all.length, "region")}`);
      link.node.classList.toggle("hot", late.length > 0);
      const slowest = most(all, (region) => region.lag?.p99 ?? 0);
      const isSlow = (slowest?.lag?.p99 ?? 0) > LATE_SECONDS;
      setText(lag.value, lagText(slowest?.lag?.p99));
      setText(lag.more, slowest?.lag?.p99 ? `to ${slowest.name}, in the last minute` : "no debits in the last minute");
      lag.node.classList.toggle("hot", isSlow);
      const eldest = most(all, (region) => region.oldest_seconds ?? 0);
      const age = eldest?.oldest_seconds ?? 0;
      setText(oldest.value, eldest ? oldestText(eldest) : NONE);
      setText(oldest.more, age > 0 ? `for ${eldest?.name ?? "?"}, without an answer` : "all have answers");
      oldest.node.classList.toggle("hot", age > LATE_SECONDS);
      const fullest = most(all, (region) => region.waiting ?? 0);
      setText(waiting.value, count(fullest?.waiting ?? 0));
      setText(waiting.more, (fullest?.waiting ?? 0) > 0 ? `counters, for ${fullest?.name ?? "?"}` : "nothing is to be sent");
    },
  };
}

function most(all: RegionRow[], size: (region: RegionRow) => number): RegionRow | undefined {
  return all.reduce<RegionRow | undefined>((most, one) => (most === undefined || size(one) > size(most) ? one : most), undefined);
}

/** A column whose text is marked if it is bad. */
function marked<T>(title: string, text: (item: T) => string, isBad: (item: T) => boolean, more: Partial<Column<T>> = {}): Column<T> {
  return { title, ...more, cell: () => {
    const node = h("span");
    return { node, set: (item) => {
      setText(node, isBad(item) ? `⚠ ${text(item)}` : text(item));
      node.classList.toggle("bad", isBad(item));
    } };
  } };
}

function regionTable(): Table<RegionRow> {
  const isSlow = (seconds: number | null | undefined) => (seconds ?? 0) > LATE_SECONDS;
  return new Table<RegionRow>("Regions", [
    fixedColumn("Region", (region): Child => [h("span", {}, region.name), region.this && h("small", {}, " (this one)")], { kind: "main" }),
    marked("Debits", (region) => (region.this ? NONE : isLate(region) ? linkText(region) : "✓ together"), isLate),
    marked("Oldest", (region) => (region.this ? NONE : oldestText(region)), (region) => isSlow(region.oldest_seconds), { kind: "number" }),
    textColumn("Waiting", (region) => (region.this ? NONE : count(region.waiting ?? 0)), { kind: "number" }),
    textColumn("Lag p50", (region) => lagText(region.lag?.p50), { kind: "number" }),
    marked("Lag p99", (region) => lagText(region.lag?.p99), (region) => isSlow(region.lag?.p99), { kind: "number" }),
    textColumn("Calls p99", (region) => lagText(region.calls?.p99), { kind: "number" }),
    marked("Redis", nodesText, (region) => brokenNodes(region).length > 0),
    textColumn("Servers", (region) => (region.servers > 0 ? count(region.servers) : NONE), { kind: "number" }),
    textColumn("Decisions/s", (region) => (region.servers > 0 ? rate(region.decisions_per_second) : NONE), { kind: "number" }),
  ], (region) => region.name, "Loading regions.");
}

function ruleTable(now: () => Regions | undefined): Table<RegionRule> {
  const state = (rule: RegionRule) => {
    const regions = now();
    return regions ? effect(rule, regions) : { text: NONE, isBad: false };
  };
  return new Table<RegionRule>("Limits over several regions", [
    fixedColumn("Rule", (rule) => [ruleLink(rule.domain, rule.rule), h("small", {}, ` ${rule.domain}`), rule.mode !== "enforce" && [" ", modeBadge(rule.mode)]], { kind: "main" }),
    textColumn("Region", (rule) => rule.terms),
    marked("Now", (rule) => state(rule).text, (rule) => state(rule).isBad, { kind: "wide" }),
  ], (rule) => JSON.stringify([rule.domain, rule.rule, rule.terms, rule.mode]), "No rule has a region: each region counts by itself, with the whole limit.");
}

function unitTable(): Table<RegionRow> {
  const units = (title: string, value: (units: NonNullable<RegionRow["units"]>) => number) =>
    textColumn<RegionRow>(title, (region) => (region.units ? count(value(region.units)) : NONE), { kind: "number" });
  const bad = (title: string, value: (units: NonNullable<RegionRow["units"]>) => number): Column<RegionRow> =>
    marked(title, (region) => (region.units ? count(value(region.units)) : NONE), (region) => (region.units ? value(region.units) > 0 : false), { kind: "number" });
  return new Table<RegionRow>("Units", [
    fixedColumn("Region", (region) => region.name, { kind: "main" }),
    units("Sent", ({ sent }) => sent),
    bad("No answer", ({ unsure }) => unsure),
    units("No longer counted", ({ aged }) => aged),
    bad("Dropped", ({ dropped }) => dropped),
    units("Given back before", ({ returned }) => returned),
    units("Given back after", ({ back }) => back),
  ], (region) => region.name, "Loading units.");
}

type NodeRow = RegionRow["nodes"][number] & { region: string };

function nodeTable(): Table<NodeRow> {
  const WORDS: Record<string, string> = { closed: "✓ closed", "half-open": "half-open: it is tried again", open: "open: it gets no calls" };
  return new Table<NodeRow>("Nodes", [
    fixedColumn("Node", (node) => h("span", { class: "mono" }, node.shard.replace(`${node.region}/`, "")), { kind: "main" }),
    fixedColumn("Region", (node) => node.region),
    marked("Breaker", (node) => WORDS[node.state] ?? node.state, (node) => node.state !== "closed"),
    textColumn("Last error", (node) => node.error ?? NONE, { kind: "wide" }),
  ], (node) => node.shard, "No node of another region is known yet.");
}
