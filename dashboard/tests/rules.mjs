// The table of rules: found, sorted, switched, also where there are a thousand.

import assert from "node:assert/strict";
import test from "node:test";
import { GUARDED, TOKEN, check, checks, go, on, until } from "./browser.mjs";

/** Switches a rule's mode as a user does. */
async function switchMode(page, rule, mode) {
  await page.getByRole("button", { name: `Mode of ${rule}:` }).click();
  const dialog = page.getByRole("dialog", { name: `Mode of ${rule}` });
  await dialog.getByRole("radio", { name: mode }).check();
  await dialog.getByRole("textbox", { name: "Reason" }).fill("a test");
  await dialog.getByRole("button", { name: "Switch" }).click();
  await dialog.waitFor({ state: "detached" });
}

test("switching a rule's mode changes what its traffic gets", () =>
  on({}, async (page) => {
    assert.equal(await checks("switched", 11), 429);
    await go(page, "rules", "Rules");
    await switchMode(page, "per-user", "shadow");
    await page.getByRole("button", { name: "Mode of per-user: shadow. Switch" }).waitFor();
    await until("what was refused passes", async () => (await check("switched")) === 200);
    const row = page.getByRole("row", { name: /per-user/ });
    await checks("switched", 10);
    await until("what it would have refused is shown", async () => /\d+ total/.test(await row.textContent()));
    await switchMode(page, "per-user", "enforce");
    await page.getByRole("button", { name: "Mode of per-user: enforce. Switch" }).waitFor();
    await until("it is refused again", async () => (await check("switched")) === 429);
  }));

test("a dialog closes by Escape, changes nothing, and gives the focus back", () =>
  on({}, async (page) => {
    await go(page, "rules", "Rules");
    const button = page.getByRole("button", { name: "Mode of per-user: enforce. Switch" });
    await button.focus();
    await page.keyboard.press("Enter");
    const dialog = page.getByRole("dialog");
    await dialog.waitFor();
    for (let presses = 0; presses < 12; presses += 1) {
      await page.keyboard.press("Tab");
      // Past its last control the browser's own are next, never the page behind.
      assert.ok(await page.evaluate(() => document.activeElement === document.body || document.activeElement.closest("dialog") !== null));
    }
    await page.keyboard.press("Escape");
    await dialog.waitFor({ state: "detached" });
    await until("the focus is back", () => button.evaluate((element) => element === document.activeElement));
    assert.equal(await checks("not-switched", 11), 429);
  }));

test("a thousand rules can be searched, sorted and turned over", () =>
  on({ base: GUARDED, token: TOKEN }, async (page) => {
    await go(page, "rules", "Rules", GUARDED);
    await page.getByText("1,000 rules").waitFor();
    await page.getByText("page 1 of 20").waitFor();
    assert.equal(await page.locator("tbody tr").count(), 50);
    const first = page.locator("tbody tr").first();
    await page.getByRole("button", { name: "Rule", exact: true }).click();
    await until("it is sorted by name", async () => (await first.textContent()).startsWith("rule-0000"));
    await page.getByRole("button", { name: "Next" }).click();
    await until("the second page is there", async () => (await first.textContent()).startsWith("rule-0050"));
    await page.getByRole("searchbox", { name: "Search rules" }).fill("ULE-099");
    await page.getByText("10 rules of 1000").waitFor();
    assert.equal(await page.locator("tbody tr").count(), 10);
    await page.getByRole("searchbox", { name: "Search rules" }).fill("no such rule");
    await page.getByText("No matching rules.").waitFor();
  }));
