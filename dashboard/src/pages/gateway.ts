// The gateway of this server: its routes, its upstreams with their servers, and what protects them.

import { fill, h, setText } from "../dom.ts";
import { type AppContext, type Page, missingScope, poll } from "../context.ts";
import { openShedding } from "../actions/shedding.ts";
import { actionButton, actionColumn } from "../parts/action.ts";
import { card, modeBadge } from "../parts/card.ts";
import { icon } from "../parts/icon.ts";
import { fault } from "../parts/notice.ts";
import { Pager } from "../parts/pager.ts";
import { type Column, Table, fixedColumn, textColumn } from "../parts/table.ts";
import { NONE, count, percent, rate, took } from "../pure/format.ts";
import { type Reading, healthText, isUsable, loweredText, refusals, refusedByTier, refusedText, responses, routeRates, serverState, shedText, shedding } from "../pure/gateway.ts";
import { href } from "../pure/route.ts";
import type { GatewayReserve, GatewayRoute, GatewayServer, GatewayStatus, GatewayUpstream, GatewayWorker, SheddingMode, UpstreamShedder } from "../types.ts";

/** Routes of a page. */
const ROWS = 25;
const REFRESH_MS = 2_000;

export function gateway(app: AppContext): Page {
  if (!app.me.gateway) return { title: "Gateway", node: withoutGateway() };
  let now: Reading | undefined;
  let rates = new Map<string, number>();
  const [wrong, lead, status] = [fault(), h("p", { class: "lead" }), tiles()];
  const pager = new Pager(ROWS);
  const routes = routeTable((route) => rates.get(route.name));
  const servers = serverTable();
  const load = async () => {
    try {
      show({ at: performance.now(), status: await app.api.get<GatewayStatus>("/admin/v1/gateway") });
      wrong.set(undefined);
    } catch (error) {
      wrong.set(error);
    }
  };
  const change = (shedder: UpstreamShedder, upstream?: GatewayUpstream) => {
    if (!now) return;
    const mode = ({ cap, fairness }: GatewayUpstream) => (shedder === "adaptive" ? cap.mode : fairness?.mode);
    const modes = new Set((upstream ? [upstream] : now.status.upstreams).map(mode));
    openShedding(app, now.status.server, { shedder, upstream: upstream?.name }, modes.size === 1 ? [...modes][0] : undefined, () => void load());
  };
  const [upstreams, caps] = [upstreamTable(), capTable(app, (upstream) => change("adaptive", upstream))];
  const [reserves, fairness] = [reserveTable(), fairnessTable(app, (upstream) => change("fairness", upstream))];
  const worker = workerTable(app, () => now && openShedding(app, now.status.server, { shedder: "worker" }, now.status.worker.mode, () => void load()));
  const showRoutes = () => now && routes.show(pager.of(routes.sorted(now.status.routes)));
  pager.onTurn = showRoutes;
  routes.onOrder = showRoutes;
  const show = (reading: Reading) => {
    if (!now) fill(lead, `Requests that ${reading.status.server} forwards, and the upstreams that answer them. Each server has its own numbers, since its start.`);
    rates = routeRates(now, reading);
    status.set(reading.status, shedding(now, reading), [...rates.values()].reduce((sum, one) => sum + one, 0), now !== undefined);
    now = reading;
    showRoutes();
    upstreams.show(reading.status.upstreams);
    caps.show(reading.status.upstreams);
    worker.show([reading.status.worker]);
    const reserved = reading.status.upstreams.flatMap((upstream) => upstream.cap.reserves.map((reserve) => ({ ...reserve, upstream: upstream.name })));
    const fair = reading.status.upstreams.filter((upstream) => upstream.fairness !== null);
    reserves.show(reserved);
    fairness.show(fair);
    reserveCard.hidden = reserved.length === 0;
    fairnessCard.hidden = fair.length === 0;
    servers.show(reading.status.upstreams.flatMap((upstream) => upstream.servers.map((server) => ({ ...server, upstream: upstream.name }))));
  };
  const missing = missingScope(app, "emergency");
  const all = actionButton(app, [icon("switch"), "Switch all…"], ["emergency"], () => change("adaptive"));
  const reserveCard = card("Reserves", [
    h("p", { class: "hint" }, "The part of the limit that is free for the callers of a tier, however many requests others send."),
    reserves.node,
  ]);
  const fairnessCard = card("Fairness", [
    h("p", { class: "hint" }, "While an upstream is overloaded, the rates of its busiest callers are lowered: of the lowest tier first, and of nobody below the fair rate."),
    fairness.node,
  ]);
  reserveCard.hidden = fairnessCard.hidden = true;
  const node = h("div", {}, wrong.node, lead, status.node,
    card("Routes", [routes.node, pager.node]),
    card("Upstreams", [upstreams.node]),
    card("Adaptive concurrency", [
      h("p", { class: "hint" }, "The cap admits as many requests as an upstream answers without a queue. Beyond it the least important class is refused first: test, get, post, then critical."),
      missing && h("p", { class: "hint" }, `Shedding can't be switched here: ${missing}.`),
      caps.node,
    ], { tools: h("div", { class: "buttons" }, all) }),
    reserveCard,
    fairnessCard,
    card("Worker shedder", [
      h("p", { class: "hint" }, "When this server itself has been overloaded for half a minute, it refuses a growing part of its requests, the least important first."),
      worker.node,
    ]),
    card("Servers", [servers.node]));
  return { title: "Gateway", node, close: poll(REFRESH_MS, load) };
}

/** How to get one. */
function withoutGateway(): HTMLElement {
  return h("div", {}, h("section", { class: "card" },
    h("p", { class: "empty" }, "This server has no gateway: other programs request decisions from it. With one, it is a reverse proxy that enforces the limits and protects your API from overload."),
    h("p", {}, "Write a file with routes and upstreams, and start the server with it:"),
    h("pre", {}, h("code", {}, "listen: 0.0.0.0:8000\nupstreams:\n  app: {servers: [127.0.0.1:3000]}\nroutes:\n  - {name: all, match: \"/*\", upstream: app}\n")),
    h("pre", {}, h("code", {}, "tollgate serve --gateway gateway.yaml --rules rules.yaml")),
    h("p", {}, "The limits are those of the rules: ", h("a", { href: href("rules") }, "see the rules in force"), ".")));
}

/** The gateway in four numbers. */
function tiles() {
  const tile = (name: string, test: string) => {
    const [value, more] = [h("strong", { class: "big", "data-test": test }, NONE), h("small", {}, "")];
    return { value, more, node: h("div", { class: "tile" }, h("span", { class: "tile-name" }, name), value, more) };
  };
  const [requests, limited, shed, usable] = [tile("Requests/s", "gateway-rate"), tile("Limited", "gateway-limited"), tile("Shed", "gateway-shed"), tile("Upstreams", "gateway-upstreams")];
  const sum = (routes: GatewayRoute[], of: (route: GatewayRoute) => number) => routes.reduce((sum, route) => sum + of(route), 0);
  return {
    node: h("section", { class: "tiles", "aria-label": "Gateway" }, [requests, limited, shed, usable].map((one) => one.node)),
    set(status: GatewayStatus, sheds: string[], perSecond: number, hasRate: boolean) {
      const { routes, upstreams } = status;
      setText(requests.value, hasRate ? rate(perSecond) : NONE);
      setText(requests.more, `${count(sum(routes, responses))} since the start`);
      setText(limited.value, count(sum(routes, (route) => route.limited)));
      setText(limited.more, "refused by limits, 429");
      setText(shed.value, count(sum(routes, (route) => route.shed)));
      setText(shed.more, sheds.length > 0 ? `⚠ now, to protect ${sheds.join(", ")}` : shedText(status) || "refused to protect the service, 503");
      shed.node.classList.toggle("hot", sheds.length > 0);
      const down = upstreams.filter((upstream) => !isUsable(upstream)).map(({ name }) => name);
      setText(usable.value, count(upstreams.length));
      setText(usable.more, down.length > 0 ? `⚠ no usable server: ${down.join(", ")}` : "each has a usable server");
      usable.node.classList.toggle("hot", down.length > 0);
    },
  };
}

function countColumn<T>(title: string, value: (item: T) => number, more: Partial<Column<T>> = {}): Column<T> {
  return textColumn(title, (item) => count(value(item)), { kind: "number", ...more });
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

function routeTable(perSecond: (route: GatewayRoute) => number | undefined): Table<GatewayRoute> {
  const speed = (route: GatewayRoute) => perSecond(route) ?? 0;
  const total = (title: string, value: (route: GatewayRoute) => number) => countColumn(title, value, { sort: value });
  return new Table<GatewayRoute>("Routes", [
    fixedColumn("Route", (route) => route.name, { kind: "main", sort: (route) => route.name }),
    textColumn("Matches", (route) => route.matches, { kind: "wide" }),
    textColumn("Upstream", (route) => route.upstream),
    textColumn("Requests/s", (route) => (perSecond(route) === undefined ? NONE : rate(speed(route))), { kind: "number", sort: speed }),
    total("2xx", (route) => route.successful + route.informational),
    total("3xx", (route) => route.redirected),
    total("4xx", (route) => route.client_errors),
    total("5xx", (route) => route.server_errors),
    total("Limited", (route) => route.limited),
    total("Shed", (route) => route.shed),
  ], (route) => route.name, "Loading routes.");
}

function upstreamTable(): Table<GatewayUpstream> {
  const flying = ({ servers }: GatewayUpstream) => servers.reduce((sum, server) => sum + server.in_flight, 0);
  const open = ({ servers }: GatewayUpstream) => servers.reduce((sum, server) => sum + server.connections, 0);
  return new Table<GatewayUpstream>("Upstreams", [
    fixedColumn("Upstream", (upstream) => upstream.name, { kind: "main" }),
    marked("Health", healthText, (upstream) => upstream.servers.length === 0 || upstream.servers.some((server) => serverState(server) !== "healthy"), { kind: "wide" }),
    countColumn("In flight", flying),
    countColumn("Connections", open),
    countColumn("Requests", (upstream) => upstream.requests),
    countColumn("Retries", (upstream) => upstream.retries),
    countColumn("Failures", (upstream) => upstream.failures),
    countColumn("Timeouts", (upstream) => upstream.timeouts),
  ], (upstream) => upstream.name, "Loading upstreams.");
}

function modeColumn<T>(mode: (item: T) => SheddingMode): Column<T> {
  return { title: "Mode", kind: "brief", cell: () => {
    const node = h("span");
    let shown = "";
    return { node, set: (item) => {
      if (mode(item) !== shown) fill(node, modeBadge(mode(item)));
      shown = mode(item);
    } };
  } };
}

function capTable(app: AppContext, change: (upstream: GatewayUpstream) => void): Table<GatewayUpstream> {
  const seconds = (milliseconds: number | null) => (milliseconds === null ? null : milliseconds / 1000);
  return new Table<GatewayUpstream>("Adaptive concurrency", [
    fixedColumn("Upstream", (upstream) => upstream.name, { kind: "main" }),
    modeColumn(({ cap }) => cap.mode),
    textColumn("Limit", ({ cap }) => (cap.mode === "off" ? NONE : `${count(cap.limit)}${cap.probing ? " (probe)" : ""}`), { kind: "number" }),
    textColumn("In flight", ({ cap }) => count(cap.in_flight), { kind: "number" }),
    textColumn("Latency idle", ({ cap }) => took(seconds(cap.min_rtt_ms)), { kind: "number" }),
    marked("Latency now", ({ cap }) => took(seconds(cap.sample_rtt_ms)), ({ cap }) => cap.mode !== "off" && cap.sample_rtt_ms !== null && cap.gradient < 1, { kind: "number" }),
    textColumn("Refused by class", ({ cap }) => `${cap.mode === "shadow" && refusals(cap) > 0 ? "would be: " : ""}${refusedText(cap)}`),
    actionColumn(app, "Switch…", () => ["emergency"], change),
  ], (upstream) => upstream.name, "Loading upstreams.");
}

function workerTable(app: AppContext, change: () => void): Table<GatewayWorker> {
  return new Table<GatewayWorker>("Worker shedder", [
    fixedColumn("Shedder", () => "worker", { kind: "main" }),
    modeColumn((worker) => worker.mode),
    textColumn("Utilisation", (worker) => percent(worker.utilisation), { kind: "number" }),
    marked("Shed now", (worker) => percent(worker.amount), (worker) => worker.mode === "enforce" && worker.amount > 0, { kind: "number" }),
    textColumn("Refused by class", (worker) => `${worker.mode === "shadow" && refusals(worker) > 0 ? "would be: " : ""}${refusedText(worker)}`),
    actionColumn(app, "Switch…", () => ["emergency"], change),
  ], () => "worker", "Loading the shedder.");
}

type ReserveRow = GatewayReserve & { upstream: string };

function reserveTable(): Table<ReserveRow> {
  return new Table<ReserveRow>("Reserves", [
    fixedColumn("Upstream", (row) => row.upstream, { kind: "main" }),
    fixedColumn("Tier", (row) => row.tier ?? "all others"),
    textColumn("Share", (row) => (row.share === null ? NONE : `${Math.round(100 * row.share)} %`), { kind: "number" }),
    textColumn("Reserved", (row) => (row.tier === null ? NONE : count(row.reserved)), { kind: "number" }),
    textColumn("In flight", (row) => (row.tier === null ? NONE : count(row.in_flight)), { kind: "number" }),
    countColumn("Refused", (row) => row.refused),
  ], (row) => JSON.stringify([row.upstream, row.tier]), "Nothing is reserved.");
}

function fairnessTable(app: AppContext, change: (upstream: GatewayUpstream) => void): Table<GatewayUpstream> {
  const of = <T>(upstream: GatewayUpstream, value: (fairness: NonNullable<GatewayUpstream["fairness"]>) => T, none: T): T => (upstream.fairness ? value(upstream.fairness) : none);
  const isLowered = (upstream: GatewayUpstream) => of(upstream, ({ tiers }) => tiers.some(({ ceiling }) => ceiling !== null), false);
  return new Table<GatewayUpstream>("Fairness", [
    fixedColumn("Upstream", (upstream) => upstream.name, { kind: "main" }),
    modeColumn((upstream) => of(upstream, ({ mode }) => mode, "off")),
    marked("Pressure", (upstream) => of(upstream, ({ pressure }) => `${Math.round(100 * pressure)} %`, NONE), (upstream) => of(upstream, ({ pressure }) => pressure > 1, false), { kind: "number" }),
    marked("Lowered", (upstream) => of(upstream, loweredText, NONE), isLowered),
    textColumn("Fair rate", (upstream) => of(upstream, ({ fair_rate }) => (fair_rate === null ? NONE : `${rate(fair_rate)}/s`), NONE), { kind: "number" }),
    textColumn("Callers", (upstream) => of(upstream, ({ callers }) => count(callers), NONE), { kind: "number" }),
    textColumn("Refused by tier", (upstream) => of(upstream, (fairness) => `${fairness.mode === "shadow" && refusedByTier(fairness) !== "none" ? "would be: " : ""}${refusedByTier(fairness)}`, NONE)),
    actionColumn(app, "Switch…", () => ["emergency"], change),
  ], (upstream) => upstream.name, "No upstream has a fairness shedder.");
}

type ServerRow = GatewayServer & { upstream: string };

function serverTable(): Table<ServerRow> {
  const WORDS = { healthy: "✓ healthy", unhealthy: "unhealthy: health checks fail", ejected: "ejected for a while: requests failed" };
  return new Table<ServerRow>("Servers", [
    fixedColumn("Server", (server) => server.address, { kind: "main" }),
    fixedColumn("Upstream", (server) => server.upstream),
    marked("State", (server) => WORDS[serverState(server)], (server) => serverState(server) !== "healthy"),
    textColumn("In flight", (server) => count(server.in_flight), { kind: "number" }),
    textColumn("Connections", (server) => count(server.connections), { kind: "number" }),
  ], (server) => JSON.stringify([server.upstream, server.address]), "No server is known: discovery has found none yet.");
}
