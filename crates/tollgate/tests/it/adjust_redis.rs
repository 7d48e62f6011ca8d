//! Adjustments of one caller's counters in a real Redis: reset, credit, debit; and the report when Redis is
//! unavailable.

use std::time::Duration;

use tokio::runtime::Runtime;
use tollgate::redis::{RedisConfig, RedisCounters, RedisRegion};
use tollgate::{
    Adjustment, AdjustmentReport, ClaimId, Decision, Descriptor, GuardConfig, KnownRegions, Layer, Limiter,
    LoadOptions, RegionNames, Request, RuleFiles, Ruleset, Source,
};
use tollgate_rules::RuleFile;
use tollgate_store::{DebitConfig, LeaseConfig};
use tollgate_testing::{Redis, Relay, eventually};

use crate::support::rules;

/// The periods are longer than any test.
const RULES: &str = "
domain: d
entity: key
rules:
  - {name: token, key: [key], limit: 10/day, algorithm: token_bucket}
  - {name: leaky, key: [key], limit: 10/day, algorithm: leaky_bucket}
  - {name: fixed, key: [key], limit: 10/day, algorithm: fixed_window}
  - {name: sliding, key: [key], limit: 10/day}
  - {name: charges_settled, key: [key], limit: 10/day, sub_windows: 4}
  - {name: log, key: [key], limit: 10/hour, algorithm: sliding_log}
  - {name: month, key: [key], limit: 10/month in Europe/Berlin, policy: comfort}
  - {name: slots, key: [key], limit: 10 concurrent, hold: 10m}
  - {name: per-endpoint, key: [key, endpoint], limit: 10/day, algorithm: fixed_window}
  - {name: own, key: [endpoint], limit: 10/day, algorithm: fixed_window}
";
const RATES: [&str; 7] = ["token", "leaky", "fixed", "sliding", "charges_settled", "log", "month"];
const ENDPOINT: [(&str, &str); 1] = [("endpoint", "/x")];

struct RedisFixture {
    runtime: Runtime,
    limiter: Limiter<RedisCounters>,
}

impl RedisFixture {
    fn new(port: u16, text: &str, guard: GuardConfig) -> RedisFixture {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let address = format!("redis://127.0.0.1:{port}").parse().unwrap();
        let counters = RedisCounters::new(RedisConfig::new(address), guard).unwrap();
        let fixture = RedisFixture { runtime, limiter: Limiter::new(rules(text, 1), counters) };
        assert!(fixture.runtime.block_on(fixture.limiter.store().wait_until_ready(Duration::from_secs(30))));
        fixture
    }

    /// With a deadline that a busy machine does not exceed.
    fn with_long_deadline(redis: &Redis, text: &str) -> RedisFixture {
        let guard = GuardConfig { deadline: Duration::from_secs(30), ..GuardConfig::default() };
        RedisFixture::new(redis.port(), text, guard)
    }

    fn check(&self, caller: &str, cost: u64) -> Decision {
        let entries = [("key", caller), ENDPOINT[0]];
        let descriptors = [Descriptor::new(&entries)];
        // Each request holds a slot of its own.
        let id = Some(ClaimId(fastrand::u128(..)));
        let request = Request { descriptors: &descriptors, cost, claim: id, ..Request::default() };
        self.runtime.block_on(self.limiter.check_request(&request)).unwrap()
    }

    fn adjust(&self, rule: Option<&str>, adjustment: Adjustment) -> AdjustmentReport {
        let adjusted = self.limiter.adjust(None, None, "a", &ENDPOINT, rule, adjustment);
        self.runtime.block_on(adjusted).unwrap().unwrap()
    }

    fn remaining(&self, caller: &str) -> Vec<u64> {
        let peeked = self.runtime.block_on(self.limiter.peek(None, None, caller, &ENDPOINT)).unwrap().unwrap();
        peeked.counters.iter().map(|(_, counter)| counter.reading.remaining).collect()
    }
}

fn changes(adjusted: &AdjustmentReport) -> Vec<(&str, u64, u64)> {
    assert!(adjusted.is_stored(), "{adjusted:?}");
    let counters = adjusted.counters.iter();
    counters.map(|counter| (&*counter.rule.name, counter.units, counter.reading.remaining)).collect()
}

/// The names of all counters.
fn keys(redis: &Redis) -> Vec<String> {
    redis.inline("KEYS tg:{d/*").lines().filter(|line| line.contains("tg:{d")).map(str::to_owned).collect()
}

#[test]
fn a_reset_removes_every_counter_from_redis() {
    let redis = Redis::start();
    let [one, other] = [(); 2].map(|()| RedisFixture::with_long_deadline(&redis, RULES));
    assert!(one.check("a", 10).allowed());
    for fixture in [&one, &other] {
        let refused = fixture.check("a", 1);
        assert!(!refused.allowed() && refused.source() == Source::Store, "{refused:?}");
    }
    assert!(!keys(&redis).is_empty());
    let adjusted = one.adjust(None, Adjustment::Reset);
    let expected = [&RATES.map(|rule| (rule, 10, 10))[..], &[("slots", 1, 10), ("per-endpoint", 10, 10)]].concat();
    assert_eq!(changes(&adjusted), expected);
    // The counter of all callers of the endpoint is not this caller's.
    let rest = eventually(|| (keys(&redis).len() == 1).then(|| keys(&redis)));
    assert!(rest.is_some_and(|rest| rest[0].contains("own")), "{:?}", keys(&redis));
    let by_endpoint = one.limiter.adjust(None, Some("endpoint"), "/x", &[], None, Adjustment::Reset);
    let by_endpoint = one.runtime.block_on(by_endpoint).unwrap().unwrap();
    assert_eq!(changes(&by_endpoint), [("own", 10, 10)]);
    assert!(eventually(|| keys(&redis).is_empty().then_some(())).is_some(), "{:?}", keys(&redis));
    // This server has cleared its deny cache; another does within a second.
    assert!(one.check("a", 1).allowed());
    assert!(eventually(|| other.check("a", 1).allowed().then_some(())).is_some());
}

#[test]
fn a_reset_of_one_rule_does_not_affect_other_rules() {
    let redis = Redis::start();
    let fixture = RedisFixture::with_long_deadline(&redis, RULES);
    for caller in ["a", "b"] {
        fixture.check(caller, 4);
    }
    for (at, rule) in RATES.iter().enumerate() {
        assert_eq!(changes(&fixture.adjust(Some(rule), Adjustment::Reset)), [(*rule, 4, 10)]);
        let left: Vec<u64> = RATES.iter().enumerate().map(|(other, _)| if other <= at { 10 } else { 6 }).collect();
        assert_eq!(fixture.remaining("a"), [&left[..], &[9, 6]].concat(), "{rule}");
    }
    assert_eq!(fixture.remaining("b"), [6, 6, 6, 6, 6, 6, 6, 9, 6]);
}

#[test]
fn a_reset_of_one_region_reaches_the_redis_and_the_servers_of_the_others() {
    const NAMES: [&str; 2] = ["east", "west"];
    let redis = NAMES.map(|_| Redis::start());
    let guard = GuardConfig { deadline: Duration::from_secs(30), ..GuardConfig::default() };
    let fixture = |here: usize| {
        let other = 1 - here;
        let config = |at: usize| RedisConfig::new(format!("redis://127.0.0.1:{}", redis[at].port()).parse().unwrap());
        let elsewhere =
            RedisRegion { deadline: Duration::from_secs(30), ..RedisRegion::new(NAMES[other], config(other)) };
        let (leases, debits) = (LeaseConfig::default(), DebitConfig::default());
        let counters = RedisCounters::in_regions(config(here), vec![elsewhere], guard, leases, debits, None).unwrap();
        let regions = KnownRegions::All(RegionNames::new(NAMES[here], [NAMES[other]]).unwrap());
        let text = "
domain: d
entity: key
rules:
  - {name: all, key: [key], limit: 10/day, algorithm: fixed_window, region: {global: {debit_threshold: 0%}}}
";
        let options = LoadOptions { regions, ..LoadOptions::default() };
        let files = RuleFiles::from_files(vec![RuleFile { name: "rules".to_owned(), text: text.to_owned() }]);
        let rules = Ruleset::load_with_layer(files, &options, &Layer::default(), 1).unwrap().0;
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let fixture = RedisFixture { runtime, limiter: Limiter::new(rules, counters) };
        assert!(fixture.runtime.block_on(fixture.limiter.store().wait_until_ready(Duration::from_secs(30))));
        fixture
    };
    let [east, west] = [0, 1].map(fixture);
    assert!(east.check("a", 10).allowed());
    assert!(eventually(|| (west.remaining("a") == [0]).then_some(())).is_some(), "debits arrive");
    let reset = eventually(|| {
        let reset = west.adjust(None, Adjustment::Reset);
        reset.missed_regions().is_empty().then_some(reset)
    });
    let reset = reset.unwrap();
    let regions: Vec<_> = reset.counters[0].regions.iter().map(|one| (&*one.region, one.units)).collect();
    assert_eq!(regions, [("west", 10), ("east", 10)]);
    for (redis, name) in redis.iter().zip(NAMES) {
        // For the servers of the region, once.
        assert_eq!(redis.command(&["ZCARD", "tg:{agreed}:adjusted"]).text(), "1", "{name}");
    }
    for fixture in [&east, &west] {
        assert!(eventually(|| fixture.check("a", 1).allowed().then_some(())).is_some());
    }
}

#[test]
fn credits_and_debits_are_exact() {
    let redis = Redis::start();
    let fixture = RedisFixture::with_long_deadline(&redis, RULES);
    fixture.check("a", 6);
    let all = [&RATES[..], &["per-endpoint"]].concat();
    let expected: Vec<_> = all.iter().map(|rule| (*rule, 3, 1)).collect();
    assert_eq!(changes(&fixture.adjust(None, Adjustment::Debit(3))), expected);
    let expected: Vec<_> = all.iter().map(|rule| (*rule, 7, 0)).collect();
    assert_eq!(changes(&fixture.adjust(None, Adjustment::Debit(7))), expected);
    let credited = fixture.adjust(None, Adjustment::Credit(8));
    let expected: Vec<_> = all.iter().map(|rule| (*rule, 8, 2)).collect();
    assert_eq!(changes(&credited), expected);
    let left_out: Vec<&str> = credited.left_out.iter().map(|(rule, _)| &*rule.name).collect();
    assert_eq!(left_out, ["own", "slots"]);
}

#[test]
fn a_credit_to_a_fast_bucket_is_exact() {
    let redis = Redis::start();
    let fast = "
domain: d
entity: key
rules:
  - {name: fast, key: [key], limit: 1000000/second, burst: 100000000, algorithm: token_bucket}
";
    let fixture = RedisFixture::with_long_deadline(&redis, fast);
    assert_eq!(fixture.adjust(None, Adjustment::Debit(90_000_000)).counters[0].units, 90_000_000);
    for units in [1, 100, 100_000] {
        assert_eq!(fixture.adjust(None, Adjustment::Credit(units)).counters[0].units, units);
    }
}

#[test]
fn adjustments_fail_and_are_not_deferred_while_redis_is_unavailable() {
    let redis = Redis::start();
    let mut relay = Relay::to(redis.port());
    let guard = GuardConfig {
        deadline: Duration::from_secs(5),
        cool_down: Duration::from_millis(100),
        ..GuardConfig::default()
    };
    let (direct, relayed) =
        (RedisFixture::with_long_deadline(&redis, RULES), RedisFixture::new(relay.port(), RULES, guard));
    direct.check("a", 4);
    let before = direct.remaining("a");
    assert_eq!(relayed.remaining("a"), before);
    relay.refuse();
    relay.cut();
    let stored = || {
        let status = relayed.limiter.store().status();
        (status.waiting, status.owed, status.local)
    };
    // Without anything deferred for Redis, and with something that this server counted meanwhile.
    for counted in [0, 10] {
        assert_eq!(stored(), (0, counted, counted));
        for adjustment in [Adjustment::Reset, Adjustment::Credit(2), Adjustment::Debit(2)] {
            let adjusted = relayed.adjust(None, adjustment);
            assert!(!adjusted.is_stored(), "{adjusted:?}");
            for counter in &adjusted.counters {
                assert_eq!((counter.units, counter.reading.source), (0, Source::Assumed), "{adjustment:?}");
            }
            assert_eq!(stored(), (0, counted, counted), "{adjustment:?}");
        }
        if counted == 0 {
            assert_eq!(relayed.check("a", 1).source(), Source::Local);
        }
    }
    relay.pass();
    let is_caught_up =
        || (stored().1 == 0 && relayed.adjust(Some("fixed"), Adjustment::Debit(0)).is_stored()).then_some(());
    assert!(eventually(is_caught_up).is_some(), "{:?}", relayed.limiter.store().status());
    let expected: Vec<u64> = before.iter().map(|left| left - 1).collect();
    assert!(eventually(|| (direct.remaining("a") == expected).then_some(())).is_some(), "{:?}", direct.remaining("a"));
    assert_eq!(relayed.adjust(None, Adjustment::Reset).counters[0].units, 5);
    assert_eq!(direct.remaining("a")[0], 10);
}
