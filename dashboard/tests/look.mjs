// How it looks: light, dark, on a phone, and by keyboard.

import assert from "node:assert/strict";
import test from "node:test";
import { checks, go, on, until } from "./browser.mjs";

const PLACES = [
  ["", "Overview"], ["rules", "Rules"], ["keys", "Keys"], ["caller?name=phone", "Caller phone"],
  ["rule?domain=api&name=per-user", "Rule per-user"], ["tenants", "Tenants"], ["controls", "Controls"], ["hot", "Hot keys"], ["gateway", "Gateway"], ["regions", "Regions"], ["try", "Try it"], ["audit", "Audit"],
];

test("a phone shows every page without scrolling sideways", () =>
  on({ viewport: { width: 360, height: 740 }, colorScheme: "dark", hasTouch: true }, async (page) => {
    await checks("phone", 12);
    for (const [place, title] of PLACES) {
      await go(page, place, title);
      await page.waitForLoadState("load");
      await until(`${title} has something to show`, async () => (await page.locator("main").innerText()).length > 60);
      const [wide, screen] = await page.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
      assert.ok(wide <= screen, `${title}: ${wide} of ${screen}`);
    }
  }));

test("the dark is dark, and can be switched", () =>
  on({ colorScheme: "dark" }, async (page) => {
    const ground = () => page.evaluate(() => getComputedStyle(document.documentElement).backgroundColor);
    await go(page, "", "Overview");
    assert.equal(await ground(), "rgb(13, 17, 22)");
    await page.getByRole("button", { name: "Theme: system" }).click();
    assert.equal(await ground(), "rgb(243, 245, 248)");
    await page.reload();
    await page.getByRole("button", { name: "Theme: light" }).click();
    assert.equal(await ground(), "rgb(13, 17, 22)");
  }));

test("everything is reached by keyboard", () =>
  on({}, async (page) => {
    await go(page, "", "Overview");
    const focused = () => page.evaluate(() => document.activeElement?.textContent);
    await page.reload();
    await page.getByRole("heading", { level: 1, name: "Overview" }).waitFor();
    // A page that was turned to has the focus on its title; before it are the way past the menu and the menu.
    const backTo = async (name) => {
      for (let presses = 0; presses < 12 && (await focused()) !== name; presses += 1) await page.keyboard.press("Shift+Tab");
      assert.equal(await focused(), name);
    };
    await page.keyboard.press("Shift+Tab");
    assert.match(await focused(), /^Theme/);
    await backTo("Skip to the page");
    await page.keyboard.press("Enter");
    assert.equal(await page.evaluate(() => document.activeElement?.id), "main");
    await backTo("Rules");
    await page.keyboard.press("Enter");
    await page.getByRole("heading", { level: 1, name: "Rules" }).waitFor();
    assert.equal(await focused(), "Rules");
    const unnamed = await page.evaluate(() =>
      [...document.querySelectorAll("button, input, select, a")].filter((one) => !(one.textContent || one.getAttribute("aria-label") || one.closest("label") || one.labels?.length)).length);
    assert.equal(unnamed, 0);
  }));

test("it can be drawn, in the light and in the dark", () =>
  on({}, async (page) => {
    await checks("drawn", 12);
    for (const [place, title] of PLACES) {
      await go(page, place, title);
      await page.emulateMedia({ colorScheme: "dark" });
      assert.ok((await page.screenshot({ fullPage: true })).length > 10_000, title);
      await page.emulateMedia({ colorScheme: "light" });
    }
  }));
