// The login with a token.

import { type Api, ApiError, errorText } from "../api.ts";
import { h } from "../dom.ts";
import { field } from "../parts/dialog.ts";
import { mark } from "../parts/icon.ts";
import { fault } from "../parts/notice.ts";
import type { Me } from "../types.ts";

/** Asks for a token until one is accepted. `why` is the initial message. */
export function login(api: Api, why: string | undefined, accepted: (me: Me) => void): HTMLElement {
  const wrong = fault();
  const input = h("input", { type: "password", name: "token", required: true, autocomplete: "off", spellcheck: "false", placeholder: "tg_…" });
  const button = h("button", { type: "submit", class: "main" }, "Log in");
  const submit = async (event: Event) => {
    event.preventDefault();
    button.disabled = true;
    api.token = input.value.trim();
    try {
      accepted(await api.get<Me>("/admin/v1/me"));
    } catch (error) {
      api.token = null;
      const isRejected = error instanceof ApiError && error.isUnauthenticated;
      wrong.set(new Error(isRejected ? `The token was rejected: ${errorText(error)}.` : errorText(error)));
      input.select();
    } finally {
      button.disabled = false;
    }
  };
  const hint = "Create one with `tollgate token create`. It is stored for this tab only, until the tab is closed.";
  if (why) wrong.set(new Error(why));
  return h("form", { class: "card login", on: { submit } }, h("h1", { tabindex: -1 }, mark(36), "Tollgate"), field("Token", input, hint), wrong.node, h("div", { class: "buttons" }, button));
}
