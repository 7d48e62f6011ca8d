//! What a gateway does.

use crate::metrics::table::{MetricInfo, MetricKind};

pub(super) const ABOUT: &str = "
What a server with `--gateway` does with requests. A server without a gateway has no series of these. The first 200 routes and the first 200 upstreams of the configuration have series of their own; the others are
counted together as `other`. The figures of the [adaptive cap](shedding.md) have the names that Envoy's adaptive concurrency
filter gives them.

```promql
sum by (route) (rate(tollgate_gateway_requests_total{status=\"5xx\"}[5m]))
sum by (upstream) (tollgate_gateway_upstream_servers{state=\"healthy\"}) == 0
tollgate_gateway_adaptive_sample_rtt_seconds / tollgate_gateway_adaptive_min_rtt_seconds
```
";

pub(super) const FAMILIES: &[MetricInfo] = families!({
Counter tollgate_gateway_requests_total [route status]
    "Responses by route and class of the status: 1xx, 2xx, 3xx, 4xx, 5xx; refusals are included"
    "A rise of `5xx` with `tollgate_gateway_shed_total`: the upstream is protected; without it: the upstream fails"
Counter tollgate_gateway_limited_total [route]
    "Requests that limits refused with 429"
    "`ratelimit_denied_total` says by which rule"
Counter tollgate_gateway_shed_total [route]
    "Requests that were refused with 503 to protect the upstream"
    "Any: the upstream has less capacity than its callers need"
Counter tollgate_gateway_estimated_costs_total [route]
    "Requests whose cost was settled by an estimate of four bytes a token, because the response did not report a usage or could not be read"
    "Many: request usage from the upstream (`include_usage`), or uncompressed responses"
Counter tollgate_gateway_shed_by_class_total [shedder class]
    "Requests that were refused with 503, by shedder (adaptive: the cap of an upstream; fairness: the busiest callers of an overloaded upstream; worker: this server is overloaded; fleet: a rule with `shed: true`) and class: test, get, post, critical"
    "`critical`: even the most important work is refused; add capacity"
Gauge tollgate_gateway_worker_mode [mode]
    "1 for the mode in force of the worker shedder: enforce, shadow, off"
    "`off` is the default; after an incident: an operator's switch is still in force"
Gauge tollgate_gateway_worker_utilisation []
    "How busy this process was in the last second, from 0 to 1: the busiest worker, the processors, or the checks in flight"
    "Above 0.8 for half a minute: requests are about to be shed"
Gauge tollgate_gateway_worker_shed_amount []
    "The share of the requests that the worker shedder sheds, from 0 to 1"
    "Above 0: this server has been overloaded for half a minute"
Counter tollgate_gateway_worker_rq_blocked_total [class]
    "Requests that the worker shedder refused, or would have refused in mode `shadow`, by class: test, get, post, critical"
    "Any: this server is too small for its load"
Counter tollgate_gateway_upstream_requests_total [upstream]
    "Requests that were sent to an upstream, each once however often it was retried"
    "Load on the upstream"
Counter tollgate_gateway_upstream_retries_total [upstream]
    "Requests that were sent again"
    "A large share of the requests: servers of the upstream fail"
Counter tollgate_gateway_upstream_failures_total [upstream]
    "Attempts that failed: no connection, or a connection that broke"
    "Look at the servers of the upstream and at the network"
Counter tollgate_gateway_upstream_timeouts_total [upstream]
    "Attempts that had no response in time"
    "The upstream is slow, or `timeouts` are too short for the route"
Gauge tollgate_gateway_upstream_servers [upstream state]
    "Servers by state: healthy, unhealthy (by health checks), ejected (not used for a while, because requests failed)"
    "No healthy one: requests of this upstream are answered with 503"
Gauge tollgate_gateway_upstream_connections [upstream]
    "Open connections to the servers"
    "Near `connections: {most: …}` of each server: requests wait for a connection"
Gauge tollgate_gateway_upstream_in_flight [upstream]
    "Requests that the servers have not answered"
    "Rises with the latency of the upstream"
Gauge tollgate_gateway_adaptive_mode [upstream mode]
    "1 for the mode in force of the adaptive cap: enforce, shadow, off"
    "`shadow` refuses nothing and is the default; `off` after an incident: an operator's switch is still in force"
Gauge tollgate_gateway_adaptive_concurrency_limit [upstream]
    "Requests that may be in flight, by the adaptive cap"
    "Far below the usual value: the upstream has become slower"
Gauge tollgate_gateway_adaptive_in_flight [upstream]
    "Requests in flight under the adaptive cap"
    "At the limit: the least important requests are refused first"
Gauge tollgate_gateway_adaptive_gradient [upstream]
    "The idle latency over the current one, with a buffer: below 1 the limit falls"
    "Below 1 for long: the upstream is overloaded"
Gauge tollgate_gateway_adaptive_burst_queue_size [upstream]
    "The queue that the limit allows beyond what the upstream serves at once"
    "Part of the limit"
Gauge tollgate_gateway_adaptive_min_rtt_seconds [upstream]
    "The latency of the idle upstream; no series until it is known"
    "A step: the upstream really got slower or faster, for instance by a release"
Gauge tollgate_gateway_adaptive_sample_rtt_seconds [upstream]
    "The mean latency of the last window, where one above three medians counts as three; no series until it is known"
    "Compare it with `tollgate_gateway_adaptive_min_rtt_seconds`: the difference is the time in queues"
Gauge tollgate_gateway_adaptive_min_rtt_calculation_active [upstream]
    "1 while a probe measures the latency of the idle upstream at a low limit"
    "1 for long: the upstream does not answer the probe"
Counter tollgate_gateway_adaptive_rq_blocked_total [upstream class]
    "Requests that the adaptive cap refused, or would have refused in mode `shadow`, by class: test, get, post, critical"
    "`critical`: even the most important work is refused; add capacity"
Gauge tollgate_gateway_reserve_requests [upstream tier]
    "Requests in flight that are reserved for a tier at the current limit; only upstreams with `reserve`"
    "Its share of `tollgate_gateway_adaptive_concurrency_limit`"
Gauge tollgate_gateway_reserve_in_flight [upstream tier]
    "Requests in flight of a tier with a reserve"
    "At `tollgate_gateway_reserve_requests` or above: the tier uses its reserve"
Counter tollgate_gateway_reserve_refused_total [upstream tier]
    "Requests that the adaptive cap refused, or would have in mode `shadow`, by tier; `others`: tiers without a reserve"
    "A tier with a reserve: it needs a larger one, or the upstream more capacity"
Gauge tollgate_gateway_token_keys [source]
    "Keys that tokens are verified with, by the file or URL that they come from; the first 200 sources"
    "0: no token of that issuer is valid; `/readyz` has the reason"
Counter tollgate_gateway_token_key_failures_total [source]
    "Attempts to load keys of tokens that failed"
    "A rise: the issuer is away; the last keys stay in use, and a new one of the issuer is not known"
Counter tollgate_gateway_refused_tokens_total [source reason]
    "Tokens that were not accepted, by the source of the keys and the reason: too_long, malformed, algorithm, critical, unknown_key, signature, endless, expired, not_yet_valid, issuer, audience"
    "`unknown_key`, `signature`: somebody tries tokens, or the keys are old; `not_yet_valid`: clocks differ"
Gauge tollgate_gateway_fairness_mode [upstream mode]
    "1 for the mode in force of the fairness shedder: enforce, shadow, off; only upstreams with `fairness`"
    "`off` after an incident: an operator's switch is still in force"
Gauge tollgate_gateway_fairness_pressure [upstream]
    "The load of the upstream in relation to the threshold of its fairness shedder"
    "Above 1 rates of callers are lowered, below 0.5 they are restored"
Gauge tollgate_gateway_fairness_lowered [upstream tier]
    "How far the busiest callers of a tier are lowered: 0 not at all, 1 to the fair rate"
    "Above 0 for long: the upstream is too small, or a caller needs a lower limit"
Gauge tollgate_gateway_fairness_fair_rate [upstream]
    "Requests a second below which no caller is lowered; no series while callers are not counted"
    "Compare it with the rates of the busiest callers"
Counter tollgate_gateway_fairness_refused_total [upstream tier]
    "Requests that the fairness shedder refused, or would have in mode `shadow`, by tier"
    "A high tier: lowering the lower ones was not enough"
});
