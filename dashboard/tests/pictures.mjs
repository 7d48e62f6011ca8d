// The pictures of the README and the docs: four minutes of traffic, and what the dashboard shows of it.

import { mkdirSync } from "node:fs";
import path from "node:path";
import test from "node:test";
import { ADMIN, check, go, on } from "./browser.mjs";

const { PICTURES } = process.env;
const SECONDS = 240;
const CALLERS = 60;
/** What the callers of a second ask for together. */
const REQUESTS = 90;
/** From this second on one of them can't get enough. */
const NOISY_FROM = 170;

const ENDPOINTS = ["GET /search", "GET /items", "GET /items", "GET /items", "POST /orders", "POST /exports"];

/** Some callers ask often and most ask rarely: the second half as often as the first, the third a third as often. */
function caller() {
  const weights = Array.from({ length: CALLERS }, (_, at) => 1 / (at + 1));
  let left = Math.random() * weights.reduce((all, one) => all + one);
  const at = weights.findIndex((weight) => (left -= weight) <= 0);
  return `user_${at + 1}`;
}

/** At some moment within a second. */
async function send(user, endpoint) {
  await new Promise((resolve) => setTimeout(resolve, Math.random() * 1000));
  await check(user, { endpoint });
}

async function second(number) {
  const tide = 1 + 0.35 * Math.sin(number / 9);
  const any = () => send(caller(), ENDPOINTS[Math.floor(Math.random() * ENDPOINTS.length)]);
  const sent = Array.from({ length: Math.round(REQUESTS * tide) }, any);
  if (number >= NOISY_FROM) sent.push(...Array.from({ length: 45 }, () => send("noisy_neighbour", "GET /items")));
  sent.push(...Array.from({ length: 4 }, () => send("scraper", "GET /items")));
  await Promise.all([...sent, new Promise((resolve) => setTimeout(resolve, 1000))]);
}

async function picture(page, name) {
  await page.screenshot({ fullPage: true, path: path.join(PICTURES, `${name}.png`) });
}

async function write(place, body) {
  const answer = await fetch(`${ADMIN}/admin/v1/${place}`, { method: "PUT", body: JSON.stringify(body), headers: { "Content-Type": "application/json" } });
  if (!answer.ok) throw new Error(await answer.text());
}

test("pictures", () =>
  on({ viewport: { width: 1280, height: 860 } }, async (page) => {
    mkdirSync(PICTURES, { recursive: true });
    await write("blocks/scraper", { reason: "takes the whole catalogue every night", for: "24h" });
    await write("quotas/user_1", { tier: "enterprise", reason: "contract 4711" });
    await write("quotas/user_2", { tier: "pro", overrides: [{ rule: "orders", limit: "60/minute", expires_at: "2100-01-01T00:00:00Z" }], reason: "their sale" });
    await go(page, "", "Overview");
    for (let number = 0; number < SECONDS; number += 1) {
      await second(number);
      if (number === NOISY_FROM + 15) await write("switches/domains/api/rules/exports", { mode: "shadow", reason: "a report is late", for: "1h" });
    }
    let isOver = false;
    const goesOn = (async () => {
      for (let number = SECONDS; !isOver; number += 1) await second(number);
    })();
    await page.screenshot({ path: path.join(PICTURES, "overview.png") });
    await page.emulateMedia({ colorScheme: "dark" });
    await page.screenshot({ path: path.join(PICTURES, "overview-dark.png") });
    await page.emulateMedia({ colorScheme: "light" });
    await go(page, "rules", "Rules");
    await page.getByRole("rowheader", { name: "per-user" }).waitFor();
    await picture(page, "rules");
    await go(page, "rule?domain=api&name=per-user", "Rule per-user");
    await page.getByRole("link", { name: "noisy_neighbour" }).first().waitFor();
    // The server of the test has its files in a folder of its own.
    await page.locator("dd code", { hasText: "rules.yaml" }).evaluate((node) => (node.textContent = node.textContent.replace(/^.*\/rules\//, "rules/")));
    await picture(page, "rule");
    await go(page, "rules", "Rules");
    await page.getByRole("button", { name: /^Mode of search-v2/ }).click();
    await page.getByRole("radio", { name: "enforce" }).check();
    await page.screenshot({ path: path.join(PICTURES, "mode.png") });
    await page.keyboard.press("Escape");
    await go(page, "keys?by=refusals&window=5m", "Keys");
    await page.getByRole("link", { name: "noisy_neighbour" }).first().waitFor();
    await picture(page, "keys");
    await go(page, "caller?name=noisy_neighbour", "Caller noisy_neighbour");
    await page.getByText("✕ refused").first().waitFor();
    await page.screenshot({ path: path.join(PICTURES, "caller.png") });
    await go(page, "controls", "Controls");
    await page.getByRole("link", { name: "scraper" }).waitFor();
    await picture(page, "controls");
    await go(page, "caller?name=noisy_neighbour", "Caller noisy_neighbour");
    await page.getByText("✕ refused").first().waitFor();
    await page.setViewportSize({ width: 390, height: 844 });
    await page.emulateMedia({ colorScheme: "dark" });
    await page.screenshot({ path: path.join(PICTURES, "caller-phone.png") });
    await go(page, "", "Overview");
    await page.getByText("allowed").first().waitFor();
    await page.waitForTimeout(2_000);
    await page.screenshot({ path: path.join(PICTURES, "overview-phone.png") });
    isOver = true;
    await goesOn;
  }));
