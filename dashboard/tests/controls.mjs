// Switches, emergencies and blocks take effect on the traffic, and end.

import assert from "node:assert/strict";
import test from "node:test";
import { admin, card, check, checks, does, go, on, until } from "./browser.mjs";

test("all rules are switched to shadow, and back", () =>
  on({}, async (page) => {
    // A switch of a single rule goes before that of all.
    for (const { domain, rule } of (await admin("GET", "/admin/v1/switches")).items) await admin("DELETE", `/admin/v1/switches/domains/${domain}/rules/${rule}`);
    await until("the switches are gone", async () => (await checks("all-switched", 11)) === 429);
    await go(page, "controls", "Controls");
    await page.getByText("No switches: every rule has the mode of its file.").waitFor();
    await does(page, "Switch all rules…", "Switch", async (dialog) => {
      await dialog.getByRole("radio", { name: "shadow" }).check();
      await dialog.getByRole("checkbox").check();
    });
    await card(page, "Switches").getByRole("row", { name: /all rules .*shadow .* a test/ }).waitFor();
    await until("what was refused passes", async () => (await check("all-switched")) === 200);
    await does(page, card(page, "Switches").getByRole("button", { name: "Remove…" }), "Remove the switch");
    await until("it is refused again", async () => (await check("all-switched")) === 429);
    await page.getByText("No switches: every rule has the mode of its file.").waitFor();
  }));

test("a dangerous switch is not confirmed by accident", () =>
  on({}, async (page) => {
    await go(page, "controls", "Controls");
    await page.getByRole("button", { name: "Switch all rules…" }).click();
    const dialog = page.getByRole("dialog");
    await dialog.getByRole("radio", { name: "off" }).check();
    await dialog.getByRole("textbox", { name: "Reason" }).fill("a test");
    await dialog.getByRole("button", { name: "Switch", exact: true }).click();
    assert.equal(await dialog.isVisible(), true, "the box is not ticked");
    await dialog.getByRole("button", { name: "Cancel" }).click();
    await page.getByText("No switches: every rule has the mode of its file.").waitFor();
  }));

test("an emergency is declared and ended", () =>
  on({}, async (page) => {
    await go(page, "controls", "Controls");
    await does(page, "Declare an emergency…", "Declare the emergency", async (dialog) => {
      await dialog.getByRole("textbox", { name: "Name" }).fill("flood");
      await dialog.getByRole("textbox", { name: "Callers" }).fill("urgent-*");
      await dialog.getByRole("textbox", { name: "Limit" }).fill("50 %");
    });
    await card(page, "Emergencies").getByRole("row", { name: /flood all urgent-\* all 50 % of each limit/ }).waitFor();
    assert.equal(await checks("urgent-1", 6), 429);
    await go(page, "", "Overview");
    await page.locator("[data-test=status]").getByText(/Emergency flood is in force until .* a test/).waitFor();
    await go(page, "controls", "Controls");
    await does(page, card(page, "Emergencies").getByRole("button", { name: "End…" }), "End the emergency");
    await page.getByText("No emergencies.").waitFor();
    await until("the usual limit applies", async () => (await check("urgent-1")) === 200);
  }));

test("an address, a network and a caller are blocked and let in again", () =>
  on({}, async (page) => {
    await go(page, "controls", "Controls");
    const blocks = card(page, "Blocks");
    for (const [name, what, attributes] of [["198.51.100.7", "range", { remote_address: "198.51.100.7" }], ["203.0.113.0/24", "range", { remote_address: "203.0.113.9" }], ["intruder", "api", {}]]) {
      const user = what === "range" ? `visitor-${name}` : name;
      assert.equal(await check(user, attributes), 200);
      await does(page, blocks.getByRole("button", { name: "Block…" }), "Block", async (dialog) => {
        await dialog.getByLabel("What").selectOption(what);
        await dialog.getByRole("textbox", { name: "Name" }).fill(name);
      });
      await until(`${name} is refused`, async () => (await check(user, attributes)) === 403);
      const row = blocks.getByRole("row", { name: new RegExp(`^${name.replaceAll(".", "\\.")} .* 403 .* a test`) });
      await does(page, row.getByRole("button", { name: "End…" }), "End the block");
      await until(`${name} passes`, async () => (await check(user, attributes)) === 200);
    }
    await page.getByText("Nobody is blocked.").waitFor();
  }));

test("errors of the API are shown as they are, and the dialog stays", () =>
  on({ expected: [/422/] }, async (page) => {
    await go(page, "controls", "Controls");
    await card(page, "Blocks").getByRole("button", { name: "Block…" }).click();
    const dialog = page.getByRole("dialog");
    await dialog.getByLabel("What").selectOption("range");
    await dialog.getByRole("textbox", { name: "Name" }).fill("203.0.113.0/33");
    await dialog.getByRole("textbox", { name: "Reason" }).fill("a test");
    await dialog.getByRole("button", { name: "Block", exact: true }).click();
    await dialog.getByRole("alert").waitFor();
    assert.match(await dialog.getByRole("alert").textContent(), /203\.0\.113\.0\/33/);
  }));
