// The way between the lists of keys.

import { h } from "../dom.ts";
import { href } from "../pure/route.ts";

const LISTS = [["keys", "Top keys"], ["hot", "Hot keys"], ["signals", "Signals"]] as const;

/** Links to all lists, of which one is shown. */
export function keyLists(shown: (typeof LISTS)[number][0]): HTMLElement {
  return h("nav", { class: "segmented", "aria-label": "Lists of keys" }, LISTS.map(([page, label]) => h("a", { href: href(page), "aria-current": page === shown && "page" }, label)));
}
