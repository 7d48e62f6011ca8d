// Paging of long lists.

import { h, setText } from "../dom.ts";

export class Pager {
  readonly node: HTMLElement;
  /** Called when another page is selected. */
  onTurn: () => void = () => {};
  #page = 0;
  #pages = 1;
  readonly #where = h("span", { role: "status" });
  readonly #back = h("button", { type: "button", on: { click: () => this.#turn(-1) } }, "Back");
  readonly #on = h("button", { type: "button", on: { click: () => this.#turn(1) } }, "Next");

  constructor(readonly size: number) {
    this.node = h("nav", { class: "pager", "aria-label": "Pages of the list" }, this.#back, this.#where, this.#on);
  }

  /** Goes to the first page. */
  first(): void {
    this.#page = 0;
  }

  /** The items of the page that is shown. */
  of<T>(items: T[]): T[] {
    this.#pages = Math.max(1, Math.ceil(items.length / this.size));
    this.#page = Math.min(this.#page, this.#pages - 1);
    setText(this.#where, `page ${this.#page + 1} of ${this.#pages}`);
    this.node.hidden = this.#pages === 1;
    this.#back.disabled = this.#page === 0;
    this.#on.disabled = this.#page === this.#pages - 1;
    return items.slice(this.#page * this.size, (this.#page + 1) * this.size);
  }

  #turn(by: number): void {
    this.#page += by;
    this.onTurn();
  }
}
