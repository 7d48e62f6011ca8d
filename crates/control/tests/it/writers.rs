//! Concurrent writers, and writes that are sent twice.

use tollgate_control::{
    FeedPosition, IdempotencyKey, ONCE_RETENTION, Precondition, SweepReport, WriteBatch, WriteError, WriteOutcome,
};
use tollgate_core::Span;

use crate::world::{START, World, commit, document, generation, numbered, put, quota, write};

pub(crate) async fn no_update_is_lost(world: World) {
    const WRITERS: u64 = 100;
    let name = quota("counter");
    let db = world.open().await;
    // As a second server would.
    let other = world.open().await;
    commit(&db, vec![put(&name, Precondition::Absent, &numbered(0))]).await;
    let writers: Vec<_> = (0..WRITERS)
        .map(|n| {
            let (db, name) = (if n % 2 == 0 { db.clone() } else { other.clone() }, name.clone());
            tokio::spawn(async move {
                loop {
                    let current = db.get(&name).await.unwrap().unwrap();
                    let n: u64 = current.document.unwrap()[5..].trim_end_matches('}').parse().unwrap();
                    let change = put(&name, Precondition::Generation(current.generation), &numbered(n + 1));
                    match db.write(&write(vec![change])).await {
                        Ok(WriteOutcome::Committed { .. }) => return,
                        Err(WriteError::PreconditionFailed { .. }) => {}
                        other => panic!("{other:?}"),
                    }
                }
            })
        })
        .collect();
    for writer in writers {
        writer.await.unwrap();
    }
    assert_eq!(document(db.get(&name).await.unwrap()), numbered(WRITERS));
    assert_eq!(db.generation().await, Ok(WRITERS + 1));
    assert_eq!(db.audit(&Default::default(), 0, 1_000).await.unwrap().len() as u64, WRITERS + 1);
}

fn once(key: &str, digest: &str) -> WriteBatch {
    let once = IdempotencyKey { key: key.to_owned(), digest: digest.to_owned(), answer: format!("answer of {digest}") };
    WriteBatch { once: Some(once), ..write(vec![put(&quota("a"), Precondition::Any, &numbered(1))]) }
}

pub(crate) async fn an_idempotency_key_writes_once(world: World) {
    let db = world.open().await;
    assert_eq!(generation(db.write(&once("k", "d")).await), 1);
    let replayed = || Ok(WriteOutcome::Replayed { generation: 1, answer: "answer of d".to_owned() });
    assert_eq!(db.write(&once("k", "d")).await, replayed());
    // A replay does not check preconditions.
    commit(&db, vec![put(&quota("a"), Precondition::Any, &numbered(2))]).await;
    let mut again = once("k", "d");
    again.changes[0].expect = Precondition::Absent;
    assert_eq!(db.write(&again).await, replayed());
    assert_eq!(db.write(&once("k", "other")).await, Err(WriteError::OnceConflict));
    assert_eq!(generation(db.write(&once("k2", "other")).await), 3);
    assert_eq!(db.generation().await, Ok(3));
    assert_eq!(db.audit(&Default::default(), 0, 10).await.unwrap().len(), 3);

    // A refused write stores no key.
    let mut refused = once("k3", "d");
    refused.changes[0].expect = Precondition::Absent;
    assert!(matches!(db.write(&refused).await, Err(WriteError::PreconditionFailed { .. })));
    assert_eq!(generation(db.write(&once("k3", "other")).await), 4);
}

pub(crate) async fn a_write_can_require_the_last_generation(world: World) {
    let db = world.open().await;
    let since =
        |since| WriteBatch { since: Some(since), ..write(vec![put(&quota("a"), Precondition::Any, &numbered(1))]) };
    assert_eq!(db.write(&since(1)).await, Err(WriteError::Stale { current: 0 }));
    assert_eq!(generation(db.write(&since(0)).await), 1);
    commit(&db, vec![put(&quota("b"), Precondition::Any, &numbered(2))]).await;
    assert_eq!(db.write(&since(1)).await, Err(WriteError::Stale { current: 2 }));
    assert_eq!(db.audit(&Default::default(), 0, 10).await.unwrap().len(), 2);
    // One of several concurrent writes is committed.
    let writers: Vec<_> = (0..8)
        .map(|_| {
            let (db, write) = (db.clone(), since(2));
            tokio::spawn(async move { db.write(&write).await })
        })
        .collect();
    let mut committed = 0;
    for writer in writers {
        match writer.await.unwrap() {
            Ok(WriteOutcome::Committed { generation: 3, .. }) => committed += 1,
            other => assert_eq!(other, Err(WriteError::Stale { current: 3 })),
        }
    }
    assert_eq!(committed, 1);
    // The same for the database itself: another one, or one that is behind what the writer knows, is not written to.
    let here = db.position().await.unwrap();
    assert_eq!(here.generation, 3);
    let known = |known: FeedPosition| WriteBatch { known: Some(known), since: None, ..since(3) };
    for other in
        [FeedPosition { generation: 4, ..here.clone() }, FeedPosition { identity: "other".to_owned(), generation: 0 }]
    {
        assert_eq!(db.write(&known(other)).await, Err(WriteError::Stale { current: 3 }));
    }
    assert_eq!(db.position().await, Ok(here.clone()));
    // A repeat under the same key is replayed.
    let twice = WriteBatch { since: Some(3), ..once("k", "d") };
    assert_eq!(generation(db.write(&twice).await), 4);
    assert!(matches!(db.write(&twice).await, Ok(WriteOutcome::Replayed { generation: 4, .. })));
    assert_eq!(generation(db.write(&known(here)).await), 5);
}

pub(crate) async fn an_idempotency_key_can_be_found_and_deleted(world: World) {
    let db = world.open().await;
    let key = |digest: &str| once("k", digest).once.unwrap();
    assert_eq!(db.find_replay(&key("d"), START).await, Ok(None));
    assert_eq!(generation(db.write(&once("k", "d")).await), 1);
    let replayed = WriteOutcome::Replayed { generation: 1, answer: "answer of d".to_owned() };
    assert_eq!(db.find_replay(&key("d"), START).await, Ok(Some(replayed)));
    assert_eq!(db.find_replay(&key("other"), START).await, Err(WriteError::OnceConflict));
    assert_eq!(db.find_replay(&key("d"), START.after(ONCE_RETENTION)).await, Ok(None));
    db.delete_idempotency_key("k").await.unwrap();
    assert_eq!(db.find_replay(&key("d"), START).await, Ok(None));
    assert_eq!(generation(db.write(&once("k", "other")).await), 2);
}

pub(crate) async fn concurrent_repeats_write_once(world: World) {
    let (db, other) = (world.open().await, world.open().await);
    for round in 1..=5 {
        let key = format!("k{round}");
        let repeats: Vec<_> = (0..10)
            .map(|n| {
                let (db, write) = (if n % 2 == 0 { db.clone() } else { other.clone() }, once(&key, "d"));
                tokio::spawn(async move { db.write(&write).await })
            })
            .collect();
        let mut committed = 0;
        for repeat in repeats {
            match repeat.await.unwrap().unwrap() {
                WriteOutcome::Committed { generation, .. } => {
                    assert_eq!(generation, round);
                    committed += 1;
                }
                WriteOutcome::Replayed { generation, answer } => {
                    assert_eq!((generation, &*answer), (round, "answer of d"))
                }
            }
        }
        assert_eq!(committed, 1);
    }
    assert_eq!(db.generation().await, Ok(5));
}

pub(crate) async fn idempotency_keys_expire_after_a_day(world: World) {
    let db = world.open().await;
    assert_eq!(generation(db.write(&once("k", "d")).await), 1);
    let mut next = once("k", "other");
    next.at = START.after(ONCE_RETENTION).before(Span::from_micros(1));
    assert_eq!(db.write(&next).await, Err(WriteError::OnceConflict));
    assert_eq!(db.sweep(next.at).await, Ok(SweepReport::default()));
    // It has expired, whether it was swept or not.
    next.at = START.after(ONCE_RETENTION);
    assert_eq!(generation(db.write(&next).await), 2);
    assert_eq!(
        db.write(&next).await,
        Ok(WriteOutcome::Replayed { generation: 2, answer: "answer of other".to_owned() })
    );
    assert_eq!(db.sweep(next.at).await, Ok(SweepReport::default()));
    assert_eq!(db.sweep(next.at.after(ONCE_RETENTION)).await, Ok(SweepReport { once: 1, deleted: 0 }));
    assert_eq!(world.query("SELECT 'keys: ' || count(*) FROM once").await.unwrap(), "keys: 0");
}

/// Callers disconnect. Their writes must end at once, be committed or rolled back, and not block others.
pub(crate) async fn a_cancelled_write_leaves_no_lock(world: World) {
    let db = world.open().await;
    for n in 0..60 {
        let (writer, name) = (db.clone(), quota(&format!("cancelled-{n}")));
        let cancelled =
            tokio::spawn(async move { writer.write(&write(vec![put(&name, Precondition::Absent, "{}")])).await });
        // Cancel it at another point each time.
        for _ in 0..n % 20 {
            tokio::task::yield_now().await;
        }
        tokio::time::sleep(std::time::Duration::from_micros(fastrand::u64(0..3_000))).await;
        cancelled.abort();
        let name = quota(&format!("next-{n}"));
        let outcome = db.write(&write(vec![put(&name, Precondition::Absent, "{}")])).await;
        assert!(matches!(outcome, Ok(WriteOutcome::Committed { .. })), "{outcome:?}");
    }
    // Each generation has one record and one log entry: no write is half committed.
    let counted = "SELECT (SELECT count(*) FROM records) || ' ' || (SELECT count(*) FROM audit) || ' ' || \
                   (SELECT generation FROM control) || ' ' || (SELECT count(DISTINCT generation) FROM records)";
    let counted = world.query(counted).await.unwrap();
    let counts: Vec<_> = counted.split(' ').collect();
    assert!(counts.iter().all(|count| *count == counts[0]), "{counted}");
}
