// Login, rejected tokens, and missing scopes.

import assert from "node:assert/strict";
import test from "node:test";
import { GUARDED, READER, TOKEN, go, on } from "./browser.mjs";

test("a token is required, a wrong one rejected, the right one stored for the tab", () =>
  on({ base: GUARDED, expected: [/401/] }, async (page) => {
    await page.goto(`${GUARDED}/`);
    const token = page.getByLabel("Token");
    await token.fill("tg_wrong");
    await page.getByRole("button", { name: "Log in" }).click();
    await page.getByRole("alert").filter({ hasText: "The token was rejected" }).waitFor();
    assert.equal(await page.evaluate(() => sessionStorage.length), 0);

    await token.fill(TOKEN);
    await page.keyboard.press("Enter");
    await page.getByRole("heading", { level: 1, name: "Overview" }).waitFor();
    await page.getByText("● live").waitFor();
    await page.reload();
    await page.getByRole("heading", { level: 1, name: "Overview" }).waitFor();

    await page.getByRole("button", { name: "Log out" }).click();
    await page.getByLabel("Token").waitFor();
    assert.equal(await page.evaluate(() => sessionStorage.length), 0);
  }));

test("a token that is no longer in force leads back to the login", () =>
  on({ base: GUARDED, token: TOKEN, expected: [/401/] }, async (page) => {
    await go(page, "keys", "Keys", GUARDED);
    await page.route("**/admin/v1/top*", (route) => route.continue({ headers: { ...route.request().headers(), authorization: "Bearer tg_old" } }));
    await page.getByRole("alert").filter({ hasText: "no longer logged in" }).waitFor();
    await page.getByLabel("Token").waitFor();
  }));

test("a reader sees which scopes are missing, and the buttons are disabled", () =>
  on({ base: GUARDED, token: READER }, async (page) => {
    await go(page, "rules", "Rules", GUARDED);
    await page.getByText(/Modes can't be switched here: .* lacks the scope “rules” or “emergency”/).waitFor();
    const button = page.getByRole("button", { name: /^Mode of/ }).first();
    await button.waitFor();
    assert.ok(await button.isDisabled());
    await go(page, "caller?name=somebody", "Caller somebody", GUARDED);
    for (const name of ["Override a limit…", "Change the tier…", "Reset counters…", "Block…"]) {
      assert.ok(await page.getByRole("button", { name }).isDisabled(), name);
    }
    await page.getByText(/The decision log is not shown: .* lacks the scope “audit”/).waitFor();
    await go(page, "tenants", "Tenants", GUARDED);
    await page.getByText(/Tenants are not shown: .* lacks the scope “quota” or “audit”/).waitFor();
    await go(page, "controls", "Controls", GUARDED);
    await page.getByText(/Blocks are not shown: .* lacks the scope “emergency” or “audit”/).waitFor();
    await page.getByText("No emergencies.").waitFor();
    for (const name of ["Switch all rules…", "Declare an emergency…", "Block…"]) {
      assert.ok(await page.getByRole("button", { name }).isDisabled(), name);
    }
    await go(page, "", "Overview", GUARDED);
    await page.getByText("Changes by operators are not listed: the scope “audit” is required.").waitFor();
    await page.getByRole("heading", { name: "No requests yet" }).waitFor();
    await page.getByText(/^curl -i http:.*"user_id":"ada"/).waitFor();
    await go(page, "audit", "Audit", GUARDED);
    await page.getByText(/The audit log is not shown: .* lacks the scope “audit”/).waitFor();
    await go(page, "keys", "Keys", GUARDED);
    await page.getByText("Keys are hashed").waitFor();
  }));
