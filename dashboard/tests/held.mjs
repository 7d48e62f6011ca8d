// A change that would refuse much of the recent traffic is held, and made when it is confirmed.

import test from "node:test";
import { admin, card, checks, go, on } from "./browser.mjs";

test("a change that would refuse much is confirmed", () =>
  on({ expected: [/409/] }, async (page) => {
    await admin("PUT", "/admin/v1/switches/everything", { mode: "shadow", reason: "a test" });
    await checks("busy", 40);
    await go(page, "controls", "Controls");
    await card(page, "Switches").getByRole("button", { name: "Remove…" }).click();
    const dialog = page.getByRole("dialog");
    await dialog.getByRole("button", { name: "Remove the switch", exact: true }).click();
    await dialog.getByText(/it would newly refuse 30 of 40 recent requests/).waitFor();
    await dialog.getByRole("button", { name: "Confirm: Remove the switch", exact: true }).click();
    await dialog.waitFor({ state: "detached" });
    await page.getByText("No switches: every rule has the mode of its file.").waitFor();
  }));
