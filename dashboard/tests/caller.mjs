// What is done about a caller is done to its traffic.

import assert from "node:assert/strict";
import test from "node:test";
import { admin, card, check, checks, does, go, on, until } from "./browser.mjs";

test("a caller is reset, given another limit and tier, blocked and let in again", () =>
  on({}, async (page) => {
    assert.equal(await checks("customer", 11), 429);
    await go(page, "caller?name=customer", "Caller customer");
    await page.getByText("100 % full").first().waitFor();
    await page.getByText("✕ refused").first().waitFor();
    await card(page, "Refusals per second").locator(".uplot canvas").waitFor();
    await card(page, "Refusals per second").getByText(/From the decision log: all refusals of the last 10 min/).waitFor();
    for (const range of ["2 h", "24 h"]) {
      await card(page, "Refusals per second").getByRole("button", { name: range, exact: true }).click();
      await card(page, "Refusals per second").getByText(`all refusals of the last ${range}`).waitFor();
    }
    // The rule in shadow mode is marked.
    await page.getByRole("row", { name: /new-idea .*shadow/ }).first().waitFor();

    await does(page, "Reset counters…", "Reset the counters");
    await until("it passes after a reset", async () => (await check("customer")) === 200);

    const limited = (limit) => (dialog) => dialog.getByRole("textbox", { name: "Limit" }).fill(limit);
    await does(page, "Override a limit…", "Set the limit", async (dialog) => {
      await dialog.getByLabel("Rule", { exact: true }).selectOption("per-user");
      await limited("20/hour")(dialog);
    });
    await page.getByRole("row", { name: /per-user 20\/hour/ }).first().waitFor();
    assert.equal(await checks("customer", 15), 200);
    await does(page, card(page, "Quota").getByRole("button", { name: "Change…" }), "Set the limit", limited("30/hour"));
    await page.getByRole("row", { name: /per-user 30\/hour/ }).first().waitFor();

    await does(page, "Change the tier…", "Change the tier", (dialog) => dialog.getByLabel("Tier", { exact: true }).selectOption("pro"));
    await page.locator("dd", { hasText: "pro" }).waitFor();
    assert.equal(await page.getByRole("row", { name: /per-user 30\/hour/ }).count() > 0, true, "the override stays");
    await does(page, card(page, "Quota").getByRole("button", { name: "Remove…" }), "Remove the override");
    await page.getByText("No overrides.").waitFor();

    await does(page, "Block…", "Block");
    await page.getByText(/⚠ with 403, until/).waitFor();
    await until("it is refused", async () => (await check("customer")) === 403);
    await does(page, "End the block…", "End the block");
    await until("it passes again", async () => (await check("customer")) === 200);
  }));

test("what can't be is said in the dialog, and nothing is done", () =>
  on({ expected: [/422/] }, async (page) => {
    await go(page, "caller?name=mistaken", "Caller mistaken");
    await page.getByRole("rowheader", { name: "per-user" }).waitFor();
    await page.getByRole("button", { name: "Override a limit…" }).click();
    const dialog = page.getByRole("dialog");
    await dialog.getByRole("textbox", { name: "Limit" }).fill("a lot");
    await dialog.getByRole("textbox", { name: "Reason" }).fill("a test");
    await dialog.getByRole("button", { name: "Set the limit" }).click();
    await dialog.getByRole("alert").filter({ hasText: "a lot" }).waitFor();
    await dialog.getByRole("button", { name: "Cancel" }).click();
    await page.getByText("No overrides.").waitFor();
  }));

test("refusals of the same kind are one row, with their number, which opens", () =>
  on({}, async (page) => {
    assert.equal(await checks("repeated", 18), 429);
    await go(page, "caller?name=repeated", "Caller repeated");
    const row = card(page, "Recent decisions").getByRole("row", { name: /✕ refused 8 per-user/ });
    await row.waitFor();
    assert.match(await row.getByRole("rowheader").textContent(), /^\d\d:\d\d:\d\d\.\d{3} – /);
    await row.getByText("8 log entries").click();
    await until("each of them is listed", async () => (await row.locator(".entries li").count()) === 8);
  }));

test("a bucket never has more left than what is shown as its limit", () =>
  on({}, async (page) => {
    await admin("PUT", "/v1/ratelimit/config/bucket?domain=api", { rule: { key: ["user_id"], match: { bucket: "present" }, limit: "10/minute", algorithm: "token_bucket", burst: 25 } });
    await check("bursting", { bucket: "x" });
    await go(page, "caller?name=bursting", "Caller bursting");
    await page.getByText("10/minute, burst 25").waitFor();
    await page.getByText(/left of a burst of 25/).waitFor();
    await go(page, "try", "Try it");
    await page.getByLabel("Value").first().fill("bursting");
    await page.getByLabel("Attribute", { exact: true }).nth(1).fill("bucket");
    await page.getByLabel("Value").nth(1).fill("x");
    await page.getByRole("button", { name: "Explain" }).click();
    await page.getByText(/left of a burst of 25, refilled by 10 in 1m/).waitFor();
    await admin("DELETE", "/v1/ratelimit/config/bucket?domain=api");
  }));
