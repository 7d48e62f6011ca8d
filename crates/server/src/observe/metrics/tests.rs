//! What a scrape shows.

use std::collections::BTreeMap;

use tollgate::{Ending, MemoryConfig, Ruleset};
use tollgate_rules::{Source as RuleSource, load_sources};

use tollgate_store::guarded::{Circuit, GuardStatus, Level, ShardStatus};
use tollgate_store::redis::RedisStats;

use super::*;
use crate::counters::SharedStatus;
use crate::counters::held::Held;

/// The samples of a text, by name with labels.
fn samples(text: &str) -> BTreeMap<String, f64> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            let (name, value) = line.rsplit_once(' ').unwrap();
            (name.to_owned(), value.parse().unwrap())
        })
        .collect()
}

fn scraped(metrics: &Metrics) -> BTreeMap<String, f64> {
    samples(&metrics.text(Exposition::Plain).unwrap())
}

fn limiter() -> Arc<Limiter<Counters>> {
    let text =
        "domain: shop\nrules:\n- {name: one, key: [k], limit: 1/minute}\n- {name: all, key: [], limit: 9/minute}\n";
    let source = RuleSource { name: "shop.yaml".into(), text: text.into() };
    let loaded = load_sources(&[source], &tollgate::LoadOptions::default()).unwrap();
    Arc::new(Limiter::new(Ruleset::compile(loaded.domains, 7).unwrap(), MemoryConfig::default().build().into()))
}

/// Every family that docs/observability.md promises.
const FAMILIES: [&str; 70] = [
    "process_cpu_seconds_total",
    "process_max_fds",
    "process_open_fds",
    "process_resident_memory_bytes",
    "process_start_time_seconds",
    "process_threads",
    "process_virtual_memory_bytes",
    "ratelimit_circuit_state",
    "ratelimit_failopen_total",
    "ratelimit_redis_errors_total",
    "tollgate_admin_logins_failed_total",
    "tollgate_authorize_bad_cost_total",
    "tollgate_authorize_unmatched_total",
    "tollgate_bad_requests_total",
    "tollgate_build_info",
    "tollgate_checks_in_flight",
    "tollgate_circuit_state",
    "tollgate_concurrency_not_applied_total",
    "tollgate_connections_accepted_total",
    "tollgate_connections_open",
    "tollgate_connections_refused_total",
    "tollgate_control_callers",
    "tollgate_control_generation",
    "tollgate_control_unreadable_records_total",
    "tollgate_control_up",
    "tollgate_control_writes_total",
    "tollgate_decision_log_entries_total",
    "tollgate_decisions_total",
    "tollgate_degraded",
    "tollgate_failopen_total",
    "tollgate_idempotency_conflicts_total",
    "tollgate_idempotent_replays_total",
    "tollgate_log_lines_lost_total",
    "tollgate_ready",
    "tollgate_receipts_deferred_total",
    "tollgate_receipts_issued_total",
    "tollgate_receipts_refused_total",
    "tollgate_receipts_settled_total",
    "tollgate_receipts_unsettled",
    "tollgate_rules_domains",
    "tollgate_rules_generation",
    "tollgate_rules_last_reload_success_timestamp_seconds",
    "tollgate_rules_loaded",
    "tollgate_rules_reloads_total",
    "tollgate_rules_valid",
    "tollgate_snapshot_duration_seconds",
    "tollgate_snapshot_last_success_timestamp_seconds",
    "tollgate_snapshot_size_bytes",
    "tollgate_snapshots_total",
    "tollgate_soft_limits_passed_total",
    "tollgate_store_batches_total",
    "tollgate_store_claims_total",
    "tollgate_store_connections_lost_total",
    "tollgate_store_errands",
    "tollgate_store_errands_dropped_total",
    "tollgate_store_errors_total",
    "tollgate_store_evicted_keys_total",
    "tollgate_store_evicted_once_records_total",
    "tollgate_store_keys",
    "tollgate_store_level",
    "tollgate_store_local_keys",
    "tollgate_store_once_records",
    "tollgate_store_owed_keys",
    "tollgate_store_replicas",
    "tollgate_store_resent_total",
    "tollgate_store_script_calls_total",
    "tollgate_store_swept_keys_total",
    "tollgate_store_unsound_values_total",
    "tollgate_tls_handshake_failures_total",
    "tollgate_trace_spans_total",
];

/// Those whose series are made by shards and reasons that only a shared store has.
const OF_A_SHARED_STORE: [&str; 7] = [
    "ratelimit_circuit_state",
    "ratelimit_failopen_total",
    "ratelimit_redis_errors_total",
    "tollgate_circuit_state",
    "tollgate_failopen_total",
    "tollgate_store_errors_total",
    "tollgate_store_resent_total",
];

fn families(text: &str) -> Vec<String> {
    let mut families: Vec<_> =
        samples(text).into_keys().map(|name| name.split('{').next().unwrap().to_owned()).collect();
    families.sort();
    families.dedup();
    families
}

#[test]
fn every_family_is_there_from_the_first_scrape() {
    let text = Metrics::new().text(Exposition::Plain).unwrap();
    let expected: Vec<_> = FAMILIES.into_iter().filter(|family| !OF_A_SHARED_STORE.contains(family)).collect();
    assert_eq!(families(&text), expected);
    for family in FAMILIES {
        assert_eq!(text.matches(&format!("# HELP {family} ")).count(), 1, "{family}\n{text}");
        assert_eq!(text.matches(&format!("# TYPE {family} ")).count(), 1, "{family}\n{text}");
    }
}

#[test]
fn a_shared_store_is_read_when_somebody_asks_and_has_other_names_too() {
    let held = Held::new();
    let shard = |name: &str, circuit, errors: &[(&'static str, u64)]| ShardStatus {
        name: name.to_owned(),
        circuit,
        errors: errors.to_vec(),
        last_error: None,
        warning: None,
    };
    let guard = GuardStatus {
        level: Level::Degraded,
        shards: vec![
            shard("a:1", Circuit::Closed, &[("timeout", 3), ("refused", 0)]),
            shard("b:1", Circuit::Open, &[("timeout", 0), ("refused", 7)]),
            shard("c:1", Circuit::HalfOpen, &[]),
        ],
        replicas: 4,
        fail_open: vec![("open", 11), ("shed", 0)],
        local: 9,
        owed: 5,
        waiting: 2,
        dropped: 1,
        ..GuardStatus::default()
    };
    let redis = RedisStats { claims: 100, calls: 40, batches: 20, lost: 1, unsound: 3, resent: vec![("moved", 6)] };
    held.says(SharedStatus { guard, redis });
    let (metrics, rules) = (Metrics::new(), Ruleset::compile(Vec::new(), 1).unwrap());
    metrics.watch(held.limiter(rules), Arc::default(), Receipts::alone(), crate::observe::Sight::alone());
    let text = metrics.text(Exposition::Plain).unwrap();
    assert_eq!(families(&text), FAMILIES);
    let samples = samples(&text);
    for (ours, theirs) in [
        ("tollgate_store_errors_total", "ratelimit_redis_errors_total"),
        ("tollgate_failopen_total", "ratelimit_failopen_total"),
        ("tollgate_circuit_state", "ratelimit_circuit_state"),
    ] {
        let of = |family: &str| {
            let series =
                samples.iter().filter_map(|(name, value)| Some((name.strip_prefix(family)?.to_owned(), *value)));
            series.collect::<Vec<_>>()
        };
        assert_eq!(of(ours), of(theirs));
        assert!(!of(ours).is_empty());
    }
    assert_eq!(samples[r#"tollgate_store_errors_total{shard="b:1",reason="refused"}"#], 7.0);
    assert_eq!(samples[r#"tollgate_failopen_total{reason="open"}"#], 11.0);
    let circuits = ["a:1", "b:1", "c:1"].map(|shard| samples[&format!("tollgate_circuit_state{{shard=\"{shard}\"}}")]);
    assert_eq!(circuits, [0.0, 2.0, 1.0]);
    assert_eq!((samples["tollgate_store_level"], samples["tollgate_store_replicas"]), (1.0, 4.0));
    assert_eq!((samples["tollgate_store_local_keys"], samples["tollgate_store_owed_keys"]), (9.0, 5.0));
    assert_eq!((samples["tollgate_store_errands"], samples["tollgate_store_errands_dropped_total"]), (2.0, 1.0));
    assert_eq!((samples["tollgate_store_claims_total"], samples["tollgate_store_script_calls_total"]), (100.0, 40.0));
    assert_eq!(
        (samples["tollgate_store_batches_total"], samples["tollgate_store_connections_lost_total"]),
        (20.0, 1.0)
    );
    assert_eq!(samples["tollgate_store_unsound_values_total"], 3.0);
    assert_eq!(samples[r#"tollgate_store_resent_total{reason="moved"}"#], 6.0);
}

#[test]
fn the_documentation_lists_every_family() {
    let page = include_str!("../../../../../docs/observability.md");
    for family in FAMILIES {
        assert!(page.contains(&format!("| `{family}")), "docs/observability.md does not have {family}");
    }
}

#[test]
fn decisions_are_counted_by_wire_outcome_and_source() {
    let metrics = Metrics::new();
    let (grpc, http) = (metrics.wire("grpc"), metrics.wire("http"));
    grpc.decided(true, Source::Store);
    grpc.decided(true, Source::Store);
    grpc.decided(false, Source::Store);
    grpc.decided(true, Source::Shed);
    http.decided(false, Source::Assumed);
    http.decided(false, Source::Local);
    http.decided(true, Source::Cache);
    http.refused_request();
    http.replays.inc();
    http.conflicts.inc_by(2);
    grpc.soft_limits_passed.inc_by(3);
    grpc.not_held.inc_by(4);
    http.authorize_unmatched.inc();
    metrics.wire("grpc").in_flight().inc();
    let samples = scraped(&metrics);
    let decided = |labels: &str| samples[&format!("tollgate_decisions_total{{{labels}}}")];
    assert_eq!(decided(r#"wire="grpc",outcome="allow",source="store""#), 2.0);
    assert_eq!(decided(r#"wire="grpc",outcome="deny",source="store""#), 1.0);
    assert_eq!(decided(r#"wire="grpc",outcome="allow",source="shed""#), 1.0);
    assert_eq!(decided(r#"wire="http",outcome="deny",source="assumed""#), 1.0);
    assert_eq!(decided(r#"wire="http",outcome="deny",source="local""#), 1.0);
    assert_eq!(decided(r#"wire="http",outcome="allow",source="cache""#), 1.0);
    assert_eq!(decided(r#"wire="resp",outcome="allow",source="store""#), 0.0);
    let decisions = samples.iter().filter(|(name, _)| name.starts_with("tollgate_decisions_total"));
    assert_eq!(decisions.map(|(_, value)| value).sum::<f64>(), 7.0);
    assert_eq!(samples[r#"tollgate_bad_requests_total{wire="http"}"#], 1.0);
    assert_eq!(samples["tollgate_authorize_unmatched_total"], 1.0);
    assert_eq!(samples[r#"tollgate_idempotent_replays_total{wire="http"}"#], 1.0);
    assert_eq!(samples[r#"tollgate_idempotency_conflicts_total{wire="http"}"#], 2.0);
    assert_eq!(samples[r#"tollgate_soft_limits_passed_total{wire="grpc"}"#], 3.0);
    assert_eq!(samples[r#"tollgate_concurrency_not_applied_total{wire="grpc"}"#], 4.0);
    assert_eq!(samples[r#"tollgate_checks_in_flight{wire="grpc"}"#], 1.0);
}

#[test]
fn receipts_are_counted_by_what_became_of_them() {
    let metrics = Metrics::new();
    let receipts = metrics.receipts();
    receipts.issued();
    receipts.settled(Ending::Ok, true);
    receipts.settled(Ending::Failed, false);
    receipts.settled(Ending::Running, true);
    receipts.settled(Ending::Running, true);
    receipts.refused("expired");
    let samples = scraped(&metrics);
    let settled = |outcome: &str| samples[&format!("tollgate_receipts_settled_total{{outcome=\"{outcome}\"}}")];
    assert_eq!((settled("ok"), settled("failed"), settled("running")), (1.0, 1.0, 2.0));
    assert_eq!((samples["tollgate_receipts_issued_total"], samples["tollgate_receipts_deferred_total"]), (1.0, 1.0));
    assert_eq!(samples[r#"tollgate_receipts_refused_total{reason="expired"}"#], 1.0);
    assert_eq!(samples[r#"tollgate_receipts_refused_total{reason="forged"}"#], 0.0);
}

#[test]
fn connections_are_open_until_they_are_dropped() {
    let metrics = Metrics::new();
    let listener = metrics.listener("http");
    let open = [listener.accepted(), listener.accepted()];
    listener.refused();
    listener.tls_failed();
    let samples = scraped(&metrics);
    assert_eq!(samples[r#"tollgate_connections_open{listener="http"}"#], 2.0);
    drop(open);
    let samples = [samples, scraped(&metrics)];
    assert_eq!(samples[1][r#"tollgate_connections_open{listener="http"}"#], 0.0);
    for samples in samples {
        assert_eq!(samples[r#"tollgate_connections_accepted_total{listener="http"}"#], 2.0);
        assert_eq!(samples[r#"tollgate_connections_refused_total{listener="http"}"#], 1.0);
        assert_eq!(samples[r#"tollgate_tls_handshake_failures_total{listener="http"}"#], 1.0);
        assert_eq!(samples[r#"tollgate_connections_open{listener="grpc"}"#], 0.0);
    }
}

#[test]
fn rules_and_snapshots_tell_how_they_went() {
    let metrics = Metrics::new();
    metrics.rules().reloaded(Timestamp::from_micros(1_700_000_000_500_000));
    metrics.snapshots().written(Timestamp::from_micros(1_700_000_001_000_000), Span::from_micros(12_500), 4_096);
    metrics.snapshots().failed();
    let samples = scraped(&metrics);
    assert_eq!(samples["tollgate_rules_valid"], 1.0);
    assert_eq!(samples[r#"tollgate_rules_reloads_total{result="ok"}"#], 1.0);
    assert_eq!(samples["tollgate_rules_last_reload_success_timestamp_seconds"], 1_700_000_000.5);
    assert_eq!(samples[r#"tollgate_snapshots_total{result="ok"}"#], 1.0);
    assert_eq!(samples[r#"tollgate_snapshots_total{result="bad"}"#], 1.0);
    assert_eq!(samples["tollgate_snapshot_duration_seconds"], 0.0125);
    assert_eq!(samples["tollgate_snapshot_size_bytes"], 4_096.0);
    assert_eq!(samples["tollgate_snapshot_last_success_timestamp_seconds"], 1_700_000_001.0);
    metrics.rules().refused();
    let samples = scraped(&metrics);
    assert_eq!(samples["tollgate_rules_valid"], 0.0);
    assert_eq!(samples[r#"tollgate_rules_reloads_total{result="bad"}"#], 1.0);
    assert_eq!(samples["tollgate_rules_last_reload_success_timestamp_seconds"], 1_700_000_000.5);
}

#[test]
fn parts_are_read_when_somebody_asks() {
    let (metrics, limiter, health) = (Metrics::new(), limiter(), Arc::new(Health::default()));
    metrics.watch(limiter.clone(), health.clone(), Receipts::alone(), crate::observe::Sight::alone());
    let samples = scraped(&metrics);
    assert_eq!((samples["tollgate_ready"], samples["tollgate_store_keys"]), (0.0, 0.0));
    assert_eq!((samples["tollgate_rules_generation"], samples["tollgate_rules_loaded"]), (7.0, 2.0));
    assert_eq!(samples["tollgate_rules_domains"], 1.0);
    assert_eq!(samples[r#"tollgate_degraded{part="rules"}"#], 0.0);

    health.started();
    health.degrade("rules", "shop.yaml:1: no".to_owned());
    health.degrade("moon", "not full".to_owned());
    let request = tollgate::Request {
        domain: None,
        descriptors: &[tollgate::Descriptor::new(&[("k", "v")])],
        cost: 1,
        ..tollgate::Request::default()
    };
    assert!(tollgate::now(limiter.check(&request)).unwrap().unwrap().allowed());
    let samples = scraped(&metrics);
    assert_eq!((samples["tollgate_ready"], samples["tollgate_store_keys"]), (1.0, 2.0));
    assert_eq!(samples[r#"tollgate_degraded{part="rules"}"#], 1.0);
    assert_eq!(samples[r#"tollgate_degraded{part="moon"}"#], 1.0);
    assert_eq!(samples[r#"tollgate_degraded{part="data"}"#], 0.0);
}

#[test]
fn the_process_is_this_one() {
    let samples = scraped(&Metrics::new());
    let memory = 1024.0 * 1024.0..64.0 * 1024.0 * 1024.0 * 1024.0;
    assert!(memory.contains(&samples["process_resident_memory_bytes"]), "{samples:?}");
    assert!(samples["process_open_fds"] >= 3.0 && samples["process_threads"] >= 1.0, "{samples:?}");
    assert!(samples["process_start_time_seconds"] > 1_600_000_000.0, "{samples:?}");
}

#[test]
fn who_accepts_open_metrics_gets_it() {
    let prometheus = "application/openmetrics-text;version=1.0.0;q=0.6,text/plain;version=0.0.4;q=0.3,*/*;q=0.1";
    assert_eq!(Exposition::accepted(Some(prometheus)), Exposition::OpenMetrics);
    assert_eq!(Exposition::accepted(Some("*/*")), Exposition::Plain);
    assert_eq!(Exposition::accepted(None), Exposition::Plain);
    let text = Metrics::new().text(Exposition::OpenMetrics).unwrap();
    assert!(text.ends_with("# EOF\n") && text.contains("# TYPE tollgate_decisions counter\n"), "{text}");
    assert!(Exposition::OpenMetrics.content_type().starts_with("application/openmetrics-text; version=1.0.0"));
}
