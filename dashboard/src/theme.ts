// Theme: light, dark, or that of the system.

import { h, setText } from "./dom.ts";
import { icon } from "./parts/icon.ts";

const STORAGE_KEY = "tollgate.theme";
const THEMES = ["system", "light", "dark"] as const;
type Theme = (typeof THEMES)[number];

const handlers = new Set<() => void>();
const dark = matchMedia("(prefers-color-scheme: dark)");
dark.addEventListener("change", changed);

let theme: Theme = THEMES.find((one) => one === localStorage.getItem(STORAGE_KEY)) ?? "system";
apply();

/** Subscribes to theme changes, to repaint canvases. */
export function onTheme(handler: () => void): () => void {
  handlers.add(handler);
  return () => handlers.delete(handler);
}

/** A colour of the current theme, by name. */
export function colour(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

/** The button that cycles through the themes. */
export function themeSwitch(): HTMLElement {
  const label = h("span", {});
  const button = h("button", { type: "button", class: "quiet", on: { click: next } }, icon("theme"), label);
  const show = () => setText(label, `Theme: ${theme}`);
  function next() {
    theme = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length]!;
    localStorage.setItem(STORAGE_KEY, theme);
    apply();
    show();
  }
  show();
  return button;
}

function apply(): void {
  const isDark = theme === "dark" || (theme === "system" && dark.matches);
  document.documentElement.dataset["theme"] = isDark ? "dark" : "light";
  for (const handler of handlers) handler();
}

function changed(): void {
  if (theme === "system") apply();
}
