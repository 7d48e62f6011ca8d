// Creates and updates elements. Text from the server is never interpreted as markup.

export type Child = Node | string | number | null | undefined | false | Child[];

type Listener = (event: Event) => void;

/** Attributes, and listeners under `on`. `false`, `null` and `undefined` omit an attribute, `true` is one without a value. */
export interface Attributes {
  on?: Record<string, Listener>;
  [name: string]: string | number | boolean | null | undefined | Record<string, Listener>;
}

/** Creates an HTML element. */
export function h<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  attributes: Attributes = {},
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  setAttributes(element, attributes);
  add(element, children);
  return element;
}

/** Creates an SVG element. */
export function svg(tag: string, attributes: Attributes = {}, ...children: Child[]): SVGElement {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  setAttributes(element, attributes);
  add(element, children);
  return element;
}

function setAttributes(element: Element, attributes: Attributes): void {
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

/** Replaces the children of an element. */
export function fill(element: Element, ...children: Child[]): void {
  element.replaceChildren();
  add(element, children);
}

/** Sets a text only if it differs, so that selections and screen readers are not disturbed. */
export function setText(element: Element, text: string): void {
  if (element.textContent !== text) element.textContent = text;
}

/** An element that is updated with items. */
export interface Part<T> {
  node: HTMLElement;
  set(item: T): void;
}

/**
 * Shows items in order, one element each. Elements are reused by key, so that the focus stays.
 */
export class KeyedList<T> {
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
