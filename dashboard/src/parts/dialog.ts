// Modal dialogs of the browser, which trap the focus and close on Escape.

import { ApiError } from "../api.ts";
import { fault } from "./notice.ts";
import { type Child, h } from "../dom.ts";

export interface DialogOptions {
  title: string;
  /** The content above the buttons: a description and named fields. */
  body: Child[];
  /** The label of the confirming button. */
  confirm: string;
  /** Whether the action is destructive. */
  harmful?: boolean;
  /** The action. Errors are shown, and the dialog stays open. */
  run: (fields: FormData) => Promise<void>;
}

let dialogs = 0;

/** Opens a dialog and runs the action when confirmed. */
export function openDialog(options: DialogOptions): void {
  dialogs += 1;
  const [label, wrong] = [`dialog-${dialogs}`, fault()];
  const cancel = h("button", { type: "button", on: { click: () => dialog.close() } }, "Cancel");
  const confirm = h("button", { type: "submit", class: options.harmful ? "harmful" : "main" }, options.confirm);
  const submit = async (event: Event) => {
    event.preventDefault();
    confirm.disabled = true;
    wrong.set(undefined);
    try {
      await options.run(new FormData(form));
      dialog.close();
    } catch (error) {
      wrong.set(error);
      // The same action confirms what was held.
      confirm.textContent = error instanceof ApiError && error.plan ? `Confirm: ${options.confirm}` : options.confirm;
    } finally {
      confirm.disabled = false;
    }
  };
  const form = h("form", { on: { submit } }, h("h2", { id: label }, options.title), options.body, wrong.node, h("div", { class: "buttons" }, cancel, confirm));
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

/** A labelled field with an optional hint. */
export function field(label: string, control: HTMLElement, hint?: string): HTMLElement {
  fields += 1;
  control.id = `field-${fields}`;
  const more = hint && h("small", { id: `hint-${fields}` }, hint);
  if (more) control.setAttribute("aria-describedby", more.id);
  return h("div", { class: "field" }, h("label", { for: control.id }, label), control, more);
}

/** The reason, which is recorded in the audit log. */
export function reason(required: boolean): HTMLElement {
  const input = h("input", { name: "reason", required, maxlength: 500, autocomplete: "off" });
  return field(required ? "Reason" : "Reason (optional)", input, "It is recorded in the audit log.");
}

/** A selection of durations. */
export function lasting(kinds: [string, string][]): HTMLElement {
  return field("Duration", h("select", { name: "for" }, kinds.map(([value, text]) => h("option", { value }, text))));
}

/** The trimmed text of a form field. */
export function text(fields: FormData, name: string): string {
  const value = fields.get(name);
  return typeof value === "string" ? value.trim() : "";
}
