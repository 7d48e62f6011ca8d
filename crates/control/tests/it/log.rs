//! The audit log.

use tollgate_control::{AuditEntry, AuditFilter, Precondition, RecordName, WriteBatch};
use tollgate_core::{Span, Timestamp};
use tollgate_records::RecordKind;

use crate::world::{START, World, commit, delete, numbered, put, quota, write};

fn at(second: u64) -> Timestamp {
    START.after(Span::from_secs(second))
}

pub(crate) async fn the_log_has_every_change(world: World) {
    let db = world.open().await;
    let (a, b) = (quota("a"), RecordName::new(RecordKind::Block, "bank", "b"));
    let mut first =
        write(vec![put(&a, Precondition::Absent, &numbered(1)), put(&b, Precondition::Absent, &numbered(2))]);
    first.at = at(1);
    let mut second = write(vec![put(&a, Precondition::Present, &numbered(3))]);
    (second.at, second.by, second.from) = (at(2), "bob".to_owned(), "::1".to_owned());
    second.changes[0].reason = "more 'room'".to_owned();
    let mut third = write(vec![delete(&a, Precondition::Present)]);
    third.at = at(3);
    let mut refused = write(vec![put(&a, Precondition::Absent, &numbered(4))]);
    refused.at = at(2);
    db.write(&first).await.unwrap();
    db.write(&second).await.unwrap();
    db.write(&refused).await.unwrap_err();
    db.write(&third).await.unwrap();

    let entry = |generation, second, name: &RecordName, before: Option<u64>, after: Option<u64>| AuditEntry {
        id: 0,
        generation,
        at: at(second),
        by: if second == 2 { "bob" } else { "ann" }.to_owned(),
        from: if second == 2 { "::1" } else { "10.0.0.7" }.to_owned(),
        action: if after.is_some() { "quota.put" } else { "quota.delete" }.to_owned(),
        name: name.clone(),
        before: before.map(numbered),
        after: after.map(numbered),
        reason: if second == 2 { "more 'room'" } else { "a request" }.to_owned(),
    };
    let expected = [
        entry(1, 1, &a, None, Some(1)),
        entry(1, 1, &b, None, Some(2)),
        entry(2, 2, &a, Some(1), Some(3)),
        entry(3, 3, &a, Some(3), None),
    ];
    let all = db.audit(&AuditFilter::default(), 0, 100).await.unwrap();
    let ids: Vec<_> = all.iter().map(|entry| entry.id).collect();
    assert!(ids.is_sorted_by(|a, b| a < b), "{ids:?}");
    assert_eq!(all.iter().map(|entry| AuditEntry { id: 0, ..entry.clone() }).collect::<Vec<_>>(), expected);

    // Pages in both directions.
    assert_eq!(db.audit(&AuditFilter::default(), ids[1], 1).await.unwrap(), all[2..3]);
    assert_eq!(db.audit(&AuditFilter::default(), ids[3], 1).await.unwrap(), []);
    let back: Vec<_> = all.iter().rev().cloned().collect();
    assert_eq!(db.audit_descending(&AuditFilter::default(), None, 3).await.unwrap(), back[..3]);
    assert_eq!(db.audit_descending(&AuditFilter::default(), Some(ids[1]), 3).await.unwrap(), back[3..]);

    let none = AuditFilter::default;
    let rows: [(AuditFilter, &[usize]); 9] = [
        (AuditFilter { by: Some("ann".to_owned()), ..none() }, &[0, 1, 3]),
        (AuditFilter { by: Some("an".to_owned()), ..none() }, &[]),
        (AuditFilter { kind: Some(RecordKind::Block), ..none() }, &[1]),
        (AuditFilter { domain: Some("shop".to_owned()), ..none() }, &[0, 2, 3]),
        (AuditFilter { name: Some("a".to_owned()), ..none() }, &[0, 2, 3]),
        (
            AuditFilter {
                kind: Some(RecordKind::Quota),
                name: Some("a".to_owned()),
                by: Some("bob".to_owned()),
                ..none()
            },
            &[2],
        ),
        (AuditFilter { since: Some(at(2)), ..none() }, &[2, 3]),
        (AuditFilter { until: Some(at(2)), ..none() }, &[0, 1]),
        (AuditFilter { since: Some(at(2)), until: Some(at(3)), ..none() }, &[2]),
    ];
    for (filter, expected) in rows {
        let expected: Vec<_> = expected.iter().map(|index| all[*index].clone()).collect();
        assert_eq!(db.audit(&filter, 0, 100).await.unwrap(), expected, "{filter:?}");
    }
    let readable = "SELECT at || ' ' || who || ' ' || action || ' ' || name FROM audit_log WHERE generation = 2";
    let readable = world.query(readable).await.unwrap();
    let (sqlite, postgres) = ("2026-01-01T00:00:02.000000Z bob quota.put a", "2026-01-01 00:00:02+00 bob quota.put a");
    assert!([sqlite, postgres].contains(&&*readable), "{readable}");
}

pub(crate) async fn counter_changes_are_only_in_the_log(world: World) {
    let db = world.open().await;
    let counter = RecordName::new(RecordKind::Counter, "shop", "k");
    for number in 1..=2 {
        db.write(&write(vec![put(&counter, Precondition::Absent, &numbered(number))])).await.unwrap();
    }
    assert_eq!(db.get(&counter).await, Ok(None));
    let mut records = 0;
    assert_eq!(db.for_each_since(0, true, |_| records += 1).await, Ok(2));
    assert_eq!(records, 0);
    let of_counters = AuditFilter { kind: Some(RecordKind::Counter), ..AuditFilter::default() };
    let log = db.audit(&of_counters, 0, 10).await.unwrap();
    let after: Vec<_> = log.iter().map(|entry| (entry.before.clone(), entry.after.clone())).collect();
    assert_eq!(after, [(None, Some(numbered(1))), (None, Some(numbered(2)))]);
}

pub(crate) async fn the_log_has_no_hashes_of_tokens(world: World) {
    let db = world.open().await;
    let name = RecordName::new(RecordKind::Token, "", "ops");
    let documents = [
        r#"{"hash":"aa","scopes":["read"]}"#,
        r#"{"hash":"bb","old_hash":"aa","old_until":"2026-01-01T00:00:00Z","scopes":["read"]}"#,
    ];
    for document in documents {
        db.write(&write(vec![put(&name, Precondition::Any, document)])).await.unwrap();
    }
    assert_eq!(db.get(&name).await.unwrap().unwrap().document.as_deref(), Some(documents[1]));
    let log = db.audit(&AuditFilter::default(), 0, 100).await.unwrap();
    let (first, second) = (r#"{"scopes":["read"]}"#, r#"{"old_until":"2026-01-01T00:00:00Z","scopes":["read"]}"#);
    let documents: Vec<_> = log.iter().map(|entry| (entry.before.as_deref(), entry.after.as_deref())).collect();
    assert_eq!(documents, [(None, Some(first)), (Some(first), Some(second))]);
}

pub(crate) async fn a_note_changes_no_record(world: World) {
    let db = world.open().await;
    commit(&db, vec![put(&quota("a"), Precondition::Any, &numbered(1))]).await;
    let note = WriteBatch { is_note: true, ..write(vec![put(&quota("a"), Precondition::Any, &numbered(1))]) };
    db.write(&note).await.unwrap();
    let stored = db.get(&quota("a")).await.unwrap().unwrap();
    assert_eq!((stored.generation, db.generation().await), (1, Ok(2)));
    assert_eq!(db.audit(&AuditFilter::default(), 0, 9).await.unwrap().len(), 2);
    // A deletion is a write, too.
    commit(&db, vec![delete(&quota("a"), Precondition::Any)]).await;
    let deleted = db.get_with_deleted(&quota("a")).await.unwrap().unwrap();
    assert_eq!((deleted.generation, deleted.document, db.get(&quota("a")).await), (3, None, Ok(None)));
}

pub(crate) async fn the_log_can_not_be_altered(world: World) {
    let db = world.open().await;
    db.write(&write(vec![put(&quota("a"), Precondition::Any, "{}")])).await.unwrap();
    let before = db.audit(&AuditFilter::default(), 0, 10).await.unwrap();
    let mut attempts = vec!["UPDATE audit SET who = 'nobody'", "DELETE FROM audit", "UPDATE audit SET before = NULL"];
    if matches!(world, World::Postgres(_)) {
        attempts.push("TRUNCATE audit");
    }
    for attempt in attempts {
        let refused = world.query(attempt).await.unwrap_err();
        assert!(refused.contains("the audit log is only added to"), "{attempt}: {refused}");
    }
    assert_eq!(db.audit(&AuditFilter::default(), 0, 10).await.unwrap(), before);
}
