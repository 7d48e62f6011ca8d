// The pictures of the README and the docs: four minutes of traffic, and what the dashboard shows of it.

import test from "node:test";
import { ADMIN, go, on } from "./browser.mjs";
import { NOISY_FROM, picture, second, shot } from "./shop.mjs";

const SECONDS = 240;

async function write(place, body) {
  const answer = await fetch(`${ADMIN}/admin/v1/${place}`, { method: "PUT", body: JSON.stringify(body), headers: { "Content-Type": "application/json" } });
  if (!answer.ok) throw new Error(await answer.text());
}

test("pictures", () =>
  on({ viewport: { width: 1280, height: 860 } }, async (page) => {
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
    await shot(page, "overview");
    await page.emulateMedia({ colorScheme: "dark" });
    await shot(page, "overview-dark");
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
    await shot(page, "mode");
    await page.keyboard.press("Escape");
    await go(page, "keys?by=refusals&window=5m", "Keys");
    await page.getByRole("link", { name: "noisy_neighbour" }).first().waitFor();
    await picture(page, "keys");
    await go(page, "caller?name=noisy_neighbour", "Caller noisy_neighbour");
    await page.getByText("✕ refused").first().waitFor();
    await shot(page, "caller");
    await go(page, "controls", "Controls");
    await page.getByRole("link", { name: "scraper" }).waitFor();
    await picture(page, "controls");
    await go(page, "caller?name=noisy_neighbour", "Caller noisy_neighbour");
    await page.getByText("✕ refused").first().waitFor();
    await page.setViewportSize({ width: 390, height: 844 });
    await page.emulateMedia({ colorScheme: "dark" });
    await shot(page, "caller-phone");
    await go(page, "", "Overview");
    await page.getByText("allowed").first().waitFor();
    await page.waitForTimeout(2_000);
    await shot(page, "overview-phone");
    isOver = true;
    await goesOn;
  }));
