// The traffic of a shop, and pictures of it.

import { mkdirSync } from "node:fs";
import path from "node:path";
import { check } from "./browser.mjs";

const { PICTURES } = process.env;
mkdirSync(PICTURES, { recursive: true });

const CALLERS = 60;
/** What the callers of a second ask for together. */
const REQUESTS = 90;
/** From this second on one of them can't get enough. */
export const NOISY_FROM = 170;

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

/** The requests of a second. */
export async function second(number) {
  const tide = 1 + 0.35 * Math.sin(number / 9);
  const any = () => send(caller(), ENDPOINTS[Math.floor(Math.random() * ENDPOINTS.length)]);
  const sent = Array.from({ length: Math.round(REQUESTS * tide) }, any);
  if (number >= NOISY_FROM) sent.push(...Array.from({ length: 45 }, () => send("noisy_neighbour", "GET /items")));
  sent.push(...Array.from({ length: 4 }, () => send("scraper", "GET /items")));
  await Promise.all([...sent, new Promise((resolve) => setTimeout(resolve, 1000))]);
}

/** Takes a picture. The row under the mouse would be marked. */
export async function shot(page, name, fullPage = false) {
  await page.mouse.move(0, 0);
  await page.screenshot({ fullPage, path: path.join(PICTURES, `${name}.png`) });
}

/** A picture of the whole page. */
export async function picture(page, name) {
  await shot(page, name, true);
}
