// The overview: what is decided, how fast, and whether everything that decisions need is there.

import { h, say } from "../dom.ts";
import { type House, type Page, every, lacks } from "../house.ts";
import { LOOKS, OUTCOMES } from "../outcomes.ts";
import { quantiles, stacked } from "../parts/chart.ts";
import { fault } from "../parts/notice.ts";
import { swatch } from "../parts/pattern.ts";
import { Table, fixed, words } from "../parts/table.ts";
import { href } from "../pure/route.ts";
import { NONE, count, moment, rate, since, some, stretch, took } from "../pure/words.ts";
import type { ByOutcome, Circuit, Overview, ServerRow, Sustained, WholeOverview } from "../types.ts";

/** The most steps that are drawn. */
const MOST_STEPS = 300;
/** The shortest step that is drawn, in seconds. */
const SHORTEST_STEP = 0.8;
/** How often what the stream does not tell is asked for. */
const AGAIN_MS = 15_000;

const QUANTILES = ["p50", "p99", "p999"] as const;

export function overview(house: House): Page {
  const [wrong, numbers, past] = [fault(), outcomes(), new Past()];
  const [decisions, times] = [stacked(), quantiles()];
  const [latency, store, rules, servers, sustained] = [latencies(), storeCard(), rulesCard(), serverTable(), sustainedTable()];
  const draw = () => {
    decisions.set(past.at, OUTCOMES.map((outcome) => past.counts[outcome]));
    times.set(past.at, QUANTILES.map((quantile) => past.times[quantile]));
  };
  const show = (now: Overview) => {
    numbers.set(now);
    latency.set(now);
    store.set(now);
    rules.set(now);
  };
  const ask = every(AGAIN_MS, async () => {
    try {
      const [whole, held] = await Promise.all([
        house.api.get<WholeOverview>("/admin/v1/overview"),
        house.api.get<{ items: Sustained[] }>("/admin/v1/sustained"),
      ]);
      past.begin(whole);
      show(whole);
      draw();
      servers.show(whole.servers);
      sustained.show(held.items);
      wrong.set(undefined);
    } catch (error) {
      wrong.set(error);
    }
  });
  const unhear = [
    house.live.on("overview", (now) => {
      past.add(now);
      show(now);
      draw();
    }),
    house.live.on("sustained", () => {
      void house.api.get<{ items: Sustained[] }>("/admin/v1/sustained").then((held) => sustained.show(held.items), wrong.set);
    }),
  ];
  const hidden = lacks(house, "audit") && h("p", { class: "hint" }, "Keys are hashed: showing them takes the scope “audit”.");
  const node = h("div", { class: "cards" },
    wrong.node,
    card("wide", "Decisions a second", numbers.node, decisions.node),
    card("wide", "Time of a decision", latency.node, times.node),
    card("", "Counters", store.node),
    card("", "Rules and control", rules.node),
    card("wide", "Above 80 % for five minutes", sustained.node, hidden),
    card("wide", "Servers", servers.node),
  );
  const close = () => {
    ask();
    unhear.forEach((end) => end());
    numbers.close();
    decisions.close();
    times.close();
  };
  return { title: "Overview", node, close };
}

function card(style: string, title: string, ...children: (HTMLElement | string | undefined)[]): HTMLElement {
  return h("section", { class: `card ${style}` }, h("h2", {}, title), children);
}

/** The numbers of the last minutes: those that were there, and those that came since. */
class Past {
  at: number[] = [];
  counts = Object.fromEntries(OUTCOMES.map((outcome) => [outcome, []])) as unknown as Record<keyof ByOutcome, number[]>;
  times: Record<(typeof QUANTILES)[number], (number | null)[]> = { p50: [], p99: [], p999: [] };
  #last: { at: number; totals: ByOutcome } | undefined;

  begin(whole: WholeOverview): void {
    const { history } = whole;
    const to = Date.parse(history.to) / 1000;
    const length = history.allow.length;
    this.at = history.allow.map((_, at) => to - (length - 1 - at) * history.step_seconds);
    for (const outcome of OUTCOMES) this.counts[outcome] = [...history[outcome]];
    for (const quantile of QUANTILES) this.times[quantile] = [...history[quantile]];
    this.#last = { at: Date.parse(whole.at) / 1000, totals: whole.totals };
  }

  /** What was counted since the last time is the newest step. */
  add(now: Overview): void {
    const [at, last] = [Date.parse(now.at) / 1000, this.#last];
    // One that comes right after what was asked for has nothing to divide by.
    if (last && at - last.at < SHORTEST_STEP) return;
    this.#last = { at, totals: now.totals };
    if (!last) return;
    this.at = [...this.at, at].slice(-MOST_STEPS);
    for (const outcome of OUTCOMES) {
      // A server that was started again counts from nothing.
      const counted = Math.max(0, now.totals[outcome] - last.totals[outcome]) / (at - last.at);
      this.counts[outcome] = [...this.counts[outcome], counted].slice(-MOST_STEPS);
    }
    for (const quantile of QUANTILES) this.times[quantile] = [...this.times[quantile], now.latency.decision[quantile]].slice(-MOST_STEPS);
  }
}

/** Every outcome by name, with its fill, its rate and its count. */
function outcomes() {
  const total = h("strong", { class: "big", "data-test": "decisions" }, NONE);
  const all = OUTCOMES.map((outcome) => {
    const [fill, perSecond, counted] = [swatch(outcome), h("strong", {}, NONE), h("small", {})];
    const node = h("li", { title: LOOKS[outcome].means }, fill.node, h("span", {}, LOOKS[outcome].label), perSecond, counted);
    return { outcome, node, perSecond, counted, close: fill.close };
  });
  const node = h("div", { class: "numbers" }, h("p", {}, total, " a second, over 10 s"), h("ul", { class: "outcomes" }, all.map((one) => one.node)));
  return {
    node,
    set({ rates, totals }: Overview) {
      say(total, rate(rates.decisions));
      for (const { outcome, perSecond, counted } of all) {
        say(perSecond, `${rate(rates[outcome])}/s`);
        say(counted, `${count(totals[outcome])} in all`);
      }
    },
    close: () => all.forEach((one) => one.close()),
  };
}

/** Names and what they are, which follows the overview. */
function facts(rows: [string, (now: Overview) => string, ((now: Overview) => boolean)?][]) {
  const parts = rows.map(([name, text, isBad]) => ({ name, text, isBad, value: h("dd", {}, NONE) }));
  const node = h("dl", { class: "facts" }, parts.map(({ name, value }) => h("div", {}, h("dt", {}, name), value)));
  const set = (now: Overview) => {
    for (const { text, isBad, value } of parts) {
      const bad = isBad?.(now) ?? false;
      say(value, bad ? `⚠ ${text(now)}` : text(now));
      value.classList.toggle("bad", bad);
    }
  };
  return { node, set };
}

function latencies() {
  const times = (of: "decision" | "store") => ({ latency }: Overview) =>
    latency[of].count === 0 ? "nothing was timed" : `p50 ${took(latency[of].p50)} · p99 ${took(latency[of].p99)} · p99.9 ${took(latency[of].p999)}`;
  return facts([
    ["Decision, last minute", times("decision")],
    ["Counters’ store, last minute", times("store")],
    ["In flight", (now) => count(now.in_flight)],
  ]);
}

function storeCard() {
  const { node, set } = facts([
    ["Kept in", (now) => now.store.kind],
    ["Level", ({ at, store }) => (store.since ? `${store.level} since ${moment(store.since)} (${since(store.since, Date.parse(at))})` : store.level), (now) => now.store.level !== "normal"],
    ["Counters", (now) => count(now.store.keys)],
    ["Given up for want of room", (now) => count(now.store.evicted), (now) => now.store.evicted > 0],
    ["Degraded", ({ health }) => health.filter((part) => part.degraded).map((part) => `${part.part}: ${part.why ?? "?"}`).join("; ") || "nothing", ({ health }) => health.some((part) => part.degraded)],
    ["Decision log", (now) => `${count(now.log.written)} written, ${count(now.log.dropped)} dropped`, (now) => now.log.dropped > 0],
  ]);
  const circuits = new Table<Circuit>("Circuits", [
    words("Shard", (one) => one.shard, { kind: "main" }),
    words("Circuit", (one) => ({ closed: "✓ closed", "half-open": "◐ half-open: trying", open: "✕ open: left alone" })[one.state]),
  ], (one) => one.shard, "There are none.");
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
    ["Rules", ({ rules }) => `${some(rules.rules, "rule")} in ${some(rules.domains, "domain")}, generation ${rules.generation}`],
    ["Files", ({ rules }) => (rules.valid ? "valid" : "not valid: the last good rules stay in force"), ({ rules }) => !rules.valid],
    ["Last reload", ({ at, rules }) => (rules.last_reload ? `${moment(rules.last_reload)} (${since(rules.last_reload, Date.parse(at))})` : "none since the start")],
    ["Last error", ({ rules }) => rules.last_error ?? "none", ({ rules }) => rules.last_error !== null],
    ["Store of record", ({ control }) => (control.kind === "none" ? "none: nothing can be changed here" : `${control.kind}, generation ${control.generation}`)],
    ["Its copy is", ({ control }) => (control.snapshot_age_seconds === null ? NONE : `${stretch(control.snapshot_age_seconds)} old`)],
    ["Server", ({ server }) => `${server.name}, version ${server.version}${server.region ? `, region ${server.region}` : ""}`],
    ["Started", ({ server }) => `${moment(server.started_at)} (${stretch(server.uptime_seconds)} ago)`],
  ]);
}

function serverTable(): Table<ServerRow> {
  return new Table<ServerRow>("Servers", [
    words("Name", (one) => (one.this ? `${one.name} (this one)` : one.name), { kind: "main" }),
    words("Region", (one) => one.region ?? NONE),
    words("Version", (one) => one.version),
    words("Decisions/s", (one) => rate(one.decisions_per_second), { kind: "number" }),
    words("Refused/s", (one) => rate(one.deny_per_second), { kind: "number" }),
    words("Rules", (one) => `generation ${one.rules_generation}`, { kind: "number" }),
    words("Seen", (one) => moment(one.seen_at)),
  ], (one) => one.name, "No server is known.");
}

function sustainedTable(): Table<Sustained> {
  return new Table<Sustained>("Sustained use above 80 % of a limit", [
    fixed("Key", (one) => (one.caller && !one.caller.startsWith("#") ? h("a", { href: href("caller", { name: one.caller, domain: one.domain }) }, one.key) : one.key), { kind: "main" }),
    words("Rule", (one) => `${one.domain} · ${one.rule}`),
    words("Tier", (one) => one.tier),
    words("Would fit", (one) => (one.fits ? `${one.fits} (${count(one.fits_limit ?? 0)})` : "no tier")),
    words("In words", (one) => one.says, { kind: "wide" }),
  ], (one) => [one.domain, one.rule, one.key].join("\n"), "Nobody is.");
}
