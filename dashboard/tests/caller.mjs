// What is done about a caller is done to its traffic.

import assert from "node:assert/strict";
import test from "node:test";
import { check, checks, go, on, until } from "./browser.mjs";

/** Opens a dialog, fills it in, and confirms. */
async function does(page, button, confirm, fill = async () => {}) {
  await page.getByRole("button", { name: button }).click();
  const dialog = page.getByRole("dialog");
  await dialog.waitFor();
  const reason = dialog.getByRole("textbox", { name: "Reason" });
  if (await reason.count()) await reason.fill("a test");
  await fill(dialog);
  await dialog.getByRole("button", { name: confirm }).click();
  await dialog.waitFor({ state: "detached" });
}

test("a caller is reset, given another limit and tier, blocked and let in again", () =>
  on({}, async (page) => {
    assert.equal(await checks("customer", 11), 429);
    await go(page, "caller?name=customer", "Caller customer");
    await page.getByText("100 % full").first().waitFor();
    await page.getByText("✕ refused").first().waitFor();

    await does(page, "Reset counters…", "Reset the counters");
    await until("it passes after a reset", async () => (await check("customer")) === 200);

    const limited = (limit) => (dialog) => dialog.getByRole("textbox", { name: "Limit" }).fill(limit);
    await does(page, "Override a limit…", "Set the limit", async (dialog) => {
      await dialog.getByLabel("Rule", { exact: true }).selectOption("per-user");
      await limited("20/hour")(dialog);
    });
    await page.getByRole("row", { name: /per-user 20\/hour/ }).first().waitFor();
    assert.equal(await checks("customer", 15), 200);

    await does(page, "Change the tier…", "Change the tier", (dialog) => dialog.getByLabel("Tier", { exact: true }).selectOption("pro"));
    await page.locator("dd", { hasText: "pro" }).waitFor();
    assert.equal(await page.getByRole("row", { name: /per-user 20\/hour/ }).count() > 0, true, "the override stays");

    await does(page, "Block…", "Block");
    await page.getByText(/■ with 403, until/).waitFor();
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
