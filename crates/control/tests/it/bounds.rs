//! Bounds.

use tollgate_control::{
    AuditFilter, Change, DbError, Expect, Filter, LONGEST_ACTION, LONGEST_ANSWER, LONGEST_DOCUMENT, LONGEST_NAME,
    LONGEST_REASON, LONGEST_WRITE, MOST_CHANGES, Once, Write, WriteError,
};
use tollgate_records::RecordKind;

use crate::world::{World, put, quota, write, written};

fn change(alter: impl FnOnce(&mut Change)) -> Write {
    let mut change = put(&quota("a"), Expect::Anything, "{}");
    alter(&mut change);
    write(vec![change])
}

fn long(bytes: usize) -> String {
    "x".repeat(bytes)
}

fn long_document(bytes: usize) -> String {
    format!("{{\"x\":\"{}\"}}", long(bytes - 8))
}

fn once(key: usize, digest: usize, answer: usize) -> Write {
    Write { once: Some(Once { key: long(key), digest: long(digest), answer: long(answer) }), ..change(|_| ()) }
}

fn many(changes: usize, document: usize) -> Write {
    write((0..changes).map(|n| put(&quota(&n.to_string()), Expect::Anything, &long_document(document))).collect())
}

pub(crate) async fn what_is_out_of_bounds_is_refused(world: World) {
    let db = world.open().await;
    let document = |text: &str| {
        let text = text.to_owned();
        change(move |change| change.document = Some(text))
    };
    let rows = [
        (write(Vec::new()), "at least one change"),
        (many(MOST_CHANGES + 1, 100), "at most 1000 changes"),
        (many(LONGEST_WRITE / LONGEST_DOCUMENT + 1, LONGEST_DOCUMENT), "together"),
        (change(|change| change.name.name = long(LONGEST_NAME + 1)), "the name has 513 bytes, more than 512"),
        (change(|change| change.name.domain = long(LONGEST_NAME + 1)), "the domain has 513 bytes"),
        (change(|change| change.name.name = "a\0".to_owned()), "the name has a NUL"),
        (change(|change| change.name.kind = RecordKind::Unknown), "an unknown kind"),
        (change(|change| change.action = long(LONGEST_ACTION + 1)), "the action"),
        (change(|change| change.reason = long(LONGEST_REASON + 1)), "the reason"),
        (change(|change| change.document = Some(long_document(LONGEST_DOCUMENT + 1))), "the document has 262145 bytes"),
        (document("{"), "not JSON"),
        (document("[]"), "not a JSON object"),
        (document(r#"{"a":"\u0000"}"#), "NUL"),
        (document(r#"{"a":"\ud800"}"#), "not JSON"),
        (document(r#"{"a":1e999}"#), "not JSON"),
        (Write { by: long(LONGEST_NAME + 1), ..change(|_| ()) }, "who writes"),
        (Write { from: long(LONGEST_NAME + 1), ..change(|_| ()) }, "the address"),
        (once(LONGEST_NAME + 1, 1, 1), "the idempotency key"),
        (once(1, LONGEST_NAME + 1, 1), "the digest"),
        (once(1, 1, LONGEST_ANSWER + 1), "the answer"),
        (write(vec![put(&quota("a"), Expect::Anything, "{}"), put(&quota("a"), Expect::Anything, "{}")]), "twice"),
    ];
    for (write, expected) in rows {
        match db.write(&write).await {
            Err(WriteError::Invalid(what)) => assert!(what.contains(expected), "{expected}: {what}"),
            other => panic!("{expected}: {other:?}"),
        }
    }
    assert_eq!(db.generation().await, Ok(0));

    // What is looked for may not be text that no database takes, either.
    let nul = quota("a\0");
    let invalid = Err(DbError::Invalid("a text has a NUL character".to_owned()));
    assert_eq!(db.get(&nul).await.map(drop), invalid);
    assert_eq!(db.list(&Filter::of(RecordKind::Quota), Some(&nul), 1).await.map(drop), invalid);
    let filter = AuditFilter { by: Some("\0".to_owned()), ..AuditFilter::default() };
    assert_eq!(db.audit(&filter, 0, 1).await.map(drop), invalid);
    // One that is too long is not there.
    assert_eq!(db.get(&quota(&long(100_000))).await, Ok(None));
}

pub(crate) async fn what_is_at_the_bounds_is_written(world: World) {
    let db = world.open().await;
    let mut longest = once(LONGEST_NAME, LONGEST_NAME, LONGEST_ANSWER);
    (longest.by, longest.from) = (long(LONGEST_NAME), long(LONGEST_NAME));
    let change = &mut longest.changes[0];
    (change.name.domain, change.name.name) = (long(LONGEST_NAME), long(LONGEST_NAME));
    (change.action, change.reason) = (long(LONGEST_ACTION), long(LONGEST_REASON));
    change.document = Some(long_document(LONGEST_DOCUMENT));
    let name = change.name.clone();
    db.write(&longest).await.unwrap();
    assert_eq!(db.get(&name).await.unwrap().unwrap().document, longest.changes[0].document);
    // The next version too has the old one beside it in the log.
    db.write(&Write { once: None, ..longest.clone() }).await.unwrap();
    assert_eq!(db.audit(&Default::default(), 0, 10).await.unwrap()[1].before, longest.changes[0].document);
    written(&db, many(LONGEST_WRITE / LONGEST_DOCUMENT, LONGEST_DOCUMENT).changes).await;
    written(&db, many(MOST_CHANGES, 100).changes).await;
}
