// The outcomes of a decision: labels, meanings, and signs that work without colour.

export const OUTCOMES = ["allow", "deny", "shadow", "soft", "shed", "blocked", "assumed"] as const;
export type Outcome = (typeof OUTCOMES)[number];

/** The pattern of a fill. */
export type Pattern = "plain" | "diagonal" | "dots" | "lines" | "bars" | "cross" | "grid";

export interface OutcomeStyle {
  label: string;
  /** A sign before the label, where there is no room for a pattern. */
  sign: string;
  means: string;
  pattern: Pattern;
}

export const OUTCOME_STYLES: Record<Outcome, OutcomeStyle> = {
  allow: { label: "allowed", sign: "●", means: "passed", pattern: "plain" },
  deny: { label: "refused", sign: "✕", means: "over a limit, and refused", pattern: "diagonal" },
  shadow: { label: "would refuse", sign: "◌", means: "passed, but a rule in shadow mode would have refused it", pattern: "dots" },
  soft: { label: "over a soft limit", sign: "△", means: "over a soft limit, but allowed", pattern: "lines" },
  shed: { label: "shed", sign: "▽", means: "too many checks in flight: decided without the store", pattern: "bars" },
  blocked: { label: "blocked", sign: "■", means: "the caller or its address is blocked", pattern: "cross" },
  assumed: { label: "assumed", sign: "?", means: "the store failed: decided by the rule's policy", pattern: "grid" },
};
