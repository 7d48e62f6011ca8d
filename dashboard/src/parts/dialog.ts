// Dialogs: the browser's own, which keep the focus in and close by Escape.

import { fault } from "./notice.ts";
import { type Child, h } from "../dom.ts";

export interface Asking {
  title: string;
  /** What stands above the buttons: what is about to happen, and fields with names. */
  body: Child[];
  /** What the button says that does it. */
  does: string;
  /** Whether it takes something away. */
  harmful?: boolean;
  /** Does it. What it throws is shown, and the dialog stays. */
  run: (fields: FormData) => Promise<void>;
}

let dialogs = 0;

/** Asks, and does it when that is confirmed. */
export function ask(asking: Asking): void {
  dialogs += 1;
  const [label, wrong] = [`dialog-${dialogs}`, fault()];
  const cancel = h("button", { type: "button", on: { click: () => dialog.close() } }, "Cancel");
  const does = h("button", { type: "submit", class: asking.harmful ? "harmful" : "main" }, asking.does);
  const submit = async (event: Event) => {
    event.preventDefault();
    does.disabled = true;
    wrong.set(undefined);
    try {
      await asking.run(new FormData(form));
      dialog.close();
    } catch (error) {
      wrong.set(error);
    } finally {
      does.disabled = false;
    }
  };
  const form = h("form", { on: { submit } }, h("h2", { id: label }, asking.title), asking.body, wrong.node, h("div", { class: "buttons" }, cancel, does));
  const before = document.activeElement;
  const dialog = h("dialog", { "aria-labelledby": label }, form);
  dialog.addEventListener("close", () => {
    dialog.remove();
    if (before instanceof HTMLElement && before.isConnected) before.focus();
  });
  document.body.append(dialog);
  dialog.showModal();
}

let fields = 0;

/** A field with its name, and what else is to be said of it. */
export function field(label: string, control: HTMLElement, hint?: string): HTMLElement {
  fields += 1;
  control.id = `field-${fields}`;
  const more = hint && h("small", { id: `hint-${fields}` }, hint);
  if (more) control.setAttribute("aria-describedby", more.id);
  return h("div", { class: "field" }, h("label", { for: control.id }, label), control, more);
}

/** Why something is done: the audit log keeps it. */
export function reason(required: boolean): HTMLElement {
  const input = h("input", { name: "reason", required, maxlength: 500, autocomplete: "off" });
  return field(required ? "Reason" : "Reason (optional)", input, "It is kept in the audit log.");
}

/** How long something is to hold. */
export function lasting(kinds: [string, string][]): HTMLElement {
  return field("For how long", h("select", { name: "for" }, kinds.map(([value, text]) => h("option", { value }, text))));
}

/** A text of a form, without what surrounds it. */
export function text(fields: FormData, name: string): string {
  const value = fields.get(name);
  return typeof value === "string" ? value.trim() : "";
}
