//! Slots that are moved slowly, and nodes that lose their slots while nobody talks to them: limits stay exact.

use std::sync::Arc;
use std::time::Duration;

use smallvec::smallvec;
use tokio::task::JoinSet;
use tollgate_core::key::Home;
use tollgate_core::{
    Algorithm, Ask, Charge, Claim, ClaimId, Key, Limit, Mode, OnFailure, Once, Period, Replay, Scope, Settlement,
    Shortcuts, Source, Span, Value,
};
use tollgate_redis::RedisStore;
use tollgate_store::sharded::Sharded;
use tollgate_store::{GuardConfig, Guarded, Store};
use tollgate_testing::cluster::Cluster;

use crate::{Rule, RunningStore, TIMEOUT, until};

const PATHS: usize = 100;
const LIMIT: u64 = 5;

/// A server: its guarded store and the store itself.
struct Server {
    guard: Guarded<RedisStore>,
    running: RunningStore,
}

impl Server {
    async fn at(url: &str, config: GuardConfig) -> Server {
        let running = RunningStore::at(url);
        running.take(&Rule::new(1), "anybody", 0, TIMEOUT).await.unwrap();
        Server { guard: Guarded::new(running.store.clone(), config), running }
    }
}

/// A caller's limits: each path, all paths together, and a log of them. The counters of paths do not fit in one value.
struct Limits {
    path: (Scope, Limit),
    all: (Scope, Limit),
    log: (Scope, Limit),
    records: Scope,
}

impl Limits {
    fn new() -> Limits {
        let limit = |name: &str, amount, algorithm| {
            let limit = Limit::new(amount, Period::fixed(Span::from_secs(86_400)).unwrap(), algorithm).unwrap();
            (Scope::new("shop", name, algorithm, limit.period(), Home::Caller(0)), limit)
        };
        Limits {
            path: limit("path", LIMIT, Algorithm::SlidingWindow { sub_windows: 1 }),
            all: limit("all", 1_000_000, Algorithm::FixedWindow),
            log: limit("log", 10_000, Algorithm::SlidingLog),
            records: Scope::for_records("shop", "records", Home::Caller(0)),
        }
    }

    fn claim<'a>(&'a self, caller: &'a str, path: &'a str, once: Option<&'a str>, units: u64) -> Claim<'a> {
        let charge = |(scope, limit): &'a (Scope, Limit), key| Charge {
            key: Key::new(scope, key),
            limit,
            ask: Ask::Exactly,
            units,
            mode: Mode::Enforce,
            on_failure: OnFailure::Local,
            shortcuts: Shortcuts::Refusals,
        };
        let (caller, path) = (Value::Text(caller), Value::Text(path));
        let once = once.map(|name| Once {
            key: Key::new(&self.records, smallvec![caller, Value::Text(name)]),
            body: 1,
            terms: 1,
            keep: Span::from_secs(3_600),
        });
        let charges = smallvec![
            charge(&self.path, smallvec![caller, path]),
            charge(&self.all, smallvec![caller]),
            charge(&self.log, smallvec![caller]),
        ];
        Claim { id: ClaimId(1), charges, once, timeout: None }
    }
}

/// Asks for a path until it is refused, half of the time under an idempotency key, and each of these twice. Returns how
/// often it was admitted. Redis has answered everything.
async fn exhaust(server: &Server, limits: &Limits, caller: &str, path: &str, round: &str) -> u64 {
    for admitted in 0..=LIMIT {
        let name = format!("{path}-{round}-{admitted}");
        let once = admitted.is_multiple_of(2).then_some(&*name);
        let claim = limits.claim(caller, path, once, 1);
        let settlement = server.guard.settle(&claim).await;
        let is_stored = settlement.readings.iter().all(|it| it.source == Source::Store);
        assert!(is_stored, "{path} {admitted}: {settlement:?}, {:?}", server.guard.status());
        if !settlement.readings[0].admits {
            return admitted;
        }
        assert_eq!(settlement.readings.iter().map(|it| it.taken).collect::<Vec<_>>(), [1, 1, 1]);
        if once.is_some() {
            let again = server.guard.settle(&claim).await;
            assert!(matches!(again.replay, Replay::Again { passed: true, .. }), "{path} {admitted}: {again:?}");
        }
    }
    LIMIT + 1
}

/// The same for all paths at once. Returns the sum.
async fn exhaust_all(server: &Arc<Server>, limits: &Arc<Limits>, caller: &str, round: &'static str) -> u64 {
    let mut askers = JoinSet::new();
    for path in 0..PATHS {
        let (server, limits, caller) = (Arc::clone(server), Arc::clone(limits), caller.to_owned());
        askers.spawn(async move { exhaust(&server, &limits, &caller, &format!("/{path}"), round).await });
    }
    askers.join_all().await.into_iter().sum()
}

/// The units that were taken of all paths and of the log.
async fn taken(server: &Server, limits: &Limits, caller: &str) -> (u64, u64) {
    let Settlement { readings, .. } = server.guard.settle(&limits.claim(caller, "/0", None, 0)).await;
    assert!(readings.iter().all(|reading| reading.source == Source::Store), "{readings:?}");
    (1_000_000 - readings[1].remaining, 10_000 - readings[2].remaining)
}

#[tokio::test]
async fn slow_limits_stay_exact_while_a_slot_is_held_open() {
    let mut cluster = Cluster::start();
    // A busy machine is not a failure.
    let config = GuardConfig { deadline: TIMEOUT, ..GuardConfig::default() };
    let server = Arc::new(Server::at(&cluster.url(), config).await);
    let limits = Arc::new(Limits::new());
    // Which keys are moved: none, those of half of the paths, the packed value and the other half, all.
    type Moves = fn(usize, &[u8]) -> bool;
    let rows: [(&str, Moves); 4] = [
        ("none", |_, _| false),
        ("half", |at, key| at % 2 == 0 && !key.ends_with(b"}")),
        ("packed", |at, key| at % 2 == 1 || key.ends_with(b"}")),
        ("all", |_, _| true),
    ];
    let slot = |caller: &str| server.running.store.locate(&limits.claim(caller, "/", None, 0).charges[0].key).slot;
    for (name, moves) in rows {
        let caller = (0..).map(|at| format!("{name}{at}")).find(|caller| slot(caller) < 5_000).unwrap();
        // Half of the paths have counters before, more than one value holds.
        for path in 0..PATHS / 2 {
            let path = format!("/{path}");
            let taken = server.guard.settle(&limits.claim(&caller, &path, None, 1)).await.readings[0].taken;
            assert_eq!(taken, 1);
        }
        let slot = slot(&caller);
        let keys = cluster.keys(slot, 0);
        assert!(keys.len() > 20, "{}", keys.len());
        cluster.open_slot(slot, 0, 1);
        let moved = keys.into_iter().enumerate().filter(|(at, key)| moves(*at, key)).map(|(_, key)| key);
        cluster.move_keys(&moved.collect::<Vec<_>>(), 0, 1);

        let admitted = exhaust_all(&server, &limits, &caller, "open").await;
        let all = PATHS as u64 * LIMIT;
        assert_eq!(admitted, all - PATHS as u64 / 2, "{name}");
        assert_eq!(taken(&server, &limits, &caller).await, (all, all), "{name}");

        cluster.reshard(slot..slot + 1, 0, 1);
        assert_eq!(exhaust_all(&server, &limits, &caller, "moved").await, 0, "{name}, moved");
        assert_eq!(taken(&server, &limits, &caller).await, (all, all), "{name}, moved");
    }
    let stats = server.running.store.stats();
    assert_eq!(stats.unsound, 0);
    assert!(["ask", "tryagain", "moved", "keys"].iter().all(|reason| server.running.resent(reason) > 0), "{stats:?}");
    // Nothing of that was a failure of a node.
    let status = server.guard.status();
    assert!(status.shards.iter().all(|shard| shard.errors.iter().all(|(_, count)| *count == 0)), "{status:?}");
    assert_eq!((status.waiting, status.dropped, status.local), (0, 0, 0));
}

#[tokio::test]
async fn slow_a_slot_that_leaves_a_failed_node_is_found() {
    let mut cluster = Cluster::start();
    let never = Duration::from_secs(3_600);
    let config = GuardConfig { cool_down: never, ..GuardConfig::default() };
    let server = Server::at(&cluster.url(), config).await;
    let rule = Rule::new(1_000_000);
    let slot = |caller: &str| server.running.store.locate(&rule.claim(caller, 0).charges[0].key).slot;
    let caller = (0..).map(|at| format!("c{at}")).find(|caller| slot(caller) < 5_000).unwrap();
    let source = || async { server.guard.settle(&rule.claim(&caller, 1)).await.readings[0].source };
    // The node is there and refuses to write. Its breaker opens, and it is not probed any more.
    cluster.node(0).redis.inline("CONFIG SET maxmemory 1");
    until(|| async { source().await == Source::Assumed && !server.guard.status().shards.iter().all(is_closed) }).await;
    let moved = slot(&caller);
    cluster.reshard(moved..moved + 1, 0, 1);
    until(|| async { source().await == Source::Store }).await;
    assert!(!server.guard.status().shards.iter().all(is_closed));
}

fn is_closed(shard: &tollgate_store::ShardStatus) -> bool {
    shard.circuit == tollgate_store::Circuit::Closed
}
