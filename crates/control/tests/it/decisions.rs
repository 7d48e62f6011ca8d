//! The decision log.

use tollgate_control::{
    DbError, DecisionBounds, DecisionDb, DecisionFilter, DecisionRow, DecisionSweep, MAX_DECISION_BATCH,
    MAX_DECISIONS_DELETED,
};
use tollgate_core::{Span, Timestamp};

use crate::world::{START, World};

fn at(second: u64) -> Timestamp {
    START.after(Span::from_secs(second))
}

fn decision(number: u64, second: u64, caller: Option<&str>) -> DecisionRow {
    DecisionRow {
        number,
        at: at(second),
        domain: "shop".to_owned(),
        caller: caller.map(str::to_owned),
        rule: Some("per-key".to_owned()),
        document: format!("{{\"n\":{number}}}"),
    }
}

fn by_caller(caller: &str) -> DecisionFilter {
    DecisionFilter { caller: caller.to_owned(), ..DecisionFilter::default() }
}

pub(crate) async fn decisions_are_found_by_caller(world: World) {
    let db = DecisionDb::of(&world.open().await);
    let odd = "ü '\"%_\\ \u{1f980}";
    let longest = "x".repeat(1_024);
    let mut all: Vec<_> = (0..600).map(|number| decision(number, number, Some("many"))).collect();
    all.push(decision(600, 5, Some(odd)));
    all.push(decision(601, 5, Some(&longest)));
    all.push(decision(602, 5, None));
    all.push(DecisionRow { domain: "bank".to_owned(), rule: None, ..decision(603, 1_000, Some("many")) });
    db.add(1, &all).await.unwrap();
    db.add(2, &[decision(0, 2_000, Some("many"))]).await.unwrap();
    db.add(2, &[]).await.unwrap();

    let found = |filter: DecisionFilter, max: usize| {
        let db = db.clone();
        async move { db.find(&filter, max).await.unwrap().join(" ") }
    };
    assert_eq!(found(by_caller("many"), 3).await, r#"{"n":0} {"n":603} {"n":599}"#);
    assert_eq!(found(by_caller("man"), 3).await, "");
    assert_eq!(found(by_caller(odd), 9).await, r#"{"n":600}"#);
    assert_eq!(found(by_caller(&longest), 9).await, r#"{"n":601}"#);
    assert_eq!(db.find(&by_caller("many"), 10_000).await.unwrap().len(), 602);
    for (filter, expected) in [
        (DecisionFilter { domain: Some("bank".to_owned()), ..by_caller("many") }, r#"{"n":603}"#),
        (DecisionFilter { rule: Some("other".to_owned()), ..by_caller("many") }, ""),
        (DecisionFilter { from: Some(at(1_001)), ..by_caller("many") }, r#"{"n":0}"#),
        (DecisionFilter { from: Some(at(1)), to: Some(at(3)), ..by_caller("many") }, r#"{"n":2} {"n":1}"#),
        (DecisionFilter { rule: Some("per-key".to_owned()), to: Some(at(1)), ..by_caller("many") }, r#"{"n":0}"#),
    ] {
        assert_eq!(found(filter.clone(), 9).await, expected, "{filter:?}");
    }
    assert!(matches!(db.find(&by_caller("a\0b"), 1).await, Err(DbError::Invalid(_))));
    let too_many: Vec<_> = (0..=MAX_DECISION_BATCH as u64).map(|number| decision(number, 1, None)).collect();
    assert!(matches!(db.add(1, &too_many).await, Err(DbError::Invalid(_))));
}

pub(crate) async fn a_batch_may_be_written_again(world: World) {
    let db = DecisionDb::of(&world.open().await);
    let batch = [decision(1, 1, Some("a")), decision(2, 2, Some("a"))];
    db.add(7, &batch[..1]).await.unwrap();
    for _ in 0..3 {
        db.add(7, &batch).await.unwrap();
    }
    assert_eq!(db.find(&by_caller("a"), 9).await.unwrap(), [r#"{"n":2}"#, r#"{"n":1}"#]);
}

/// Deletes by time and number of rows.
async fn delete(db: &DecisionDb, before: u64, rows: u64) -> u64 {
    let bounds = DecisionBounds { before: at(before), rows, bytes: u64::MAX };
    db.delete_old(bounds).await.unwrap().deleted
}

pub(crate) async fn old_and_excess_decisions_are_deleted(world: World) {
    let db = DecisionDb::of(&world.open().await);
    let left = || async { db.find(&by_caller("a"), 1_000).await.unwrap().len() };
    assert_eq!(delete(&db, 1_000, 10).await, 0);
    let all: Vec<_> = (0..100).map(|number| decision(number, number, Some("a"))).collect();
    db.add(1, &all).await.unwrap();
    assert_eq!((delete(&db, 10, 1_000).await, left().await), (10, 90));
    assert_eq!((delete(&db, 10, 90).await, left().await), (0, 90));
    assert_eq!((delete(&db, 10, 25).await, left().await), (65, 25));
    assert_eq!(db.find(&by_caller("a"), 1).await.unwrap(), [r#"{"n":99}"#]);
    // One call has a bound.
    for batch in 0..7 {
        let more: Vec<_> = (0..2_000).map(|n| decision(1_000 + batch * 2_000 + n, 500, Some("b"))).collect();
        db.add(1, &more).await.unwrap();
    }
    let bounds = DecisionBounds { before: at(600), rows: 1_000_000, bytes: u64::MAX };
    assert_eq!(db.delete_old(bounds).await, Ok(DecisionSweep { deleted: MAX_DECISIONS_DELETED, has_more: true }));
    let rest = 25 + 14_000 - MAX_DECISIONS_DELETED;
    assert_eq!(db.delete_old(bounds).await, Ok(DecisionSweep { deleted: rest, has_more: false }));
}

/// The newest decisions remain, whatever their size.
pub(crate) async fn a_log_is_bounded_in_bytes(world: World) {
    const MAX_BYTES: u64 = 1 << 20;
    let db = DecisionDb::of(&world.open().await);
    let long = "x".repeat(4_000);
    for batch in 0..5 {
        let large = |n| DecisionRow { document: format!("\"{n}{long}\""), ..decision(n, n, Some("a")) };
        let rows: Vec<_> = (batch * 200..(batch + 1) * 200).map(large).collect();
        db.add(1, &rows).await.unwrap();
        let swept = db.delete_old(DecisionBounds { before: at(0), rows: 500_000, bytes: MAX_BYTES }).await.unwrap();
        assert!(!swept.has_more);
        let bytes = db.bytes().await.unwrap();
        assert!(bytes <= MAX_BYTES && (batch == 0 || bytes > MAX_BYTES / 2), "{bytes}");
    }
    let found = db.find(&by_caller("a"), 1_000).await.unwrap();
    assert!(found[0].starts_with("\"999x") && (150..260).contains(&found.len()), "{}", found.len());
    // Nothing is deleted without need.
    let bounds = DecisionBounds { before: at(0), rows: 500_000, bytes: MAX_BYTES };
    assert_eq!(db.delete_old(bounds).await, Ok(DecisionSweep { deleted: 0, has_more: false }));
}

/// In SQLite the log has a file of its own. Rows that an earlier version logged among the records are found until they expire.
#[tokio::test]
async fn rows_in_the_file_of_the_records_are_read_until_they_expire() {
    let world = World::sqlite();
    let control = world.open().await;
    let insert = "INSERT INTO decisions VALUES (9, 1, ?, 'shop', 'a', 'per-key', '{\"n\":\"old\"}')";
    world.query(&insert.replace('?', &at(1).as_micros().to_string())).await.unwrap();
    let db = DecisionDb::of(&control);
    db.add(1, &[decision(2, 2, Some("a"))]).await.unwrap();
    assert_eq!(
        world.query("SELECT count(*) || '' FROM decisions").await.unwrap(),
        "1",
        "the log is not among the records"
    );
    assert_eq!(db.find(&by_caller("a"), 9).await.unwrap(), [r#"{"n":2}"#, r#"{"n":"old"}"#]);
    assert_eq!(db.find(&by_caller("a"), 1).await.unwrap(), [r#"{"n":2}"#]);
    assert_eq!(delete(&db, 1, 100).await, 0);
    assert_eq!(db.find(&by_caller("a"), 9).await.unwrap().len(), 2);
    delete(&db, 2, 100).await;
    assert_eq!(world.query("SELECT count(*) || '' FROM decisions").await.unwrap(), "0");
    assert_eq!(db.find(&by_caller("a"), 9).await.unwrap(), [r#"{"n":2}"#]);
}

pub(crate) async fn tables_of_version_2_are_migrated(world: World) {
    drop(world.open().await);
    world.query("DROP TABLE decisions").await.unwrap();
    world.query("DELETE FROM tollgate_schema WHERE version > 2").await.unwrap();
    let db = DecisionDb::of(&world.open().await);
    db.add(1, &[decision(1, 1, Some("a"))]).await.unwrap();
    assert_eq!(db.find(&by_caller("a"), 9).await.unwrap().len(), 1);
}
