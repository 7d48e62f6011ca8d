// The page of a rule: what it says, what it does, its versions, and its switch.

import assert from "node:assert/strict";
import test from "node:test";
import { admin, card, check, checks, does, go, on, until } from "./browser.mjs";

test("a rule of a file has its conditions, limits, place, keys and a chart", () =>
  on({}, async (page) => {
    await checks("ordering", 3, { endpoint: "POST /orders/7" });
    await go(page, "rules", "Rules");
    await page.getByRole("link", { name: "orders", exact: true }).click();
    await page.getByRole("heading", { level: 1, name: "Rule orders" }).waitFor();
    await card(page, "Applies to").getByText('endpoint is "POST /orders*"').waitFor();
    await card(page, "Applies to").getByText("user_id, endpoint").waitFor();
    await card(page, "Limits").getByText("6/minute, sliding log").waitFor();
    await card(page, "Rule").getByText(/\.yaml:\d+$/).waitFor();
    await card(page, "Rule").getByRole("button", { name: "Mode of orders: soft. Switch" }).waitFor();
    await page.getByRole("link", { name: /ordering/ }).first().waitFor();
    await card(page, "What it does").locator(".uplot canvas").waitFor();
    assert.equal(await card(page, "Versions by API").isVisible(), false);
    await page.getByRole("group", { name: "Range of the chart" }).getByRole("button", { name: "24 h" }).click();
    await go(page, "rule?domain=api&name=per-user", "Rule per-user");
    await card(page, "Limits").getByRole("row", { name: /^free 10\/hour/ }).waitFor();
    await card(page, "Limits").getByRole("row", { name: /^pro 1000\/hour/ }).waitFor();
  }));

test("a rule by API has versions with differences, and is rolled back", () =>
  on({}, async (page) => {
    const rule = (limit) => ({ rule: { key: ["user_id"], match: { endpoint: "GET /versions" }, limit }, reason: `to ${limit}` });
    await admin("PUT", "/v1/ratelimit/config/versioned?domain=api", rule("3/hour"));
    await admin("PUT", "/v1/ratelimit/config/versioned?domain=api", rule("9/hour"));
    await go(page, "rule?domain=api&name=versioned", "Rule versioned");
    await card(page, "Rule").getByText("by API, version 2").waitFor();
    const versions = card(page, "Versions by API");
    const newest = versions.getByRole("row", { name: /^2 \(newest\) active .* to 9\/hour/ });
    await newest.getByText("to version 1").click();
    await newest.getByText("3/hour").waitFor();
    await does(page, versions.getByRole("button", { name: "Roll back…" }), "Roll back", (dialog) => dialog.getByText("limit: 9/hour → 3/hour").waitFor());
    await versions.getByRole("rowheader", { name: "3 (newest)" }).waitFor();
    await card(page, "Rule").getByText("by API, version 3").waitFor();
    assert.equal(await checks("versions", 4, { endpoint: "GET /versions" }), 429);
    await admin("DELETE", "/v1/ratelimit/config/versioned?domain=api");
  }));

test("the kill switch of a rule is on its page", () =>
  on({}, async (page) => {
    assert.equal(await checks("killed", 11), 429);
    await go(page, "rule?domain=api&name=per-user", "Rule per-user");
    const mode = page.getByRole("button", { name: /^Mode of per-user/ });
    await until("the mode is known", async () => (await mode.textContent()) === "enforce");
    await does(page, mode, "Switch", (dialog) => dialog.getByRole("radio", { name: "off" }).check());
    await until("it passes", async () => (await check("killed")) === 200);
    await does(page, page.getByRole("button", { name: "Mode of per-user: off. Switch" }), "Switch", (dialog) => dialog.getByRole("radio", { name: "as in the file" }).check());
    await page.getByRole("button", { name: "Mode of per-user: enforce. Switch" }).waitFor();
  }));

test("a rule that is not there is said", () =>
  on({ expected: [/404/] }, async (page) => {
    await go(page, "rule?domain=api&name=nothing", "Rule nothing");
    await page.getByRole("alert").filter({ hasText: "has no rule" }).waitFor();
  }));
