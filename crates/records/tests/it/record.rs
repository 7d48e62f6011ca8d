//! A record in JSON, and what its kind says of it.

use std::borrow::Cow;

use tollgate_records::{Record, RecordKind};

use super::record;

/// Records and the texts that they have in snapshots, feeds and followers' files: other versions read and write the same.
fn texts() -> [(Record<'static>, &'static str); 6] {
    [
        (
            record(7, RecordKind::Quota, "shop", "ada", Some(r#"{"tier": "pro",  "overrides":[]}"#)),
            // The document is copied, with the spaces that it has.
            r#"{"generation":7,"kind":"quota","domain":"shop","name":"ada","document":{"tier": "pro",  "overrides":[]}}"#,
        ),
        (record(8, RecordKind::Switch, "", "", Some("{}")), r#"{"generation":8,"kind":"switch","document":{}}"#),
        (record(9, RecordKind::Emergency, "", "b/c", None), r#"{"generation":9,"kind":"emergency","name":"b/c"}"#),
        (
            record(10, RecordKind::Block, "a/b", "Jürgen \"Q\"\n", None),
            r#"{"generation":10,"kind":"block","domain":"a/b","name":"Jürgen \"Q\"\n"}"#,
        ),
        (
            record(11, RecordKind::Rule, "shop", "r", Some(r#"{"version":1}"#)),
            r#"{"generation":11,"kind":"rule","domain":"shop","name":"r","document":{"version":1}}"#,
        ),
        (
            record(12, RecordKind::RuleVersion, "shop", "r@1", Some("{}")),
            r#"{"generation":12,"kind":"rule-version","domain":"shop","name":"r@1","document":{}}"#,
        ),
    ]
}

#[test]
fn a_record_is_one_object_of_json() {
    for (record, text) in texts() {
        assert_eq!(serde_json::to_string(&record).unwrap(), text);
        assert_eq!(serde_json::from_str::<Record<'_>>(text).unwrap(), record, "{text}");
        assert_eq!(serde_json::from_slice::<Record<'_>>(text.as_bytes()).unwrap().into_owned(), record, "{text}");
    }
    let deleted = r#"{"kind":"quota","document":null,"generation":1}"#;
    assert_eq!(serde_json::from_str::<Record<'_>>(deleted).unwrap(), record(1, RecordKind::Quota, "", "", None));
}

#[test]
fn a_record_borrows_what_stands_in_its_text() {
    let (_, text) = texts()[0].clone();
    let read: Record<'_> = serde_json::from_str(text).unwrap();
    assert!(matches!(
        (&read.domain, &read.name, &read.document),
        (Cow::Borrowed(_), Cow::Borrowed(_), Some(Cow::Borrowed(_)))
    ));
    let (_, text) = texts()[3].clone();
    assert!(matches!(serde_json::from_str::<Record<'_>>(text).unwrap().name, Cow::Owned(_)), "it has escapes");
}

#[test]
fn what_is_no_record_is_refused() {
    for (text, expected) in [
        (r#"{"generation":1,"kind":"quota","nmae":"a"}"#, "unknown field `nmae`, expected one of"),
        (r#"{"kind":"quota"}"#, "missing field `generation`"),
        (r#"{"generation":-1,"kind":"quota"}"#, "invalid value: integer `-1`"),
        (r#"{"generation":1,"kind":7}"#, "expected value"),
        (r#"{"generation":1,"kind":"quota","document":{]}"#, "key must be a string"),
    ] {
        let error = serde_json::from_str::<Record<'_>>(text).unwrap_err().to_string();
        assert!(error.contains(expected), "{text}: {error}");
    }
    // A document that is not JSON would break the line around it.
    let broken = record(1, RecordKind::Quota, "d", "n", Some("{\"tier\": "));
    assert!(serde_json::to_string(&broken).is_err());
}

#[test]
fn a_kind_knows_its_name_and_what_it_is_for() {
    let row = |kind: RecordKind| (kind.name(), kind.decides(), kind.is_stored());
    let rows: Vec<_> = RecordKind::ALL.into_iter().map(row).collect();
    let expected = [
        ("quota", true, true),
        ("rule", true, true),
        ("rule-version", false, true),
        ("switch", true, true),
        ("emergency", true, true),
        ("block", true, true),
        ("shares", true, true),
        ("files", true, true),
        ("plan", false, true),
        ("token", false, true),
        ("counter", false, false),
        ("lease", false, false),
        ("gateway", false, false),
        ("access", false, false),
        ("control", false, false),
    ];
    assert_eq!(rows, expected);
    assert_eq!(row(RecordKind::Unknown), ("unknown", false, false));
    for kind in RecordKind::ALL {
        assert_eq!(RecordKind::parse(kind.name()), Some(kind));
        assert_eq!(serde_json::to_value(kind).unwrap(), kind.to_string());
    }
    assert_eq!([RecordKind::parse("unknown"), RecordKind::parse("novelty")], [None, None]);
}
