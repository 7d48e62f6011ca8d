//! Redis Cluster: claims find their nodes, also while slots are migrated and nodes fail.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::task::JoinSet;
use tollgate_store::sharded::{Failure, ShardId, Sharded};
use tollgate_testing::cluster::Cluster;
use tollgate_testing::{Redis, free_port};

use crate::{Rule, RunningStore, TIMEOUT, until};

/// The slot of a caller's counters.
fn slot(running: &RunningStore, rule: &Rule, caller: &str) -> u16 {
    running.store.locate(&rule.claim(caller, 1).charges[0].key).slot
}

/// The shard that serves it.
fn shard(running: &RunningStore, rule: &Rule, caller: &str) -> ShardId {
    running.store.locate(&rule.claim(caller, 1).charges[0].key).shard
}

/// Callers with counters in this slot, whose names begin with `name`.
fn callers(running: &RunningStore, rule: &Rule, name: &str, of: u16, count: usize) -> Vec<String> {
    let names = (0..10_000_000).map(|number| format!("{name}{number}"));
    names.filter(|caller| slot(running, rule, caller) == of).take(count).collect()
}

/// A store with a discovered map, and a rule.
async fn known(url: &str) -> (Arc<RunningStore>, Arc<Rule>) {
    let running = Arc::new(RunningStore::at(url));
    let rule = Arc::new(Rule::new(1_000_000));
    running.take(&rule, "anybody", 0, TIMEOUT).await.unwrap();
    (running, rule)
}

#[tokio::test]
async fn slow_claims_find_their_nodes_by_one_of_them() {
    const CALLERS: u64 = 300;
    let mut cluster = Cluster::start();
    let seed = format!("redis+cluster://127.0.0.1:{}", cluster.node(4).port());
    let (running, rule) = known(&seed).await;
    let mut askers = JoinSet::new();
    for caller in 0..CALLERS {
        let (running, rule) = (Arc::clone(&running), Arc::clone(&rule));
        askers.spawn(async move {
            for _ in 0..5 {
                running.take(&rule, &caller.to_string(), 1, TIMEOUT).await.unwrap();
            }
        });
    }
    askers.join_all().await;
    let mut places = BTreeSet::new();
    for caller in 0..CALLERS {
        let caller = caller.to_string();
        assert_eq!(running.taken(&rule, &caller).await, 5, "{caller}");
        assert_eq!(slot(&running, &rule, &caller), cluster.slot_of(&format!("tg:{{shop/{caller}}}")));
        places.insert(shard(&running, &rule, &caller));
    }
    let shards = running.store.shards();
    assert_eq!(shards.iter().map(|shard| shard.id).collect::<BTreeSet<_>>(), places);
    let names: BTreeSet<String> = shards.into_iter().map(|shard| shard.name).collect();
    let primaries: BTreeSet<String> =
        (0..3).map(|number| format!("127.0.0.1:{}", cluster.node(number).port())).collect();
    assert_eq!(names, primaries);
    let stats = running.store.stats();
    assert!(stats.calls > stats.batches && stats.batches < stats.claims, "{stats:?}");
    assert!(stats.resent.iter().all(|(_, times)| *times == 0), "{stats:?}");
    for id in places {
        assert_eq!(running.store.probe(id, TIMEOUT).await, Ok(()));
    }
    // The id of unserved slots and of a node that never existed: both are fine.
    assert_eq!(running.store.probe(ShardId(0), TIMEOUT).await, Ok(()));
    assert_eq!(running.store.probe(ShardId(99), TIMEOUT).await, Ok(()));
    assert_eq!(running.store.heartbeat(TIMEOUT).await, Ok(1));

    // A cluster node that is addressed as a single server reports it.
    let alone = RunningStore::at(&format!("redis://127.0.0.1:{}", cluster.node(0).port()));
    let far = callers(&running, &rule, "far", 16_000, 1);
    let failed = alone.take(&rule, &far[0], 1, TIMEOUT).await;
    assert!(matches!(&failed, Err(Failure::Refused(why)) if why.contains("redis+cluster://")), "{failed:?}");
}

#[tokio::test]
async fn slow_claims_follow_a_slot_that_moves() {
    let mut cluster = Cluster::start();
    let (running, rule) = known(&cluster.url()).await;
    let moving = 100;
    let names = callers(&running, &rule, "c", moving, 4);
    let [old, gone, new, other] = &names[..] else { panic!() };
    for caller in [old, gone] {
        running.take(&rule, caller, 1, TIMEOUT).await.unwrap();
    }
    // During the migration: one key has moved and one has not.
    let (source, target) = (cluster.node(0).redis.port().to_string(), cluster.node(1).redis.port().to_string());
    let id = |cluster: &mut Cluster, number: usize| cluster.node(number).redis.command(&["CLUSTER", "MYID"]).text();
    let (source_id, target_id) = (id(&mut cluster, 0), id(&mut cluster, 1));
    cluster.node(1).redis.inline(&format!("CLUSTER SETSLOT {moving} IMPORTING {source_id}"));
    cluster.node(0).redis.inline(&format!("CLUSTER SETSLOT {moving} MIGRATING {target_id}"));
    let key = format!("tg:{{shop/{gone}}}");
    let moved = cluster.node(0).redis.command(&["MIGRATE", "127.0.0.1", &target, &key, "0", "5000"]).text();
    assert_eq!(moved, "OK", "{source} to {target}");
    assert_eq!(running.taken(&rule, old).await, 1);
    assert_eq!(running.taken(&rule, gone).await, 1);
    running.take(&rule, new, 1, TIMEOUT).await.unwrap();
    assert!(running.resent("ask") >= 2, "{:?}", running.store.stats());
    // In a shared call they are refused, since the keys of the call are on different nodes. Each by itself is not.
    let mut askers = JoinSet::new();
    for round in 0..200 {
        let (running, rule) = (Arc::clone(&running), Arc::clone(&rule));
        let caller = names[round % 4].clone();
        askers.spawn(async move { running.take(&rule, &caller, 1, TIMEOUT).await.map(|_| ()) });
    }
    for settled in askers.join_all().await {
        assert_eq!(settled, Ok(()));
    }
    assert!(running.resent("tryagain") > 0, "{:?}", running.store.stats());
    // After the migration the old node redirects.
    cluster.reshard(moving..moving + 1, 0, 1);
    for (caller, taken) in [(old, 51), (gone, 51), (new, 51), (other, 50)] {
        assert_eq!(running.taken(&rule, caller).await, taken, "{caller}");
    }
    assert!(running.resent("moved") >= 1);
    let name = format!("127.0.0.1:{target}");
    let home = running.store.shards().into_iter().find(|shard| shard.name == name).unwrap().id;
    assert_eq!(shard(&running, &rule, old), home);
}

#[tokio::test]
async fn slow_nobody_is_refused_or_charged_twice_while_slots_move() {
    let mut cluster = Cluster::start();
    let (running, rule) = known(&cluster.url()).await;
    let (stop, sent) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let mut askers = JoinSet::new();
    for asker in 0..32 {
        let (running, rule) = (Arc::clone(&running), Arc::clone(&rule));
        let (stop, sent) = (Arc::clone(&stop), Arc::clone(&sent));
        let slot = 200 + asker % 16;
        askers.spawn(async move {
            let caller = callers(&running, &rule, &format!("m{asker}-"), slot, 1).remove(0);
            let mut taken = 0;
            while !stop.load(Ordering::Relaxed) {
                running.take(&rule, &caller, 1, TIMEOUT).await.unwrap();
                sent.fetch_add(1, Ordering::Relaxed);
                taken += 1;
            }
            (caller, taken)
        });
    }
    until(|| async { sent.load(Ordering::Relaxed) > 500 }).await;
    let cluster = tokio::task::spawn_blocking(move || {
        cluster.reshard(200..216, 0, 1);
        cluster.reshard(200..208, 1, 2);
        cluster
    });
    let cluster = cluster.await.unwrap();
    let before = sent.load(Ordering::Relaxed);
    until(|| async { sent.load(Ordering::Relaxed) > before + 500 }).await;
    stop.store(true, Ordering::Relaxed);
    for (caller, taken) in askers.join_all().await {
        assert_eq!(running.taken(&rule, &caller).await, taken, "{caller}");
    }
    assert!(running.resent("moved") > 0 && running.resent("ask") > 0, "{:?}", running.store.stats());
    drop(cluster);
}

#[tokio::test]
async fn slow_a_primary_that_dies_is_followed_by_its_replica() {
    const DEADLINE: Duration = Duration::from_millis(200);
    let mut cluster = Cluster::start();
    let (running, rule) = known(&cluster.url()).await;
    let mut homes: HashMap<ShardId, String> = HashMap::new();
    for caller in 0..100 {
        let caller = caller.to_string();
        let home = shard(&running, &rule, &caller);
        homes.entry(home).or_insert(caller);
    }
    assert_eq!(homes.len(), 3);
    let dead = format!("127.0.0.1:{}", cluster.node(0).port());
    let victim = running.store.shards().into_iter().find(|shard| shard.name == dead).unwrap().id;
    let lost = homes.remove(&victim).unwrap();
    cluster.node(0).redis.kill();
    let mut settled = 0;
    until(|| {
        settled += 1;
        let (running, rule, homes, lost) = (&running, &rule, &homes, &lost);
        async move {
            for caller in homes.values() {
                // The other shards are not affected.
                running.take(rule, caller, 1, TIMEOUT).await.unwrap();
            }
            let victim = shard(running, rule, lost);
            // As a breaker would: a probe requests a discovery.
            let _ = running.store.probe(victim, DEADLINE).await;
            running.take(rule, lost, 1, DEADLINE).await.is_ok()
        }
    })
    .await;
    for caller in homes.values() {
        assert_eq!(running.taken(&rule, caller).await, settled);
    }
    let heir = format!("127.0.0.1:{}", cluster.node(3).port());
    // The claim may have been redirected to the heir before the next look at the topology.
    until(|| {
        let shards = running.store.shards();
        let has = |name: &str| shards.iter().any(|shard| *shard.name == *name);
        std::future::ready(has(&heir) && !has(&dead))
    })
    .await;
    // A node that is gone is not an error.
    assert_eq!(running.store.probe(victim, TIMEOUT).await, Ok(()));
}

#[tokio::test]
async fn a_cluster_that_nobody_knows_is_no_place() {
    let port = free_port();
    let running = RunningStore::at(&format!("redis+cluster://127.0.0.1:{port}"));
    let rule = Rule::new(1);
    for _ in 0..2 {
        let failed = running.take(&rule, "me", 1, TIMEOUT).await;
        assert!(matches!(&failed, Err(Failure::Unreachable(why)) if why.contains("refused")), "{failed:?}");
    }
    assert_eq!(shard(&running, &rule, "me"), ShardId(0));
    let shards = running.store.shards();
    assert_eq!((shards[0].id, &*shards[0].name), (ShardId(0), &*format!("127.0.0.1:{port}")));
    assert!(running.store.probe(ShardId(0), TIMEOUT).await.is_err());
    assert!(running.store.heartbeat(TIMEOUT).await.is_err());
}

#[tokio::test]
async fn a_server_that_is_no_cluster_says_so() {
    let redis = Redis::start();
    let running = RunningStore::at(&format!("redis+cluster://127.0.0.1:{}", redis.port()));
    let failed = running.take(&Rule::new(1), "me", 1, TIMEOUT).await;
    assert!(matches!(&failed, Err(Failure::Refused(why)) if why.contains("cluster support disabled")), "{failed:?}");
}

#[tokio::test]
async fn slots_that_nobody_serves_fail_and_the_others_do_not() {
    let redis = Redis::start_with(&["--cluster-enabled", "yes", "--cluster-require-full-coverage", "no"]);
    redis.inline("CLUSTER ADDSLOTSRANGE 0 8191");
    let (running, rule) = (RunningStore::at(&format!("redis+cluster://127.0.0.1:{}", redis.port())), Rule::new(10));
    let served = callers(&running, &rule, "c", 1, 1).remove(0);
    let unserved = callers(&running, &rule, "c", 9_000, 1).remove(0);
    until(|| async { running.take(&rule, &served, 0, TIMEOUT).await.is_ok() }).await;
    let failed = running.take(&rule, &unserved, 1, TIMEOUT).await;
    assert_eq!(failed, Err(Failure::Unreachable("no node serves slot 9000".to_owned())));
    assert_eq!((shard(&running, &rule, &unserved), slot(&running, &rule, &unserved)), (ShardId(0), 9_000));
    let shards = running.store.shards();
    assert_eq!(shards.iter().map(|shard| shard.id).collect::<Vec<_>>(), [ShardId(0), ShardId(1)]);
    assert!(running.store.probe(ShardId(0), TIMEOUT).await.is_err());
    assert_eq!(running.store.probe(ShardId(1), TIMEOUT).await, Ok(()));
    // Once a node serves them, they are found by the probe alone.
    redis.inline("CLUSTER ADDSLOTSRANGE 8192 16383");
    until(|| async { running.store.probe(ShardId(0), TIMEOUT).await.is_ok() }).await;
    assert_eq!(running.take(&rule, &unserved, 1, TIMEOUT).await.unwrap().remaining, 9);
}
