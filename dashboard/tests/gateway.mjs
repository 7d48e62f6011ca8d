// A server with a gateway: routes, upstreams and caps are shown, and the shedding is switched.

import assert from "node:assert/strict";
import { createServer } from "node:http";
import test, { after } from "node:test";
import { ADMIN, admin, card, does, go, on, until } from "./browser.mjs";

const { GATEWAY, APP_SOCKET } = process.env;

const app = createServer((request, response) => response.writeHead(request.url === "/shop/old" ? 301 : 200).end("served"));
await new Promise((resolve) => app.listen(APP_SOCKET, resolve));
after(() => app.close());

/** One request through the gateway: its status. */
async function send(path, user) {
  const response = await fetch(`${GATEWAY}${path}`, { headers: { "X-User": user }, redirect: "manual" });
  await response.arrayBuffer();
  return response.status;
}

const mode = async (name) => (await admin("GET", "/admin/v1/gateway")).upstreams.find((upstream) => upstream.name === name).cap.mode;

test("routes, upstreams and servers are shown with what they did", () =>
  on({}, async (page) => {
    for (let sent = 0; sent < 5; sent += 1) assert.equal(await send("/shop/item", "ada"), 200);
    assert.equal(await send("/shop/item", "ada"), 429);
    assert.equal(await send("/shop/old", "bob"), 301);
    await go(page, "gateway", "Gateway");
    assert.equal(await page.getByRole("navigation", { name: "Pages" }).getByRole("link", { name: "Gateway" }).getAttribute("aria-current"), "page");
    const cells = async (row) => (await row.getByRole("cell").allTextContents()).map((text) => text.trim());
    const shop = card(page, "Routes").getByRole("row", { name: /^shop / });
    await shop.waitFor();
    const [matches, upstream, , ok, redirected, client, server, limited, shed] = await cells(shop);
    assert.deepEqual([matches, upstream, ok, redirected, client, server, limited, shed], ["/shop/*", "app", "5", "1", "1", "0", "1", "0"]);
    assert.equal(await page.locator("[data-test=gateway-limited]").textContent(), "1");
    await card(page, "Upstreams").getByRole("row", { name: /^app 1 server, healthy / }).waitFor();
    await card(page, "Upstreams").getByRole("row", { name: /^gone ⚠ 1 server: 1 unhealthy / }).waitFor();
    await page.getByText("⚠ no usable server: gone").waitFor();
    await card(page, "Servers").getByRole("row", { name: /unhealthy: health checks fail/ }).waitFor();
    // What is wrong is on the overview, too.
    await go(page, "", "Overview");
    await page.locator("[data-test=status]").getByText(/upstream `gone`: its server is unhealthy or ejected/).waitFor();
  }));

test("requests per second follow the traffic", () =>
  on({}, async (page) => {
    await go(page, "gateway", "Gateway");
    await until("there is a rate", async () => {
      await send("/shop/item", "eve");
      return !["–", "0"].includes(await page.locator("[data-test=gateway-rate]").textContent());
    });
  }));

test("the shedding of an upstream is switched, and of all", () =>
  on({}, async (page) => {
    await go(page, "gateway", "Gateway");
    const caps = card(page, "Adaptive concurrency");
    const row = caps.getByRole("row", { name: /^app / });
    await row.getByText("enforce").waitFor();
    assert.equal(await mode("app"), "enforce");
    const choose = (name) => (dialog) => dialog.getByRole("radio", { name: new RegExp(`^${name}`) }).check();
    await does(page, row.getByRole("button", { name: "Switch…" }), "Switch", choose("shadow"));
    await row.getByText("shadow").waitFor();
    assert.deepEqual([await mode("app"), await mode("gone")], ["shadow", "enforce"]);
    await does(page, "Switch all…", "Switch", choose("off"));
    await caps.getByRole("row", { name: /^gone / }).getByText("off", { exact: true }).waitFor();
    assert.deepEqual([await mode("app"), await mode("gone")], ["off", "off"]);
    const { items } = await admin("GET", "/admin/v1/audit?kind=gateway&newest&limit=1");
    assert.deepEqual([items[0].action, items[0].reason], ["gateway.shedding-off", "a test"]);
    await go(page, "", "Overview");
    await card(page, "What changed").getByText(/shedding of the gateway switched off by .* \(a test\)/).waitFor();
    await admin("PUT", "/admin/v1/gateway/shedding", { mode: "enforce" });
  }));

test("the worker shedder is shown and switched", () =>
  on({}, async (page) => {
    const worker = async () => (await admin("GET", "/admin/v1/gateway")).worker;
    const before = (await worker()).mode;
    await go(page, "gateway", "Gateway");
    const row = card(page, "Worker shedder").getByRole("row", { name: /^worker / });
    await row.getByText(before, { exact: true }).waitFor();
    await does(page, row.getByRole("button", { name: "Switch…" }), "Switch", (dialog) => dialog.getByRole("radio", { name: /^shadow/ }).check());
    await row.getByText("shadow", { exact: true }).waitFor();
    assert.equal((await worker()).mode, "shadow");
    const { items } = await admin("GET", "/admin/v1/audit?kind=gateway&newest&limit=1");
    assert.deepEqual(items[0].after, { shedding: "shadow", shedder: "worker", upstream: null });
    await admin("PUT", "/admin/v1/gateway/shedding", { mode: before, shedder: "worker" });
  }));

test("a phone shows the gateway without scrolling sideways, in the dark", () =>
  on({ viewport: { width: 360, height: 740 }, colorScheme: "dark", hasTouch: true }, async (page) => {
    await go(page, "gateway", "Gateway");
    await card(page, "Servers").getByText("✓ healthy").waitFor();
    const [wide, screen] = await page.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
    assert.ok(wide <= screen, `${wide} of ${screen}`);
    if (process.env.PICTURES) await page.screenshot({ path: `${process.env.PICTURES}/gateway-phone.png`, fullPage: true });
  }));

test("it can be drawn, in the light and in the dark", () =>
  on({}, async (page) => {
    await go(page, "gateway", "Gateway");
    await card(page, "Servers").getByText("✓ healthy").waitFor();
    for (const colorScheme of ["light", "dark"]) {
      await page.emulateMedia({ colorScheme });
      const drawn = await page.screenshot({ fullPage: true, ...(process.env.PICTURES && { path: `${process.env.PICTURES}/gateway-${colorScheme}.png` }) });
      assert.ok(drawn.length > 10_000);
    }
    assert.ok(page.url().startsWith(ADMIN));
  }));
