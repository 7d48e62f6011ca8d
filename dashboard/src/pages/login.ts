// The login: a token, shown to nobody but the server.

import { type Api, Refused, inWords } from "../api.ts";
import { h } from "../dom.ts";
import { field } from "../parts/dialog.ts";
import { fault } from "../parts/notice.ts";
import type { Me } from "../types.ts";

/** Asks for a token until one is accepted. `why` is said at first. */
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
      const refused = error instanceof Refused && error.isUnknown;
      wrong.set(new Error(refused ? `The token was refused: ${inWords(error)}.` : inWords(error)));
      input.select();
    } finally {
      button.disabled = false;
    }
  };
  const hint = "Make one with `tollgate token create`. It is kept for this tab alone, and gone when that is closed.";
  if (why) wrong.set(new Error(why));
  return h("form", { class: "card login", on: { submit } }, h("h1", { tabindex: -1 }, "Tollgate"), field("Token", input, hint), wrong.node, h("div", { class: "buttons" }, button));
}
