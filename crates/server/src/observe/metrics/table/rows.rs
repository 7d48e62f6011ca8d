//! Every metric.

use super::{Described, Group, Kind};

/// Rows as they are read: kind, name, labels; what it says; what to do with it.
macro_rules! groups {
    ($($title:literal $about:literal {
        $($kind:ident $name:ident [$($label:ident)*] $help:literal $advice:literal)*
    })*) => {
        /// All of them, in the order of the page.
        pub(in super::super) const GROUPS: &[Group] = &[$(Group {
            title: $title,
            about: $about,
            families: &[$(Described {
                kind: Kind::$kind,
                name: stringify!($name),
                labels: &[$(stringify!($label)),*],
                help: $help,
                advice: $advice,
            }),*],
        }),*];
    };
}

groups! {
"Decisions by rule and tier" "
Each decision is counted once, under the rule that decided it: the one that refused; else one that would have, had it been
enforced; else the tightest of those that applied. `rule` is `none` where no limit applied and `block` where the caller is
blocked. `tier` is the tier's name where the rule tells tiers apart, `default` where it does not, `override` for callers with a
limit of their own, `emergency` while an emergency override holds, `request` for limits that came with the request. RESP's throttles,
which have no rule, are in domain `resp` under the rule `throttle`.

| `outcome` | |
| --- | --- |
| `allow` | it passed |
| `deny` | a limit refused it |
| `shadow` | it passed, and a limit that is only tried would have refused it; on a server in shadow mode, every refusal |
| `soft` | it passed, beyond a soft limit |
| `shed` | it passed because there were too many checks at once to ask the store |
| `blocked` | it was refused because the caller is blocked |
| `assumed` | it passed because the store could not answer |

Rules and tiers are told apart up to 10,000 of them on a server; past that they are counted together, as domain, rule and tier
`other`. Series of rules that are gone stay until there are so many or the server is started anew.

```promql
sum by (rule) (rate(ratelimit_denied_total[5m])) / sum by (rule) (rate(ratelimit_decisions_total[5m]))
topk(10, max by (domain, rule, tier) (ratelimit_utilization))
histogram_quantile(0.99, sum by (le) (rate(ratelimit_check_duration_seconds_bucket{part=\"decision\"}[5m])))
```
" {
Counter ratelimit_decisions_total [domain rule tier outcome]
    "Decisions, each once, by the rule that decided it, its tier, and outcome: allow, deny, shadow, soft, shed, blocked, assumed"
    "The first graph of any dashboard. Much `shadow` under a rule: it would refuse that much if it were enforced"
Counter ratelimit_denied_total [domain rule tier]
    "Decisions that refused a request: the outcomes deny and blocked"
    "A sudden rise is a caller gone wild, a client's bad deploy, or a rule that is too tight: `ratelimit_top_denied` says which"
Histogram ratelimit_check_duration_seconds [part]
    "How long checks took, all of it (decision) and the wait for the store (store); in memory one in sixteen is timed and counts for sixteen; throttles are not timed"
    "Its 99th percentile against what your gateway waits (Envoy: 20 ms). If `store` is most of it, look at Redis"
Gauge ratelimit_limit [domain rule tier]
    "The amount that a rule in force holds a tier to, in units of its period"
    "Beside the use it shows what a change of the limit would mean"
Gauge ratelimit_utilization [domain rule tier]
    "How much of its limit the caller nearest to it had used in the last 30 to 60 seconds: 1 is all; 0 where nobody asked"
    "Long above 0.8: some caller needs another tier, or slows down soon"
Gauge ratelimit_remaining [domain rule tier]
    "The fewest units that any one caller had left in the last 30 to 60 seconds (a minimum over callers, not a sum); the most that a caller can have where nobody asked"
    "0: somebody is being refused, or is about to be"
Gauge ratelimit_top_denied [rank key]
    "Refusals of the last 5 minutes of the at most 10 keys with the most of them; keys are hashed unless metrics_show_keys is set"
    "Who it is: `tollgate top`, or the dashboard, shows the key to those who may see it"
Gauge tollgate_series_other []
    "1 if there are more rules and tiers than are told apart, and the rest is counted as `other`"
    "Fewer rules with more keys each, or count by domain"
}

"Names of envoyproxy/ratelimit" "
For dashboards that were made for it: the same names, with the domain and, as `key1`, the rule. They have no type, since there a
counter's name does not end in `_total`; `rate()` works on them all the same. They count units (hits), not decisions; a request that is refused takes nothing here, so all of
its units are over the limit.
" {
Untyped ratelimit_service_rate_limit_total_hits [domain key1]
    "Units that were asked of a rule"
    "Its traffic"
Untyped ratelimit_service_rate_limit_over_limit [domain key1]
    "Units for which a rule had no room"
    "As a share of `total_hits`: how much a rule refuses"
Untyped ratelimit_service_rate_limit_near_limit [domain key1]
    "Units that a rule had room for, past four fifths of its limit"
    "Rises before refusals do"
Untyped ratelimit_service_rate_limit_within_limit [domain key1]
    "Units that a rule had room for"
    "What passed"
Untyped ratelimit_service_rate_limit_shadow_mode [domain key1]
    "Units that passed although a rule had no room, since the rule is only tried"
    "What enforcing it would refuse"
Untyped ratelimit_service_rate_limit_over_limit_with_local_cache [domain key1]
    "Units that were refused from memory, without asking the store"
    "What the store is spared"
}

"Decisions by wire" "
`wire` is `grpc`, `http` or `resp`; `outcome` is `allow` or `deny`, by the rules (a server in shadow mode lets the denied
pass and counts them as denied here). `source` is what the decision rests on:

| source | |
| --- | --- |
| `store` | the store of record |
| `cache` | a refusal remembered for the length of its wait |
| `local` | this server's own memory, while the store is away |
| `assumed` | the policies of the rules, because the store failed |
| `shed` | the policies of the rules, because there were too many checks at once |

So the share of traffic that is decided without a counter is

```promql
sum(rate(tollgate_decisions_total{source=~\"assumed|shed\"}[5m])) / sum(rate(tollgate_decisions_total[5m]))
```
" {
Counter tollgate_decisions_total [wire outcome source]
    "Checks that were decided, by wire, outcome (allow, deny) and source: store, cache, local, or nobody's reading but the policies of the rules (assumed: the store failed; shed: too many checks at once)"
    "Where traffic comes from, and how much of it is decided without the store"
Counter tollgate_bad_requests_total [wire]
    "Checks that could not be decided as they were, and receipts that could not be settled, answered with an error"
    "A client that speaks to us wrongly: at log level debug each is a line"
Counter tollgate_authorize_unmatched_total []
    "Requests of proxies that passed because no rule applied to them or they could not be decided: a proxy is never answered with an error"
    "All of them: the proxy sends attributes that no rule has; `tollgate explain` shows what is missing"
Counter tollgate_authorize_bad_cost_total []
    "Requests of proxies whose cost was no whole number above 0, and counted as 1"
    "Look at what the proxy takes the cost from"
Counter tollgate_soft_limits_passed_total [wire]
    "Limits of rules with mode soft that requests went past"
    "What enforcing these rules would refuse"
Counter tollgate_concurrency_not_applied_total [wire]
    "Limits on concurrent requests that did not apply to a check, since its caller could not release what it would hold"
    "These callers have to ask for receipts, or such rules do nothing for them"
Gauge tollgate_checks_in_flight [wire]
    "Checks, and settlements of receipts, that have begun and not ended"
    "Near the setting `…_max_in_flight`: the store is slow, and checks are about to be shed"
}

"Receipts and idempotency" "
See [http.md](http.md#check-then-settle). Any server may settle what another gave. Then `tollgate_receipts_open` and
`tollgate_receipts_unsettled` go up on the one and down on the other, below 0 if need be, and only the sum over the fleet is the
truth. They are brought up to date second by second as receipts end (every ten minutes for rules whose `hold` is longer than 1,000 s)
and start at 0 with the process: a server that is started anew while others settle what it gave before leaves the sum too low by so
many. How many were not settled in the last ten minutes, and which share of all that is:

```promql
sum(delta(tollgate_receipts_unsettled[10m]))
sum(delta(tollgate_receipts_unsettled[10m])) / sum(increase(tollgate_receipts_issued_total[10m]))
```
" {
Counter tollgate_receipts_issued_total []
    "Receipts that checks were given; the same one given again is not counted"
    "How much is checked before its cost is known"
Counter tollgate_receipts_settled_total [outcome]
    "Receipts that were settled, by outcome: ok, failed, or running (which renews them); the same again is not counted"
    "Many `failed`: what is behind the limiter fails"
Counter tollgate_receipts_deferred_total []
    "Those of them that were told while the store was away, to be told to it when it is back"
    "They are told late, not lost, unless `tollgate_store_errands_dropped_total` rises"
Counter tollgate_receipts_refused_total [reason]
    "Receipts that were not settled, by reason: malformed, foreign (signed with a key that is not among ours), forged, expired, already_settled (with another outcome or cost), bad_cost, pending (somebody else is settling it), too_busy (too many at once)"
    "`foreign`: servers have different keys; `expired`: a rule's `hold` is shorter than its requests take"
Gauge tollgate_receipts_open []
    "Receipts that are not settled and whose time is not over: of those that this server gave, fewer those that it settled"
    "Requests that run right now, as far as they have receipts"
Gauge tollgate_receipts_unsettled []
    "Receipts that were not settled in time, since the start: of those that this server gave, fewer those that it settled; the sum over all servers is the truth"
    "Callers that crash, or do not know that they have something to settle: what they reserved stays spent, and their slots are free only when `hold` is over"
Counter tollgate_idempotent_replays_total [wire]
    "Checks that were answered as an earlier one with the same idempotency key was, and consumed nothing; they are among the decisions"
    "Retries that did no harm"
Counter tollgate_idempotency_conflicts_total [wire]
    "Checks with an idempotency key that was used for another request, answered with an error; they are not among the decisions"
    "A client that makes its keys badly"
}

"The decision log" "
What becomes of the entries that the decision log keeps.
" {
Counter tollgate_decision_log_entries_total [result]
    "Entries of the decision log that were written, were dropped since too many came at once, or failed to be written"
    "`dropped`: sample less, or give the log a faster disk; `failed`: the log line beside it says why"
}

"The control plane" "
What operators decide while the server runs ([control.md](control.md)).
" {
Gauge tollgate_control_generation []
    "The write to the store of record that is in force here; the same on every server that has caught up"
    "A server that stays behind the others does not hear from the store of record"
Gauge tollgate_control_snapshot_age_seconds []
    "Seconds since the store of record last said what is in force, or since the start if it has not yet; 0 where there is none"
    "Normally below 10. Above: what operators write has no effect here; look at the database and the way to it"
Gauge tollgate_control_callers []
    "Callers with a tier, an override or a block of their own"
    "What is kept in memory for them"
Gauge tollgate_control_up []
    "Whether the store of record answered last: 1 if it did; 0 also where there is none"
    "0 with a store of record: writes fail, decisions go on by what is known"
Counter tollgate_control_writes_total [result]
    "Writes of this server's admin API that were stored (ok), or were not (bad)"
    "Any `bad`: the answer to whoever wrote said why"
Counter tollgate_control_unreadable_records_total []
    "Records that could not be read, since a newer Tollgate wrote them: they are not in force"
    "Bring all servers to one version"
Counter tollgate_admin_logins_failed_total []
    "Requests to the admin listener with a token that is not known or no longer in force"
    "Some of one address are a program with an old token; many are somebody who guesses ([security.md](security.md))"
}

"Connections" "
`listener` is a wire or `admin`.
" {
Gauge tollgate_connections_open [listener]
    "Connections that are open"
    "Near the setting `…_max_connections`: new ones are about to be refused"
Counter tollgate_connections_accepted_total [listener]
    "Connections that were served"
    "As many as requests: clients do not keep their connections"
Counter tollgate_connections_refused_total [listener]
    "Connections that were closed at once, since there were too many"
    "More servers, a higher bound, or a client that leaks connections"
Counter tollgate_tls_handshake_failures_total [listener]
    "Connections on which TLS was not agreed on"
    "A certificate that ended, or a client without one"
}

"Rules" "" {
Gauge tollgate_rules_valid []
    "1 if the rules in force are the ones that are written, 0 if those can't be put in force: the last good ones are"
    "0: `/readyz` and the log name file, line and remedy"
Counter tollgate_rules_reloads_total [result]
    "Rules that were put in force (ok), or could not be (bad)"
    "`ok` at a steady pace: something writes rule files for no reason"
Gauge tollgate_rules_last_reload_success_timestamp_seconds []
    "When rules were last put in force, in Unix time"
    "Older than your last deploy of rules: it did not arrive"
Gauge tollgate_rules_generation []
    "Which of the rulesets since the start is in force; the same number on all servers is not promised"
    "A step is a reload: lay it over graphs of refusals"
Gauge tollgate_rules_domains []
    "Domains of the rules in force"
    "Fewer than on other servers: a file is missing"
Gauge tollgate_rules_loaded []
    "Rules in force"
    "The same on all servers that read the same files"
}

"Counters in memory" "" {
Gauge tollgate_store_keys []
    "Counters in memory, stale ones that are not swept yet included"
    "Against the setting `max_keys`"
Counter tollgate_store_swept_keys_total []
    "Stale counters that were removed"
    "With `tollgate_store_keys`: how many callers come and go"
Counter tollgate_store_evicted_keys_total []
    "Live counters that were removed because the store was full: their callers start afresh"
    "Any: more memory for the store, or counters in Redis"
Gauge tollgate_store_once_records []
    "Records of claims that are settled once: idempotency keys, settled receipts"
    "Memory that they take"
Counter tollgate_store_evicted_once_records_total []
    "Such records that were removed before their time because there were too many"
    "A retry after that counts twice: a shorter `idempotency_ttl`"
Counter tollgate_snapshots_total [result]
    "Snapshots of the counters that were written (ok), or were not (bad)"
    "`bad`: a crash now would forget more than one interval"
Gauge tollgate_snapshot_duration_seconds []
    "What the last snapshot took"
    "Longer than the interval: write them less often"
Gauge tollgate_snapshot_size_bytes []
    "The size of the last snapshot"
    "Disk that it needs, twice while one is written"
Gauge tollgate_snapshot_last_success_timestamp_seconds []
    "When a snapshot was last written, in Unix time; 0 if none was"
    "What a crash would forget"
}

"Counters in a shared store" "
Where counters are in memory that is one shard, `memory`, whose circuit is closed; the numbers are 0. `shard` is else a node's
address: there are as many series as nodes of the cluster. See [redis.md](redis.md).
" {
Gauge tollgate_store_level []
    "How much of the store answers: 0 normal, 1 degraded (some shards are left alone), 2 local-only (all are), 3 open (all are, and requests pass that nobody counts)"
    "The state of the whole in one number"
Gauge tollgate_circuit_state [shard]
    "Whether claims are sent to a shard of the store: 0 closed (they are), 1 half-open (it is being tried), 2 open (it failed too often and is left alone)"
    "2: that node, or the way to it; `/readyz` says why"
Counter tollgate_store_errors_total [shard reason]
    "Claims that a shard of the store did not settle, by shard and reason: timeout, unreachable, refused (an error for an answer)"
    "`timeout` alone: a slow node; `refused`: its log"
Counter tollgate_failopen_total [reason]
    "Requests that passed although the store did not count all of them, by reason: open (its circuit is), timeout, unreachable, refused, shed (too many checks at once), panic; those that local memory counted are among them"
    "What was let through that may not have been meant to; rules that must refuse then have `policy: security`"
Gauge tollgate_store_replicas []
    "Servers that share the store, this one included, as last heard; 0 if none do"
    "By it limits are divided while the store is away"
Gauge tollgate_store_local_keys []
    "Counters in local memory while the store is away, or not told yet"
    "Above 0 while all is well: what is left to tell"
Gauge tollgate_store_owed_keys []
    "Local counters that the store has not been told of yet"
    "Falls to 0 after an outage"
Gauge tollgate_store_errands []
    "What waits to be told to the store: units to give back, receipts settled meanwhile"
    "Falls to 0 after an outage"
Counter tollgate_store_errands_dropped_total []
    "What the store could not be told or given back, and never will be: it counts a little more or less than passed"
    "An outage was longer than what is kept for it"
Counter tollgate_store_claims_total []
    "Claims that were sent to the store, each as often as it was"
    "Load on the store"
Counter tollgate_store_script_calls_total []
    "Calls of the script that settles claims; claims that arrive together share one"
    "Claims for each call: how well they are put together"
Counter tollgate_store_batches_total []
    "Round trips to the store"
    "Calls for each: how well they are pipelined"
Counter tollgate_store_connections_lost_total []
    "Connections to the store that broke"
    "Failovers, or a network that cuts idle connections"
Counter tollgate_store_resent_total [reason]
    "Claims that were sent again, by the answer that proved that they had not been settled; no series until there is one"
    "`moved` during resharding is normal"
Counter tollgate_store_unsound_values_total []
    "Values in the store that were not what they should be, and counted as fresh"
    "Somebody else writes to our keys"
Counter ratelimit_redis_errors_total [shard reason]
    "The same as tollgate_store_errors_total, under the name that dashboards for other limiters have"
    "See there"
Counter ratelimit_failopen_total [reason]
    "The same as tollgate_failopen_total, likewise"
    "See there"
Gauge ratelimit_circuit_state [shard]
    "The same as tollgate_circuit_state, likewise: 0 closed, 1 half-open, 2 open"
    "See there"
}

"The server" "" {
Gauge tollgate_ready []
    "1 if the server wants work, 0 while it starts or stops"
    "Fewer ready servers than you run: look at those that are not"
Gauge tollgate_degraded [part]
    "1 if a part is not as it should be: the health page says why"
    "`/readyz` on that server"
Info tollgate_build_info [version]
    "What runs"
    "More than one version for long: a rollout that stopped"
Counter tollgate_log_lines_lost_total []
    "Log lines that standard error did not take in time"
    "Whoever collects the log is too slow"
Counter tollgate_trace_spans_total [result]
    "Spans by what became of them: taken by the collector (ok), refused by it or lost on the way (bad), or too many at once to be sent (dropped)"
    "`dropped`: sample less; `bad`: look at the collector"
Counter process_cpu_seconds_total []
    "Processor time that was used"
    "Per decision: what one costs"
Gauge process_resident_memory_bytes []
    "Memory that is in use"
    "Against what the machine or container allows"
Gauge process_virtual_memory_bytes []
    "Memory that is mapped"
    "Seldom of interest"
Gauge process_open_fds []
    "Open files and connections"
    "Near `process_max_fds`: connections are about to fail"
Gauge process_max_fds []
    "The most open files and connections"
    "Raise it (`LimitNOFILE`) before the bound on connections"
Gauge process_threads []
    "Threads"
    "Steady"
Gauge process_start_time_seconds []
    "When the process began, in Unix time"
    "`changes()` of it counts restarts"
}
}
