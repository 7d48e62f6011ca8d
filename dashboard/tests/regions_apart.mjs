// A server whose other region can't be reached: that is said at the top, and what it means for each rule.

import assert from "node:assert/strict";
import test from "node:test";
import { card, check, go, on, until } from "./browser.mjs";

test("a region that is apart is said first, marked, and explained", () =>
  on({}, async (page) => {
    await go(page, "regions", "Regions");
    await until("the regions are apart", async () => {
      await check("ada");
      return (await page.locator("[data-test=regions-link]").innerText()) === "apart";
    });
    await card(page, "Regions").getByRole("row", { name: /^eu-west ⚠ apart / }).waitFor();
    await card(page, "Limits over several regions").getByText("⚠ the whole limit, without what eu-west admits").waitFor();
    await go(page, "", "Overview");
    const status = page.locator("[data-test=status]");
    await status.getByText("Something is wrong").waitFor();
    await status.getByText(/eu-west is apart: debits do not arrive there/).waitFor();
    await status.getByRole("link", { name: "Regions" }).click();
    await page.getByRole("heading", { level: 1, name: "Regions" }).waitFor();
    assert.match(page.url(), /#\/regions$/);
  }));
