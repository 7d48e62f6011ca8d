//! The decision log.

use tollgate_control::{DbError, DecisionFilter, DecisionRow, MAX_DECISION_BATCH, MAX_DECISIONS_DELETED};
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
    let db = world.open().await;
    let odd = "ü '\"%_\\ \u{1f980}";
    let longest = "x".repeat(1_024);
    let mut all: Vec<_> = (0..600).map(|number| decision(number, number, Some("many"))).collect();
    all.push(decision(600, 5, Some(odd)));
    all.push(decision(601, 5, Some(&longest)));
    all.push(decision(602, 5, None));
    all.push(DecisionRow { domain: "bank".to_owned(), rule: None, ..decision(603, 1_000, Some("many")) });
    db.add_decisions(1, &all).await.unwrap();
    db.add_decisions(2, &[decision(0, 2_000, Some("many"))]).await.unwrap();
    db.add_decisions(2, &[]).await.unwrap();

    let found = |filter: DecisionFilter, max: usize| {
        let db = db.clone();
        async move { db.decisions(&filter, max).await.unwrap().join(" ") }
    };
    assert_eq!(found(by_caller("many"), 3).await, r#"{"n":0} {"n":603} {"n":599}"#);
    assert_eq!(found(by_caller("man"), 3).await, "");
    assert_eq!(found(by_caller(odd), 9).await, r#"{"n":600}"#);
    assert_eq!(found(by_caller(&longest), 9).await, r#"{"n":601}"#);
    assert_eq!(db.decisions(&by_caller("many"), 10_000).await.unwrap().len(), 602);
    for (filter, expected) in [
        (DecisionFilter { domain: Some("bank".to_owned()), ..by_caller("many") }, r#"{"n":603}"#),
        (DecisionFilter { rule: Some("other".to_owned()), ..by_caller("many") }, ""),
        (DecisionFilter { from: Some(at(1_001)), ..by_caller("many") }, r#"{"n":0}"#),
        (DecisionFilter { from: Some(at(1)), to: Some(at(3)), ..by_caller("many") }, r#"{"n":2} {"n":1}"#),
        (DecisionFilter { rule: Some("per-key".to_owned()), to: Some(at(1)), ..by_caller("many") }, r#"{"n":0}"#),
    ] {
        assert_eq!(found(filter.clone(), 9).await, expected, "{filter:?}");
    }
    assert!(matches!(db.decisions(&by_caller("a\0b"), 1).await, Err(DbError::Invalid(_))));
    let too_many: Vec<_> = (0..=MAX_DECISION_BATCH as u64).map(|number| decision(number, 1, None)).collect();
    assert!(matches!(db.add_decisions(1, &too_many).await, Err(DbError::Invalid(_))));
}

pub(crate) async fn a_batch_may_be_written_again(world: World) {
    let db = world.open().await;
    let batch = [decision(1, 1, Some("a")), decision(2, 2, Some("a"))];
    db.add_decisions(7, &batch[..1]).await.unwrap();
    for _ in 0..3 {
        db.add_decisions(7, &batch).await.unwrap();
    }
    assert_eq!(db.decisions(&by_caller("a"), 9).await.unwrap(), [r#"{"n":2}"#, r#"{"n":1}"#]);
}

pub(crate) async fn old_and_excess_decisions_are_deleted(world: World) {
    let db = world.open().await;
    let left = || async { db.decisions(&by_caller("a"), 1_000).await.unwrap().len() };
    assert_eq!(db.delete_decisions(at(1_000), 10).await, Ok(0));
    let all: Vec<_> = (0..100).map(|number| decision(number, number, Some("a"))).collect();
    db.add_decisions(1, &all).await.unwrap();
    assert_eq!((db.delete_decisions(at(10), 1_000).await, left().await), (Ok(10), 90));
    assert_eq!((db.delete_decisions(at(10), 90).await, left().await), (Ok(0), 90));
    assert_eq!((db.delete_decisions(at(10), 25).await, left().await), (Ok(65), 25));
    assert_eq!(db.decisions(&by_caller("a"), 1).await.unwrap(), [r#"{"n":99}"#]);
    // One call has a bound.
    for batch in 0..7 {
        let more: Vec<_> = (0..2_000).map(|n| decision(1_000 + batch * 2_000 + n, 500, Some("b"))).collect();
        db.add_decisions(1, &more).await.unwrap();
    }
    assert_eq!(db.delete_decisions(at(600), 1_000_000).await, Ok(MAX_DECISIONS_DELETED));
    assert_eq!(db.delete_decisions(at(600), 1_000_000).await, Ok(25 + 14_000 - MAX_DECISIONS_DELETED));
}

pub(crate) async fn tables_of_version_2_are_migrated(world: World) {
    drop(world.open().await);
    world.query("DROP TABLE decisions").await.unwrap();
    world.query("DELETE FROM tollgate_schema WHERE version > 2").await.unwrap();
    let db = world.open().await;
    db.add_decisions(1, &[decision(1, 1, Some("a"))]).await.unwrap();
    assert_eq!(db.decisions(&by_caller("a"), 9).await.unwrap().len(), 1);
}
