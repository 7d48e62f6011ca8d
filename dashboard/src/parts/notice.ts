// What happened, said at the edge of the page and to screen readers.

import { inWords } from "../api.ts";
import { h, say } from "../dom.ts";

/** How long something that went well stays. */
const STAYS_MS = 6_000;

const spoken = h("div", { class: "unseen", "aria-live": "polite" });
const shown = h("div", { class: "notices", role: "status" });

/** What has to be in the page for the rest to be heard. */
export function notices(): HTMLElement[] {
  return [spoken, shown];
}

/** Says something to those who don't see it. */
export function announce(text: string): void {
  say(spoken, text);
}

/** Something went well. */
export function tell(text: string): void {
  const note = show("notice", text);
  setTimeout(() => note.remove(), STAYS_MS);
}

/** Something went wrong: it stays until it is put away. */
export function warn(error: unknown): void {
  show("notice bad", inWords(error));
}

function show(style: string, text: string): HTMLElement {
  const away = h("button", { type: "button", class: "quiet", "aria-label": "Put away", on: { click: () => note.remove() } }, "✕");
  const note = h("div", { class: style }, h("span", {}, text), away);
  shown.append(note);
  while (shown.childElementCount > 3) shown.firstElementChild?.remove();
  return note;
}

/** A line for what is wrong with a part of a page; hidden while nothing is. */
export function fault(): { node: HTMLElement; set(error: unknown): void } {
  const node = h("p", { class: "fault", role: "alert", hidden: true });
  return {
    node,
    set(error) {
      node.hidden = error === undefined;
      say(node, error === undefined ? "" : inWords(error));
    },
  };
}
