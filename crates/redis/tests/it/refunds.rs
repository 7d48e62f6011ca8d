//! What is given back is what was taken, by the real clocks of servers, under concurrency: in memory, in one Redis, and
//! in a cluster, where the counters of a claim are on nodes with clocks of their own.

use std::sync::Arc;

use smallvec::smallvec;
use tokio::task::JoinSet;
use tollgate_core::key::Home;
use tollgate_core::{
    Algorithm, Ask, Charge, Claim, ClaimId, Key, Limit, Mode, OnFailure, Once, Period, Reading, Scope, Shortcuts,
    Source, Span, Value,
};
use tollgate_redis::RedisStore;
use tollgate_store::{GuardConfig, Guarded, MemoryConfig, Store};
use tollgate_testing::Redis;
use tollgate_testing::cluster::Cluster;

use crate::{RunningStore, TIMEOUT};

const REQUESTS: u64 = 150;
const CALLERS: u64 = 6;
const AMOUNT: u64 = 10_000;

/// Limits of a caller and of all callers together.
struct Limits {
    limit: Limit,
    mine: Scope,
    shared: Scope,
    records: Scope,
}

impl Limits {
    fn new(name: &str, algorithm: Algorithm, period: Span) -> Limits {
        // A bucket drains meanwhile, so slowly that it is less than a unit.
        let amount = if matches!(algorithm, Algorithm::Bucket { .. }) { 100 } else { AMOUNT };
        let limit = Limit::new(amount, Period::fixed(period).unwrap(), algorithm).unwrap();
        let scope = |rule: &str, home| Scope::new(name, rule, algorithm, limit.period(), home);
        let (mine, shared) = (scope("mine", Home::Caller(0)), scope("shared", Home::Own));
        Limits { limit, mine, shared, records: Scope::for_records(name, "receipts", Home::Caller(0)) }
    }

    fn claim<'a>(&'a self, id: u64, caller: &'a str, ask: Ask, units: u64, once: Option<&'a str>) -> Claim<'a> {
        let charge = |key| Charge {
            key,
            limit: &self.limit,
            ask,
            units,
            mode: Mode::Enforce,
            on_failure: OnFailure::Deny,
            shortcuts: Shortcuts::None,
        };
        let caller = Value::Text(caller);
        let charges =
            smallvec![charge(Key::new(&self.mine, smallvec![caller])), charge(Key::new(&self.shared, smallvec![]))];
        let once = once.map(|name| Once {
            key: Key::new(&self.records, smallvec![caller, Value::Text(name)]),
            body: 0,
            terms: 0,
            keep: Span::from_secs(600),
        });
        Claim { id: ClaimId(id.into()), charges, once, timeout: None }
    }
}

fn units(readings: &[Reading]) -> Vec<u64> {
    assert!(readings.iter().all(|reading| reading.source == Source::Store), "{readings:?}");
    readings.iter().map(|reading| reading.taken).collect()
}

/// A request, and its settlement when it has failed.
async fn request(store: &impl Store, limits: &Limits, id: u64) {
    let (caller, name) = ((id % CALLERS).to_string(), format!("r{id}"));
    let requested = id % 3 + 1;
    let taken = store.settle(&limits.claim(id, &caller, Ask::Exactly, requested, None)).await;
    tokio::task::yield_now().await;
    let back = Ask::Return { taken_at: taken.at };
    let returned = store.settle(&limits.claim(id, &caller, back, taken.readings[0].taken, Some(&name))).await;
    let algorithm = limits.limit.algorithm();
    assert!(taken.readings[0].taken > 0, "{algorithm:?}");
    assert_eq!(units(&returned.readings), units(&taken.readings), "{algorithm:?}: given back, and taken");
}

async fn refunds_are_exact(store: impl Store + 'static) {
    let (store, minute, day) = (Arc::new(store), Span::from_secs(60), Span::from_secs(86_400));
    let rows = [
        ("token", Algorithm::Bucket { burst: AMOUNT, paced: false }, Span::from_secs(30 * 86_400)),
        ("fixed", Algorithm::FixedWindow, day),
        ("sliding", Algorithm::SlidingWindow { sub_windows: 1 }, day),
        ("parts", Algorithm::SlidingWindow { sub_windows: 5 }, day),
        ("log-micro", Algorithm::SlidingLog, minute),
        ("log-milli", Algorithm::SlidingLog, Span::from_secs(3_600)),
        ("log-second", Algorithm::SlidingLog, day),
        ("holds", Algorithm::Concurrency, minute),
    ];
    for (name, algorithm, period) in rows {
        let limits = Arc::new(Limits::new(name, algorithm, period));
        let mut requests = JoinSet::new();
        for id in 0..REQUESTS {
            let (store, limits) = (Arc::clone(&store), Arc::clone(&limits));
            requests.spawn(async move { request(&*store, &limits, id).await });
        }
        requests.join_all().await;
        for caller in 0..CALLERS {
            let caller = caller.to_string();
            let peek = store.settle(&limits.claim(u64::MAX, &caller, Ask::Exactly, 0, None)).await;
            for reading in &peek.readings {
                let parts = u64::from(matches!(algorithm, Algorithm::Bucket { .. }));
                assert!(reading.remaining >= AMOUNT - parts, "{name}: {reading:?}");
            }
        }
    }
}

/// A guarded store. A busy machine is not a failure.
fn guarded(running: &RunningStore) -> Guarded<RedisStore> {
    let config = GuardConfig { deadline: TIMEOUT, ..GuardConfig::default() };
    Guarded::new(running.store.clone(), config)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn refunds_are_exact_in_memory() {
    refunds_are_exact(MemoryConfig::default().build()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refunds_are_exact_in_one_redis() {
    let redis = Redis::start();
    let running = RunningStore::at(&redis.url());
    refunds_are_exact(guarded(&running)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_refunds_are_exact_in_a_cluster() {
    let cluster = Cluster::start();
    let running = RunningStore::at(&cluster.url());
    refunds_are_exact(guarded(&running)).await;
}
