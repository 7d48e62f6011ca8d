// A browser whose pages must not log errors, and traffic for the server.

import assert from "node:assert/strict";
import { after } from "node:test";
import { chromium } from "playwright-core";

/** The open server, and the one with tokens, which has a thousand rules. */
export const { ADMIN, HTTP, GUARDED, TOKEN, READER } = process.env;
/** Time limit of everything that a test waits for: on a machine that compiles meanwhile, a page that takes one second took 14. */
export const TIMEOUT = 60_000;

const browser = await chromium.launch({
  executablePath: process.env.CHROMIUM,
  args: ["--no-sandbox", "--disable-background-networking", "--disable-component-update", "--no-first-run"],
});
after(() => browser.close());

/**
 * Runs a test on a page of its own. Whatever the page complains of fails it: errors, warnings, violations of the policy,
 * requests to anywhere else. `expected` are complaints that are part of the test.
 */
export async function on({ base = ADMIN, expected = [], token, ...look }, test) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, ...look });
  const page = await context.newPage();
  page.setDefaultTimeout(TIMEOUT);
  const complaints = [];
  const complain = (text) => expected.some((pattern) => pattern.test(text)) || complaints.push(text);
  page.on("console", (message) => ["error", "warning"].includes(message.type()) && complain(message.text()));
  page.on("pageerror", (error) => complain(String(error)));
  page.on("request", (request) => request.url().startsWith(`${base}/`) || complain(`requested ${request.url()}`));
  await page.exposeFunction("complain", complain);
  await page.addInitScript(() => addEventListener("securitypolicyviolation", (event) => window.complain(`policy: ${event.violatedDirective} ${event.blockedURI}`)));
  if (token) await page.addInitScript((text) => sessionStorage.setItem("tollgate.token", text), token);
  try {
    await test(page);
    assert.deepEqual(complaints, []);
  } finally {
    await context.close();
  }
}

/** Opens a page of the dashboard and waits for it. */
export async function go(page, place, title, base = ADMIN) {
  await page.goto(`${base}/#/${place}`);
  await page.getByRole("heading", { level: 1, name: title }).waitFor();
}

/** Waits until a condition holds. */
export async function until(what, isSo) {
  const end = Date.now() + TIMEOUT;
  let last;
  while (Date.now() < end) {
    last = await isSo();
    if (last) return last;
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
  assert.fail(`not in time: ${what}`);
}

/** One request of a caller: the status of the answer. */
export async function check(user, more = {}) {
  const body = JSON.stringify({ domain: "api", attributes: { user_id: user, ...more } });
  const response = await fetch(`${HTTP}/v1/ratelimit/check`, { method: "POST", body });
  await response.arrayBuffer();
  return response.status;
}

/** Sends requests of a caller in sequence and returns the last status. */
export async function checks(user, count, more = {}) {
  let status;
  for (let sent = 0; sent < count; sent += 1) status = await check(user, more);
  return status;
}

/** Sends JSON to the admin API of the open server, which must accept it. */
export async function admin(method, path, body) {
  const init = body === undefined ? { method } : { method, body: JSON.stringify(body), headers: { "Content-Type": "application/json" } };
  const answer = await fetch(`${ADMIN}${path}`, init);
  if (!answer.ok) throw new Error(`${method} ${path}: ${await answer.text()}`);
  return answer.json();
}

/** Opens a dialog, fills it in, and confirms. */
export async function does(page, button, confirm, fill = async () => {}) {
  await (typeof button === "string" ? page.getByRole("button", { name: button, exact: true }) : button).click();
  const dialog = page.getByRole("dialog");
  await dialog.waitFor();
  const reason = dialog.getByRole("textbox", { name: "Reason" });
  if (await reason.count()) await reason.fill("a test");
  await fill(dialog);
  await dialog.getByRole("button", { name: confirm, exact: true }).click();
  await dialog.waitFor({ state: "detached" });
}

/** The card with this heading. */
export function card(page, name) {
  return page.locator("section.card", { has: page.getByRole("heading", { level: 2, name, exact: true }) });
}
