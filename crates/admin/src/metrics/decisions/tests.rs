//! What a scrape tells of decisions whose numbers are known.

use std::collections::BTreeMap;

use tollgate::{Descriptor, Limiter, MemoryConfig, Request};
use tollgate_observe::{Observer, ObserverConfig, TallyLimits};

use tollgate_store::Counters;
use tollgate_telemetry::metrics::Metrics;

use super::super::tests::{scraped, sources};
use super::*;
use crate::metrics::register;
use crate::observe::Observability;

const RULES: &str = "
domain: api
entity: user
tiers: {free: {paid: false}, pro: {}}
default_tier: free
rules:
  - {name: per-user, key: [user], limit: {free: 4/day, pro: 10/day}, algorithm: fixed_window}
  - {name: tried, key: [user], limit: 5/day, algorithm: fixed_window, mode: shadow}
  - {name: gentle, key: [soft], limit: 1/day, algorithm: fixed_window, mode: soft}
  - {name: large, key: [bucket], limit: 10/day, burst: 20, algorithm: token_bucket}
";

struct World {
    metrics: Arc<Metrics>,
    limiter: Arc<Limiter<Counters>>,
}

impl World {
    fn new(config: ObserverConfig) -> World {
        World::with(config, |sources| sources)
    }

    fn with(config: ObserverConfig, change: impl FnOnce(ScrapeSources) -> ScrapeSources) -> World {
        let mut observability = Arc::into_inner(Observability::for_tests()).unwrap();
        observability.observer = Arc::new(Observer::new(config, Arc::default()));
        let rules = Ruleset::from_text(RULES, 1).unwrap().0;
        let limiter = Limiter::new(rules, MemoryConfig::default().build().into());
        let limiter = Arc::new(limiter.with_witness(observability.observer.clone()));
        let metrics = Metrics::new();
        let sources =
            ScrapeSources { observability: Arc::new(observability), ..sources(limiter.clone(), Arc::default()) };
        register(&metrics, change(sources));
        World { metrics, limiter }
    }

    fn check(&self, attribute: &str, times: usize) {
        let entries = [(attribute, "x")];
        let request = Request { descriptors: &[Descriptor::new(&entries)], ..Request::default() };
        (0..times).for_each(|_| drop(tollgate::poll_once(self.limiter.check_request(&request)).unwrap().unwrap()));
    }

    /// What is above 0 of a family: labels without their names, and the number.
    fn reply(&self, family: &str) -> Vec<String> {
        reply(&scraped(&self.metrics), family, |number| number > 0.0)
    }
}

fn reply(samples: &BTreeMap<String, f64>, family: &str, is_reported: impl Fn(f64) -> bool) -> Vec<String> {
    let reply = samples.iter().filter_map(|(sample, number)| {
        let (name, labels) = sample.split_once('{').filter(|(name, _)| *name == family && is_reported(*number))?;
        assert_eq!(name, family);
        let values: Vec<_> = labels.split('"').skip(1).step_by(2).collect();
        Some(format!("{} {number}", values.join("/")))
    });
    reply.collect()
}

#[test]
fn decisions_are_reported_by_the_rule_that_decided_them() {
    let world = World::new(ObserverConfig::default());
    world.check("user", 6);
    world.check("soft", 3);
    world.check("nothing", 2);
    let decisions = [
        "api/gentle/default/allow 1",
        "api/gentle/default/soft 2",
        "api/none/default/allow 2",
        "api/per-user/free/allow 4",
        "api/per-user/free/deny 2",
    ];
    assert_eq!(world.reply("ratelimit_decisions_total"), decisions);
    assert_eq!(world.reply("ratelimit_denied_total"), ["api/per-user/free 2"]);
    // Every outcome of every rule and tier is there before it happens.
    let all = reply(&scraped(&world.metrics), "ratelimit_decisions_total", |_| true);
    assert_eq!(all.len(), 7 * 7, "{all:?}");
    assert!(
        all.contains(&"api/per-user/pro/assumed 0".to_owned())
            && all.contains(&"api/block/default/blocked 0".to_owned())
    );
}

#[test]
fn limits_are_reported_with_how_much_of_them_is_used() {
    let world = World::new(ObserverConfig::default());
    let limits = [
        "api/gentle/default 1",
        "api/large/default 10",
        "api/per-user/free 4",
        "api/per-user/pro 10",
        "api/tried/default 5",
    ];
    assert_eq!(world.reply("ratelimit_limit"), limits);
    assert_eq!(world.reply("ratelimit_utilization"), [""; 0]);
    // Without requests it is all that a caller can have: of a bucket, its burst.
    let most = [
        "api/gentle/default 1",
        "api/large/default 20",
        "api/per-user/free 4",
        "api/per-user/pro 10",
        "api/tried/default 5",
    ];
    assert_eq!(world.reply("ratelimit_remaining"), most);
    world.check("user", 3);
    assert_eq!(world.reply("ratelimit_utilization"), ["api/per-user/free 0.75", "api/tried/default 0.6"]);
    assert!(world.reply("ratelimit_remaining").contains(&"api/per-user/free 1".to_owned()));
}

#[test]
fn units_are_reported_by_the_names_of_other_limiters() {
    let world = World::new(ObserverConfig::default());
    world.check("user", 6);
    let reply = |end: &str| world.reply(&format!("ratelimit_service_rate_limit_{end}"));
    assert_eq!(reply("total_hits"), ["api/per-user 6", "api/tried 6"]);
    assert_eq!(reply("over_limit"), ["api/per-user 2"]);
    assert_eq!(reply("within_limit"), ["api/per-user 4", "api/tried 6"]);
    // The fourth of four. Of the trial a refused request takes nothing, and four of five are not near.
    assert_eq!(reply("near_limit"), ["api/per-user 1"]);
    assert_eq!(reply("shadow_mode"), [""; 0]);
}

#[test]
fn a_server_that_only_tells_refuses_nothing() {
    let world = World::new(ObserverConfig { shadow: true, ..ObserverConfig::default() });
    world.check("user", 6);
    assert_eq!(world.reply("ratelimit_decisions_total"), ["api/per-user/free/allow 4", "api/per-user/free/shadow 2"]);
    assert_eq!(world.reply("ratelimit_denied_total"), [""; 0]);
}

#[test]
fn times_are_a_histogram_whose_buckets_add_up() {
    let world = World::new(ObserverConfig { time_one_in: 1, ..ObserverConfig::default() });
    world.check("user", 5);
    world.check("nothing", 2);
    let samples = scraped(&world.metrics);
    let of = |part: &str, what: &str| samples[&format!("ratelimit_check_duration_seconds_{what}{{part=\"{part}\"}}")];
    // The store is not called where no rule applies.
    assert_eq!((of("decision", "count"), of("store", "count")), (7.0, 5.0));
    assert!(of("decision", "sum") > 0.0 && of("decision", "sum") < 10.0);
    let end = |name: &str| {
        let labels = name.strip_prefix("ratelimit_check_duration_seconds_bucket{le=\"")?;
        labels.strip_suffix("\",part=\"decision\"}")?.parse::<f64>().ok()
    };
    let mut buckets: Vec<_> = samples.iter().filter_map(|(name, count)| Some((end(name)?, *count))).collect();
    buckets.sort_by(|one, other| one.0.total_cmp(&other.0));
    assert_eq!(buckets.len(), BUCKETS.len() + 1);
    assert_eq!((buckets[0].0, buckets[BUCKETS.len()]), (1.28e-7, (f64::INFINITY, 7.0)));
    assert!(buckets.is_sorted_by_key(|(_, count)| *count), "{buckets:?}");
}

#[test]
fn times_are_in_the_buckets_that_they_are_below() {
    let latency = tollgate_observe::LatencyHistogram::default();
    [100, 127, 128, 200, 5_000, 20_000_000_000].into_iter().for_each(|nanos| latency.record(nanos, 2));
    let buckets = buckets(&latency.snapshot());
    let filled: Vec<_> = buckets.into_iter().filter(|(_, count)| *count > 0).collect();
    assert_eq!(filled, [(1.28e-7, 4), (2.56e-7, 4), (8.192e-6, 2), (f64::INFINITY, 2)]);
}

#[test]
fn excess_rules_are_counted_together() {
    let few = TallyLimits { max_rows: 3 };
    let world = World::new(ObserverConfig { tally: few, ..ObserverConfig::default() });
    world.check("user", 1);
    let samples = scraped(&world.metrics);
    assert_eq!(samples["tollgate_series_other"], 1.0);
    assert_eq!(reply(&samples, "ratelimit_denied_total", |_| true).len(), 4);
    assert_eq!(scraped(&World::new(ObserverConfig::default()).metrics)["tollgate_series_other"], 0.0);
}

#[test]
fn only_the_first_ten_keys_are_labels() {
    let none =
        World::with(ObserverConfig::default(), |sources| ScrapeSources { top_denied: Box::new(Vec::new), ..sources });
    assert_eq!(none.reply("ratelimit_top_denied"), [""; 0]);
    let thirty = || (0..30).map(|at| (format!("#{at:02}"), 100 - at)).collect();
    let world =
        World::with(ObserverConfig::default(), |sources| ScrapeSources { top_denied: Box::new(thirty), ..sources });
    let reply = world.reply("ratelimit_top_denied");
    assert_eq!((reply.len(), reply[0].as_str()), (10, "1/#00 100"));
}

#[test]
fn counters_in_memory_are_a_closed_circuit() {
    let world = World::new(ObserverConfig::default());
    let entries = [("user", "x")];
    let request = Request { descriptors: &[Descriptor::new(&entries)], ..Request::default() };
    world.limiter.shed(&request, &mut world.limiter.decision()).unwrap();
    let samples = scraped(&world.metrics);
    for ours in ["tollgate_circuit_state", "ratelimit_circuit_state"] {
        assert_eq!(samples[&format!("{ours}{{shard=\"memory\"}}")], 0.0);
    }
    assert_eq!(samples["ratelimit_redis_errors_total{shard=\"memory\",reason=\"timeout\"}"], 0.0);
    let open = reply(&samples, "ratelimit_failopen_total", |_| true);
    assert_eq!(open, ["open 0", "panic 0", "refused 0", "shed 1", "timeout 0", "unreachable 0"]);
}

#[test]
fn the_log_tells_what_became_of_its_entries() {
    let counts = || crate::decisions::DecisionLogCounts { written: 5, dropped: 2, failed: 1, summarized: 9 };
    let world =
        World::with(ObserverConfig::default(), |sources| ScrapeSources { log_entries: Box::new(counts), ..sources });
    assert_eq!(
        world.reply("tollgate_decision_log_entries_total"),
        ["dropped 2", "failed 1", "summarized 9", "written 5"]
    );
}
