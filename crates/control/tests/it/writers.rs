//! Many writers at once, and writes that are sent twice.

use tollgate_control::{Expect, KEEP_ONCE, Once, Swept, Write, WriteError, Written};
use tollgate_core::Span;

use crate::world::{START, World, document, generation, numbered, put, quota, write, written};

pub(crate) async fn no_update_is_lost(world: World) {
    const WRITERS: u64 = 100;
    let name = quota("counter");
    let db = world.open().await;
    // A second server, as it were.
    let other = world.open().await;
    written(&db, vec![put(&name, Expect::Absent, &numbered(0))]).await;
    let writers: Vec<_> = (0..WRITERS)
        .map(|n| {
            let (db, name) = (if n % 2 == 0 { db.clone() } else { other.clone() }, name.clone());
            tokio::spawn(async move {
                loop {
                    let now = db.get(&name).await.unwrap().unwrap();
                    let n: u64 = now.document.unwrap()[5..].trim_end_matches('}').parse().unwrap();
                    let change = put(&name, Expect::Generation(now.generation), &numbered(n + 1));
                    match db.write(&write(vec![change])).await {
                        Ok(Written::Now { .. }) => return,
                        Err(WriteError::Lost { .. }) => {}
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

fn once(key: &str, digest: &str) -> Write {
    let once = Once { key: key.to_owned(), digest: digest.to_owned(), answer: format!("answer of {digest}") };
    Write { once: Some(once), ..write(vec![put(&quota("a"), Expect::Anything, &numbered(1))]) }
}

pub(crate) async fn a_key_writes_once(world: World) {
    let db = world.open().await;
    assert_eq!(generation(db.write(&once("k", "d")).await), 1);
    let before = || Ok(Written::Before { generation: 1, answer: "answer of d".to_owned() });
    assert_eq!(db.write(&once("k", "d")).await, before());
    // Whatever it would meet now.
    written(&db, vec![put(&quota("a"), Expect::Anything, &numbered(2))]).await;
    let mut again = once("k", "d");
    again.changes[0].expect = Expect::Absent;
    assert_eq!(db.write(&again).await, before());
    assert_eq!(db.write(&once("k", "other")).await, Err(WriteError::OnceConflict));
    assert_eq!(generation(db.write(&once("k2", "other")).await), 3);
    assert_eq!(db.generation().await, Ok(3));
    assert_eq!(db.audit(&Default::default(), 0, 10).await.unwrap().len(), 3);

    // What was not written is not remembered.
    let mut lost = once("k3", "d");
    lost.changes[0].expect = Expect::Absent;
    assert!(matches!(db.write(&lost).await, Err(WriteError::Lost { .. })));
    assert_eq!(generation(db.write(&once("k3", "other")).await), 4);
}

pub(crate) async fn what_depends_on_all_is_written_if_nothing_moved(world: World) {
    let db = world.open().await;
    let since = |since| Write { since: Some(since), ..write(vec![put(&quota("a"), Expect::Anything, &numbered(1))]) };
    assert_eq!(db.write(&since(1)).await, Err(WriteError::Moved { now: 0 }));
    assert_eq!(generation(db.write(&since(0)).await), 1);
    written(&db, vec![put(&quota("b"), Expect::Anything, &numbered(2))]).await;
    assert_eq!(db.write(&since(1)).await, Err(WriteError::Moved { now: 2 }));
    assert_eq!(db.audit(&Default::default(), 0, 10).await.unwrap().len(), 2);
    // Of several at the same moment one is written.
    let writers: Vec<_> = (0..8)
        .map(|_| {
            let (db, write) = (db.clone(), since(2));
            tokio::spawn(async move { db.write(&write).await })
        })
        .collect();
    let mut done = 0;
    for writer in writers {
        match writer.await.unwrap() {
            Ok(Written::Now { generation: 3, .. }) => done += 1,
            other => assert_eq!(other, Err(WriteError::Moved { now: 3 })),
        }
    }
    assert_eq!(done, 1);
    // What was written under a key is answered as it was then.
    let twice = Write { since: Some(3), ..once("k", "d") };
    assert_eq!(generation(db.write(&twice).await), 4);
    assert!(matches!(db.write(&twice).await, Ok(Written::Before { generation: 4, .. })));
}

pub(crate) async fn a_key_can_be_asked_for_and_forgotten(world: World) {
    let db = world.open().await;
    let named = |digest: &str| once("k", digest).once.unwrap();
    assert_eq!(db.met(&named("d"), START).await, Ok(None));
    assert_eq!(generation(db.write(&once("k", "d")).await), 1);
    let before = Written::Before { generation: 1, answer: "answer of d".to_owned() };
    assert_eq!(db.met(&named("d"), START).await, Ok(Some(before)));
    assert_eq!(db.met(&named("other"), START).await, Err(WriteError::OnceConflict));
    assert_eq!(db.met(&named("d"), START.after(KEEP_ONCE)).await, Ok(None));
    db.forget("k").await.unwrap();
    assert_eq!(db.met(&named("d"), START).await, Ok(None));
    assert_eq!(generation(db.write(&once("k", "other")).await), 2);
}

pub(crate) async fn twins_write_once(world: World) {
    let (db, other) = (world.open().await, world.open().await);
    for round in 1..=5 {
        let key = format!("k{round}");
        let twins: Vec<_> = (0..10)
            .map(|n| {
                let (db, twin) = (if n % 2 == 0 { db.clone() } else { other.clone() }, once(&key, "d"));
                tokio::spawn(async move { db.write(&twin).await })
            })
            .collect();
        let mut now = 0;
        for twin in twins {
            match twin.await.unwrap().unwrap() {
                Written::Now { generation, .. } => {
                    assert_eq!(generation, round);
                    now += 1;
                }
                Written::Before { generation, answer } => assert_eq!((generation, &*answer), (round, "answer of d")),
            }
        }
        assert_eq!(now, 1);
    }
    assert_eq!(db.generation().await, Ok(5));
}

pub(crate) async fn keys_are_forgotten_after_a_day(world: World) {
    let db = world.open().await;
    assert_eq!(generation(db.write(&once("k", "d")).await), 1);
    let mut next = once("k", "other");
    next.at = START.after(KEEP_ONCE).before(Span::from_micros(1));
    assert_eq!(db.write(&next).await, Err(WriteError::OnceConflict));
    assert_eq!(db.sweep(next.at).await, Ok(Swept::default()));
    // Swept or not, it counts no longer.
    next.at = START.after(KEEP_ONCE);
    assert_eq!(generation(db.write(&next).await), 2);
    assert_eq!(db.write(&next).await, Ok(Written::Before { generation: 2, answer: "answer of other".to_owned() }));
    assert_eq!(db.sweep(next.at).await, Ok(Swept::default()));
    assert_eq!(db.sweep(next.at.after(KEEP_ONCE)).await, Ok(Swept { once: 1, deleted: 0 }));
    assert_eq!(world.ask("SELECT 'keys: ' || count(*) FROM once").await.unwrap(), "keys: 0");
}

/// Callers hang up. What they began must be over at once, whole or not at all, and must not be in the others' way.
pub(crate) async fn a_write_that_nobody_waits_for_leaves_no_lock(world: World) {
    let db = world.open().await;
    for n in 0..60 {
        let (writer, name) = (db.clone(), quota(&format!("left-{n}")));
        let left = tokio::spawn(async move { writer.write(&write(vec![put(&name, Expect::Absent, "{}")])).await });
        // At another point each time.
        for _ in 0..n % 20 {
            tokio::task::yield_now().await;
        }
        tokio::time::sleep(std::time::Duration::from_micros(fastrand::u64(0..3_000))).await;
        left.abort();
        let name = quota(&format!("kept-{n}"));
        let kept = db.write(&write(vec![put(&name, Expect::Absent, "{}")])).await;
        assert!(matches!(kept, Ok(Written::Now { .. })), "{kept:?}");
    }
    // Each generation that was given is that of one record and of one entry: nothing is half there.
    let counted = "SELECT (SELECT count(*) FROM records) || ' ' || (SELECT count(*) FROM audit) || ' ' || \
                   (SELECT generation FROM control) || ' ' || (SELECT count(DISTINCT generation) FROM records)";
    let counted = world.ask(counted).await.unwrap();
    let counts: Vec<_> = counted.split(' ').collect();
    assert!(counts.iter().all(|count| *count == counts[0]), "{counted}");
}
