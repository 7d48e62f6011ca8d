// Buttons that name the missing scope when they can't be pressed.

import { type Child, h } from "../dom.ts";
import { type AppContext, missingScope } from "../context.ts";
import type { Column } from "./table.ts";
import type { Scope } from "../types.ts";

/** A button for users with one of these scopes. */
export function actionButton(app: AppContext, label: Child[], scopes: Scope[], run: () => void, style?: string): HTMLButtonElement {
  const missing = missingScope(app, ...scopes);
  return h("button", { type: "button", class: style, disabled: missing !== undefined, title: missing, on: { click: run } }, label);
}

/** A column with a button for each row. */
export function actionColumn<T>(app: AppContext, label: string, scopes: (item: T) => Scope[], run: (item: T) => void): Column<T> {
  return { title: "Action", cell: (first) => {
    let item = first;
    return { node: actionButton(app, [label], scopes(first), () => run(item)), set: (now) => void (item = now) };
  } };
}
