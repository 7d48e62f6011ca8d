// A server with another region: what is debited there, how late, and what it means for rules.

import assert from "node:assert/strict";
import test from "node:test";
import { card, checks, go, on, until } from "./browser.mjs";

test("regions are shown with their lag, their units and their rules", () =>
  on({}, async (page) => {
    await checks("ada", 20);
    await go(page, "regions", "Regions");
    assert.equal(await page.getByRole("navigation", { name: "Pages" }).getByRole("link", { name: "Regions" }).getAttribute("aria-current"), "page");
    const regions = card(page, "Regions");
    await regions.getByRole("row", { name: /^us-east \(this one\) – / }).waitFor();
    await regions.getByRole("row", { name: /^eu-west ✓ together / }).waitFor();
    await until("units were sent", async () => /^eu-west 20 0 0 0 0 0$/.test((await card(page, "Units that other regions count, too").getByRole("row").nth(1).innerText()).replace(/\s+/g, " ").trim()));
    await until("the lag is known", async () => /ms$/.test(await page.locator("[data-test=regions-lag]").innerText()));
    assert.equal(await page.locator("[data-test=regions-link]").innerText(), "together");
    const rules = card(page, "Limits over several regions");
    await rules.getByRole("row", { name: /^search api global: \{debit_threshold: 0%\} what one region admits counts in all/ }).waitFor();
    await rules.getByRole("row", { name: /^signups api home: us-east counted here, for all regions/ }).waitFor();
    await card(page, "Nodes of other regions").getByText("✓ closed").waitFor();
    await rules.getByRole("link", { name: "signups" }).click();
    await page.getByRole("heading", { level: 1, name: "Rule signups" }).waitFor();
    await page.getByText("home: us-east: that region counts, for all").waitFor();
  }));

test("a phone shows regions without scrolling sideways", () =>
  on({ viewport: { width: 360, height: 740 }, hasTouch: true }, async (page) => {
    await go(page, "regions", "Regions");
    await card(page, "Regions").getByText("eu-west").first().waitFor();
    const [wide, screen] = await page.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
    assert.ok(wide <= screen, `${wide} of ${screen}`);
  }));
