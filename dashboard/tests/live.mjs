// Numbers come as they are counted, and the page says when they do not.

import assert from "node:assert/strict";
import test from "node:test";
import { checks, go, on, until } from "./browser.mjs";

const refused = (page) => page.locator(".tile", { hasText: "Refused per second" }).locator("small");

test("what is decided is seen without loading the page again", () =>
  on({ expected: [/ERR_FAILED/] }, async (page) => {
    await go(page, "", "Overview");
    await page.getByText("● live").waitFor();
    const counted = () => refused(page).textContent();
    const before = await until("the numbers are there", async () => /total/.test(await counted()) && (await counted()));
    // Polling would show it too.
    await page.route("**/admin/v1/overview", (route) => route.abort());
    await checks("noisy", 25);
    await until("the refusals are counted", async () => (await counted()) !== before);
  }));

test("a failed stream is reopened, and the page says so meanwhile", () =>
  on({ expected: [/ERR_FAILED/] }, async (page) => {
    await page.route("**/admin/v1/live*", (route) => route.abort());
    await go(page, "", "Overview");
    await page.getByText(/○ not live: the server can't be reached; trying again in \d+ s/).waitFor();
    await page.unroute("**/admin/v1/live*");
    await page.getByText("● live").waitFor();
  }));

test("the stream continues the history, and no second is drawn twice or left out", () =>
  on({}, async (page) => {
    await go(page, "", "Overview");
    await page.getByText("● live").waitFor();
    // The stream alone has to continue the lines.
    let requests = 0;
    page.on("request", (request) => (requests += request.url().includes("/admin/v1/history") ? 1 : 0));
    const before = requests;
    await page.waitForTimeout(3_500);
    assert.ok(requests - before <= 2, `the history was read ${requests - before} times: the stream leaves gaps`);
  }));
