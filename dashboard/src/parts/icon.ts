// The mark and the icons: strokes on a grid of 20, in the colour of the text.

import { svg } from "../dom.ts";

const PATHS = {
  overview: "M3 13a7 7 0 1 1 14 0M10 13l3.2-4.2M3.5 16h13",
  rules: "M4 5h12M4 10h12M4 15h12M7 3v4M13 8v4M9 13v4",
  keys: "M12.5 7.5a3.5 3.5 0 1 0-4 3.5L3.5 16v1.5H6V16h1.5v-1.5L10 12M13 4.5l3 3",
  tenants: "M7.5 9.5a3 3 0 1 0 0-6 3 3 0 0 0 0 6ZM2 17c0-3 2.4-5 5.5-5s5.5 2 5.5 5M13 4a3 3 0 0 1 0 5.6M15 12.4c1.8.7 3 2.3 3 4.6",
  gateway: "M3 17V7.5L10 3l7 4.5V17M7 17v-6h6v6M1.5 17h17",
  regions: "M10 2.5a7.5 7.5 0 1 0 0 15 7.5 7.5 0 0 0 0-15ZM2.5 10h15M10 2.5c2.4 2.2 3.4 4.8 3.4 7.5s-1 5.3-3.4 7.5c-2.4-2.2-3.4-4.8-3.4-7.5s1-5.3 3.4-7.5Z",
  controls: "M10 2.5 16.5 5v5c0 4-2.7 6.5-6.5 7.5C6.2 16.5 3.5 14 3.5 10V5ZM10 6.5v4M10 13.2v.1",
  try: "M6 3.5v13l10.5-6.5Z",
  audit: "M5 2.5h7L16 6.5V17.5H5ZM12 2.5v4h4M8 10h5M8 13.5h5",
  check: "M4 10.5 8.2 15 16 5.5",
  alert: "M10 3 18 16.5H2ZM10 8v4M10 14.2v.1",
  info: "M10 2.5a7.5 7.5 0 1 0 0 15 7.5 7.5 0 0 0 0-15ZM10 9v5M10 6.2v.1",
  block: "M10 2.5a7.5 7.5 0 1 0 0 15 7.5 7.5 0 0 0 0-15ZM4.8 4.8l10.4 10.4",
  emergency: "M11 2 4 11.5h5L8.5 18 16 8h-5Z",
  switch: "M6.5 5.5h7a4.5 4.5 0 0 1 0 9h-7a4.5 4.5 0 0 1 0-9ZM13.5 8a2 2 0 1 0 0 4 2 2 0 0 0 0-4Z",
  reload: "M16 10a6 6 0 1 1-2-4.5M16.5 2.5V6H13",
  store: "M3.5 5c0-1.4 3-2.5 6.5-2.5s6.5 1.1 6.5 2.5v10c0 1.4-3 2.5-6.5 2.5S3.5 16.4 3.5 15ZM3.5 5c0 1.4 3 2.5 6.5 2.5s6.5-1.1 6.5-2.5M3.5 10c0 1.4 3 2.5 6.5 2.5s6.5-1.1 6.5-2.5",
  start: "M10 2.5v7M5.5 5.5a6.5 6.5 0 1 0 9 0",
  rule: "M4 5h12M4 10h12M4 15h12M7 3v4M13 8v4M9 13v4",
  search: "M8.5 3a5.5 5.5 0 1 0 0 11 5.5 5.5 0 0 0 0-11ZM12.5 12.5l4.5 4.5",
  theme: "M10 3a7 7 0 1 0 0 14ZM10 3a7 7 0 0 1 0 14",
  edit: "M4 16l1-4 8.5-8.5 3 3L8 15ZM11.5 5.5l3 3",
  remove: "M4.5 6h11M8 6V3.5h4V6M6 6l.7 11h6.6L14 6M9 9v5M11 9v5",
  leave: "M12 3.5H4.5v13H12M9 10h8M14 7l3 3-3 3",
} as const;

export type IconName = keyof typeof PATHS;

/** An icon. It is decoration: the text next to it says what it means. */
export function icon(name: IconName): SVGElement {
  return svg("svg", { class: "icon", viewBox: "0 0 20 20", width: 18, height: 18, "aria-hidden": "true" }, svg("path", { d: PATHS[name] }));
}

/** The icon of an event. */
export function eventIcon(kind: string): IconName {
  const icons: Record<string, IconName> = { start: "start", reload: "reload", reload_failed: "alert", signal: "alert", store: "store", switch: "switch", block: "block", emergency: "emergency", rule: "rule", lease: "store", gateway: "gateway" };
  return icons[kind] ?? "info";
}

/** The mark: a gate whose arm is up. */
export function mark(size = 28): SVGElement {
  return svg("svg", { class: "mark", viewBox: "0 0 32 32", width: size, height: size, "aria-hidden": "true" },
    svg("rect", { class: "mark-ground", width: 32, height: 32, rx: 8 }),
    svg("path", { class: "mark-post", d: "M8 25V15.5" }),
    svg("path", { class: "mark-arm", d: "M8 15.5 25.5 7" }),
    svg("path", { class: "mark-stripes", d: "m14.2 12.5 3-1.45M21 9.2l1.8-.9" }),
    svg("path", { class: "mark-road", d: "M14.5 25h11" }));
}
