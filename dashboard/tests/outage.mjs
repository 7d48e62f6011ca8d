// A server whose Redis is gone: that is the first thing to see, on every page.

import assert from "node:assert/strict";
import test from "node:test";
import { card, checks, go, on, until } from "./browser.mjs";

test("a lost store is said first, marked, and shown on every page", () =>
  on({ viewport: { width: 1280, height: 800 } }, async (page) => {
    await checks("caller", 12);
    await go(page, "", "Overview");
    const status = page.locator("[data-test=status]");
    await status.getByText("Something is wrong").waitFor();
    await status.getByText(/The counter store has been (degraded|local-only)/).waitFor();
    const { y, height } = await status.boundingBox();
    assert.ok(y + height < 800, "it is above the fold");
    await until("the change is listed", async () => /the counter store is (degraded|local-only)/.test(await card(page, "What changed").innerText()));
    await card(page, "Counter store").getByText(/⚠ (degraded|local-only) since/).waitFor();
    await go(page, "rules", "Rules");
    await page.getByRole("link", { name: /⚠ store (degraded|local-only)/ }).waitFor();
  }));
