//! The bounds of writes and queries.

use tollgate_control::{
    AuditFilter, Change, DbError, IdempotencyKey, MAX_ACTION_BYTES, MAX_ANSWER_BYTES, MAX_CHANGES, MAX_DOCUMENT_BYTES,
    MAX_NAME_BYTES, MAX_REASON_BYTES, MAX_WRITE_BYTES, Precondition, RecordFilter, WriteBatch, WriteError,
};
use tollgate_records::RecordKind;

use crate::world::{World, commit, put, quota, write};

fn change(alter: impl FnOnce(&mut Change)) -> WriteBatch {
    let mut change = put(&quota("a"), Precondition::Any, "{}");
    alter(&mut change);
    write(vec![change])
}

fn long(bytes: usize) -> String {
    "x".repeat(bytes)
}

fn long_document(bytes: usize) -> String {
    format!("{{\"x\":\"{}\"}}", long(bytes - 8))
}

fn once(key: usize, digest: usize, answer: usize) -> WriteBatch {
    WriteBatch {
        once: Some(IdempotencyKey { key: long(key), digest: long(digest), answer: long(answer) }),
        ..change(|_| ())
    }
}

fn many(changes: usize, document: usize) -> WriteBatch {
    write((0..changes).map(|n| put(&quota(&n.to_string()), Precondition::Any, &long_document(document))).collect())
}

pub(crate) async fn writes_out_of_bounds_are_refused(world: World) {
    let db = world.open().await;
    let document = |text: &str| {
        let text = text.to_owned();
        change(move |change| change.document = Some(text))
    };
    let rows = [
        (write(Vec::new()), "at least one change"),
        (many(MAX_CHANGES + 1, 100), "at most 1000 changes"),
        (many(MAX_WRITE_BYTES / MAX_DOCUMENT_BYTES + 1, MAX_DOCUMENT_BYTES), "together"),
        (change(|change| change.name.name = long(MAX_NAME_BYTES + 1)), "the name has 513 bytes, more than 512"),
        (change(|change| change.name.domain = long(MAX_NAME_BYTES + 1)), "the domain has 513 bytes"),
        (change(|change| change.name.name = "a\0".to_owned()), "the name has a NUL"),
        (change(|change| change.name.kind = RecordKind::Unknown), "an unknown kind"),
        (change(|change| change.action = long(MAX_ACTION_BYTES + 1)), "the action"),
        (change(|change| change.reason = long(MAX_REASON_BYTES + 1)), "the reason"),
        (
            change(|change| change.document = Some(long_document(MAX_DOCUMENT_BYTES + 1))),
            "the document has 262145 bytes",
        ),
        (document("{"), "not JSON"),
        (document("[]"), "not a JSON object"),
        (document(r#"{"a":"\u0000"}"#), "NUL"),
        (document(r#"{"a":"\ud800"}"#), "not JSON"),
        (document(r#"{"a":1e999}"#), "not JSON"),
        (WriteBatch { by: long(MAX_NAME_BYTES + 1), ..change(|_| ()) }, "who writes"),
        (WriteBatch { from: long(MAX_NAME_BYTES + 1), ..change(|_| ()) }, "the address"),
        (once(MAX_NAME_BYTES + 1, 1, 1), "the idempotency key"),
        (once(1, MAX_NAME_BYTES + 1, 1), "the digest"),
        (once(1, 1, MAX_ANSWER_BYTES + 1), "the answer"),
        (write(vec![put(&quota("a"), Precondition::Any, "{}"), put(&quota("a"), Precondition::Any, "{}")]), "twice"),
    ];
    for (write, expected) in rows {
        match db.write(&write).await {
            Err(WriteError::Invalid(what)) => assert!(what.contains(expected), "{expected}: {what}"),
            other => panic!("{expected}: {other:?}"),
        }
    }
    assert_eq!(db.generation().await, Ok(0));

    // Queries are refused too if their text has a NUL character.
    let nul = quota("a\0");
    let invalid = Err(DbError::Invalid("a text has a NUL character".to_owned()));
    assert_eq!(db.get(&nul).await.map(drop), invalid);
    assert_eq!(db.list(&RecordFilter::new(RecordKind::Quota), Some(&nul), 1).await.map(drop), invalid);
    let filter = AuditFilter { by: Some("\0".to_owned()), ..AuditFilter::default() };
    assert_eq!(db.audit(&filter, 0, 1).await.map(drop), invalid);
    // A name that is too long does not exist.
    assert_eq!(db.get(&quota(&long(100_000))).await, Ok(None));
}

pub(crate) async fn writes_at_the_bounds_are_accepted(world: World) {
    let db = world.open().await;
    let mut longest = once(MAX_NAME_BYTES, MAX_NAME_BYTES, MAX_ANSWER_BYTES);
    (longest.by, longest.from) = (long(MAX_NAME_BYTES), long(MAX_NAME_BYTES));
    let change = &mut longest.changes[0];
    (change.name.domain, change.name.name) = (long(MAX_NAME_BYTES), long(MAX_NAME_BYTES));
    (change.action, change.reason) = (long(MAX_ACTION_BYTES), long(MAX_REASON_BYTES));
    change.document = Some(long_document(MAX_DOCUMENT_BYTES));
    let name = change.name.clone();
    db.write(&longest).await.unwrap();
    assert_eq!(db.get(&name).await.unwrap().unwrap().document, longest.changes[0].document);
    // The log entry of the next write has the old and the new document.
    db.write(&WriteBatch { once: None, ..longest.clone() }).await.unwrap();
    assert_eq!(db.audit(&Default::default(), 0, 10).await.unwrap()[1].before, longest.changes[0].document);
    commit(&db, many(MAX_WRITE_BYTES / MAX_DOCUMENT_BYTES, MAX_DOCUMENT_BYTES).changes).await;
    commit(&db, many(MAX_CHANGES, 100).changes).await;
}
