// The outcomes of a decision: what they are called, what they mean, and how they are told apart without colour.

export const OUTCOMES = ["allow", "deny", "shadow", "soft", "shed", "blocked", "assumed"] as const;
export type Outcome = (typeof OUTCOMES)[number];

/** What a fill is made of beside its colour. */
export type Pattern = "plain" | "diagonal" | "dots" | "lines" | "bars" | "cross" | "grid";

export interface Look {
  label: string;
  /** A sign that stands before the word, where there is no room for a pattern. */
  sign: string;
  means: string;
  pattern: Pattern;
}

export const LOOKS: Record<Outcome, Look> = {
  allow: { label: "allowed", sign: "●", means: "passed", pattern: "plain" },
  deny: { label: "refused", sign: "✕", means: "over a limit, and refused", pattern: "diagonal" },
  shadow: { label: "would refuse", sign: "◌", means: "passed, but a rule in shadow mode would have refused it", pattern: "dots" },
  soft: { label: "past a soft limit", sign: "△", means: "passed a soft limit, and was let through", pattern: "lines" },
  shed: { label: "shed", sign: "▽", means: "too many checks at once: decided without the store", pattern: "bars" },
  blocked: { label: "blocked", sign: "■", means: "of a caller or an address that is blocked", pattern: "cross" },
  assumed: { label: "assumed", sign: "?", means: "the store failed: decided by the rule's policy", pattern: "grid" },
};
