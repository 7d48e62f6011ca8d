// The picture of hot keys: a server on Redis, with a minute of traffic.

import test from "node:test";
import { go, on } from "./browser.mjs";
import { NOISY_FROM, picture, second } from "./shop.mjs";

const SECONDS = 60;

test("a picture of hot keys", () =>
  on({ viewport: { width: 1280, height: 860 } }, async (page) => {
    await go(page, "hot", "Hot keys");
    for (let number = NOISY_FROM; number < NOISY_FROM + SECONDS; number += 1) await second(number);
    await page.getByRole("link", { name: "user_1", exact: true }).first().waitFor();
    await picture(page, "hot-keys");
  }));
