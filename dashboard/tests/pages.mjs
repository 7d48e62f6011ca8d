// Every page loads, shows what the server knows, and complains of nothing.

import assert from "node:assert/strict";
import test from "node:test";
import { admin, card, checks, go, on, until } from "./browser.mjs";

/** A caller with a name that would be markup, were it ever taken for it. */
const HOSTILE = `<img src=x onerror="document.title='owned'">`;

test("the overview shows decisions, the store, the rules and the servers", () =>
  on({}, async (page) => {
    await checks("seen", 3);
    await go(page, "", "Overview");
    await page.getByText(/rules in 1 domain, generation \d+/).waitFor();
    const counters = card(page, "Counter store");
    await counters.getByText("memory").first().waitFor();
    await counters.getByText("✓ closed").waitFor();
    await page.getByRole("row", { name: /\(this one\)/ }).waitFor();
    assert.equal(await page.locator(".uplot canvas").count(), 2);
    await page.locator("[data-test=status]").getByText(/decisions\/s/).waitFor();
    await card(page, "What changed").getByText(/ started, version /).waitFor();
    for (const [range, text] of [["2h", "2 h"], ["24h", "24 h"], ["10m", "10 min"]]) {
      const read = page.waitForResponse((response) => response.url().endsWith(`history?range=${range}`));
      await page.getByRole("group", { name: "Range of the charts" }).getByRole("button", { name: text, exact: true }).click();
      assert.equal((await read).status(), 200);
    }
  }));

test("the overview says who is refused and by which rule, and what is wrong", () =>
  on({}, async (page) => {
    await checks("loud", 30);
    await go(page, "", "Overview");
    await card(page, "Most refused callers").getByRole("link", { name: "loud" }).first().waitFor();
    await card(page, "Rules that refuse most").getByRole("link", { name: "per-user" }).waitFor();
    const status = page.locator("[data-test=status]");
    await status.getByText("All is well").waitFor();
    await admin("PUT", "/admin/v1/switches/domains/api/rules/everyone", { mode: "off", reason: "a trial", for: "1h" });
    await status.getByText("Look here").waitFor();
    await status.getByText("Switched off: everyone.").waitFor();
    await card(page, "What changed").getByText(/everyone.*switched by .* \(a trial\)/).waitFor();
    await admin("DELETE", "/admin/v1/switches/domains/api/rules/everyone");
    await status.getByText("All is well").waitFor();
    await card(page, "Rules that refuse most").getByRole("link", { name: "per-user" }).click();
    await page.getByRole("heading", { level: 1, name: "Rule per-user" }).waitFor();
  }));

test("keys and a caller's page show hostile names as what they are", () =>
  on({}, async (page) => {
    await checks(HOSTILE, 30);
    await go(page, "keys?by=decisions&window=1m", "Keys");
    const link = page.getByRole("link", { name: HOSTILE, exact: true }).first();
    await link.click();
    await page.getByRole("heading", { level: 1, name: `Caller ${HOSTILE}` }).waitFor();
    await page.getByRole("rowheader", { name: "per-user" }).first().waitFor();
    await until("the refusals are shown", async () => (await page.getByText("✕ refused").count()) > 0);
    assert.equal(await page.locator("img").count(), 0);
    assert.match(await page.title(), /^Caller <img/);
  }));

test("lists of keys follow the filters, and are searched by parts of names", () =>
  on({}, async (page) => {
    await checks("refused-often", 40);
    await go(page, "keys", "Keys");
    assert.equal(await page.getByLabel("By", { exact: true }).inputValue(), "refusals");
    await page.getByRole("link", { name: "refused-often" }).first().waitFor();
    await page.getByLabel("Over", { exact: true }).selectOption("1h");
    await page.getByLabel("By", { exact: true }).selectOption("decisions");
    await page.getByRole("searchbox", { name: "Search keys and rules" }).fill("NEW-i");
    await until("the address says what is shown", () => /window=1h.*search=NEW-i/.test(page.url()));
    const rules = () => page.locator("tbody td:nth-child(3) a").allTextContents();
    await until("only keys of that rule are there", async () => (await rules()).length > 0 && (await rules()).every((rule) => rule === "new-idea"));
    await page.getByRole("searchbox", { name: "Search keys and rules" }).fill("fused-oft");
    const keys = () => page.locator("tbody th a").allTextContents();
    await until("that key is there, in one row", async () => (await keys()).join() === "refused-often");
    // Its other rules are there on demand, and stay open when the numbers come again.
    await page.getByText("and 1 more rule", { exact: true }).click();
    await page.locator("tbody li", { hasText: /^(per-user|new-idea): .* refused of \d+, 100 % used$/ }).waitFor();
    await page.waitForResponse((response) => response.url().includes("/admin/v1/top?"));
    assert.equal(await page.locator("tbody details").first().getAttribute("open"), "");
    await page.getByRole("searchbox", { name: "Search keys and rules" }).fill("no such key");
    await page.getByText("No key or rule has “no such key” in its name.").waitFor();
  }));

test("a long list of keys comes in pages", () =>
  on({}, async (page) => {
    for (let number = 0; number < 30; number += 1) await checks(`many-${number}`, 1);
    await go(page, "keys?by=decisions&search=many-", "Keys");
    await page.getByText(/page 1 of [2-9]/).waitFor();
    assert.equal(await page.locator("tbody tr").count(), 25);
    await page.getByRole("button", { name: "Next" }).click();
    await page.getByText(/page 2 of/).waitFor();
  }));

test("rows of keys are numbered without gaps", () =>
  on({}, async (page) => {
    for (const user of ["numbered-1", "numbered-2", "numbered-3"]) await checks(user, 3);
    await go(page, "keys?by=decisions&search=numbered-", "Keys");
    await until("they are there", async () => (await page.locator("tbody tr").count()) === 3);
    assert.deepEqual(await page.locator("tbody td:first-child").allTextContents(), ["1", "2", "3"]);
  }));

test("without Redis there are no hot keys, and the page says so", () =>
  on({}, async (page) => {
    await go(page, "hot", "Hot keys");
    await page.getByText("Nothing is leased: the counters of this server are in memory, and need no calls.").waitFor();
    assert.equal(await page.getByRole("button", { name: /leases/ }).count(), 0);
    await page.getByRole("navigation", { name: "Lists of keys" }).getByRole("link", { name: "Top keys" }).click();
    await page.getByRole("heading", { level: 1, name: "Keys" }).waitFor();
  }));

test("tenants have their tiers, and can be found", () =>
  on({}, async (page) => {
    await go(page, "tenants", "Tenants");
    await page.getByRole("rowheader", { name: "free (default)" }).waitFor();
    await page.getByRole("link", { name: "tenant-a" }).waitFor();
    await page.getByText("per-user: 500/hour, until").waitFor();
    await page.getByRole("searchbox", { name: "Search tenants" }).fill("nobody");
    await page.getByText("No tenants with their own quota.").waitFor();
  }));

test("a request can be tried, and takes nothing", () =>
  on({}, async (page) => {
    await checks("tried", 9);
    await go(page, "try", "Try it");
    for (const verdict of ["● It would pass.", "● It would pass.", "✕ It would be refused."]) {
      await page.getByLabel("Value").first().fill("tried");
      if (verdict.startsWith("✕")) await page.getByLabel("Cost").fill("2");
      await page.getByRole("button", { name: "Explain" }).click();
      await page.getByRole("heading", { name: verdict }).waitFor();
    }
    await page.getByRole("rowheader", { name: "per-user" }).waitFor();
    await page.getByRole("button", { name: "Another attribute" }).click();
    const names = page.getByLabel("Attribute", { exact: true });
    await names.last().fill("user_id");
    await page.getByRole("button", { name: "Explain" }).click();
    await page.getByText("the attribute user_id is given twice").waitFor();
  }));

test("the audit log shows who did what, and what was there before", () =>
  on({}, async (page) => {
    await go(page, "audit", "Audit");
    const row = page.getByRole("row", { name: /quota\.put/ }).first();
    await row.getByText("contract 4711").waitFor();
    await row.getByText("tier:").waitFor();
    await page.getByLabel("Kind").selectOption("block");
    await until("other kinds are gone", async () => (await page.getByText("quota.put").count()) === 0);
  }));

test("what is not there is said", () =>
  on({ expected: [/404/] }, async (page) => {
    await go(page, "caller?name=x&domain=nowhere", "Caller x");
    await page.getByRole("alert").filter({ hasText: "there is no domain" }).waitFor();
  }));
