// Tables with sortable headers and reused rows; on narrow screens cells show their headers.

import { type Child, type Part, KeyedList, fill, h, setText } from "../dom.ts";

/** The content of a cell, and its update. */
export interface Cell<T> {
  node: Node;
  set?(item: T): void;
}

export interface Column<T> {
  title: string;
  /** `number`: set to the right; `bar`: how much is used; `brief`: stays in a line; `wide`: takes what room there is; `main`: what
   * the row is about, and `time` if that is a moment. */
  kind?: "number" | "bar" | "brief" | "wide" | "main" | "time";
  /** The sort key; without it the column is not sortable. */
  sort?: (item: T) => number | string;
  cell: (item: T) => Cell<T>;
}

/** Sort column and direction. */
export interface Order {
  column: string;
  descending: boolean;
}

/** A column of text. */
export function textColumn<T>(title: string, text: (item: T) => string, more: Partial<Column<T>> = {}): Column<T> {
  return {
    title,
    ...more,
    cell: () => {
      const node = h("span");
      return { node, set: (item) => setText(node, text(item)) };
    },
  };
}

/** A column whose content never changes for a key. */
export function fixedColumn<T>(title: string, node: (item: T) => Child, more: Partial<Column<T>> = {}): Column<T> {
  return { title, ...more, cell: (item) => ({ node: h("span", {}, node(item)) }) };
}

export class Table<T> {
  readonly node: HTMLElement;
  /** Called when another order is selected. */
  onOrder: () => void = () => {};
  #order: Order | undefined;
  readonly #rows: KeyedList<T>;
  readonly #heads = new Map<string, HTMLElement>();
  readonly #empty: HTMLElement;
  readonly #table: HTMLElement;

  /** `empty` is shown if there are no rows. */
  constructor(
    caption: string,
    readonly columns: Column<T>[],
    key: (item: T) => string,
    empty: string,
  ) {
    const body = h("tbody", { role: "rowgroup" });
    this.#rows = new KeyedList(body, key, (item) => this.#row(item));
    this.#empty = h("p", { class: "empty" }, empty);
    // Narrow screens show rows as blocks, which would lose the table semantics: so the roles are explicit.
    const head = h("tr", { role: "row" }, columns.map((column) => this.#head(column)));
    this.#table = h("table", { role: "table" }, h("caption", { class: "unseen" }, caption), h("thead", { role: "rowgroup" }, head), body);
    this.node = h("div", { class: "table" }, this.#table, this.#empty);
  }

  show(items: T[]): void {
    this.#rows.show(items);
    this.#empty.hidden = items.length > 0;
    this.#table.hidden = items.length === 0;
  }

  /** Replaces the text for no rows. */
  set empty(text: Child) {
    fill(this.#empty, text);
  }

  get order(): Order | undefined {
    return this.#order;
  }

  set order(order: Order | undefined) {
    this.#order = order;
    for (const [title, head] of this.#heads) {
      if (title === order?.column) head.setAttribute("aria-sort", order.descending ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    }
  }

  /** The items in the selected order. */
  sorted(items: T[]): T[] {
    const by = this.columns.find((column) => column.title === this.order?.column)?.sort;
    if (!by) return items;
    const sign = this.order?.descending ? -1 : 1;
    return [...items].sort((one, other) => sign * compare(by(one), by(other)));
  }

  #head(column: Column<T>): HTMLElement {
    const head = h("th", { scope: "col", role: "columnheader", class: column.kind });
    if (column.sort) {
      const reorder = () => {
        const descending = this.order?.column === column.title ? !this.order.descending : column.kind === "number" || column.kind === "bar";
        this.order = { column: column.title, descending };
        this.onOrder();
      };
      head.append(h("button", { type: "button", class: "sort", on: { click: reorder } }, column.title));
    } else {
      head.append(column.title);
    }
    this.#heads.set(column.title, head);
    return head;
  }

  #row(item: T): Part<T> {
    const cells = this.columns.map((column) => column.cell(item));
    const node = h("tr", { role: "row" }, cells.map((cell, at) => {
      const column = this.columns[at]!;
      const main = column.kind === "main" || column.kind === "time";
      return h(main ? "th" : "td", { scope: main && "row", role: main ? "rowheader" : "cell", class: column.kind, "data-label": column.title }, cell.node);
    }));
    return { node, set: (now) => cells.forEach((cell) => cell.set?.(now)) };
  }
}

function compare(one: number | string, other: number | string): number {
  return typeof one === "number" && typeof other === "number" ? one - other : String(one).localeCompare(String(other));
}
