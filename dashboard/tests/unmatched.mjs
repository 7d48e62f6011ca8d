// Requests that meet no rule are seen at one glance, with the name that is wrong.

import assert from "node:assert/strict";
import test from "node:test";
import { check, checks, go, on, until } from "./browser.mjs";

test("the overview says how many requests meet no rule, and which attribute no rule reads", () =>
  on({}, async (page) => {
    await go(page, "", "Overview");
    const tile = page.locator(".tile", { hasText: "No rule applies" });
    const share = () => tile.locator("[data-test=unmatched]").textContent();
    await until("nothing is wrong yet", async () => (await share()) === "0 %");
    assert.equal(await tile.evaluate((node) => node.classList.contains("hot")), false);
    await checks("known", 1);
    for (let sent = 0; sent < 3; sent += 1) assert.equal(await check(undefined, { userid: "typo" }), 200);
    await until("three of four meet no rule", async () => (await share()) === "75 %");
    await tile.getByText("no rule reads userid").waitFor();
    assert.equal(await tile.evaluate((node) => node.classList.contains("hot")), true);
    await page.locator("[data-test=status]").getByText("No rule applies to 75 % of the requests, which pass without a limit. No rule reads userid.").waitFor();
  }));
