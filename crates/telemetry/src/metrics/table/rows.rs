//! The rows of the table.

use super::{MetricGroup, MetricInfo, MetricKind};

/// Builds a section from rows: kind, name and labels; help; advice. Or takes one from its own file.
macro_rules! families {
    ({ $($kind:ident $name:ident [$($label:ident)*] $help:literal $advice:literal)* }) => {
        &[$(MetricInfo {
            kind: MetricKind::$kind,
            name: stringify!($name),
            labels: &[$(stringify!($label)),*],
            help: $help,
            advice: $advice,
        }),*]
    };
    ([$families:path]) => { $families };
}

mod events;
mod gateway;

/// Builds the table from sections: title, introduction and rows.
macro_rules! groups {
    ($($title:literal $about:tt $rows:tt)*) => {
        /// All metrics, in the order of the page.
        pub const GROUPS: &[MetricGroup] =
            &[$(MetricGroup { title: $title, about: $about, families: families!($rows) }),*];
    };
}

groups! {
"Decisions by rule and tier" "
Each decision is counted once, under the rule that decided it: the rule that denied it, else a rule that would have
denied it if it were enforced, else the tightest rule that applied. `rule` is `none` if no limit applied, and `block` if
the caller is blocked. `tier` is the name of the tier if the rule has limits by tier, else `default`; `override` for
callers with a limit of their own, `emergency` while an emergency override is in force, `request` for limits that came
with the request. RESP throttles have no rule; they are in the domain `resp` under the rule `throttle`.

| `outcome` | |
| --- | --- |
| `allow` | allowed |
| `deny` | denied by a limit |
| `shadow` | allowed, but a limit in shadow mode would have denied it; on a server in shadow mode, every denial |
| `soft` | allowed, beyond a soft limit |
| `shed` | allowed without asking the store, because there were too many checks at once |
| `blocked` | denied, because the caller is blocked |
| `assumed` | allowed, because the store did not answer |

A server has series for up to 10,000 rules and tiers; the others are counted together as domain, rule and tier `other`.
Series of removed rules stay until that bound is reached or the server restarts.

```promql
sum by (rule) (rate(ratelimit_denied_total[5m])) / sum by (rule) (rate(ratelimit_decisions_total[5m]))
topk(10, max by (domain, rule, tier) (ratelimit_utilization))
histogram_quantile(0.99, sum by (le) (rate(ratelimit_check_duration_seconds_bucket{part=\"decision\"}[5m])))
```
" {
Counter ratelimit_decisions_total [domain rule tier outcome]
    "Decisions, each counted once, by the rule that decided it, its tier, and outcome: allow, deny, shadow, soft, shed, blocked, assumed"
    "The first graph of any dashboard. Much `shadow` under a rule: enforcing it would deny that much"
Counter ratelimit_denied_total [domain rule tier]
    "Denied requests: the outcomes deny and blocked"
    "A sudden rise is a runaway caller, a client's bad deploy, or a rule that is too tight: `ratelimit_top_denied` shows which"
Histogram ratelimit_check_duration_seconds [part]
    "Duration of checks, in total (decision) and waiting for the store (store); in memory one check in sixteen is timed and counts as sixteen; throttles are not timed"
    "Compare the 99th percentile with your gateway's timeout (Envoy: 20 ms). If `store` is most of it, look at Redis"
Gauge ratelimit_limit [domain rule tier]
    "Amount of the limit of a rule in force for a tier, in units per period"
    "Shown with utilization, it tells what a change of the limit would mean"
Gauge ratelimit_utilization [domain rule tier]
    "Share of its limit that the caller nearest to it used in the last 30 to 60 seconds: 1 is all; 0 without requests"
    "Above 0.8 for long: a caller needs another tier, or is about to be limited"
Gauge ratelimit_remaining [domain rule tier]
    "Fewest units that any caller had left in the last 30 to 60 seconds (a minimum over callers, not a sum); the full limit without requests"
    "0: a caller is being denied, or is about to be"
Gauge ratelimit_top_denied [rank key]
    "Denials in the last 5 minutes of the up to 10 keys with the most; keys are hashed unless metrics_show_keys is set"
    "`tollgate top` or the dashboard show the key to those with access"
Gauge tollgate_signals_raised [domain signal]
    "Keys for which a signal is raised, such as addresses with too many accounts, on all servers together"
    "Above 0: `tollgate signals` or the dashboard show the keys with examples to those with access"
Gauge tollgate_signal_keys [domain signal]
    "Keys that a signal counts on this server"
    "At 10,000 the table is full: keys with few values are displaced"
Counter tollgate_signal_keys_displaced_total [domain signal]
    "Keys that were displaced because the table of the signal was full"
    "A steady rise is a flood of made-up values. Keys with many values stay"
Counter tollgate_bans_total [domain rule result]
    "Bans that this server began, by the rule that refused (result `begun`); refusals of those that are never banned (`exempt`); bans that could not begin and subjects that were forgotten because there were too many (`dropped`)"
    "A rise of `begun`: an attack, or a limit that is too low: `tollgate block list --bans` shows who and why. Any `dropped`: the limits still refuse them"
Gauge tollgate_series_other []
    "1 if there are more rules and tiers than series, so that the rest is counted as `other`"
    "Use fewer rules with more keys each, or aggregate by domain"
}

"Names of envoyproxy/ratelimit" "
For dashboards that were built for it: the same names, with the domain and, as `key1`, the rule. They are untyped, since
its counters do not end in `_total`; `rate()` works on them all the same. They count units (hits), not decisions. A
denied request consumes nothing here, so all of its units are over the limit.
" {
Untyped ratelimit_service_rate_limit_total_hits [domain key1]
    "Units requested from a rule"
    "The traffic of a rule"
Untyped ratelimit_service_rate_limit_over_limit [domain key1]
    "Units beyond the limit of a rule"
    "As a share of `total_hits`: how much a rule denies"
Untyped ratelimit_service_rate_limit_near_limit [domain key1]
    "Units within the limit of a rule, beyond four fifths of it"
    "Rises before denials do"
Untyped ratelimit_service_rate_limit_within_limit [domain key1]
    "Units within the limit of a rule"
    "The allowed traffic of a rule"
Untyped ratelimit_service_rate_limit_shadow_mode [domain key1]
    "Units beyond the limit of a rule that passed because it is in shadow mode"
    "The traffic that enforcing the rule would deny"
Untyped ratelimit_service_rate_limit_over_limit_with_local_cache [domain key1]
    "Units denied from the deny cache, without asking the store"
    "The load that the deny cache takes off the store"
}

"Decisions by wire" "
`wire` is `grpc`, `http` or `resp`; `outcome` is `allow` or `deny`, by the rules (a server in shadow mode lets denied
requests pass and counts them as denied here). `source` is what the decision is based on:

| source | |
| --- | --- |
| `store` | the store of the counters |
| `cache` | the deny cache: a denial is cached until its wait is over |
| `summed` | what this server counts, and what the others published of theirs (`count: summed`) |
| `local` | local memory of this server, while the store is unavailable; or one counter for the new keys of a rule, because the store is full |
| `assumed` | the policies of the rules, because the store failed |
| `shed` | the policies of the rules, because there were too many checks at once |

The share of traffic that is decided without a counter:

```promql
sum(rate(tollgate_decisions_total{source=~\"assumed|shed\"}[5m])) / sum(rate(tollgate_decisions_total[5m]))
```
" {
Counter tollgate_decisions_total [wire outcome source]
    "Decided checks, by wire, outcome (allow, deny) and source: store, cache, local, or the policies of the rules (assumed: the store failed; shed: too many checks at once)"
    "Traffic by wire, and the share that is decided without the store"
Counter tollgate_bad_requests_total [wire]
    "Invalid checks, and receipts that could not be settled, answered with an error"
    "A misconfigured client: log level debug shows each request"
Counter tollgate_unmatched_checks_total [wire domain]
    "Checks that passed because no rule applied to them, by wire and domain"
    "Expected for requests that are exempt. If it is most of them, clients send attributes that no rule reads: the log names them, and `tollgate explain` shows what is missing"
Counter tollgate_authorize_unmatched_total []
    "Requests of proxies that passed because no rule applied or they were invalid: a proxy never gets an error"
    "If it is all of them, the proxy sends attributes that no rule has; `tollgate explain` shows what is missing"
Counter tollgate_authorize_bad_cost_total []
    "Requests of proxies whose cost was not a whole number above 0, and counted as 1"
    "Check where the proxy takes the cost from"
Counter tollgate_soft_limits_passed_total [wire]
    "Soft limits that requests exceeded"
    "The requests that enforcing these rules would deny"
Counter tollgate_concurrency_not_applied_total [wire]
    "Concurrency limits that did not apply to a check, since its caller could not release the slot"
    "These callers must request receipts, or such rules have no effect on them"
Counter tollgate_unknown_domain_checks_total [wire]
    "Checks of a domain that has no rules: they pass over gRPC and `/json`, and get 404 over HTTP"
    "A wrong `domain` in a gateway, or a rule file that was removed: nothing is limited there"
Counter tollgate_shed_checks_total [wire policy]
    "Checks that were decided without the store because there were too many in flight, by the most important policy of their rules: comfort from 70 % of the bound on, cost from 80 %, quota from 90 %, security at the bound"
    "The store is slow, or `…_max_in_flight` too small. `security`: logins and the like are refused"
Counter tollgate_repaired_checks_total [wire reason]
    "Checks with an invalid part that were decided all the same. `reason`: `long_text`, `not_text`, `bad_cost`, `bad_name`, `key_conflict`, `too_many`, or `undecided` (the policies of the rules decided)"
    "Clients that try values beyond all bounds; a gateway that takes a cost or an idempotency key from them"
Gauge tollgate_checks_in_flight [wire]
    "Checks, and settlements of receipts, in flight"
    "Near the setting `…_max_in_flight`: the store is slow, and checks are about to be shed"
}

"Receipts and idempotency" "
See [http.md](http.md#check-then-settle). Any server may settle a receipt that another issued. Then
`tollgate_receipts_open` and `tollgate_receipts_unsettled` rise on the one and fall on the other, even below 0, and only
the sum over the fleet is correct. They are updated every second as receipts expire (every ten minutes for rules whose
`hold` is longer than 1,000 s) and start at 0 with the process: if a server restarts and others settle the receipts that
it issued before, the sum is too low by that number. The number of receipts that were not settled in the last ten
minutes, and its share of all receipts:

```promql
sum(delta(tollgate_receipts_unsettled[10m]))
sum(delta(tollgate_receipts_unsettled[10m])) / sum(increase(tollgate_receipts_issued_total[10m]))
```
" {
Counter tollgate_receipts_issued_total []
    "Receipts issued to checks; a repeated one is not counted again"
    "The number of checks whose cost is not final yet"
Counter tollgate_receipts_settled_total [outcome]
    "Settled receipts, by outcome: ok, failed, or running (which renews them); a repeated settlement is not counted again"
    "Many `failed`: the service behind the limiter fails"
Counter tollgate_receipts_deferred_total []
    "Receipts settled while the store was unavailable; the store gets them when it is back"
    "They are late, not lost, unless `tollgate_store_errands_dropped_total` rises"
Counter tollgate_receipts_refused_total [reason]
    "Receipts that were not settled, by reason: malformed, foreign (signed with an unknown key), forged, expired, already_settled (with another outcome or cost), bad_cost, pending (another settlement is in progress), too_busy (too many at once)"
    "`foreign`: servers have different keys; `expired`: the `hold` of a rule is shorter than its requests take"
Gauge tollgate_receipts_open []
    "Open receipts, neither settled nor expired: those that this server issued minus those that it settled"
    "Requests in progress, as far as they have receipts"
Gauge tollgate_receipts_unsettled []
    "Receipts that expired without being settled, since the start: those that this server issued minus those that it settled; only the sum over all servers is correct"
    "Callers that crash or do not settle: the units they reserved stay spent, and their slots are free only when `hold` is over"
Counter tollgate_idempotent_replays_total [wire]
    "Checks answered from a stored response with the same idempotency key; they consume nothing and count as decisions"
    "Retries that did no harm"
Counter tollgate_idempotency_conflicts_total [wire]
    "Checks with an idempotency key of another request, decided without it"
    "A client that generates its keys wrongly"
}

"Decision log" "
Entries of the decision log.
" {
Counter tollgate_decision_log_entries_total [result]
    "Entries of the decision log that were written, were dropped because too many came at once, or failed to be written, and refusals that an entry of the same caller and rule summarizes"
    "`dropped`: reduce the sample, or use a faster disk; `failed`: the log has the reason"
}

"Control plane" "
Changes that operators make while the server runs ([control.md](control.md)).
" {
Gauge tollgate_control_generation []
    "Generation of the store of record that is in force here; the same on every server that is up to date"
    "A server that stays behind the others has no connection to the store of record"
Gauge tollgate_control_snapshot_age_seconds []
    "Seconds since the store of record was last read, or since the start if it has not been read yet; 0 without one"
    "Normally below 10. Above, changes by operators have no effect here: check the database and the network"
Gauge tollgate_control_callers []
    "Callers with a tier, an override or a block of their own"
    "The memory that they take"
Gauge tollgate_control_up []
    "1 if the store of record answered the last request; 0 if not, and without one"
    "0 with a store of record: writes fail, decisions continue with the last state"
Gauge tollgate_control_unconfirmed []
    "1 if the store of record is empty, older or another one than this server knows, and waits for confirmation; else 0"
    "1: the known state stays in force and writes fail, until an operator restores the database or runs `tollgate control confirm` ([reliability.md](reliability.md))"
Counter tollgate_control_writes_total [result]
    "Writes through this server's admin API that were stored (ok) or not (bad)"
    "Any `bad`: the response to the writer has the reason"
Counter tollgate_guardrail_writes_total [result]
    "Writes through this server's admin API that guardrails judged: made (passed), made although nothing is known of what they do (unknown), held until they are confirmed (held), confirmed (confirmed), or emergencies above the thresholds (warned); and rule files that were held or warned of"
    "`held`: an operator was about to refuse much of the traffic ([guardrails.md](guardrails.md))"
Counter tollgate_control_unreadable_records_total []
    "Records that could not be parsed because a newer Tollgate wrote them; they are not in force"
    "Bring all servers to one version"
Counter tollgate_admin_logins_failed_total []
    "Requests to the admin listener with an unknown or expired token"
    "A few from one address are a program with an old token; many are somebody who guesses ([security.md](security.md))"
}

"Changes" "
How long a change takes from being written to being in force on this server: from the time of its record in the store of
record, or from the change of the file. Several records of one kind in one write are one change. Both ends are clocks of
servers, which must agree (NTP); a change from a clock ahead of this one took no time. What was written before the server
started is not measured, nor what a server loads as a whole. The objectives are in [slo.md](slo.md).

| `kind` | |
| --- | --- |
| `files` | rule files: rules, and the limits of tiers |
| `rule` | a rule by API, and its state |
| `quota` | the tier and the overrides of a caller |
| `block`, `emergency`, `switch` | blocks, emergencies, switches |
| `token` | tokens of the admin API |

```promql
histogram_quantile(0.99, sum by (kind, le) (rate(tollgate_change_in_force_seconds_bucket[1h])))
```
" {
Histogram tollgate_change_in_force_seconds [kind]
    "Time from a change being written to it being in force on this server, by kind: files, rule, quota, block, emergency, switch, token"
    "Above 5 s: the server reaches the store of record late, or files are found by polling only. Above 60 s: it was cut off"
}

"Connections" "
`listener` is a wire or `admin`.
" {
Gauge tollgate_connections_open [listener]
    "Open connections"
    "Near the setting `…_max_connections`: new ones are about to be closed"
Counter tollgate_connections_accepted_total [listener]
    "Accepted connections"
    "As many as requests: clients do not reuse connections"
Counter tollgate_connections_refused_total [listener]
    "Connections closed because there were too many: new ones, or others that had sent no request"
    "More servers, a higher bound, or a client that leaks connections"
Counter tollgate_tls_handshake_failures_total [listener]
    "Failed TLS handshakes"
    "An expired certificate, or a client without one"
}

"Rules" "" {
Gauge tollgate_rules_valid []
    "1 if the rule files are in force, 0 if they have errors and the last good rules are in force"
    "0: `/readyz` and the log have file, line and remedy"
Counter tollgate_rules_reloads_total [result]
    "Loads of rules that succeeded (ok) or failed (bad)"
    "A steady rate of `ok`: something writes rule files for no reason"
Gauge tollgate_rules_last_reload_success_timestamp_seconds []
    "Unix time of the last successful load of rules"
    "Older than your last deploy of rules: it did not arrive"
Gauge tollgate_rules_generation []
    "Number of the ruleset in force, counted since the start; servers may have different numbers"
    "A step is a reload: overlay it on graphs of denials"
Gauge tollgate_rules_domains []
    "Domains of the rules in force"
    "Fewer than on other servers: a file is missing"
Gauge tollgate_rules_loaded []
    "Rules in force"
    "The same on all servers that read the same files"
}

"Counters in memory" "" {
Gauge tollgate_store_keys []
    "Counters in memory, including stale ones that are not swept yet"
    "Compare with the setting `max_keys`"
Counter tollgate_store_swept_keys_total []
    "Stale counters that were removed"
    "With `tollgate_store_keys`: how many callers come and go"
Counter tollgate_store_evicted_keys_total []
    "Live counters that were evicted because the store was full: their callers start from zero"
    "Any: more memory for the store, or counters in Redis"
Counter tollgate_store_coarse_charges_total []
    "Charges of new keys that were counted together with other keys of their rule, because there was no room for them: in memory when \
     the share of a rule is full of counters that refuse, with a shared store when `local_keys` is reached during an outage"
    "Any: new callers share one limit. Look for a rule whose keys anybody can make up; raise `max_keys` or `local_keys`"
Counter tollgate_store_uncounted_refusals_total []
    "Charges of new keys that were refused because there was no room for them in memory and their policy is to refuse"
    "Any: new callers of a `security` or `quota` rule are turned away. Look for a rule whose keys anybody can make up; raise `max_keys`"
Gauge tollgate_store_once_records []
    "Records of claims that are settled once: idempotency keys, settled receipts"
    "The memory that they take"
Counter tollgate_store_evicted_once_records_total []
    "Such records that were evicted before their time because there were too many"
    "A later retry counts twice: use a shorter `idempotency_ttl`"
Counter tollgate_snapshots_total [result]
    "Snapshots of the counters that were written (ok) or not (bad)"
    "`bad`: a crash now would lose more than one interval"
Gauge tollgate_snapshot_duration_seconds []
    "Duration of the last snapshot"
    "Longer than the interval: write them less often"
Gauge tollgate_snapshot_size_bytes []
    "Size of the last snapshot"
    "The disk space it needs, twice while one is written"
Gauge tollgate_snapshot_last_success_timestamp_seconds []
    "Unix time of the last snapshot; 0 if there is none"
    "The counts that a crash would lose"
}

"Counters in a shared store" "
With counters in memory there is one shard, `memory`, whose circuit is closed, and the numbers are 0. Otherwise `shard`
is the address of a node: there are as many series as the cluster has nodes. See [redis.md](redis.md).
" {
Gauge tollgate_store_level []
    "How much of the store answers: 0 normal, 1 degraded (some circuits are open), 2 local-only (all are open), 3 open (all are open, and requests pass uncounted)"
    "The state of the whole store in one number"
Gauge tollgate_circuit_state [shard]
    "Circuit of a shard of the store: 0 closed (claims are sent), 1 half-open (it is being probed), 2 open (it failed too often and gets no claims)"
    "2: check that node and the network; `/readyz` has the reason"
Counter tollgate_store_errors_total [shard reason]
    "Claims that a shard of the store did not settle, by shard and reason: timeout, unreachable, refused (an error response), late (this server was not scheduled in time)"
    "`timeout` alone: a slow node; `refused`: see the log of the node; `late`: this server needs more processor time"
Counter tollgate_failopen_total [reason]
    "Requests that passed although the store did not count all of them, by reason: open (the circuit is), timeout, unreachable, refused, shed (too many checks at once), panic; includes those that local memory counted"
    "Requests that may have passed against the rules; rules that must deny instead have `policy: security`"
Gauge tollgate_store_replicas []
    "Servers that share the store, including this one, by the last heartbeat; 0 without a shared store"
    "Limits are divided by it while the store is unavailable"
Gauge tollgate_lease_keys []
    "Busy keys of which this server takes units ahead of requests"
    "At `lease_keys`: other busy keys are decided by the store, one call each"
Gauge tollgate_lease_units_held []
    "Units that this server took from the store and has not spent"
    "Large next to the limits of few keys: other servers miss them; lower `lease_time`"
Counter tollgate_lease_units_total [kind]
    "Units by what became of them: taken ahead of requests, spent, returned, expired (also dropped and lost), unanswered (the store may have given them), impossible (dropped, because the store can't have given them); and advanced: admitted by rules with `ahead` before the store counted them"
    "expired grows with taken: traffic comes in short bursts; impossible above 0: please report it"
Counter tollgate_lease_calls_total [kind]
    "Calls to the store for leased keys: miss (a request waited), ahead (none waited), back (units were returned), debit (what was admitted ahead is counted)"
    "miss is a large share of decisions: the keys are not busy enough to gain from leases"
Counter tollgate_lease_refusals_total []
    "Requests that were refused without the store, because it had no units a moment ago"
    "A share of the refusals of callers that are over their limits"
Gauge tollgate_summed_in_flight [domain rule]
    "Requests in flight that this server admitted by a rule with `count: summed`"
    "Those that end without a release stay until their `hold` is over"
Gauge tollgate_summed_in_flight_fleet [domain rule]
    "The same of all servers, by the last exchange"
    "Compare it with the amounts of the rule; the servers agree on it within a second"
Gauge tollgate_summed_age_seconds []
    "Time since the last exchange of these counts that was answered; 0 if there was none"
    "Above 0.75: each server enforces its share of these limits. `/readyz` says so"
Gauge tollgate_summed_stale []
    "Whether what the other servers count is unknown, so that this server enforces its share of these limits: 1 or 0"
    "1: check the node of Redis and the network"
Gauge tollgate_summed_servers []
    "Servers with requests in flight under these rules, by the last exchange, and this one; 0 if there was none"
    "Fewer than there are: some receive no such requests, or don't reach Redis"
Counter tollgate_summed_notes_dropped_total []
    "Releases of requests that another server admitted, which were dropped because too many waited"
    "Their slots end with their `hold`. Releases that go to the server that admitted the request need no note"
Counter tollgate_summed_without_place_total []
    "Charges of counters for which there was no place, so that Redis counted them"
    "Any: their limits hold for what Redis counts and for what servers count, each by itself; reload fewer rules at once"
Histogram tollgate_region_lag_seconds [region]
    "How long units that rules with `region: global` took here were not counted in another region: from the first of a debit to its answer"
    "Near `region_beat` plus the way there and back; from 0.5 s on such limits are lowered"
Gauge tollgate_region_oldest_seconds [region]
    "The age of the oldest debit that another region has not answered"
    "Above 0.5: the way to that region or its store is slow; above 2 the regions are apart"
Counter tollgate_region_units_total [region how]
    "Units that rules with `region: global` took here, by what became of them in another region: sent, unsure (no answer, not repeated), aged (they no longer counted), dropped (too many waited), evicted (the same, below the threshold of their rule), returned (given back before they were sent), back (given back after they were sent)"
    "unsure and dropped are missing there; aged grows while regions are apart"
Gauge tollgate_region_apart [region]
    "Whether another region does not get the debits of this server: 1 if its circuit is open or debits are older than 2 s"
    "1: rules with `region: global` count alone or with the share of this region"
Gauge tollgate_region_step [region]
    "What debits that are late in another region do to rules with `region: global`: 0 nothing, 1 to 6 their limits are lowered by so many steps towards an equal share, 7 the regions are apart"
    "1 to 6 for long: the way to that region or its store is slow; the region with the highest step decides"
Histogram tollgate_region_calls_seconds [region]
    "How long checks waited for the store of another region, for rules with `region: home`"
    "At `region_deadline`: such rules follow their policies"
Gauge tollgate_store_local_keys []
    "Counters in local memory, while the store is unavailable or until they are sent to it"
    "Above 0 with a healthy store: counts that are still to be sent"
Gauge tollgate_store_owed_keys []
    "Local counters that are still to be sent to the store"
    "Falls to 0 after an outage"
Gauge tollgate_store_errands []
    "Claims in the outbox, to be sent to the store: units to return, receipts settled meanwhile"
    "Falls to 0 after an outage"
Counter tollgate_store_errands_dropped_total []
    "Claims of the outbox that could not be sent and never will be: the store counts slightly more or less than passed"
    "An outage was longer than the outbox can hold"
Counter tollgate_store_claims_total []
    "Claims sent to the store, repetitions included"
    "Load on the store"
Counter tollgate_store_script_calls_total []
    "Calls of the script that settles claims; claims that arrive together share one"
    "Claims per call: how well they are batched"
Counter tollgate_store_batches_total []
    "Round trips to the store"
    "Calls per round trip: how well they are pipelined"
Counter tollgate_store_connections_lost_total []
    "Connections to the store that broke"
    "Failovers, or a network that closes idle connections"
Counter tollgate_store_resent_total [reason]
    "Claims that were sent again, by the response that proved that they had not been settled; no series until there is one"
    "`moved` during resharding is normal"
Counter tollgate_store_unsound_values_total []
    "Invalid values in the store, treated as fresh counters"
    "Another program writes to our keys"
Counter ratelimit_redis_errors_total [shard reason]
    "The same as tollgate_store_errors_total, under the name that dashboards of other limiters use"
    "See tollgate_store_errors_total"
Counter ratelimit_failopen_total [reason]
    "The same as tollgate_failopen_total, under the name that dashboards of other limiters use"
    "See tollgate_failopen_total"
Gauge ratelimit_circuit_state [shard]
    "The same as tollgate_circuit_state (0 closed, 1 half-open, 2 open), under the name that dashboards of other limiters use"
    "See tollgate_circuit_state"
}

"Gateway" (gateway::ABOUT) [gateway::FAMILIES]

"Events" (events::ABOUT) [events::FAMILIES]

"Server" "" {
Gauge tollgate_ready []
    "1 if the server is ready, 0 while it starts or stops"
    "Fewer ready servers than you run: look at those that are not"
Gauge tollgate_degraded [part]
    "1 if a component is degraded: the health page has the reason"
    "See `/readyz` of that server"
Info tollgate_build_info [version]
    "Version of the server"
    "More than one version for long: a rollout that stopped"
Counter tollgate_log_lines_lost_total []
    "Log lines that were lost because standard error was too slow"
    "The log collector is too slow"
Counter tollgate_trace_spans_total [result]
    "Spans by result: accepted by the collector (ok), rejected by it or lost on the way (bad), or dropped because too many came at once (dropped)"
    "`dropped`: reduce the sample; `bad`: look at the collector"
Counter process_cpu_seconds_total []
    "CPU time used, in seconds"
    "Divided by decisions: the cost of one"
Gauge process_resident_memory_bytes []
    "Resident memory"
    "Compare with the limit of the machine or container"
Gauge process_virtual_memory_bytes []
    "Virtual memory"
    "Rarely of interest"
Gauge process_open_fds []
    "Open file descriptors"
    "Near `process_max_fds`: connections are about to fail"
Gauge process_max_fds []
    "Maximum number of open file descriptors"
    "Raise it (`LimitNOFILE`) before the bound on connections"
Gauge process_threads []
    "Threads"
    "Constant"
Gauge process_start_time_seconds []
    "Unix time of the start of the process"
    "`changes()` of it counts restarts"
}
}
