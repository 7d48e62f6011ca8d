//! Followers.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tollgate_control::{Db, DbError, Expect, Name, Point, Reader};
use tollgate_records::{Record, RecordKind};

use crate::world::{World, delete, numbered, put, quota, write, written};

pub(crate) async fn a_follower_misses_nothing_and_sees_generations_in_order(world: World) {
    const WRITERS: u64 = 8;
    const WRITES: u64 = 40;
    let writing = [world.open().await, world.open().await];
    let db = world.open().await;
    let left = Arc::new(AtomicU64::new(WRITERS));
    for writer in 0..WRITERS {
        let (db, left) = (writing[writer as usize % 2].clone(), left.clone());
        tokio::spawn(async move {
            for n in 0..WRITES {
                // A record of its own each time, so that the follower can tell each write by it; one that all share; and one
                // that comes and goes.
                let own = put(&quota(&format!("{writer}-{n}")), Expect::Absent, &numbered(n));
                let shared = put(&quota("shared"), Expect::Anything, &numbered(n));
                let fleeting = quota("fleeting");
                let fleeting = match n % 2 {
                    0 => put(&fleeting, Expect::Anything, &numbered(n)),
                    _ => delete(&fleeting, Expect::Anything),
                };
                written(&db, vec![own, shared, fleeting]).await;
            }
            left.fetch_sub(1, Ordering::SeqCst);
        });
    }
    let mut known: HashMap<String, (u64, Option<String>)> = HashMap::new();
    let (mut at, mut looks) = (0, 0);
    loop {
        let over = left.load(Ordering::SeqCst) == 0;
        let mut last = at;
        let mut own = 0;
        let generation = db
            .each_since(at, true, |record| {
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
        // Each write up to this generation has been seen, and none past it.
        assert_eq!(own, generation - at, "from {at} to {generation}");
        assert!(last <= generation);
        (at, looks) = (generation, looks + 1);
        if over {
            break;
        }
    }
    assert_eq!(at, WRITERS * WRITES);
    assert!(looks > 3, "{looks}");
    let mut now = HashMap::new();
    let everything = db.each_since(0, true, |record| {
        now.insert(record.name.into_owned(), (record.generation, record.document.map(String::from)));
    });
    assert_eq!(everything.await, Ok(at));
    assert_eq!(known, now);
}

pub(crate) async fn changes_are_heard_of(world: World) {
    let db = world.open().await;
    written(&db, vec![put(&quota("a"), Expect::Anything, "{}")]).await;
    // What has happened before is not waited for.
    assert_eq!(db.changed(0).await, 1);
    let waiting = tokio::spawn({
        let db = db.clone();
        async move { db.changed(1).await }
    });
    let waiting_longer = tokio::spawn({
        let db = db.clone();
        async move { db.changed(2).await }
    });
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert!(!waiting.is_finished());
    // A refused write is no change.
    assert!(db.write(&write(vec![put(&quota("a"), Expect::Absent, "{}")])).await.is_err());
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert!(!waiting.is_finished());
    let writer = match &world {
        World::Sqlite(_) => db.clone(),
        // Another server writes.
        World::Postgres(_) => world.open().await,
    };
    written(&writer, vec![put(&quota("a"), Expect::Anything, "{}")]).await;
    let heard = tokio::time::timeout(Duration::from_secs(20), waiting).await;
    assert_eq!(heard.expect("it is heard of").unwrap(), 2);
    assert!(!waiting_longer.is_finished());
    waiting_longer.abort();
    // Who opens it now knows what is there.
    assert_eq!(world.open().await.changed(1).await, 2);
}

/// The kinds of which there are records.
fn stored_kinds() -> impl Iterator<Item = RecordKind> {
    RecordKind::ALL.into_iter().filter(|kind| kind.is_stored())
}

pub(crate) async fn everything_is_handed_out(world: World) {
    let db = world.open().await;
    let mut generation = 0;
    for kind in stored_kinds() {
        let changes = (0..700).map(|n| put(&Name::new(kind, "shop", format!("n{n}")), Expect::Absent, &numbered(n)));
        generation = written(&db, changes.collect()).await;
    }
    let mut seen = HashMap::new();
    let as_of = db.each_since(0, false, |record| {
        let n: u64 = record.name[1..].parse().unwrap();
        assert_eq!(record.document.as_deref(), Some(&*numbered(n)));
        *seen.entry((record.kind, record.generation)).or_insert(0) += 1;
    });
    assert_eq!(as_of.await, Ok(generation));
    let expected = stored_kinds().enumerate().map(|(index, kind)| ((kind, index as u64 + 1), 700));
    assert_eq!(seen, expected.collect());
}

/// A database that was restored from an old copy has not been where its followers are.
pub(crate) async fn another_database_is_too_old(world: World) {
    let db = world.open().await;
    for n in 0..3 {
        written(&db, vec![put(&quota("a"), Expect::Anything, &numbered(n))]).await;
    }
    assert_eq!(db.each_since(3, true, |_| panic!("nothing is new")).await, Ok(3));
    world.ask("UPDATE records SET generation = 1").await.unwrap();
    world.ask("UPDATE control SET generation = 1").await.unwrap();
    assert_eq!(db.each_since(3, true, |_| panic!("nothing is handed out")).await, Err(DbError::TooOld));
    assert_eq!(db.each_since(0, true, |_| ()).await, Ok(1));
    becomes_quiet(&db, 1).await;
    written(&db, vec![put(&quota("a"), Expect::Anything, &numbered(4))]).await;
    assert!(db.changed(1).await >= 2);
}

/// What is not true is heard of once, or some times while it is on its way, and not for ever.
async fn becomes_quiet(db: &Db, at: u64) {
    for _ in 0..10 {
        if tokio::time::timeout(Duration::from_millis(50), db.changed(at)).await.is_err() {
            return;
        }
        assert_eq!(db.each_since(at, true, |_| panic!("nothing is new")).await, Ok(at));
    }
    panic!("it is told again and again");
}

/// Whoever may use the database may notify.
pub(crate) async fn what_is_not_true_is_not_heard_of_for_ever(world: World) {
    let db = world.open().await;
    written(&db, vec![put(&quota("a"), Expect::Anything, &numbered(1))]).await;
    if matches!(world, World::Postgres(_)) {
        // Once it listens, a number is believed.
        let heard = async {
            while tokio::time::timeout(Duration::from_millis(20), db.changed(1)).await.is_err() {
                world.ask("NOTIFY tollgate_control, 'nonsense'").await.unwrap();
                world.ask("NOTIFY tollgate_control, '999'").await.unwrap();
            }
        };
        tokio::time::timeout(Duration::from_secs(20), heard).await.expect("it listens");
    }
    becomes_quiet(&db, 1).await;
    written(&db, vec![put(&quota("a"), Expect::Anything, &numbered(2))]).await;
    assert!(db.changed(1).await >= 2);
}

/// A reader that takes a few records at a time, and as many in all as it wants.
#[derive(Default)]
struct Slow {
    at: Option<Point>,
    names: Vec<String>,
    rests: usize,
    wanted: usize,
}

impl Reader for Slow {
    fn begin(&mut self, at: &Point) {
        assert!(self.at.replace(at.clone()).is_none() && self.names.is_empty());
    }

    fn take(&mut self, record: Record<'_>) {
        assert!(self.at.is_some());
        self.names.push(record.name.into_owned());
    }

    fn is_full(&self) -> bool {
        self.names.len().is_multiple_of(3)
    }

    async fn rest(&mut self) -> bool {
        self.rests += 1;
        tokio::time::sleep(Duration::from_millis(1)).await;
        self.names.len() < self.wanted
    }
}

pub(crate) async fn a_reader_has_its_own_pace(world: World) {
    let db = world.open().await;
    let changes = (0..10).map(|n| put(&quota(&n.to_string()), Expect::Absent, &numbered(n)));
    written(&db, changes.collect()).await;
    let mut reader = Slow { wanted: 100, ..Slow::default() };
    let at = db.read(None, false, &mut reader).await.unwrap().unwrap();
    assert_eq!((at.generation, &at), (1, reader.at.as_ref().unwrap()));
    assert_eq!((reader.names.len(), reader.rests), (10, 3));
    // One that has enough leaves a database that can be asked.
    let mut reader = Slow { wanted: 6, ..Slow::default() };
    assert_eq!(db.read(None, false, &mut reader).await, Ok(None));
    assert_eq!(reader.names.len(), 6);
    assert_eq!(db.generation().await, Ok(1));
}

pub(crate) async fn generations_of_two_databases_are_not_mixed(world: World) {
    let db = world.open().await;
    for n in 0..3 {
        written(&db, vec![put(&quota("a"), Expect::Anything, &numbered(n))]).await;
    }
    let of = db.identity().await.unwrap();
    assert_eq!(of.len(), 32, "{of}");
    let at = Point { of, generation: 3 };
    assert_eq!(db.read(Some(&at), true, &mut Slow::default()).await, Ok(Some(at.clone())));
    let other = Point { of: "another".to_owned(), ..at.clone() };
    assert_eq!(db.read(Some(&other), true, &mut Slow::default()).await, Err(DbError::TooOld));

    // A backup that was restored, and has come back to where it was by another way.
    db.disown(&at).await.unwrap();
    assert_eq!(db.identity().await.unwrap(), at.of, "it is where it is known to be");
    world.ask("UPDATE control SET generation = 2").await.unwrap();
    assert_eq!(db.read(Some(&at), true, &mut Slow::default()).await, Err(DbError::TooOld));
    db.disown(&at).await.unwrap();
    let identity = db.identity().await.unwrap();
    assert_ne!(identity, at.of);
    db.disown(&at).await.unwrap();
    assert_eq!(db.identity().await.unwrap(), identity, "once is enough");
    written(&db, vec![put(&quota("a"), Expect::Anything, &numbered(4))]).await;
    assert_eq!(db.read(Some(&at), true, &mut Slow::default()).await, Err(DbError::TooOld));
    let other = World::sqlite().open().await.identity().await.unwrap();
    assert_ne!(other, identity);
}
