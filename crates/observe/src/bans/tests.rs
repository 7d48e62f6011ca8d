//! Sums of refusals, and what becomes of them when the table is full.

#![allow(clippy::unwrap_used, reason = "a test that fails may panic")]

use super::*;

fn table() -> RefusalTable {
    RefusalTable::new(Arc::default())
}

fn add(table: &RefusalTable, name: &str, times: u64) {
    for time in 0..times {
        table.add("d", "r", (name, SubjectKind::Caller), Timestamp::from_secs(time));
    }
}

#[test]
fn refusals_are_summed_and_taken_once() {
    let table = table();
    assert!(table.take().is_empty());
    add(&table, "a", 3);
    add(&table, "b", 1);
    table.add("d", "other", ("a", SubjectKind::Network), Timestamp::from_secs(9));
    let mut taken = table.take();
    taken.sort_by(|one, other| (&one.rule, &one.name).cmp(&(&other.rule, &other.name)));
    let sums: Vec<_> = taken.iter().map(|one| (&*one.rule, &*one.name, one.count, one.at.as_micros())).collect();
    assert_eq!(sums, [("other", "a", 1, 9_000_000), ("r", "a", 3, 0), ("r", "b", 1, 0)]);
    assert!(table.take().is_empty());
    add(&table, "a", 1);
    assert_eq!(table.take().len(), 1);
}

#[test]
fn a_flood_of_subjects_does_not_displace_one_that_is_refused_again_and_again() {
    let table = table();
    add(&table, "stuffer", 50);
    for number in 0..100_000 {
        add(&table, &number.to_string(), 1);
    }
    add(&table, "stuffer", 50);
    let taken = table.take();
    assert!(taken.len() <= MAX_REFUSED, "{}", taken.len());
    assert_eq!(taken.iter().find(|one| &*one.name == "stuffer").map(|one| one.count), Some(100));
    let (_, counts) = table.counts().pop().unwrap();
    assert_eq!(counts.dropped + taken.len() as u64, 100_001);
    assert!(table.take().is_empty());
}

#[test]
fn rules_beyond_the_bound_are_counted_together() {
    let table = table();
    for number in 0..MAX_BAN_RULES + 5 {
        table.note("d", &number.to_string(), BanEvent::Begun);
    }
    let counts = table.counts();
    assert_eq!(counts.len(), MAX_BAN_RULES + 1);
    let others = counts.iter().find(|((domain, rule), _)| &**domain == OTHER && &**rule == OTHER);
    assert_eq!(others.map(|(_, counts)| counts.begun), Some(5));
}
