// A server on Redis: hot keys are listed, purged, and leases are switched off and on.

import assert from "node:assert/strict";
import test from "node:test";
import { admin, card, check, does, go, on, until } from "./browser.mjs";

/** Runs a test while a caller sends requests, so that its key is leased. */
async function whileBusy(user, run) {
  let isOver = false;
  const sending = (async () => {
    while (!isOver) await Promise.all(Array.from({ length: 4 }, () => check(user)));
  })();
  try {
    await run();
  } finally {
    isOver = true;
    await sending;
  }
}

const leases = () => admin("GET", "/admin/v1/leases");

test("an idle server says when keys are leased", () =>
  on({}, async (page) => {
    await go(page, "hot", "Hot keys");
    await page.getByText("No key is busy enough on this server.").waitFor();
    assert.equal(await page.locator("[data-test=leases]").textContent(), "on");
    await page.getByRole("link", { name: "See the rules in force" }).click();
    await page.getByRole("heading", { level: 1, name: "Rules" }).waitFor();
  }));

test("a busy key is listed with links to its rule and its caller", () =>
  on({}, async (page) => whileBusy("busy", async () => {
    await go(page, "keys", "Keys");
    await page.getByRole("navigation", { name: "Lists of keys" }).getByRole("link", { name: "Hot keys" }).click();
    const row = page.getByRole("row", { name: /^busy leased api / });
    await row.waitFor();
    assert.equal(await page.getByRole("navigation", { name: "Pages" }).getByRole("link", { name: "Keys" }).getAttribute("aria-current"), "page");
    await until("most of its requests are decided without a call", async () => Number(await row.getByRole("meter").getAttribute("aria-valuenow")) > 50);
    await until("units are held", async () => (await page.locator("[data-test=units-held]").textContent()) !== "0");
    await row.getByRole("link", { name: "leased" }).click();
    await page.getByRole("heading", { level: 1, name: "Rule leased" }).waitFor();
    await page.goBack();
    await row.getByRole("link", { name: "busy" }).click();
    await page.getByRole("heading", { level: 1, name: "Caller busy" }).waitFor();
    await go(page, "", "Overview");
    await page.getByText(/^Leases are on: \d+ keys?, /).waitFor();
  })));

test("a key is purged, with a confirmation and a reason", () =>
  on({}, async (page) => whileBusy("purged", async () => {
    await go(page, "hot", "Hot keys");
    const row = page.getByRole("row", { name: /^purged leased / });
    await until("units are held", async () => (await leases()).keys.some((key) => key.key === "purged" && key.units_held > 0));
    const returned = (await leases()).units.returned;
    await row.getByRole("button", { name: "Purge…" }).click();
    const dialog = page.getByRole("dialog", { name: "Purge purged of leased" });
    await dialog.getByRole("button", { name: "Purge", exact: true }).click();
    assert.equal(await dialog.isVisible(), true, "there is no reason");
    await dialog.getByRole("textbox", { name: "Reason" }).fill("a test");
    await dialog.getByRole("button", { name: "Purge", exact: true }).click();
    await page.getByText(/^1 key purged: /).waitFor();
    await until("its units are given back", async () => (await leases()).units.returned > returned);
    const { items } = await admin("GET", "/admin/v1/audit?kind=lease&newest&limit=1");
    assert.deepEqual([items[0].action, items[0].after.key, items[0].reason], ["lease.purge", "purged", "a test"]);
  })));

test("leases are switched off and on", () =>
  on({}, async (page) => whileBusy("switched", async () => {
    await go(page, "hot", "Hot keys");
    await until("units are held", async () => (await leases()).units_held > 0);
    await does(page, "Switch leases off…", "Switch off");
    await page.getByText("Leases are off: Redis decides every request of this server.").waitFor();
    assert.equal((await leases()).enabled, false);
    await until("everything is given back", async () => (await leases()).units_held === 0);
    assert.equal(await page.getByRole("button", { name: "Purge all…" }).count(), 0);
    await go(page, "", "Overview");
    await page.getByText("Leases are off: Redis decides every request.").waitFor();
    await card(page, "What changed").getByText(/leases switched off by .* \(a test\)/).waitFor();
    await go(page, "hot", "Hot keys");
    await does(page, "Switch leases on…", "Switch on");
    await until("keys are leased again", async () => (await leases()).units_held > 0);
    await does(page, "Purge all…", "Purge");
    await page.getByText(/keys? purged: /).last().waitFor();
  })));
