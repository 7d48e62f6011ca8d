//! Followers.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tollgate_control::{Db, DbError, FeedPosition, Precondition, RecordName, RecordSink};
use tollgate_records::{Record, RecordKind};

use crate::world::{World, commit, delete, numbered, put, quota, write};

pub(crate) async fn a_follower_misses_nothing_and_sees_generations_in_order(world: World) {
    const WRITERS: u64 = 8;
    const WRITES: u64 = 40;
    let writing = [world.open().await, world.open().await];
    let db = world.open().await;
    let running = Arc::new(AtomicU64::new(WRITERS));
    for writer in 0..WRITERS {
        let (db, running) = (writing[writer as usize % 2].clone(), running.clone());
        tokio::spawn(async move {
            for n in 0..WRITES {
                // A record of its own for each write, so that the follower can count writes; one that all writers share; and
                // one that is written and deleted in turn.
                let own = put(&quota(&format!("{writer}-{n}")), Precondition::Absent, &numbered(n));
                let shared = put(&quota("shared"), Precondition::Any, &numbered(n));
                let fleeting = quota("fleeting");
                let fleeting = match n % 2 {
                    0 => put(&fleeting, Precondition::Any, &numbered(n)),
                    _ => delete(&fleeting, Precondition::Any),
                };
                commit(&db, vec![own, shared, fleeting]).await;
            }
            running.fetch_sub(1, Ordering::SeqCst);
        });
    }
    let mut known: HashMap<String, (u64, Option<String>)> = HashMap::new();
    let (mut at, mut reads) = (0, 0);
    loop {
        let over = running.load(Ordering::SeqCst) == 0;
        let mut last = at;
        let mut own = 0;
        let generation = db
            .for_each_since(at, true, |record| {
                if at > 0 {
                    assert!(record.generation >= last, "{} after {last}", record.generation);
                }
                last = record.generation.max(last);
                own += u64::from(record.name.contains('-'));
                let document = record.document.map(String::from);
                known.insert(record.name.into_owned(), (record.generation, document));
            })
            .await
            .unwrap();
        // The follower has seen each write up to this generation, and none past it.
        assert_eq!(own, generation - at, "from {at} to {generation}");
        assert!(last <= generation);
        (at, reads) = (generation, reads + 1);
        if over {
            break;
        }
    }
    assert_eq!(at, WRITERS * WRITES);
    assert!(reads > 3, "{reads}");
    let mut now = HashMap::new();
    let everything = db.for_each_since(0, true, |record| {
        now.insert(record.name.into_owned(), (record.generation, record.document.map(String::from)));
    });
    assert_eq!(everything.await, Ok(at));
    assert_eq!(known, now);
}

pub(crate) async fn changes_wake_waiters(world: World) {
    let db = world.open().await;
    commit(&db, vec![put(&quota("a"), Precondition::Any, "{}")]).await;
    // An earlier write is returned at once.
    assert_eq!(db.wait_for_change(0).await, 1);
    let waiting = tokio::spawn({
        let db = db.clone();
        async move { db.wait_for_change(1).await }
    });
    let waiting_longer = tokio::spawn({
        let db = db.clone();
        async move { db.wait_for_change(2).await }
    });
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert!(!waiting.is_finished());
    // A refused write wakes nobody.
    assert!(db.write(&write(vec![put(&quota("a"), Precondition::Absent, "{}")])).await.is_err());
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert!(!waiting.is_finished());
    let writer = match &world {
        World::Sqlite(_) => db.clone(),
        // Another server writes.
        World::Postgres(_) => world.open().await,
    };
    commit(&writer, vec![put(&quota("a"), Precondition::Any, "{}")]).await;
    let woken = tokio::time::timeout(Duration::from_secs(20), waiting).await;
    assert_eq!(woken.expect("the waiter wakes").unwrap(), 2);
    assert!(!waiting_longer.is_finished());
    waiting_longer.abort();
    // A new handle knows the last generation.
    assert_eq!(world.open().await.wait_for_change(1).await, 2);
}

/// The kinds whose records are stored.
fn stored_kinds() -> impl Iterator<Item = RecordKind> {
    RecordKind::ALL.into_iter().filter(|kind| kind.is_stored())
}

pub(crate) async fn all_records_are_handed_out(world: World) {
    let db = world.open().await;
    let mut generation = 0;
    for kind in stored_kinds() {
        let changes =
            (0..700).map(|n| put(&RecordName::new(kind, "shop", format!("n{n}")), Precondition::Absent, &numbered(n)));
        generation = commit(&db, changes.collect()).await;
    }
    let mut counts = HashMap::new();
    let as_of = db.for_each_since(0, false, |record| {
        let n: u64 = record.name[1..].parse().unwrap();
        assert_eq!(record.document.as_deref(), Some(&*numbered(n)));
        *counts.entry((record.kind, record.generation)).or_insert(0) += 1;
    });
    assert_eq!(as_of.await, Ok(generation));
    let expected = stored_kinds().enumerate().map(|(index, kind)| ((kind, index as u64 + 1), 700));
    assert_eq!(counts, expected.collect());
}

/// A database that was restored from an old backup is behind its followers.
pub(crate) async fn a_restored_database_is_too_old(world: World) {
    let db = world.open().await;
    for n in 0..3 {
        commit(&db, vec![put(&quota("a"), Precondition::Any, &numbered(n))]).await;
    }
    assert_eq!(db.for_each_since(3, true, |_| panic!("nothing is new")).await, Ok(3));
    world.query("UPDATE records SET generation = 1").await.unwrap();
    world.query("UPDATE control SET generation = 1").await.unwrap();
    assert_eq!(db.for_each_since(3, true, |_| panic!("nothing is handed out")).await, Err(DbError::TooOld));
    assert_eq!(db.for_each_since(0, true, |_| ()).await, Ok(1));
    wait_until_quiet(&db, 1).await;
    commit(&db, vec![put(&quota("a"), Precondition::Any, &numbered(4))]).await;
    assert!(db.wait_for_change(1).await >= 2);
}

/// A false generation may wake waiters a few times while notifications arrive, but not forever.
async fn wait_until_quiet(db: &Db, at: u64) {
    for _ in 0..10 {
        if tokio::time::timeout(Duration::from_millis(50), db.wait_for_change(at)).await.is_err() {
            return;
        }
        assert_eq!(db.for_each_since(at, true, |_| panic!("nothing is new")).await, Ok(at));
    }
    panic!("waiters wake again and again");
}

/// Every user of the database may notify.
pub(crate) async fn false_notifications_do_not_repeat(world: World) {
    let db = world.open().await;
    commit(&db, vec![put(&quota("a"), Precondition::Any, &numbered(1))]).await;
    if matches!(world, World::Postgres(_)) {
        // Once the connection listens, any number wakes waiters.
        let woken = async {
            while tokio::time::timeout(Duration::from_millis(20), db.wait_for_change(1)).await.is_err() {
                world.query("NOTIFY tollgate_control, 'nonsense'").await.unwrap();
                world.query("NOTIFY tollgate_control, '999'").await.unwrap();
            }
        };
        tokio::time::timeout(Duration::from_secs(20), woken).await.expect("it listens");
    }
    wait_until_quiet(&db, 1).await;
    commit(&db, vec![put(&quota("a"), Precondition::Any, &numbered(2))]).await;
    assert!(db.wait_for_change(1).await >= 2);
}

/// A sink that takes three records at a time, and ends the read after `max`.
#[derive(Default)]
struct SlowSink {
    at: Option<FeedPosition>,
    names: Vec<String>,
    flushes: usize,
    max: usize,
}

impl RecordSink for SlowSink {
    fn begin(&mut self, at: &FeedPosition) {
        assert!(self.at.replace(at.clone()).is_none() && self.names.is_empty());
    }

    fn push(&mut self, record: Record<'_>) {
        assert!(self.at.is_some());
        self.names.push(record.name.into_owned());
    }

    fn is_full(&self) -> bool {
        self.names.len().is_multiple_of(3)
    }

    async fn flush(&mut self) -> bool {
        self.flushes += 1;
        tokio::time::sleep(Duration::from_millis(1)).await;
        self.names.len() < self.max
    }
}

pub(crate) async fn a_sink_has_its_own_pace(world: World) {
    let db = world.open().await;
    let changes = (0..10).map(|n| put(&quota(&n.to_string()), Precondition::Absent, &numbered(n)));
    commit(&db, changes.collect()).await;
    let mut sink = SlowSink { max: 100, ..SlowSink::default() };
    let at = db.read_since(None, false, &mut sink).await.unwrap().unwrap();
    assert_eq!((at.generation, &at), (1, sink.at.as_ref().unwrap()));
    assert_eq!((sink.names.len(), sink.flushes), (10, 3));
    // A read that the sink ended leaves the database usable.
    let mut sink = SlowSink { max: 6, ..SlowSink::default() };
    assert_eq!(db.read_since(None, false, &mut sink).await, Ok(None));
    assert_eq!(sink.names.len(), 6);
    assert_eq!(db.generation().await, Ok(1));
}

pub(crate) async fn generations_of_two_databases_are_not_mixed(world: World) {
    let db = world.open().await;
    for n in 0..3 {
        commit(&db, vec![put(&quota("a"), Precondition::Any, &numbered(n))]).await;
    }
    let identity = db.identity().await.unwrap();
    assert_eq!(identity.len(), 32, "{identity}");
    let at = FeedPosition { identity, generation: 3 };
    assert_eq!(db.read_since(Some(&at), true, &mut SlowSink::default()).await, Ok(Some(at.clone())));
    let other = FeedPosition { identity: "another".to_owned(), ..at.clone() };
    assert_eq!(db.read_since(Some(&other), true, &mut SlowSink::default()).await, Err(DbError::TooOld));

    // A restored backup that reaches the same generation by other writes.
    db.renew_identity(&at).await.unwrap();
    assert_eq!(db.identity().await.unwrap(), at.identity, "the database has not gone back");
    world.query("UPDATE control SET generation = 2").await.unwrap();
    assert_eq!(db.read_since(Some(&at), true, &mut SlowSink::default()).await, Err(DbError::TooOld));
    db.renew_identity(&at).await.unwrap();
    let identity = db.identity().await.unwrap();
    assert_ne!(identity, at.identity);
    db.renew_identity(&at).await.unwrap();
    assert_eq!(db.identity().await.unwrap(), identity, "the identity changes once");
    commit(&db, vec![put(&quota("a"), Precondition::Any, &numbered(4))]).await;
    assert_eq!(db.read_since(Some(&at), true, &mut SlowSink::default()).await, Err(DbError::TooOld));
    let other = World::sqlite().open().await.identity().await.unwrap();
    assert_ne!(other, identity);
}
