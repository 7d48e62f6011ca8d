//! What a scrape shows.

use std::collections::BTreeMap;

use tollgate::{MemoryConfig, RegionLink, Ruleset, Span};
use tollgate_events::{SinkCounts, SinkStatus};
use tollgate_rules::{RuleFile as RuleSource, load_sources};
use tollgate_store::conformance::gated::GatedStore;
use tollgate_store::guarded::{Circuit, GuardStatus, Level, ShardStatus};
use tollgate_store::sharded::TransportStats;
use tollgate_store::{DebitStatus, Durations, SharedStatus, UnitCounts};
use tollgate_telemetry::metrics::Exposition;
use tollgate_telemetry::metrics::table::{GROUPS, MetricInfo, MetricKind};

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

pub(super) fn scraped(metrics: &Metrics) -> BTreeMap<String, f64> {
    samples(&metrics.text(Exposition::Plain).unwrap())
}

fn rules() -> Ruleset {
    let text = "domain: shop\nrules:\n- {name: one, key: [k], limit: 1/minute, ban: {after: 5, within: 1m, for: 1m, who: ip}}\n- {name: all, key: [], limit: 9/minute}\n\
         - {name: fleet, key: [], limit: 9 concurrent, count: summed}\nsignals:\n- {name: s, distinct: a, per: [k], threshold: 9}\n";
    let source = RuleSource { name: "shop.yaml".into(), text: text.into() };
    let loaded = load_sources(&[source], &tollgate::LoadOptions::default()).unwrap();
    Ruleset::compile(loaded.domains, 7).unwrap()
}

/// Components that nothing else uses.
pub(super) fn sources(limiter: Arc<Limiter<Counters>>, health: Arc<Health>) -> ScrapeSources {
    let (observability, top_denied) = (Observability::for_tests(), Box::new(|| vec![("#00".to_owned(), 3)]));
    observability.observer.signals().evaluate(&limiter.rules(), &[], tollgate::Timestamp::from_secs(1));
    ScrapeSources {
        limiter,
        health,
        receipts: Receipts::ephemeral().unwrap(),
        observability,
        top_denied,
        log_entries: Box::new(DecisionLogCounts::default),
    }
}

fn limiter() -> Arc<Limiter<Counters>> {
    Arc::new(Limiter::new(rules(), MemoryConfig::default().build().into()))
}

/// The name of a sample without its labels.
fn bare(sample: &str) -> &str {
    sample.split('{').next().unwrap()
}

/// Everything that the table describes.
fn described() -> impl Iterator<Item = &'static MetricInfo> {
    GROUPS.iter().flat_map(|group| group.families)
}

#[test]
fn every_family_is_there_from_the_first_scrape_as_the_table_describes_it() {
    for metrics in [in_memory(), of_a_shared_store()] {
        let text = metrics.text(Exposition::Plain).unwrap();
        let reply = |what: &str| -> BTreeMap<String, String> {
            let lines = text.lines().filter_map(|line| line.strip_prefix(what)?.split_once(' '));
            let reply: Vec<_> = lines.map(|(name, words)| (name.to_owned(), words.to_owned())).collect();
            let by_name: BTreeMap<_, _> = reply.iter().cloned().collect();
            assert_eq!(by_name.len(), reply.len(), "a family is there twice\n{text}");
            by_name
        };
        let kind = |kind| match kind {
            MetricKind::Counter => "counter",
            MetricKind::Gauge | MetricKind::Info => "gauge",
            MetricKind::Histogram => "histogram",
            MetricKind::Untyped => "untyped",
        };
        let of_table =
            |of: &dyn Fn(&MetricInfo) -> String| described().map(|row| (row.name.to_owned(), of(row))).collect();
        assert_eq!(reply("# HELP "), of_table(&|row| format!("{}.", row.help)));
        assert_eq!(reply("# TYPE "), of_table(&|row| kind(row.kind).to_owned()));
    }
}

#[test]
fn series_have_the_labels_of_the_table() {
    let samples = scraped(&of_a_shared_store());
    let mut missing: Vec<_> = described().map(|row| row.name).collect();
    for sample in samples.keys() {
        let labels = sample.split_once('{').map_or("", |(_, labels)| labels.trim_end_matches('}'));
        let mut labels: Vec<_> = labels.split(',').filter_map(|label| Some(label.split_once('=')?.0)).collect();
        let name = bare(sample);
        let row = described().find(|row| match row.kind {
            MetricKind::Histogram => {
                ["_bucket", "_count", "_sum"].iter().any(|end| name.strip_suffix(end) == Some(row.name))
            }
            _ => row.name == name,
        });
        let row = row.unwrap_or_else(|| panic!("{sample} is not in the table"));
        if row.kind == MetricKind::Histogram {
            labels.retain(|label| *label != "le");
        }
        assert_eq!(labels, row.labels, "{sample}");
        missing.retain(|name| *name != row.name);
    }
    assert!(missing.is_empty(), "no series of {missing:?}");
}

/// Of a server with its counters in memory.
fn in_memory() -> Arc<Metrics> {
    let metrics = Metrics::new();
    register(&metrics, sources(limiter(), Arc::default()));
    register_gateway(&metrics, None);
    metrics.add(events::EventMetrics { stream: Arc::new(EventStream::new("a")), status: Box::new(Vec::new) });
    metrics
}

/// Of a server with a rule and a gateway, whose counters are in a store of three shards.
fn of_a_shared_store() -> Arc<Metrics> {
    let held = GatedStore::new();
    let shard = |name: &str, circuit, errors: &[(&'static str, u64)]| ShardStatus {
        name: name.to_owned(),
        region: tollgate::RegionId::HERE,
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
    let transport =
        TransportStats { claims: 100, calls: 40, batches: 20, lost: 1, unsound: 3, resent: vec![("moved", 6)] };
    let durations =
        |counts: [u64; 2]| Durations { buckets: vec![(0.1, counts[0]), (f64::INFINITY, counts[1])], sum: 1.5 };
    let debit = |region: &str, link, micros| DebitStatus {
        region: region.to_owned(),
        link,
        step: if link == RegionLink::Apart { 7 } else { 3 },
        oldest: Span::from_micros(micros),
        units: UnitCounts {
            sent: 9,
            unsure: 2,
            aged: 3,
            dropped: 4,
            evicted: 8,
            returned: 5,
            back: 6,
            back_unsure: 1,
            back_dropped: 7,
        },
        lag: durations([8, 1]),
        ..DebitStatus::default()
    };
    let debits = vec![debit("eu", RegionLink::Apart, 2_500_000), debit("us", RegionLink::Lagging, 0)];
    let guard = GuardStatus { calls_elsewhere: vec![durations([3, 0]), durations([0, 2])], ..guard };
    held.set_status(SharedStatus { guard, transport, debits, ..SharedStatus::default() });
    let metrics = Metrics::new();
    let limiter = Arc::new(Limiter::new(rules(), Counters::Shared(held)));
    register(&metrics, sources(limiter, Arc::default()));
    metrics.add(gateway::GatewayMetrics(Box::new(gateway::tests::busy)));
    let sink = SinkStatus {
        name: "pager".to_owned(),
        kind: "webhook",
        host: None,
        is_gone: false,
        waiting: 3,
        oldest: Some(Span::from_micros(1_500_000)),
        failures: 1,
        due: None,
        delivered_at: None,
        error: None,
        counts: SinkCounts { ok: 5, retry: 2, dropped: 1, gone: 0 },
    };
    let status = Box::new(move || vec![sink.clone()]);
    metrics.add(events::EventMetrics { stream: Arc::new(EventStream::new("a")), status });
    metrics
}

#[test]
fn a_shared_store_is_read_when_somebody_asks_and_has_other_names_too() {
    let samples = scraped(&of_a_shared_store());
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
    assert_eq!(samples[r#"tollgate_event_deliveries_total{sink="pager",result="retry"}"#], 2.0);
    assert_eq!(samples[r#"tollgate_event_oldest_seconds{sink="pager"}"#], 1.5);
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
    let of_region = |name: &str, region: &str| samples[&format!("tollgate_region_{name}{{region=\"{region}\"}}")];
    assert_eq!(["eu", "us"].map(|region| of_region("apart", region)), [1.0, 0.0]);
    assert_eq!(["eu", "us"].map(|region| of_region("oldest_seconds", region)), [2.5, 0.0]);
    assert_eq!(["eu", "us"].map(|region| of_region("lag_seconds_count", region)), [9.0, 9.0]);
    assert_eq!(["eu", "us"].map(|region| of_region("calls_seconds_count", region)), [3.0, 2.0]);
    let units = ["sent", "unsure", "aged", "dropped", "evicted", "returned", "back"];
    let units = units.map(|how| samples[&format!("tollgate_region_units_total{{region=\"eu\",how=\"{how}\"}}")]);
    assert_eq!(units, [9.0, 3.0, 3.0, 11.0, 8.0, 5.0, 6.0]);
    assert_eq!(samples["tollgate_store_unsound_values_total"], 3.0);
    assert_eq!(samples[r#"tollgate_store_resent_total{reason="moved"}"#], 6.0);
}

#[test]
fn parts_are_read_when_somebody_asks() {
    let (metrics, limiter, health) = (Metrics::new(), limiter(), Arc::new(Health::default()));
    register(&metrics, sources(limiter.clone(), health.clone()));
    let samples = scraped(&metrics);
    assert_eq!((samples["tollgate_ready"], samples["tollgate_store_keys"]), (0.0, 0.0));
    assert_eq!((samples["tollgate_rules_generation"], samples["tollgate_rules_loaded"]), (7.0, 3.0));
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
    assert!(tollgate::poll_once(limiter.check_request(&request)).unwrap().unwrap().allowed());
    let samples = scraped(&metrics);
    assert_eq!((samples["tollgate_ready"], samples["tollgate_store_keys"]), (1.0, 3.0));
    assert_eq!(samples[r#"tollgate_degraded{part="rules"}"#], 1.0);
    assert_eq!(samples[r#"tollgate_degraded{part="moon"}"#], 1.0);
    assert_eq!(samples[r#"tollgate_degraded{part="data"}"#], 0.0);
}
