// Elements, made and kept up to date. Whatever comes from the server is text: nothing in here takes markup.

export type Child = Node | string | number | null | undefined | false | Child[];

type Listener = (event: Event) => void;

/** Attributes, and listeners under `on`. `false`, `null` and `undefined` leave an attribute out, `true` is one without a value. */
export interface Attributes {
  on?: Record<string, Listener>;
  [name: string]: string | number | boolean | null | undefined | Record<string, Listener>;
}

/** An element. */
export function h<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  attributes: Attributes = {},
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  dress(element, attributes);
  add(element, children);
  return element;
}

/** An element of a drawing. */
export function svg(tag: string, attributes: Attributes = {}, ...children: Child[]): SVGElement {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  dress(element, attributes);
  add(element, children);
  return element;
}

function dress(element: Element, attributes: Attributes): void {
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "on" && typeof value === "object" && value !== null) {
      for (const [event, listener] of Object.entries(value)) element.addEventListener(event, listener);
    } else if (value !== false && value !== null && value !== undefined) {
      element.setAttribute(name, value === true ? "" : String(value));
    }
  }
}

function add(element: Element, children: Child[]): void {
  for (const child of children) {
    if (Array.isArray(child)) add(element, child);
    else if (child !== null && child !== undefined && child !== false) element.append(child instanceof Node ? child : String(child));
  }
}

/** Puts these in the place of whatever an element had. */
export function fill(element: Element, ...children: Child[]): void {
  element.replaceChildren();
  add(element, children);
}

/** Changes a text only where it differs: what is being selected or read aloud stays as it is. */
export function say(element: Element, text: string): void {
  if (element.textContent !== text) element.textContent = text;
}

/** Something that is shown, and kept up to date with items. */
export interface Part<T> {
  node: HTMLElement;
  set(item: T): void;
}

/**
 * Shows these items, one element each, in their order. Elements are kept by their keys, and so is what has the focus.
 */
export class Kept<T> {
  #parts = new Map<string, Part<T>>();

  constructor(
    readonly parent: HTMLElement,
    readonly key: (item: T) => string,
    readonly make: (item: T) => Part<T>,
  ) {}

  show(items: T[]): void {
    const parts = new Map<string, Part<T>>();
    for (const item of items) {
      const key = this.key(item);
      const part = this.#parts.get(key) ?? this.make(item);
      part.set(item);
      parts.set(key, part);
    }
    for (const [key, part] of this.#parts) if (parts.get(key) !== part) part.node.remove();
    this.#parts = parts;
    let at = this.parent.firstElementChild;
    for (const { node } of parts.values()) {
      if (node === at) at = at.nextElementSibling;
      else this.parent.insertBefore(node, at);
    }
  }
}
