// The dashboard: login, menu, and one page at a time.

import "./style/base.css";
import "./style/parts.css";
import "./style/forms.css";
import "./style/tables.css";
import "./style/pages.css";
import "./style/narrow.css";

import { Api, ApiError, errorText } from "./api.ts";
import { h, setText } from "./dom.ts";
import type { AppContext, OpenPage, Page } from "./context.ts";
import { Live } from "./live.ts";
import { audit } from "./pages/audit.ts";
import { caller } from "./pages/caller.ts";
import { controls } from "./pages/controls.ts";
import { gateway } from "./pages/gateway.ts";
import { hot } from "./pages/hot.ts";
import { keys } from "./pages/keys.ts";
import { login } from "./pages/login.ts";
import { overview } from "./pages/overview/index.ts";
import { regions } from "./pages/regions.ts";
import { rule } from "./pages/rule.ts";
import { rules } from "./pages/rules.ts";
import { signals } from "./pages/signals.ts";
import { tenants } from "./pages/tenants.ts";
import { tryIt } from "./pages/try.ts";
import { type IconName, icon, mark } from "./parts/icon.ts";
import { announce, notices, notify, warn } from "./parts/notice.ts";
import { type PageName, href, parse } from "./pure/route.ts";
import { themeSwitch } from "./theme.ts";
import type { Me } from "./types.ts";

const OPEN: Record<PageName, OpenPage> = { overview, rules, keys, caller, rule, hot, signals, tenants, gateway, regions, controls, try: tryIt, audit };
const MENU: [PageName & IconName, string][] = [["overview", "Overview"], ["rules", "Rules"], ["keys", "Keys"], ["tenants", "Tenants"], ["gateway", "Gateway"], ["regions", "Regions"], ["controls", "Controls"], ["try", "Try it"], ["audit", "Audit"]];
/** The menu item of pages that are not in the menu. */
const WITHIN: Partial<Record<PageName, PageName>> = { caller: "keys", hot: "keys", signals: "keys", rule: "rules" };

/** Delay before an unreachable server is called again. */
const REFRESH_MS = 3_000;

const api = new Api();
const live = new Live(api);
const main = h("main", { id: "main", tabindex: -1 });
const header = h("header", {});
let end: () => void = () => {};

// A link to `#main` would be parsed as a route.
const skip = h("a", { class: "skip", href: "#main", on: { click: (event) => (event.preventDefault(), main.focus()) } }, "Skip to the page");
document.body.append(skip, header, main, ...notices());
api.onUnauthenticated = () => logOut("You are no longer logged in: the token is unknown or no longer in force.");
void begin();

async function begin(): Promise<void> {
  try {
    enter(await whoami());
  } catch (error) {
    if (error instanceof ApiError) return showLogin(error.isUnauthenticated ? undefined : errorText(error));
    main.replaceChildren(h("p", { class: "fault", role: "alert" }, `${errorText(error)}; trying again`));
    setTimeout(() => void begin(), REFRESH_MS);
  }
}

/** Reports the user. A failure here is not a lost session. */
async function whoami(): Promise<Me> {
  const onUnauthenticated = api.onUnauthenticated;
  api.onUnauthenticated = () => {};
  try {
    return await api.get<Me>("/admin/v1/me");
  } finally {
    api.onUnauthenticated = onUnauthenticated;
  }
}

function showLogin(why?: string): void {
  end();
  end = () => {};
  live.close();
  document.title = "Log in · Tollgate";
  const onUnauthenticated = api.onUnauthenticated;
  api.onUnauthenticated = () => {};
  const accepted = (me: Me) => {
    api.onUnauthenticated = onUnauthenticated;
    enter(me);
  };
  header.replaceChildren();
  main.replaceChildren(login(api, why, accepted));
  main.querySelector("input")?.focus();
}

function logOut(why?: string): void {
  api.token = null;
  showLogin(why);
}

function enter(me: Me): void {
  const app: AppContext = { api, live, me };
  // Few have several regions.
  const menu = MENU.filter(([page]) => page !== "regions" || me.regions);
  const links = new Map(menu.map(([page, label]) => [page as PageName, h("a", { href: href(page) }, icon(page), h("span", {}, label))]));
  const who = h("span", { class: "who", title: `scopes: ${me.scopes.join(", ")}` }, me.open ? `${me.name} (no token needed)` : me.name);
  const leave = !me.open && h("button", { type: "button", class: "quiet", on: { click: () => logOut() } }, icon("leave"), h("span", {}, "Log out"));
  const status = state(app);
  header.replaceChildren(
    h("a", { class: "brand", href: href("overview") }, mark(), h("strong", {}, "Tollgate")),
    h("nav", { "aria-label": "Pages" }, h("ul", {}, [...links.values()].map((link) => h("li", {}, link)))),
    h("div", { class: "about" }, status.node, who, themeSwitch(), leave || ""),
  );
  let page: Page | undefined;
  const turn = () => {
    const route = parse(location.hash);
    page?.close?.();
    page = OPEN[route.page](app, route);
    live.open(page.withRules ?? false);
    document.title = `${page.title} · Tollgate`;
    for (const [name, link] of links) {
      if (name === (WITHIN[route.page] ?? route.page)) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
    }
    const title = h("h1", { tabindex: -1 }, page.title);
    main.replaceChildren(title, page.node);
    title.focus({ preventScroll: true });
    scrollTo(0, 0);
  };
  addEventListener("hashchange", turn);
  end = () => {
    removeEventListener("hashchange", turn);
    status.close();
    page?.close?.();
  };
  turn();
}

/** The state of the stream and of the counter store: shown on every page, and announced when it changes. */
function state({ live }: AppContext): { node: HTMLElement; close(): void } {
  const [stream, store] = [h("span", { class: "state", "data-test": "live" }), h("a", { class: "state", href: href("overview"), hidden: true })];
  let [level, wasLive] = ["normal", true];
  const ends = [
    live.watch((now) => {
      stream.dataset["state"] = now.live ? "good" : "bad";
      setText(stream, now.live ? "● live" : `○ not live: ${now.why}`);
      // Every failed attempt is shown, but only the first is announced.
      if (now.live !== wasLive) announce(now.live ? "The numbers are live." : `Not live: ${now.why}`);
      wasLive = now.live;
    }),
    live.on("overview", (now) => {
      if (now.store.level !== level) announce(`The counter store is ${now.store.level}.`);
      level = now.store.level;
      store.hidden = level === "normal";
      store.dataset["state"] = "bad";
      setText(store, `⚠ store ${level}`);
    }),
    live.on("reload", (now) => {
      if (now.valid) notify(`Rules of generation ${now.generation} are in force.`);
      else warn(new Error(`The rules could not be loaded; the last good ones stay in force: ${now.error ?? "?"}`));
    }),
  ];
  return { node: h("span", { class: "states" }, stream, store), close: () => ends.forEach((one) => one()) };
}
