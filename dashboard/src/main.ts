// The dashboard: who looks, the menu, and one page at a time.

import "./style/base.css";
import "./style/parts.css";
import "./style/tables.css";

import { Api, Refused, inWords } from "./api.ts";
import { h, say } from "./dom.ts";
import type { House, Open, Page } from "./house.ts";
import { Live } from "./live.ts";
import { audit } from "./pages/audit.ts";
import { caller } from "./pages/caller.ts";
import { keys } from "./pages/keys.ts";
import { login } from "./pages/login.ts";
import { overview } from "./pages/overview.ts";
import { rules } from "./pages/rules.ts";
import { tenants } from "./pages/tenants.ts";
import { tryIt } from "./pages/try.ts";
import { announce, notices, tell, warn } from "./parts/notice.ts";
import { type PageName, href, parse } from "./pure/route.ts";
import { themeSwitch } from "./theme.ts";
import type { Me } from "./types.ts";

const OPEN: Record<PageName, Open> = { overview, rules, keys, caller, tenants, try: tryIt, audit };
const MENU: [PageName, string][] = [["overview", "Overview"], ["rules", "Rules"], ["keys", "Keys"], ["tenants", "Tenants"], ["try", "Try it"], ["audit", "Audit"]];

/** How long until a server that can't be reached is asked again who this is. */
const AGAIN_MS = 3_000;

const api = new Api();
const live = new Live(api);
const main = h("main", { id: "main", tabindex: -1 });
const header = h("header", {});
let end: () => void = () => {};

// A link to `#main` would be taken for a place in the dashboard.
const skip = h("a", { class: "skip", href: "#main", on: { click: (event) => (event.preventDefault(), main.focus()) } }, "Skip to the page");
document.body.append(skip, header, main, ...notices());
api.onUnknown = () => logOut("You are no longer logged in: the token is not known, or no longer in force.");
void begin();

async function begin(): Promise<void> {
  try {
    enter(await whoami());
  } catch (error) {
    if (error instanceof Refused) return showLogin(error.isUnknown ? undefined : inWords(error));
    main.replaceChildren(h("p", { class: "fault", role: "alert" }, `${inWords(error)}; trying again`));
    setTimeout(() => void begin(), AGAIN_MS);
  }
}

/** Being unknown at first is no reason to say that one is so no longer. */
async function whoami(): Promise<Me> {
  const onUnknown = api.onUnknown;
  api.onUnknown = () => {};
  try {
    return await api.get<Me>("/admin/v1/me");
  } finally {
    api.onUnknown = onUnknown;
  }
}

function showLogin(why?: string): void {
  end();
  end = () => {};
  live.close();
  document.title = "Log in · Tollgate";
  const onUnknown = api.onUnknown;
  api.onUnknown = () => {};
  const accepted = (me: Me) => {
    api.onUnknown = onUnknown;
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
  const house: House = { api, live, me };
  const links = new Map(MENU.map(([page, label]) => [page, h("a", { href: href(page) }, label)]));
  const who = h("span", { class: "who", title: `scopes: ${me.scopes.join(", ")}` }, me.open ? `${me.name} (no token is needed)` : me.name);
  const leave = !me.open && h("button", { type: "button", class: "quiet", on: { click: () => logOut() } }, "Log out");
  const status = state(house);
  header.replaceChildren(
    h("strong", { class: "brand" }, "Tollgate"),
    h("nav", { "aria-label": "Pages" }, h("ul", {}, [...links.values()].map((link) => h("li", {}, link)))),
    h("div", { class: "about" }, status.node, who, themeSwitch(), leave || ""),
  );
  let page: Page | undefined;
  const turn = () => {
    const route = parse(location.hash);
    page?.close?.();
    page = OPEN[route.page](house, route);
    live.open(page.withRules ?? false);
    document.title = `${page.title} · Tollgate`;
    for (const [name, link] of links) {
      if (name === route.page || (name === "keys" && route.page === "caller")) link.setAttribute("aria-current", "page");
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

/** Whether this is live, and how the counters' store is: seen on every page, and said when it changes. */
function state({ live }: House): { node: HTMLElement; close(): void } {
  const [stream, store] = [h("span", { class: "state", "data-test": "live" }), h("span", { class: "state", hidden: true })];
  let [level, wasLive] = ["normal", true];
  const ends = [
    live.watch((now) => {
      stream.dataset["state"] = now.live ? "good" : "bad";
      say(stream, now.live ? "● live" : `○ not live: ${now.why}`);
      // Each try that fails is shown, and only the first is said.
      if (now.live !== wasLive) announce(now.live ? "The numbers are live." : `Not live: ${now.why}`);
      wasLive = now.live;
    }),
    live.on("overview", (now) => {
      if (now.store.level !== level) announce(`The counters’ store is ${now.store.level}.`);
      level = now.store.level;
      store.hidden = level === "normal";
      store.dataset["state"] = "bad";
      say(store, `⚠ store ${level}`);
    }),
    live.on("reload", (now) => {
      if (now.valid) tell(`Rules of generation ${now.generation} are in force.`);
      else warn(new Error(`The rules could not be loaded, the last good ones stay in force: ${now.error ?? "?"}`));
    }),
  ];
  return { node: h("span", { class: "states" }, stream, store), close: () => ends.forEach((one) => one()) };
}
