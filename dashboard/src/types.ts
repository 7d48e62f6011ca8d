// Responses of the admin API, as far as the dashboard uses them. Times are RFC 3339 texts, durations are seconds.

import type { Outcome } from "./outcomes.ts";

export type Scope = "read" | "quota" | "rules" | "emergency" | "audit" | "check";

export interface Me {
  name: string;
  scopes: Scope[];
  /** No authentication is configured: every user of that machine is accepted. */
  open: boolean;
}

export type ByOutcome = Record<Outcome, number>;

export interface Quantiles {
  p50: number | null;
  p99: number | null;
  p999: number | null;
  count: number;
}

export interface Circuit {
  shard: string;
  state: "closed" | "half-open" | "open";
}

export interface ServerRow {
  name: string;
  region: string | null;
  version: string;
  seen_at: string;
  decisions_per_second: number;
  deny_per_second: number;
  rules_generation: number;
  this: boolean;
}

/** The numbers of each step, oldest first. */
export type History = Record<Outcome, number[]> &
  Record<"p50" | "p99" | "p999", (number | null)[]> & { step_seconds: number; to: string };

export interface Overview {
  at: string;
  server: { name: string; version: string; region: string | null; started_at: string; uptime_seconds: number };
  rates: ByOutcome & { decisions: number };
  totals: ByOutcome & { decisions: number };
  latency: { decision: Quantiles; store: Quantiles };
  in_flight: number;
  store: {
    kind: string;
    level: "normal" | "degraded" | "local-only" | "open";
    since: string | null;
    circuits: Circuit[];
    keys: number;
    evicted: number;
  };
  rules: {
    generation: number;
    rules: number;
    domains: number;
    valid: boolean;
    last_error: string | null;
    last_reload: string | null;
  };
  control: { kind: string; generation: number; snapshot_age_seconds: number | null };
  health: { part: string; degraded: boolean; why: string | null }[];
  log: { written: number; dropped: number };
}

/** The full overview has more than the live events. */
export interface FullOverview extends Overview {
  servers: ServerRow[];
  history: History;
}

export interface Rates {
  allow: number;
  deny: number;
  would_deny: number;
}

export interface RuleRow {
  domain: string;
  rule: string;
  mode: string;
  key: string[];
  limits: { tier: string; limit: string }[];
  utilisation: number;
  rates: Rates;
  totals: Rates;
  sparkline: { step_seconds: number; allow: number[]; deny: number[]; would_deny: number[] };
  tiers: { tier: string; utilisation: number; remaining: number | null; limit: number | null; rates: Rates }[];
}

export interface Activity {
  generation: number;
  total: number;
  offset: number;
  rows: RuleRow[];
}

/** Rules whose numbers changed. */
export interface RulesEvent {
  at: string;
  rows: Pick<RuleRow, "domain" | "rule" | "mode" | "utilisation" | "rates" | "totals">[];
}

export interface ReloadEvent {
  generation: number;
  valid: boolean;
  error: string | null;
}

export interface TierRow {
  domain: string;
  tier: string;
  default: boolean;
  callers: number | null;
  utilisation: number;
  rates: Rates;
}

export interface TopKey {
  rank: number;
  domain: string;
  rule: string;
  key: string;
  caller: string | null;
  decisions: number | null;
  refusals: number | null;
  utilisation: number | null;
  error: number;
}

export interface Top {
  at: string;
  total: number;
  error: number;
  servers: number;
  keys_shown: boolean;
  keys: TopKey[];
}

export interface Sustained {
  domain: string;
  rule: string;
  key: string;
  caller: string | null;
  tier: string;
  limit: number;
  period: string;
  utilisation: number;
  since: string;
  fits: string | null;
  fits_limit: number | null;
  says: string;
}

export interface LoggedDecision {
  at: string;
  domain: string;
  verdict: Outcome;
  source: string;
  rule: string | null;
  cost: number;
  wire: string;
  server: string;
  why: string;
}

export interface Domain {
  name: string;
  entity: string | null;
  tiers: string[];
  rules: number;
}

/** A limit of a quota or counter. */
export interface LimitValue {
  requests_per_unit?: number;
  unit?: string;
  limit?: string;
}

export interface Counter {
  rule: string;
  key: string[];
  limit: LimitValue;
  used: number;
  remaining: number;
  resets_at: string;
  resolved_by: string;
  source: string;
}

export interface Counters {
  domain: string;
  at: string;
  counters: Counter[];
  left_out: { rule: string; why: string }[];
}

/** An override; members that the dashboard does not know are preserved. */
export interface Override extends LimitValue {
  descriptor?: string;
  rule?: string;
  effective_at?: string;
  expires_at?: string;
  [other: string]: unknown;
}

export interface QuotaItem {
  api_key: string;
  domain: string;
  tier?: string;
  overrides?: Override[];
  effective_at?: string;
  expires_at?: string;
  /** A scheduled change. */
  next?: unknown;
  generation: number;
  updated_at: string;
  updated_by: string;
}

export interface Block {
  name: string;
  domain: string | null;
  range: boolean;
  status: number | null;
  shadow: boolean;
  reason: string;
  expires_at: string | null;
  in_force: boolean;
}

export interface Emergency {
  name: string;
  domain: string | null;
  callers?: string;
  rule?: string;
  percent?: number;
  requests_per_unit?: number;
  unit?: string;
  limit?: string;
  reason: string;
  expires_at: string;
  in_force: boolean;
}

/** A page of a list; the next begins after `next`. */
export interface ListPage<T> {
  items: T[];
  next: string | null;
}

export interface Explained {
  domain: string;
  cost: number;
  allowed: boolean;
  rules: ExplainedRule[];
  more: number;
}

export interface ExplainedRule {
  name: string;
  fate: "applies" | "unlimited" | "misses";
  why?: string;
  counters: ExplainedCounter[];
}

export interface ExplainedCounter {
  key: string[];
  limit: number;
  window: string;
  algorithm: string;
  mode: string;
  units: number;
  remaining: number;
  has_room: boolean;
}

export interface AuditEntry {
  id: number;
  at: string;
  by: string;
  from: string;
  action: string;
  kind: string;
  domain: string;
  name: string;
  before: unknown;
  after: unknown;
  reason: string;
}
