// Notices at the edge of the page and for screen readers.

import { errorText } from "../api.ts";
import { h, setText } from "../dom.ts";

/** How long a success notice stays. */
const NOTICE_MS = 6_000;

const spoken = h("div", { class: "unseen", "aria-live": "polite" });
const shown = h("div", { class: "notices", role: "status" });

/** The elements that must be in the page. */
export function notices(): HTMLElement[] {
  return [spoken, shown];
}

/** Announces a text to screen readers. */
export function announce(text: string): void {
  setText(spoken, text);
}

/** Shows a success notice. */
export function notify(text: string): void {
  const note = show("notice", text);
  setTimeout(() => note.remove(), NOTICE_MS);
}

/** Shows an error notice, which stays until dismissed. */
export function warn(error: unknown): void {
  show("notice bad", errorText(error));
}

function show(style: string, text: string): HTMLElement {
  const dismiss = h("button", { type: "button", class: "quiet", "aria-label": "Dismiss", on: { click: () => note.remove() } }, "✕");
  const note = h("div", { class: style }, h("span", {}, text), dismiss);
  shown.append(note);
  while (shown.childElementCount > 3) shown.firstElementChild?.remove();
  return note;
}

/** An error message of a part of a page; hidden without an error. */
export function fault(): { node: HTMLElement; set(error: unknown): void } {
  const node = h("p", { class: "fault", role: "alert", hidden: true });
  return {
    node,
    set(error) {
      node.hidden = error === undefined;
      setText(node, error === undefined ? "" : errorText(error));
    },
  };
}
