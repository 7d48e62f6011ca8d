// Tenants are added, changed and removed; lists have only what there is.

import assert from "node:assert/strict";
import test from "node:test";
import { admin, card, check, checks, does, go, on, until } from "./browser.mjs";

test("a tenant is added, gets an override, changes it, and is removed", () =>
  on({}, async (page) => {
    await go(page, "tenants", "Tenants");
    await page.getByRole("button", { name: "Add a tenant…" }).click();
    await page.getByRole("dialog").getByRole("textbox", { name: "Caller" }).fill("newcomer");
    await page.getByRole("dialog").getByRole("button", { name: "Next" }).click();
    const tier = page.getByRole("dialog", { name: "Change the tier of newcomer" });
    await tier.getByLabel("Tier", { exact: true }).selectOption("pro");
    await tier.getByRole("textbox", { name: "Reason" }).fill("a test");
    await tier.getByRole("button", { name: "Change the tier" }).click();
    await page.getByRole("heading", { level: 1, name: "Caller newcomer" }).waitFor();
    assert.equal(await checks("newcomer", 15), 200);

    await go(page, "tenants?prefix=newcomer", "Tenants");
    const row = card(page, "Tenants").getByRole("row", { name: /^newcomer/ });
    await does(page, row.getByRole("button", { name: "Add an override…" }), "Set the limit", async (dialog) => {
      await dialog.getByLabel("Rule", { exact: true }).selectOption("per-user");
      await dialog.getByRole("textbox", { name: "Limit" }).fill("16/hour");
    });
    await row.getByText("per-user: 16/hour").waitFor();
    await until("the override is in force", async () => (await checks("newcomer", 2)) === 429);
    await does(page, row.getByRole("button", { name: "Change the override of per-user" }), "Set the limit", (dialog) => dialog.getByRole("textbox", { name: "Limit" }).fill("40/hour"));
    await row.getByText("per-user: 40/hour").waitFor();
    await does(page, row.getByRole("button", { name: "Remove the override of per-user" }), "Remove the override");
    await until("it is gone", async () => (await row.getByText("per-user").count()) === 0);
    await does(page, row.getByRole("button", { name: "Change the tier of newcomer" }), "Change the tier", (dialog) => dialog.getByLabel("Tier", { exact: true }).selectOption("free"));
    await until("the tier is free", async () => /newcomer free/.test((await row.innerText()).replaceAll(/\s+/g, " ")));
    await does(page, row.getByRole("button", { name: "Remove…" }), "Remove the quota");
    await page.getByText("No tenants with their own quota.").waitFor();
    assert.equal(await check("newcomer"), 429);
  }));

test("there are pages only where there are more tenants, and selects only where there is a choice", () =>
  on({}, async (page) => {
    await go(page, "tenants", "Tenants");
    await page.getByRole("link", { name: "tenant-a" }).waitFor();
    assert.equal(await page.getByRole("button", { name: "Next" }).isVisible(), false);
    assert.equal(await page.getByLabel("Domain", { exact: true }).isVisible(), false, "there is one domain");
    assert.equal(await page.getByLabel("Tier", { exact: true }).isVisible(), true);
    for (let number = 0; number < 26; number += 1) await admin("PUT", `/admin/v1/quotas/paged-${String(number).padStart(2, "0")}`, { tier: "pro", reason: "a test" });
    await go(page, "tenants?prefix=paged-", "Tenants");
    await page.getByRole("button", { name: "Next" }).click();
    await page.getByRole("link", { name: "paged-25" }).waitFor();
    assert.equal(await page.getByRole("button", { name: "Next" }).isDisabled(), true);
    for (let number = 0; number < 26; number += 1) await admin("DELETE", `/admin/v1/quotas/paged-${String(number).padStart(2, "0")}`);
  }));
