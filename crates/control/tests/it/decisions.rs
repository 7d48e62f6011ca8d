//! The decision log.

use tollgate_control::{DbError, Decided, DecidedFilter, MOST_DECISIONS, MOST_FORGOTTEN};
use tollgate_core::{Span, Timestamp};

use crate::world::{START, World};

fn at(second: u64) -> Timestamp {
    START.after(Span::from_secs(second))
}

fn decided(number: u64, second: u64, caller: Option<&str>) -> Decided {
    Decided {
        number,
        at: at(second),
        domain: "shop".to_owned(),
        caller: caller.map(str::to_owned),
        rule: Some("per-key".to_owned()),
        document: format!("{{\"n\":{number}}}"),
    }
}

fn of(caller: &str) -> DecidedFilter {
    DecidedFilter { caller: caller.to_owned(), ..DecidedFilter::default() }
}

pub(crate) async fn what_is_decided_is_found_by_caller(world: World) {
    let db = world.open().await;
    let odd = "ü '\"%_\\ \u{1f980}";
    let longest = "x".repeat(1_024);
    let mut all: Vec<_> = (0..600).map(|number| decided(number, number, Some("many"))).collect();
    all.push(decided(600, 5, Some(odd)));
    all.push(decided(601, 5, Some(&longest)));
    all.push(decided(602, 5, None));
    all.push(Decided { domain: "bank".to_owned(), rule: None, ..decided(603, 1_000, Some("many")) });
    db.add_decisions(1, &all).await.unwrap();
    db.add_decisions(2, &[decided(0, 2_000, Some("many"))]).await.unwrap();
    db.add_decisions(2, &[]).await.unwrap();

    let found = |filter: DecidedFilter, most: usize| {
        let db = db.clone();
        async move { db.decisions(&filter, most).await.unwrap().join(" ") }
    };
    assert_eq!(found(of("many"), 3).await, r#"{"n":0} {"n":603} {"n":599}"#);
    assert_eq!(found(of("man"), 3).await, "");
    assert_eq!(found(of(odd), 9).await, r#"{"n":600}"#);
    assert_eq!(found(of(&longest), 9).await, r#"{"n":601}"#);
    assert_eq!(db.decisions(&of("many"), 10_000).await.unwrap().len(), 602);
    for (filter, expected) in [
        (DecidedFilter { domain: Some("bank".to_owned()), ..of("many") }, r#"{"n":603}"#),
        (DecidedFilter { rule: Some("other".to_owned()), ..of("many") }, ""),
        (DecidedFilter { from: Some(at(1_001)), ..of("many") }, r#"{"n":0}"#),
        (DecidedFilter { from: Some(at(1)), to: Some(at(3)), ..of("many") }, r#"{"n":2} {"n":1}"#),
        (DecidedFilter { rule: Some("per-key".to_owned()), to: Some(at(1)), ..of("many") }, r#"{"n":0}"#),
    ] {
        assert_eq!(found(filter.clone(), 9).await, expected, "{filter:?}");
    }
    assert!(matches!(db.decisions(&of("a\0b"), 1).await, Err(DbError::Invalid(_))));
    let too_many: Vec<_> = (0..=MOST_DECISIONS as u64).map(|number| decided(number, 1, None)).collect();
    assert!(matches!(db.add_decisions(1, &too_many).await, Err(DbError::Invalid(_))));
}

pub(crate) async fn a_batch_may_be_written_again(world: World) {
    let db = world.open().await;
    let batch = [decided(1, 1, Some("a")), decided(2, 2, Some("a"))];
    db.add_decisions(7, &batch[..1]).await.unwrap();
    for _ in 0..3 {
        db.add_decisions(7, &batch).await.unwrap();
    }
    assert_eq!(db.decisions(&of("a"), 9).await.unwrap(), [r#"{"n":2}"#, r#"{"n":1}"#]);
}

pub(crate) async fn what_is_old_or_too_much_is_forgotten(world: World) {
    let db = world.open().await;
    let left = || async { db.decisions(&of("a"), 1_000).await.unwrap().len() };
    assert_eq!(db.forget_decisions(at(1_000), 10).await, Ok(0));
    let all: Vec<_> = (0..100).map(|number| decided(number, number, Some("a"))).collect();
    db.add_decisions(1, &all).await.unwrap();
    assert_eq!((db.forget_decisions(at(10), 1_000).await, left().await), (Ok(10), 90));
    assert_eq!((db.forget_decisions(at(10), 90).await, left().await), (Ok(0), 90));
    assert_eq!((db.forget_decisions(at(10), 25).await, left().await), (Ok(65), 25));
    assert_eq!(db.decisions(&of("a"), 1).await.unwrap(), [r#"{"n":99}"#]);
    // A pass has a bound.
    for batch in 0..7 {
        let more: Vec<_> = (0..2_000).map(|n| decided(1_000 + batch * 2_000 + n, 500, Some("b"))).collect();
        db.add_decisions(1, &more).await.unwrap();
    }
    assert_eq!(db.forget_decisions(at(600), 1_000_000).await, Ok(MOST_FORGOTTEN));
    assert_eq!(db.forget_decisions(at(600), 1_000_000).await, Ok(25 + 14_000 - MOST_FORGOTTEN));
}

pub(crate) async fn tables_of_an_older_version_are_added_to(world: World) {
    drop(world.open().await);
    world.ask("DROP TABLE decisions").await.unwrap();
    world.ask("DELETE FROM tollgate_schema WHERE version > 2").await.unwrap();
    let db = world.open().await;
    db.add_decisions(1, &[decided(1, 1, Some("a"))]).await.unwrap();
    assert_eq!(db.decisions(&of("a"), 9).await.unwrap().len(), 1);
}
