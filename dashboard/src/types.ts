// Responses of the admin API, as far as the dashboard uses them. Times are RFC 3339 texts, durations are seconds.

import type { Outcome } from "./outcomes.ts";
import type { SecondBody } from "./pure/series.ts";

export type Scope = "read" | "quota" | "rules" | "emergency" | "audit" | "check";

export interface Me {
  name: string;
  scopes: Scope[];
  /** No authentication is configured: every user of that machine is accepted. */
  open: boolean;
  /** Whether the server has a gateway. */
  gateway: boolean;
  /** Whether the server knows other regions. */
  regions: boolean;
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

export interface Overview {
  at: string;
  /** The newest point of the history; `null` before the first sample. */
  second: SecondBody | null;
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
  /** Requests that no rule applies to, where the server counts them. */
  unmatched?: { share: number; attributes?: string[] };
}

/** A rule that refused in the last minute, or would have. */
export interface RefusingRule {
  domain: string;
  rule: string;
  mode: string | null;
  rates: Rates;
}

/** The full overview has more than the live events. */
export interface FullOverview extends Overview {
  servers: ServerRow[];
  refusing: RefusingRule[];
}

/** Something that changed: of the server, or by an operator. */
export interface ServerEvent {
  at: string;
  kind: string;
  text: string;
  domain: string | null;
  name: string | null;
  by: string | null;
  reason: string | null;
}

export interface Events {
  items: ServerEvent[];
  changes: "shown" | "not_allowed" | "unavailable";
}

export interface SwitchItem {
  what: "everything" | "domain" | "rule";
  domain: string | null;
  rule: string | null;
  mode: string;
  reason: string;
  expires_at: string | null;
  in_force: boolean;
}

/** One rule: what it says, and what it does. */
export interface RuleDetail {
  activity: RuleRow;
  conditions: { attribute: string; test: string }[];
  cost: string;
  entity: string | null;
  by_tier: boolean;
  terms: { tier: string; limit: string; amount: number | null; algorithm: string | null; burst: number | null }[];
  policy: string;
  /** What its limits mean in several regions, as a rule file has it: `each`, `home: us-east`. */
  region: string;
  label: string | null;
  file: string;
  line_number: number;
  version: number | null;
  line: { from: string; step_seconds: number; allow: (number | null)[]; deny: (number | null)[]; would_deny: (number | null)[] } | null;
}

export type RegionLinkName = "together" | "lagging" | "apart";

/** Quantiles of the last minute. */
export interface RegionTimes {
  count: number;
  p50: number | null;
  p99: number | null;
}

/** A region as a server sees it. The members from `link` on are those of other regions. */
export interface RegionRow {
  name: string;
  this: boolean;
  servers: number;
  decisions_per_second: number;
  nodes: { shard: string; state: Circuit["state"]; error: string | null }[];
  link?: RegionLinkName;
  /** 0: together; 1 to 6: limits are lowered; 7: apart. */
  step?: number;
  oldest_seconds?: number;
  waiting?: number;
  units?: { sent: number; unsure: number; aged: number; dropped: number; returned: number; back: number };
  lag?: RegionTimes;
  calls?: RegionTimes;
}

/** A rule whose limits mean something in several regions together. */
export interface RegionRule {
  domain: string;
  rule: string;
  mode: string;
  region: string;
  terms: string;
  apart: "alone" | "share" | null;
}

export interface Regions {
  server: string;
  at: string;
  region: string | null;
  available: boolean;
  regions: RegionRow[];
  rules: RegionRule[];
  omitted: number;
}

/** A version of a rule by API. */
export interface RuleVersion {
  rule_id: string;
  domain: string;
  status: string;
  version: number;
  author: string;
  reason: string;
  updated_at?: string;
  created_at?: string;
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
  /** Whether a rule has a limit of its own for it. */
  limited: boolean;
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

/** A key of which a server leases units. */
export interface HotKey {
  domain: string;
  rule: string;
  key: string;
  caller: string | null;
  units_per_second: number;
  chunk: number;
  units_held: number;
  local_share: number;
}

export interface Leases {
  server: string;
  /** Not with counters in memory. */
  available: boolean;
  enabled: boolean;
  leased_keys: number;
  units_held: number;
  units: { taken: number; spent: number; returned: number; expired: number };
  calls: { miss: number; ahead: number; back: number };
  refusals: number;
  keys_shown: boolean;
  keys: HotKey[];
}

export interface RaisedSignal {
  domain: string;
  signal: string;
  per: string[];
  key: string;
  distinct: string;
  count: number;
  threshold: number;
  window_seconds: number;
  since: string;
  last: string;
  examples: string[];
}

export interface Signals {
  at: string;
  keys_shown: boolean;
  signals: { domain: string; signal: string; raised: number; keys: number; displaced: number }[];
  items: RaisedSignal[];
  /** Raised, but not listed. */
  omitted: number;
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
  server: string;
  why: string;
  limits: { rule: string; mode: string }[];
  /** If the entry stands for several decisions: their number, and the time of the last one. */
  count?: number;
  until?: string;
}

export interface DecisionLog {
  decisions: LoggedDecision[];
  log: { place: string; keep_seconds: number; sample: number; callers: number };
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
  burst?: number;
}

export interface Counter {
  rule: string;
  mode?: string | null;
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
  /** Null if requests name the tier, and the server has seen none of this caller. */
  tier: { name: string; by: "quota" | "request" | "default"; seen_seconds_ago?: number } | null;
  /** The attribute with which requests name the tier. */
  tier_from: string | null;
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
  burst?: number;
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

/** The gateway of a server: totals are since its start. */
export interface GatewayStatus {
  server: string;
  routes: GatewayRoute[];
  upstreams: GatewayUpstream[];
  worker: GatewayWorker;
  shed: { by: "adaptive" | "fairness" | "worker" | "fleet"; refused: RefusedByClass }[];
}

export interface RefusedByClass {
  test: number;
  get: number;
  post: number;
  critical: number;
}

/** The shedder of the server itself. */
export interface GatewayWorker {
  mode: SheddingMode;
  /** How busy this process is, from 0 to 1. */
  utilisation: number;
  /** The share of the requests that is shed, from 0 to 1. */
  amount: number;
  refused: RefusedByClass;
}

export interface GatewayRoute {
  name: string;
  matches: string;
  upstream: string;
  informational: number;
  successful: number;
  redirected: number;
  client_errors: number;
  server_errors: number;
  limited: number;
  shed: number;
}

export interface GatewayUpstream {
  name: string;
  requests: number;
  retries: number;
  failures: number;
  timeouts: number;
  servers: GatewayServer[];
  cap: GatewayCap;
  fairness: GatewayFairness | null;
}

export interface GatewayServer {
  address: string;
  healthy: boolean;
  ejected: boolean;
  in_flight: number;
  connections: number;
}

export type SheddingMode = "enforce" | "shadow" | "off";

export interface GatewayCap {
  mode: SheddingMode;
  limit: number;
  in_flight: number;
  gradient: number;
  burst_queue_size: number;
  min_rtt_ms: number | null;
  sample_rtt_ms: number | null;
  probing: boolean;
  refused: RefusedByClass;
  reserves: GatewayReserve[];
}

/** The reserve of a tier, or with `tier` null all callers without one. */
export interface GatewayReserve {
  tier: string | null;
  share: number | null;
  reserved: number;
  in_flight: number;
  refused: number;
}

export interface GatewayFairness {
  mode: SheddingMode;
  pressure: number;
  lowered: number;
  fair_rate: number | null;
  callers: number;
  tiers: { tier: string; lowered: number; ceiling: number | null; refused: number }[];
}

/** A shedder of an upstream that can be switched. */
export type UpstreamShedder = "adaptive" | "fairness";
