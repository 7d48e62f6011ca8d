//! Series of routes, upstreams and caps.

use std::fmt::Write as _;
use std::sync::Arc;

use tollgate_telemetry::metrics::Metrics;

use super::super::tests::scraped;
use super::*;
use crate::gateway::for_tests;

/// A gateway with an upstream of three servers that refuses requests.
pub(in crate::metrics) fn busy() -> GatewayStatus {
    let mut status = for_tests(
        "listen: 127.0.0.1:0\n\
         upstreams: {orders: {servers: [10.0.0.1:80, 10.0.0.2:80, 10.0.0.3:80], adaptive: {mode: enforce, reserve: {pro: 25%}}, fairness: shadow}}\n\
         routes: [{name: orders, match: \"/v1/*\", upstream: orders}]\n",
    )
    .status();
    let route = &mut status.routes[0];
    (route.successful, route.client_errors, route.server_errors) = (90, 7, 5);
    (route.limited, route.shed, route.estimated) = (6, 4, 2);
    let upstream = &mut status.upstreams[0];
    (upstream.requests, upstream.retries, upstream.failures, upstream.timeouts) = (95, 3, 2, 1);
    upstream.servers[0].is_healthy = false;
    upstream.servers[0].is_ejected = true;
    upstream.servers[1].is_ejected = true;
    (upstream.servers[2].in_flight, upstream.servers[2].connections) = (8, 9);
    let cap = &mut upstream.cap;
    (cap.limit, cap.in_flight, cap.gradient, cap.burst_queue_size) = (12, 11, 0.75, 3.5);
    (cap.min_rtt_ms, cap.sample_rtt_ms, cap.is_probing) = (Some(20.0), Some(35.0), true);
    (cap.refused.get, cap.refused.test) = (3, 1);
    let refused = [("expired", 3), ("unknown_key", 2)].into();
    status.keys = vec![KeysStatus { source: "jwks.json".to_owned(), keys: 2, failures: 5, error: None, refused }];
    let worker = status.worker.as_mut().unwrap();
    (worker.mode, worker.utilisation, worker.amount, worker.refused.get) = ("shadow", 0.875, 0.25, 2);
    status.shed[3].refused.post = 7;
    (cap.reserves[0].reserved, cap.reserves[0].in_flight, cap.reserves[1].refused) = (3, 2, 4);
    if let Some(fairness) = &mut upstream.fairness {
        (fairness.pressure, fairness.fair_rate) = (1.25, Some(40.0));
        (fairness.tiers[0].lowered, fairness.tiers[1].refused) = (0.5, 8);
    }
    status
}

fn metrics(status: GatewayStatus) -> Arc<Metrics> {
    let metrics = Metrics::new();
    metrics.add(GatewayMetrics(Box::new(move || status.clone())));
    metrics
}

#[test]
fn a_scrape_shows_routes_upstreams_and_caps() {
    let samples = scraped(&metrics(busy()));
    for (series, value) in [
        (r#"requests_total{route="orders",status="2xx"}"#, 90.0),
        (r#"requests_total{route="orders",status="4xx"}"#, 7.0),
        (r#"requests_total{route="orders",status="5xx"}"#, 5.0),
        (r#"limited_total{route="orders"}"#, 6.0),
        (r#"shed_total{route="orders"}"#, 4.0),
        (r#"estimated_costs_total{route="orders"}"#, 2.0),
        (r#"upstream_requests_total{upstream="orders"}"#, 95.0),
        (r#"upstream_retries_total{upstream="orders"}"#, 3.0),
        (r#"upstream_failures_total{upstream="orders"}"#, 2.0),
        (r#"upstream_timeouts_total{upstream="orders"}"#, 1.0),
        (r#"upstream_servers{upstream="orders",state="healthy"}"#, 1.0),
        (r#"upstream_servers{upstream="orders",state="unhealthy"}"#, 1.0),
        (r#"upstream_servers{upstream="orders",state="ejected"}"#, 1.0),
        (r#"upstream_connections{upstream="orders"}"#, 9.0),
        (r#"upstream_in_flight{upstream="orders"}"#, 8.0),
        (r#"worker_mode{mode="shadow"}"#, 1.0),
        (r#"worker_mode{mode="enforce"}"#, 0.0),
        ("worker_utilisation", 0.875),
        ("worker_shed_amount", 0.25),
        (r#"worker_rq_blocked_total{class="get"}"#, 2.0),
        (r#"shed_by_class_total{shedder="fleet",class="post"}"#, 7.0),
        (r#"shed_by_class_total{shedder="adaptive",class="get"}"#, 0.0),
        (r#"adaptive_mode{upstream="orders",mode="enforce"}"#, 1.0),
        (r#"adaptive_mode{upstream="orders",mode="off"}"#, 0.0),
        (r#"adaptive_concurrency_limit{upstream="orders"}"#, 12.0),
        (r#"adaptive_in_flight{upstream="orders"}"#, 11.0),
        (r#"adaptive_gradient{upstream="orders"}"#, 0.75),
        (r#"adaptive_burst_queue_size{upstream="orders"}"#, 3.5),
        (r#"adaptive_min_rtt_seconds{upstream="orders"}"#, 0.02),
        (r#"adaptive_sample_rtt_seconds{upstream="orders"}"#, 0.035),
        (r#"adaptive_min_rtt_calculation_active{upstream="orders"}"#, 1.0),
        (r#"adaptive_rq_blocked_total{upstream="orders",class="get"}"#, 3.0),
        (r#"adaptive_rq_blocked_total{upstream="orders",class="critical"}"#, 0.0),
        (r#"reserve_requests{upstream="orders",tier="pro"}"#, 3.0),
        (r#"reserve_in_flight{upstream="orders",tier="pro"}"#, 2.0),
        (r#"reserve_refused_total{upstream="orders",tier="pro"}"#, 0.0),
        (r#"reserve_refused_total{upstream="orders",tier="others"}"#, 4.0),
        (r#"token_keys{source="jwks.json"}"#, 2.0),
        (r#"token_key_failures_total{source="jwks.json"}"#, 5.0),
        (r#"refused_tokens_total{source="jwks.json",reason="expired"}"#, 3.0),
        (r#"refused_tokens_total{source="jwks.json",reason="unknown_key"}"#, 2.0),
        (r#"fairness_mode{upstream="orders",mode="shadow"}"#, 1.0),
        (r#"fairness_mode{upstream="orders",mode="enforce"}"#, 0.0),
        (r#"fairness_pressure{upstream="orders"}"#, 1.25),
        (r#"fairness_lowered{upstream="orders",tier="free"}"#, 0.5),
        (r#"fairness_fair_rate{upstream="orders"}"#, 40.0),
        (r#"fairness_refused_total{upstream="orders",tier="pro"}"#, 8.0),
    ] {
        assert_eq!(samples.get(&format!("tollgate_gateway_{series}")), Some(&value), "{series}");
    }
}

/// Zero would be a latency.
#[test]
fn a_latency_that_is_not_known_has_no_series() {
    let mut status = busy();
    (status.upstreams[0].cap.min_rtt_ms, status.upstreams[0].cap.sample_rtt_ms) = (None, None);
    let samples = scraped(&metrics(status));
    assert!(!samples.keys().any(|name| name.contains("_rtt_seconds")), "{samples:?}");
}

#[test]
fn names_have_a_bound_and_the_rest_is_counted_together() {
    let (mut upstreams, mut routes) = (String::new(), String::new());
    for number in 0..=MAX_SERIES {
        // One has the name that the rest gets.
        let name = if number == 7 { OTHER.to_owned() } else { format!("n{number}") };
        let _ = writeln!(upstreams, "  {name}: {{servers: [10.0.0.1:80]}}");
        let _ = writeln!(routes, "  - {{name: {name}, match: \"/{number}/*\", upstream: {name}}}");
    }
    let gateway = for_tests(&format!("listen: 127.0.0.1:0\nupstreams:\n{upstreams}routes:\n{routes}"));
    let mut status = gateway.status();
    status.routes.iter_mut().for_each(|route| route.limited = 1);
    status.upstreams.iter_mut().for_each(|upstream| upstream.requests = 1);
    let samples = scraped(&metrics(status));
    let series = |family: &str| samples.keys().filter(|name| name.starts_with(family)).count();
    assert_eq!(series("tollgate_gateway_limited_total"), MAX_SERIES);
    assert_eq!(samples[r#"tollgate_gateway_limited_total{route="n0"}"#], 1.0);
    assert_eq!(samples[r#"tollgate_gateway_limited_total{route="other"}"#], 2.0);
    assert_eq!(samples[r#"tollgate_gateway_upstream_requests_total{upstream="other"}"#], 2.0);
    assert_eq!(samples[r#"tollgate_gateway_upstream_servers{upstream="other",state="healthy"}"#], 2.0);
    assert_eq!(series("tollgate_gateway_adaptive_concurrency_limit"), MAX_SERIES - 1);
}

#[test]
fn a_server_without_a_gateway_has_no_series() {
    let samples = scraped(&metrics(GatewayStatus::default()));
    assert!(!samples.keys().any(|name| name.starts_with("tollgate_gateway_")), "{samples:?}");
}
