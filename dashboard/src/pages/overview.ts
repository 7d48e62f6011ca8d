// The overview: decisions, latency, store, rules, servers.

import { h, setText } from "../dom.ts";
import { type AppContext, type Page, poll, missingScope } from "../context.ts";
import { OUTCOME_STYLES, OUTCOMES } from "../outcomes.ts";
import { quantiles, stacked } from "../parts/chart.ts";
import { fault } from "../parts/notice.ts";
import { swatch } from "../parts/pattern.ts";
import { Table, fixedColumn, textColumn } from "../parts/table.ts";
import { href } from "../pure/route.ts";
import { NONE, count, timestamp, rate, since, plural, duration, took } from "../pure/format.ts";
import type { ByOutcome, Circuit, Overview, ServerRow, Sustained, FullOverview } from "../types.ts";

/** Steps of a chart. */
const MAX_STEPS = 300;
/** The minimal length of a step, in seconds. */
const MIN_STEP = 0.8;
/** How often data that the stream does not have is requested. */
const REFRESH_MS = 15_000;

const QUANTILES = ["p50", "p99", "p999"] as const;

export function overview(app: AppContext): Page {
  const [wrong, numbers, data] = [fault(), outcomes(), new ChartData()];
  const [decisions, times] = [stacked(), quantiles()];
  const [latency, store, rules, servers, sustained] = [latencies(), storeCard(), rulesCard(), serverTable(), sustainedTable()];
  const draw = () => {
    decisions.set(data.at, OUTCOMES.map((outcome) => data.counts[outcome]));
    times.set(data.at, QUANTILES.map((quantile) => data.times[quantile]));
  };
  const show = (now: Overview) => {
    numbers.set(now);
    latency.set(now);
    store.set(now);
    rules.set(now);
  };
  const stopPolling = poll(REFRESH_MS, async () => {
    try {
      const [whole, sustainedKeys] = await Promise.all([
        app.api.get<FullOverview>("/admin/v1/overview"),
        app.api.get<{ items: Sustained[] }>("/admin/v1/sustained"),
      ]);
      data.begin(whole);
      show(whole);
      draw();
      servers.show(whole.servers);
      sustained.show(sustainedKeys.items);
      wrong.set(undefined);
    } catch (error) {
      wrong.set(error);
    }
  });
  const unsubscribe = [
    app.live.on("overview", (now) => {
      data.add(now);
      show(now);
      draw();
    }),
    app.live.on("sustained", () => {
      void app.api.get<{ items: Sustained[] }>("/admin/v1/sustained").then((keys) => sustained.show(keys.items), wrong.set);
    }),
  ];
  const hashed = missingScope(app, "audit") && h("p", { class: "hint" }, "Keys are hashed: the scope “audit” is required to see them.");
  const node = h("div", { class: "cards" },
    wrong.node,
    card("wide", "Decisions per second", numbers.node, decisions.node),
    card("wide", "Decision latency", latency.node, times.node),
    card("", "Counters", store.node),
    card("", "Rules and control", rules.node),
    card("wide", "Above 80 % for five minutes", sustained.node, hashed),
    card("wide", "Servers", servers.node),
  );
  const close = () => {
    stopPolling();
    unsubscribe.forEach((end) => end());
    numbers.close();
    decisions.close();
    times.close();
  };
  return { title: "Overview", node, close };
}

function card(style: string, title: string, ...children: (HTMLElement | string | undefined)[]): HTMLElement {
  return h("section", { class: `card ${style}` }, h("h2", {}, title), children);
}

/** The numbers of the last minutes: the initial history and later updates. */
class ChartData {
  at: number[] = [];
  counts = Object.fromEntries(OUTCOMES.map((outcome) => [outcome, []])) as unknown as Record<keyof ByOutcome, number[]>;
  times: Record<(typeof QUANTILES)[number], (number | null)[]> = { p50: [], p99: [], p999: [] };
  #last: { at: number; totals: ByOutcome } | undefined;

  begin(whole: FullOverview): void {
    const { history } = whole;
    const to = Date.parse(history.to) / 1000;
    const length = history.allow.length;
    this.at = history.allow.map((_, at) => to - (length - 1 - at) * history.step_seconds);
    for (const outcome of OUTCOMES) this.counts[outcome] = [...history[outcome]];
    for (const quantile of QUANTILES) this.times[quantile] = [...history[quantile]];
    this.#last = { at: Date.parse(whole.at) / 1000, totals: whole.totals };
  }

  /** Adds the counts since the last update as the newest step. */
  add(now: Overview): void {
    const [at, last] = [Date.parse(now.at) / 1000, this.#last];
    // Skip an update right after a request.
    if (last && at - last.at < MIN_STEP) return;
    this.#last = { at, totals: now.totals };
    if (!last) return;
    this.at = [...this.at, at].slice(-MAX_STEPS);
    for (const outcome of OUTCOMES) {
      // A restarted server counts from zero.
      const counted = Math.max(0, now.totals[outcome] - last.totals[outcome]) / (at - last.at);
      this.counts[outcome] = [...this.counts[outcome], counted].slice(-MAX_STEPS);
    }
    for (const quantile of QUANTILES) this.times[quantile] = [...this.times[quantile], now.latency.decision[quantile]].slice(-MAX_STEPS);
  }
}

/** Each outcome with its fill, its rate and its count. */
function outcomes() {
  const total = h("strong", { class: "big", "data-test": "decisions" }, NONE);
  const all = OUTCOMES.map((outcome) => {
    const [fill, perSecond, counted] = [swatch(outcome), h("strong", {}, NONE), h("small", {})];
    const node = h("li", { title: OUTCOME_STYLES[outcome].means }, fill.node, h("span", {}, OUTCOME_STYLES[outcome].label), perSecond, counted);
    return { outcome, node, perSecond, counted, close: fill.close };
  });
  const node = h("div", { class: "numbers" }, h("p", {}, total, " per second, over 10 s"), h("ul", { class: "outcomes" }, all.map((one) => one.node)));
  return {
    node,
    set({ rates, totals }: Overview) {
      setText(total, rate(rates.decisions));
      for (const { outcome, perSecond, counted } of all) {
        setText(perSecond, `${rate(rates[outcome])}/s`);
        setText(counted, `${count(totals[outcome])} total`);
      }
    },
    close: () => all.forEach((one) => one.close()),
  };
}

/** A list of names and values that follows the overview. */
function facts(rows: [string, (now: Overview) => string, ((now: Overview) => boolean)?][]) {
  const parts = rows.map(([name, text, isBad]) => ({ name, text, isBad, value: h("dd", {}, NONE) }));
  const node = h("dl", { class: "facts" }, parts.map(({ name, value }) => h("div", {}, h("dt", {}, name), value)));
  const set = (now: Overview) => {
    for (const { text, isBad, value } of parts) {
      const bad = isBad?.(now) ?? false;
      setText(value, bad ? `⚠ ${text(now)}` : text(now));
      value.classList.toggle("bad", bad);
    }
  };
  return { node, set };
}

function latencies() {
  const times = (of: "decision" | "store") => ({ latency }: Overview) =>
    latency[of].count === 0 ? "no measurements" : `p50 ${took(latency[of].p50)} · p99 ${took(latency[of].p99)} · p99.9 ${took(latency[of].p999)}`;
  return facts([
    ["Decision, last minute", times("decision")],
    ["Counter store, last minute", times("store")],
    ["In flight", (now) => count(now.in_flight)],
  ]);
}

function storeCard() {
  const { node, set } = facts([
    ["Store", (now) => now.store.kind],
    ["Level", ({ at, store }) => (store.since ? `${store.level} since ${timestamp(store.since)} (${since(store.since, Date.parse(at))})` : store.level), (now) => now.store.level !== "normal"],
    ["Counters", (now) => count(now.store.keys)],
    ["Evicted", (now) => count(now.store.evicted), (now) => now.store.evicted > 0],
    ["Degraded", ({ health }) => health.filter((part) => part.degraded).map((part) => `${part.part}: ${part.why ?? "?"}`).join("; ") || "nothing", ({ health }) => health.some((part) => part.degraded)],
    ["Decision log", (now) => `${count(now.log.written)} written, ${count(now.log.dropped)} dropped`, (now) => now.log.dropped > 0],
  ]);
  const circuits = new Table<Circuit>("Circuits", [
    textColumn("Shard", (one) => one.shard, { kind: "main" }),
    textColumn("Circuit", (one) => ({ closed: "✓ closed", "half-open": "◐ half-open: probing", open: "✕ open: not called" })[one.state]),
  ], (one) => one.shard, "No circuits.");
  return {
    node: h("div", {}, node, circuits.node),
    set(now: Overview) {
      set(now);
      circuits.show(now.store.circuits);
    },
  };
}

function rulesCard() {
  return facts([
    ["Rules", ({ rules }) => `${plural(rules.rules, "rule")} in ${plural(rules.domains, "domain")}, generation ${rules.generation}`],
    ["Files", ({ rules }) => (rules.valid ? "valid" : "invalid: the last good rules stay in force"), ({ rules }) => !rules.valid],
    ["Last reload", ({ at, rules }) => (rules.last_reload ? `${timestamp(rules.last_reload)} (${since(rules.last_reload, Date.parse(at))})` : "none since the start")],
    ["Last error", ({ rules }) => rules.last_error ?? "none", ({ rules }) => rules.last_error !== null],
    ["Store of record", ({ control }) => (control.kind === "none" ? "none: changes are not possible" : `${control.kind}, generation ${control.generation}`)],
    ["Age of the local copy", ({ control }) => (control.snapshot_age_seconds === null ? NONE : duration(control.snapshot_age_seconds))],
    ["Server", ({ server }) => `${server.name}, version ${server.version}${server.region ? `, region ${server.region}` : ""}`],
    ["Started", ({ server }) => `${timestamp(server.started_at)} (${duration(server.uptime_seconds)} ago)`],
  ]);
}

function serverTable(): Table<ServerRow> {
  return new Table<ServerRow>("Servers", [
    textColumn("Name", (one) => (one.this ? `${one.name} (this one)` : one.name), { kind: "main" }),
    textColumn("Region", (one) => one.region ?? NONE),
    textColumn("Version", (one) => one.version),
    textColumn("Decisions/s", (one) => rate(one.decisions_per_second), { kind: "number" }),
    textColumn("Refused/s", (one) => rate(one.deny_per_second), { kind: "number" }),
    textColumn("Rules", (one) => `generation ${one.rules_generation}`, { kind: "number" }),
    textColumn("Last seen", (one) => timestamp(one.seen_at)),
  ], (one) => one.name, "No servers.");
}

function sustainedTable(): Table<Sustained> {
  return new Table<Sustained>("Sustained use above 80 % of a limit", [
    fixedColumn("Key", (one) => (one.caller && !one.caller.startsWith("#") ? h("a", { href: href("caller", { name: one.caller, domain: one.domain }) }, one.key) : one.key), { kind: "main" }),
    textColumn("Rule", (one) => `${one.domain} · ${one.rule}`),
    textColumn("Tier", (one) => one.tier),
    textColumn("Fitting tier", (one) => (one.fits ? `${one.fits} (${count(one.fits_limit ?? 0)})` : "no tier")),
    textColumn("Details", (one) => one.says, { kind: "wide" }),
  ], (one) => [one.domain, one.rule, one.key].join("\n"), "No keys.");
}
