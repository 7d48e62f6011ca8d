// Light, dark, or as the system has it.

import { h, say } from "./dom.ts";

const KEPT_AS = "tollgate.theme";
const THEMES = ["system", "light", "dark"] as const;
type Theme = (typeof THEMES)[number];

const hearers = new Set<() => void>();
const dark = matchMedia("(prefers-color-scheme: dark)");
dark.addEventListener("change", changed);

let theme: Theme = THEMES.find((one) => one === localStorage.getItem(KEPT_AS)) ?? "system";
apply();

/** Hears of other colours: what is painted has to be painted again. */
export function onTheme(hear: () => void): () => void {
  hearers.add(hear);
  return () => hearers.delete(hear);
}

/** A colour of the theme that is shown, by its name. */
export function colour(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

/** The button that goes through the themes. */
export function themeSwitch(): HTMLElement {
  const button = h("button", { type: "button", class: "quiet", on: { click: next } });
  const show = () => say(button, `Theme: ${theme}`);
  function next() {
    theme = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length]!;
    localStorage.setItem(KEPT_AS, theme);
    apply();
    show();
  }
  show();
  return button;
}

function apply(): void {
  const isDark = theme === "dark" || (theme === "system" && dark.matches);
  document.documentElement.dataset["theme"] = isDark ? "dark" : "light";
  for (const hear of hearers) hear();
}

function changed(): void {
  if (theme === "system") apply();
}
