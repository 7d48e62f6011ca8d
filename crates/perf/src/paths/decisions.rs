//! Whole decisions in process: resolve, settle, verdict.

use std::fmt::Write as _;
use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use tollgate::control::{Controls, Record, RecordKind};
use tollgate::{
    Claim, Descriptor, KnownRegions, Layer, Limiter, LoadOptions, ManualClock, MemoryConfig, MemoryStore, RegionId,
    RegionNames, Request, RuleFiles, Ruleset, Span, Timestamp, poll_once,
};
use tollgate_observe::{Observer, ObserverConfig, TrafficConfig};
use tollgate_rules::RuleFile;
use tollgate_store::debits::Routes;
use tollgate_store::sharded::{Failure, ShardId};
use tollgate_store::{Clock as _, Courier, DebitConfig, DebitOutbox, LeaseConfig, Leased, Store};

use super::Iteration;

/// Callers who take turns: few, so that what is counted is not the growth of a table.
pub(super) const CALLERS: usize = 500;

pub(super) const ONE_LIMIT: &str = "
domain: api
entity: api_key
rules:
  - {name: a, key: [api_key], limit: 1000000/day, algorithm: gcra}
";

pub(super) const FOUR_LIMITS: &str = "
domain: api
entity: api_key
rules:
  - {name: a, key: [api_key], limit: 1000000/day, algorithm: gcra}
  - {name: b, key: [api_key], limit: 1000000/hour, algorithm: sliding_window}
  - {name: c, key: [api_key], limit: 5000000/week, algorithm: fixed_window}
  - {name: d, key: [api_key], limit: 2000000/hour, algorithm: token_bucket}
";

/// The same as one limit, in all regions.
const ONE_GLOBAL_LIMIT: &str = "
domain: api
entity: api_key
rules:
  - {name: a, key: [api_key], limit: 1000000/day, algorithm: gcra, region: {global: {debit_threshold: 0%}}}
";

const REFUSING: &str = "
domain: api
entity: api_key
rules:
  - {name: a, key: [api_key], limit: 1/day, algorithm: sliding_window}
";

const TIERS: &str = "
domain: api
entity: api_key
rules:
  - {name: a, key: [api_key], limit: {free: 1000000/day, pro: 2000000/day}, algorithm: gcra}
";

const LEASED: &str = "
domain: api
entity: api_key
rules:
  - {name: a, key: [api_key], limit: 1000000/hour, algorithm: fixed_window, lease: on}
";

const OVERRIDE: &str = r#"{"tier":"pro","overrides":[{"rule":"a","requests_per_unit":5000000,"unit":"day"}]}"#;

pub(super) fn one_limit() -> Iteration {
    checks(limiter(ONE_LIMIT))
}

pub(super) fn four_limits() -> Iteration {
    checks(limiter(FOUR_LIMITS))
}

/// What debits for two other regions add to a decision. What is sent is sent elsewhere.
pub(super) fn one_global_limit() -> Iteration {
    let clock = ManualClock::at(Timestamp::from_secs(1_800_000_000));
    let Ok(names) = RegionNames::new("a", ["b", "c"]) else { unreachable!("the names are sound") };
    let others = names.others().map(|(id, name)| (id, name.to_owned())).collect();
    let options = LoadOptions { regions: KnownRegions::All(names), ..LoadOptions::default() };
    let file = RuleFile { name: "rules".to_owned(), text: ONE_GLOBAL_LIMIT.to_owned() };
    let files = RuleFiles::from_files(vec![file]);
    let rules = match Ruleset::load_with_layer(files, &options, &Layer::default(), 1) {
        Ok((rules, _)) => rules,
        Err(problems) => unreachable!("the rules are sound: {problems:?}"),
    };
    let store = MemoryConfig::default().build_with(clock.clone());
    let store = DebitOutbox::with_clock(store, Nowhere, DebitConfig::default(), others, clock.clone());
    checks(Limiter::new(rules, store).with_clock(clock))
}

/// Other regions that are never called.
struct Nowhere;

impl Routes for Nowhere {
    fn is_whole(&self, _: RegionId) -> bool {
        true
    }

    fn shard(&self, key: &tollgate::Key<'_>) -> ShardId {
        ShardId(0).at(key.region())
    }

    fn is_reachable(&self, _: ShardId) -> bool {
        true
    }

    fn servers_here(&self) -> u64 {
        1
    }
}

impl Courier for Nowhere {
    async fn deliver(&self, _: RegionId, _: &Claim<'_>, _: Duration) -> Result<(), Failure> {
        Ok(())
    }
}

pub(super) fn refused() -> Iteration {
    checks(limiter(REFUSING))
}

pub(super) fn others_overrides() -> Iteration {
    checks(with_overrides("other"))
}

pub(super) fn own_override() -> Iteration {
    checks(with_overrides("user"))
}

pub(super) fn counted() -> Iteration {
    checks(witnessed(ONE_LIMIT, ObserverConfig { keys: false, ..ObserverConfig::default() }))
}

/// With a sample of requests that hardly any caller is in: what most decisions pay for it.
pub(super) fn sampled() -> Iteration {
    let traffic = TrafficConfig { on: true, max_callers_bps: 1, ..TrafficConfig::default() };
    checks(witnessed(ONE_LIMIT, ObserverConfig { keys: false, traffic, ..ObserverConfig::default() }))
}

pub(super) fn observed() -> Iteration {
    checks(witnessed(ONE_LIMIT, ObserverConfig::default()))
}

pub(super) fn four_observed() -> Iteration {
    checks(witnessed(FOUR_LIMITS, ObserverConfig::default()))
}

/// A key that is too rare for a lease, and leases are off.
pub(super) fn rare_unleased() -> Iteration {
    leased_checks(LeaseConfig { is_enabled: false, ..LeaseConfig::default() }, CALLERS, RARE)
}

/// A key that is too rare for a lease: what leases add to a decision that the store makes.
pub(super) fn rare() -> Iteration {
    leased_checks(LeaseConfig::default(), CALLERS, RARE)
}

/// A key whose requests are decided from a lease.
pub(super) fn busy() -> Iteration {
    leased_checks(LeaseConfig::default(), BUSY_CALLERS, BUSY)
}

pub(super) fn ruleset(text: &str) -> Ruleset {
    match Ruleset::from_text(text, 1) {
        Ok((rules, _)) => rules,
        Err(problems) => unreachable!("the rules are sound: {problems:?}"),
    }
}

/// The names of the callers, as long as usual API keys.
pub(super) fn callers() -> Vec<String> {
    (0..CALLERS).map(|number| format!("user-{number:011}")).collect()
}

fn limiter(rules: &str) -> Limiter<MemoryStore<ManualClock>> {
    let clock = ManualClock::at(Timestamp::from_secs(1_800_000_000));
    Limiter::new(ruleset(rules), MemoryConfig::default().build_with(clock.clone())).with_clock(clock)
}

/// The time between two checks of rare keys: each of [`CALLERS`] has one every 10 seconds.
const RARE: Span = Span::from_micros(20_000);
/// The callers of busy keys, and the time between two checks: each has 20 a second.
const BUSY_CALLERS: usize = 50;
const BUSY: Span = Span::from_micros(1_000);

/// A check for each of so many callers in turn, with so much time between two of them.
fn leased_checks(config: LeaseConfig, count: usize, gap: Span) -> Iteration {
    let clock = ManualClock::at(Timestamp::from_secs(1_800_000_000));
    let store = MemoryConfig::default().build_with(clock.clone());
    let store = Leased::with_clock(store, config, clock.clone());
    let limiter = Limiter::new(ruleset(LEASED), store).with_clock(clock.clone());
    let (callers, mut next) = (callers(), 0);
    Box::new(move || {
        next = (next + 1) % count;
        clock.set(clock.now().after(gap));
        check(&limiter, &callers[next]);
    })
}

fn witnessed(rules: &str, config: ObserverConfig) -> Limiter<MemoryStore<ManualClock>> {
    limiter(rules).with_witness(Arc::new(Observer::new(config, Arc::default())))
}

fn with_overrides(callers: &str) -> Limiter<MemoryStore<ManualClock>> {
    let limiter = limiter(TIERS);
    let mut controls = Controls::default();
    for number in 0..CALLERS {
        let name = format!("{callers}-{number:011}");
        let document = Some(OVERRIDE.into());
        let record =
            Record { generation: 1, kind: RecordKind::Quota, domain: "api".into(), name: (&*name).into(), document };
        if let Err(error) = controls.apply(&record) {
            unreachable!("the record is sound: {error:?}");
        }
    }
    limiter.install_tenants(controls.tenants().clone());
    limiter
}

/// A check for a caller that was not seen before, so many times.
pub(crate) fn new_keys(keys: usize) -> Iteration {
    let (limiter, mut number) = (limiter(ONE_LIMIT), 0);
    let check = move |caller: &str| check(&limiter, caller);
    let mut name = String::with_capacity(32);
    Box::new(move || {
        number = (number + 1) % keys;
        name.clear();
        let _ = write!(name, "user-{number:011}");
        check(&name);
    })
}

/// A check for each caller in turn, as a wire makes it.
fn checks<S: Store + 'static>(limiter: Limiter<S>) -> Iteration {
    let (callers, mut next) = (callers(), 0);
    Box::new(move || {
        next = (next + 1) % callers.len();
        check(&limiter, &callers[next]);
    })
}

/// One check, as a wire makes it.
fn check<S: Store>(limiter: &Limiter<S>, caller: &str) {
    let entries = [("api_key", caller)];
    let descriptors = [Descriptor::new(&entries)];
    let request = Request { domain: Some("api"), descriptors: &descriptors, cost: 1, ..Request::default() };
    let mut decision = limiter.decision();
    let decided = poll_once(limiter.check_into(&request, None, &mut decision));
    assert!(matches!(decided, Some(Ok(()))), "a check in memory is decided at once");
    black_box(&decision);
}
