//! Scrapes.

use std::collections::BTreeMap;

use super::*;

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
    receipts.settled("ok", true);
    receipts.settled("failed", false);
    receipts.settled("running", true);
    receipts.settled("running", true);
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
fn reloads_and_snapshots_are_recorded() {
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
fn the_snapshot_age_grows_until_the_store_of_record_is_read() {
    let metrics = Metrics::new();
    let (control, at) = (metrics.control(), |seconds: u64| Some(Timestamp::from_secs(1_700_000_000 + seconds)));
    assert_eq!(control.age(at(5)), 0.0, "without a store of record");
    control.set_oldest(at(0).unwrap());
    assert_eq!((control.age(at(90)), control.age(None)), (90.0, 0.0));
    assert_eq!(scraped(&metrics)["tollgate_control_up"], 0.0, "it has not answered yet");
    control.set_available(at(100).unwrap());
    assert_eq!((control.age(at(102)), control.age(at(99))), (2.0, 0.0));
    assert_eq!(scraped(&metrics)["tollgate_control_up"], 1.0);
    control.set_unavailable();
    assert_eq!((control.age(at(160)), scraped(&metrics)["tollgate_control_up"]), (60.0, 0.0));
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
fn open_metrics_is_negotiated() {
    let prometheus = "application/openmetrics-text;version=1.0.0;q=0.6,text/plain;version=0.0.4;q=0.3,*/*;q=0.1";
    assert_eq!(Exposition::negotiate(Some(prometheus)), Exposition::OpenMetrics);
    assert_eq!(Exposition::negotiate(Some("*/*")), Exposition::Plain);
    assert_eq!(Exposition::negotiate(None), Exposition::Plain);
    let text = Metrics::new().text(Exposition::OpenMetrics).unwrap();
    assert!(text.ends_with("# EOF\n") && text.contains("# TYPE tollgate_decisions counter\n"), "{text}");
    assert!(Exposition::OpenMetrics.content_type().starts_with("application/openmetrics-text; version=1.0.0"));
}

#[test]
fn changes_are_measured_by_kind_from_the_write_on() {
    let (metrics, at) = (Metrics::new(), Timestamp::from_secs);
    let change = |kind, written| WrittenChange { kind, at: at(written) };
    metrics.changes().in_force(change(ChangeKind::Quota, 1_000), at(1_003));
    metrics.changes().in_force(change(ChangeKind::Quota, 1_000), at(1_100));
    // Written by a clock that is ahead.
    metrics.changes().in_force(change(ChangeKind::Switch, 1_005), at(1_003));
    let samples = scraped(&metrics);
    let within = |kind: &str, le: &str| {
        samples[&format!("tollgate_change_in_force_seconds_bucket{{le=\"{le}\",kind=\"{kind}\"}}")]
    };
    assert_eq!(["1.0", "5.0", "60.0", "300.0"].map(|le| within("quota", le)), [0.0, 1.0, 1.0, 2.0]);
    assert_eq!((within("switch", "0.01"), within("files", "+Inf")), (1.0, 0.0));
    assert_eq!(samples["tollgate_change_in_force_seconds_sum{kind=\"quota\"}"], 103.0);
}
