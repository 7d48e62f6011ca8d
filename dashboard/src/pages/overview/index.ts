// The overview: is all well, and if not, what changed, who and which rule.

import { h } from "../../dom.ts";
import { type AppContext, type Page, missingScope, poll } from "../../context.ts";
import { RANGES, RANGE_SECONDS, type Range, card, segmented } from "../../parts/card.ts";
import { STACK, decisionChart, quantileChart } from "../../parts/chart.ts";
import { fault } from "../../parts/notice.ts";
import { Pager } from "../../parts/pager.ts";
import { marks } from "../../pure/marks.ts";
import { type HistoryBody, QUANTILES, Series, findRise } from "../../pure/series.ts";
import { assess } from "../../pure/status.ts";
import type { Emergency, Events, FullOverview, Leases, ListPage, Overview, Regions, ServerEvent, Sustained, SwitchItem, Top } from "../../types.ts";
import { firstSteps } from "./first_steps.ts";
import { changeList, refusedCallers, refusingRules, serverTable, sustainedTable } from "./lists.ts";
import { leaseNote, numbers, outcomeLegend, rulesCard, storeCard } from "./numbers.ts";
import { statusLine } from "./status_line.ts";

/** How often data that the stream does not have is requested. */
const REFRESH_MS = 5_000;
/** The steps of the finest range. */
const SECONDS = 600;
/** Marks of a chart that are closer than this part of the range are one. */
const MARKS_APART = 1 / 40;
const CALLERS = 5;
/** Callers near a limit on a page of their list. */
const NEAR_LIMIT = 5;
const EVENTS = 200;

export function overview(app: AppContext): Page {
  const [wrong, line, tiles, legend, first] = [fault(), statusLine(), numbers(), outcomeLegend(), firstSteps(app)];
  const [decisions, times] = [decisionChart(), quantileChart()];
  const [store, rules, servers, sustained] = [storeCard(), rulesCard(), serverTable(), sustainedTable()];
  const leases = leaseNote();
  const [callers, refusing, changes] = [refusedCallers(), refusingRules(), changeList()];
  const [seconds, coarse] = [new Series(SECONDS), new Series(Number.MAX_SAFE_INTEGER)];
  const pager = new Pager(NEAR_LIMIT);
  let near: Sustained[] = [];
  const showNear = () => sustained.show(pager.of(near));
  pager.onTurn = showNear;
  let range: Range = "10m";
  let events: ServerEvent[] = [];
  let known: { whole: FullOverview; top: Top; switches: SwitchItem[]; emergencies: Emergency[]; regions: Regions | undefined } | undefined;

  const draw = () => {
    const shown = range === "10m" ? seconds : coarse;
    const span = RANGE_SECONDS[range];
    const { from, step } = shown;
    const marked = marks(events, shown.to - span, shown.to, span * MARKS_APART);
    decisions.set({ from, step, range: span, marks: marked, lines: STACK.map((outcome) => shown.counts[outcome]) });
    times.set({ from, step, range: span, marks: marked, lines: QUANTILES.map((quantile) => shown.times[quantile]) });
    legend.set(shown);
  };
  const judge = (now: Overview) => {
    if (!known) return;
    const rise = findRise(seconds.counts.deny);
    const { whole, top, switches, emergencies, regions } = known;
    const at = rise ? seconds.from + rise.index * seconds.step : 0;
    line.set(assess({ overview: now, rise: rise && { ...rise, at }, refusing: whole.refusing, topKeys: top.keys, switches, emergencies, regions }), now, events[0]);
  };
  const show = (now: Overview) => {
    tiles.set(now);
    store.set(now);
    rules.set(now);
    first.set(now);
    judge(now);
  };
  const loadHistory = async () => {
    seconds.begin(await app.api.get<HistoryBody>("/admin/v1/history", { range: "10m" }));
    const requested = range;
    if (requested !== "10m") {
      const body = await app.api.get<HistoryBody>("/admin/v1/history", { range: requested });
      // Another range may have been chosen meanwhile.
      if (requested === range) coarse.begin(body);
    }
    draw();
  };
  const load = async () => {
    try {
      const [whole, keys, top, leased, switches, emergencies, changed, regions] = await Promise.all([
        app.api.get<FullOverview>("/admin/v1/overview"),
        app.api.get<{ items: Sustained[] }>("/admin/v1/sustained"),
        app.api.get<Top>("/admin/v1/top", { by: "refusals", window: "1m", limit: CALLERS }),
        app.api.get<Leases>("/admin/v1/leases", { limit: 1 }),
        listOrNothing<SwitchItem>(app, "/admin/v1/switches"),
        listOrNothing<Emergency>(app, "/admin/v1/emergencies"),
        app.api.get<Events>("/admin/v1/events", { limit: EVENTS }),
        app.me.regions ? app.api.get<Regions>("/admin/v1/regions") : undefined,
        // The stream continues the finest range.
        range === "10m" && app.live.isLive && seconds.length > 0 ? undefined : loadHistory(),
      ]);
      events = changed.items;
      known = { whole, top, switches, emergencies, regions };
      show(whole);
      draw();
      leases.set(leased);
      callers.show(top.keys);
      refusing.show(whole.refusing);
      changes.show(changed, whole.at);
      servers.show(whole.servers);
      near = keys.items;
      showNear();
      wrong.set(undefined);
    } catch (error) {
      wrong.set(error);
    }
  };
  const stopPolling = poll(REFRESH_MS, load);
  const unsubscribe = app.live.on("overview", (now) => {
    const isWhole = now.second === null || seconds.add(now.second);
    show(now);
    if (isWhole && range === "10m") draw();
    else if (!isWhole) void loadHistory().catch(wrong.set);
  });
  const choose = (value: Range) => {
    range = value;
    void loadHistory().catch(wrong.set);
  };
  const hashed = missingScope(app, "audit") && h("p", { class: "hint" }, "Keys are hashed: the scope “audit” is required to see them.");
  const ranges = segmented("Range of the charts", RANGES, range, choose);
  const node = h("div", { class: "overview" },
    wrong.node, line.node, first.node, tiles.node,
    h("div", { class: "columns" },
      h("div", {}, card("Decisions per second", [decisions.node, legend.node], { tools: ranges }), card("Decision latency", [times.node])),
      h("div", {}, card("Most refused callers", [callers.node, hashed]), card("Rules that refuse most", [refusing.node]), card("What changed", [changes.node]))),
    h("div", { class: "cards" },
      card("Counter store", [store.node, leases.node]),
      card("Rules and control", [rules.node]),
      card("Above 80 % of a limit for five minutes", [sustained.node, pager.node], { style: "wide" }),
      card("Servers", [servers.node], { style: "wide" })));
  const close = () => {
    stopPolling();
    unsubscribe();
    legend.close();
    decisions.close();
    times.close();
  };
  return { title: "Overview", node, close };
}

/** A list of the store of record, which may be unavailable or missing: the rest is shown all the same. */
async function listOrNothing<T>(app: AppContext, path: string): Promise<T[]> {
  return app.api.get<ListPage<T>>(path, { limit: 100 }).then((page) => page.items, () => []);
}
