// The numbers of the overview: tiles, the legend of outcomes, the store, the rules.

import { h, setText } from "../../dom.ts";
import { OUTCOME_STYLES, OUTCOMES } from "../../outcomes.ts";
import { facts } from "../../parts/card.ts";
import { swatch } from "../../parts/pattern.ts";
import { Table, textColumn } from "../../parts/table.ts";
import { NONE, count, duration, percent, plural, rate, since, timestamp, took } from "../../pure/format.ts";
import { href } from "../../pure/route.ts";
import type { Series } from "../../pure/series.ts";
import { MANY_UNMATCHED } from "../../pure/status.ts";
import type { Circuit, Leases, Overview } from "../../types.ts";

/** Four big numbers, and one more where the server counts requests that no rule applies to. */
export function numbers() {
  const tile = (name: string, test: string) => {
    const [value, more] = [h("strong", { class: "big", "data-test": test }, NONE), h("small", {}, "")];
    return { value, more, node: h("div", { class: "tile" }, h("span", { class: "tile-name" }, name), value, more) };
  };
  const [all, refused, latency, flight, unmatched] = [tile("Decisions per second", "decisions"), tile("Refused per second", "refused"), tile("Latency, 99th percentile", "latency"), tile("Checks in flight", "in-flight"), tile("No rule applies", "unmatched")];
  unmatched.node.hidden = true;
  return {
    node: h("section", { class: "tiles", "aria-label": "Numbers" }, [all, refused, latency, flight, unmatched].map((one) => one.node)),
    set(now: Overview) {
      const { rates, totals } = now;
      setText(all.value, rate(rates.decisions));
      setText(all.more, `over 10 s · ${count(totals.decisions)} total`);
      setText(refused.value, rate(rates.deny));
      setText(refused.more, `${rates.decisions > 0 ? percent(rates.deny / rates.decisions) : NONE} · ${count(totals.deny)} total`);
      refused.node.classList.toggle("hot", rates.deny > 0);
      setText(latency.value, took(now.latency.decision.p99));
      setText(latency.more, now.latency.store.p99 === null ? "last minute" : `last minute · store ${took(now.latency.store.p99)}`);
      setText(flight.value, count(now.in_flight));
      setText(flight.more, `server up ${duration(now.server.uptime_seconds)}`);
      unmatched.node.hidden = now.unmatched === undefined;
      setText(unmatched.value, percent(now.unmatched?.share ?? 0));
      const unknown = now.unmatched?.attributes ?? [];
      unmatched.node.classList.toggle("hot", (now.unmatched?.share ?? 0) >= MANY_UNMATCHED || (unknown.length > 0 && (now.unmatched?.share ?? 0) > 0));
      setText(unmatched.more, unknown.length > 0 ? `of requests; no rule reads ${unknown.slice(0, 3).join(", ")}` : "of requests in the last minute");
    },
  };
}

/** The legend of the chart: outcomes that occur, with their newest rates; the others in one short line. */
export function outcomeLegend() {
  const parts = OUTCOMES.map((outcome) => {
    const [fill, number] = [swatch(outcome), h("strong", {}, "")];
    const node = h("li", { title: OUTCOME_STYLES[outcome].means }, fill.node, h("span", {}, OUTCOME_STYLES[outcome].label), number);
    return { outcome, node, number, close: fill.close };
  });
  const none = h("li", { class: "muted" });
  return {
    node: h("ul", { class: "outcomes" }, parts.map((one) => one.node), none),
    set({ counts }: Series) {
      const absent: string[] = [];
      for (const { outcome, node, number } of parts) {
        const occurs = outcome === "allow" || outcome === "deny" || counts[outcome].some((value) => value !== null && value > 0);
        node.hidden = !occurs;
        if (!occurs) absent.push(OUTCOME_STYLES[outcome].label);
        setText(number, `${rate(counts[outcome].at(-1) ?? 0)}/s`);
      }
      setText(none, absent.length > 0 ? `none: ${absent.join(", ")}` : "");
    },
    close: () => parts.forEach((one) => one.close()),
  };
}

export function storeCard() {
  const { node, set } = facts<Overview>([
    ["Store", (now) => now.store.kind],
    ["Level", ({ at, store }) => (store.since ? `${store.level} since ${timestamp(store.since)} (${since(store.since, Date.parse(at))})` : store.level), (now) => now.store.level !== "normal"],
    ["Latency, last minute", ({ latency }) => (latency.store.count === 0 ? "no measurements" : `p50 ${took(latency.store.p50)} · p99 ${took(latency.store.p99)} · p99.9 ${took(latency.store.p999)}`)],
    ["Counters", (now) => count(now.store.keys)],
    ["Evicted", (now) => count(now.store.evicted), (now) => now.store.evicted > 0],
    ["Degraded", ({ health }) => health.filter((part) => part.degraded).map((part) => `${part.part}: ${part.why ?? "?"}`).join("; ") || "nothing", ({ health }) => health.some((part) => part.degraded)],
    ["Decision log", (now) => `${count(now.log.written)} written, ${count(now.log.dropped)} dropped`, (now) => now.log.dropped > 0],
  ]);
  const circuits = new Table<Circuit>("Breakers", [
    textColumn("Shard", (one) => one.shard, { kind: "main" }),
    textColumn("Breaker", (one) => ({ closed: "✓ closed", "half-open": "◐ half-open: probing", open: "✕ open: not called" })[one.state]),
  ], (one) => one.shard, "No breakers.");
  return {
    node: h("div", {}, node, circuits.node),
    set(now: Overview) {
      set(now);
      circuits.show(now.store.circuits);
    },
  };
}

/** What is leased, with the way to the keys. Nothing with counters in memory. */
export function leaseNote() {
  const text = h("span", {});
  const node = h("p", { class: "hint", hidden: true }, text, " ", h("a", { href: href("hot") }, "Hot keys"));
  return {
    node,
    set({ available, enabled, leased_keys, units_held }: Leases) {
      node.hidden = !available;
      setText(text, enabled ? `Leases are on: ${plural(leased_keys, "key")}, ${plural(units_held, "unit")} held.` : "Leases are off: Redis decides every request.");
    },
  };
}

export function rulesCard() {
  return facts<Overview>([
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
