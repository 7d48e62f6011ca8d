//! Writing, reading, listing and deleting records.

use tollgate_control::{
    DELETED_RETENTION, DbError, MAX_LISTED_RECORDS, Precondition, RecordFilter, RecordName, StoredRecord, SweepReport,
    WriteError, WriteOutcome,
};
use tollgate_core::Span;
use tollgate_records::RecordKind;

use crate::world::{START, World, commit, delete, document, numbered, put, quota, write};

const HOUR: Span = Span::from_secs(3_600);

pub(crate) async fn records_are_written_and_read(world: World) {
    let db = world.open().await;
    assert_eq!(db.generation().await, Ok(0));
    let name = quota("key-1 ü ' \" $1");
    assert_eq!(db.get(&name).await, Ok(None));

    // Text comes back as it was, not as a database would write it.
    let text = r#"{"b": 1, "a":  "é \"quoted\" $2 ☃", "n": 12345678901234567890}"#;
    assert_eq!(commit(&db, vec![put(&name, Precondition::Any, text)]).await, 1);
    let first = StoredRecord {
        name: name.clone(),
        generation: 1,
        document: Some(text.to_owned()),
        created_at: START,
        updated_at: START,
        updated_by: "ann".to_owned(),
        reason: "a request".to_owned(),
    };
    assert_eq!(db.get(&name).await, Ok(Some(first.clone())));

    let mut again = write(vec![put(&name, Precondition::Any, "{}")]);
    again.at = START.after(HOUR);
    again.by = "bob".to_owned();
    again.changes[0].reason = "again".to_owned();
    assert_eq!(
        db.write(&again).await,
        Ok(WriteOutcome::Committed { generation: 2, before: vec![Some(first.clone())] })
    );
    let second = StoredRecord {
        generation: 2,
        document: Some("{}".to_owned()),
        updated_at: START.after(HOUR),
        updated_by: "bob".to_owned(),
        reason: "again".to_owned(),
        ..first
    };
    assert_eq!(db.get(&name).await, Ok(Some(second.clone())));
    assert_eq!(db.generation().await, Ok(2));

    // Kind and domain distinguish records.
    for other in
        [RecordName::new(RecordKind::Block, "shop", &*name.name), RecordName::new(RecordKind::Quota, "", &*name.name)]
    {
        assert_eq!(db.get(&other).await, Ok(None));
        commit(&db, vec![put(&other, Precondition::Absent, &numbered(9))]).await;
        assert_eq!(document(db.get(&other).await.unwrap()), numbered(9));
    }
    assert_eq!(db.get(&name).await, Ok(Some(second.clone())));

    // A new handle reads the same.
    drop(db);
    let db = world.open().await;
    assert_eq!(db.get(&name).await, Ok(Some(second)));
    assert_eq!(db.generation().await, Ok(4));
}

pub(crate) async fn preconditions_are_checked(world: World) {
    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Existence {
        Present,
        Deleted,
        Never,
    }
    // Whether the record exists, the precondition (a generation is relative to the record's), and whether it holds.
    let rows = [
        (Existence::Present, Precondition::Any, true),
        (Existence::Present, Precondition::Absent, false),
        (Existence::Present, Precondition::Present, true),
        (Existence::Present, Precondition::Generation(0), true),
        (Existence::Present, Precondition::Generation(1), false),
        (Existence::Deleted, Precondition::Any, true),
        (Existence::Deleted, Precondition::Absent, true),
        (Existence::Deleted, Precondition::Present, false),
        (Existence::Deleted, Precondition::Generation(0), false),
        (Existence::Never, Precondition::Any, true),
        (Existence::Never, Precondition::Absent, true),
        (Existence::Never, Precondition::Present, false),
        (Existence::Never, Precondition::Generation(0), false),
    ];
    let db = world.open().await;
    for (row, (state, expect, holds)) in rows.into_iter().enumerate() {
        for deletes in [false, true] {
            let name = quota(&format!("{row} {deletes}"));
            if state != Existence::Never {
                commit(&db, vec![put(&name, Precondition::Absent, "{}")]).await;
            }
            if state == Existence::Deleted {
                commit(&db, vec![delete(&name, Precondition::Present)]).await;
            }
            let (before, at) = (db.get(&name).await.unwrap(), db.generation().await.unwrap());
            let expect = match expect {
                Precondition::Generation(later) => Precondition::Generation(at + later),
                expect => expect,
            };
            let change = if deletes { delete(&name, expect) } else { put(&name, expect, r#"{"new":1}"#) };
            let answer = db.write(&write(vec![change])).await;
            let now = db.get(&name).await.unwrap();
            if holds {
                assert_eq!(
                    answer,
                    Ok(WriteOutcome::Committed { generation: at + 1, before: vec![before] }),
                    "{state:?} {expect:?}"
                );
                assert_eq!(now.is_some(), !deletes, "{state:?} {expect:?}");
            } else {
                let generation = before.as_ref().map(|before| before.generation);
                assert_eq!(
                    answer,
                    Err(WriteError::PreconditionFailed { name, current: generation }),
                    "{state:?} {expect:?}"
                );
                assert_eq!((now, db.generation().await), (before, Ok(at)), "{state:?} {expect:?}");
            }
        }
    }
}

pub(crate) async fn deleted_records_are_gone_and_may_come_back(world: World) {
    let db = world.open().await;
    let name = quota("a");
    commit(&db, vec![put(&name, Precondition::Absent, &numbered(1))]).await;
    let first = db.get(&name).await.unwrap();
    let mut deletion = write(vec![delete(&name, Precondition::Generation(1))]);
    deletion.at = START.after(HOUR);
    assert_eq!(db.write(&deletion).await, Ok(WriteOutcome::Committed { generation: 2, before: vec![first] }));
    assert_eq!(db.get(&name).await, Ok(None));
    assert_eq!(db.list(&RecordFilter::new(RecordKind::Quota), None, 10).await, Ok(Vec::new()));
    assert_eq!(db.count(&RecordFilter::new(RecordKind::Quota)).await, Ok(0));

    // Deleting a missing record fails if it must exist, and changes nothing otherwise.
    assert_eq!(db.write(&deletion).await, Err(WriteError::PreconditionFailed { name: name.clone(), current: None }));
    let generation =
        commit(&db, vec![delete(&name, Precondition::Any), delete(&quota("b"), Precondition::Absent)]).await;
    assert_eq!(generation, 3);
    let mut seen = Vec::new();
    db.for_each_since(0, true, |record| {
        seen.push((record.name.into_owned(), record.generation, record.document.is_some()))
    })
    .await
    .unwrap();
    assert_eq!(seen, [("a".to_owned(), 2, false)]);

    let mut back = write(vec![put(&name, Precondition::Absent, &numbered(2))]);
    back.at = START.after(HOUR).after(HOUR);
    assert_eq!(db.write(&back).await, Ok(WriteOutcome::Committed { generation: 4, before: vec![None] }));
    let stored = db.get(&name).await.unwrap().unwrap();
    assert_eq!((stored.created_at, stored.updated_at), (back.at, back.at));
}

pub(crate) async fn pages_follow_one_another(world: World) {
    let db = world.open().await;
    // Ordered by bytes in every locale: capitals first, characters beyond ASCII last.
    let names = ["B", "a", "a-1", "a1", "ab", "b", "ä", "ü", "ﬁ", "😀"];
    let mut changes: Vec<_> = names.iter().map(|name| put(&quota(name), Precondition::Absent, "{}")).collect();
    changes.reverse();
    changes.push(put(&RecordName::new(RecordKind::Quota, "bank", "z"), Precondition::Absent, "{}"));
    changes.push(put(&RecordName::new(RecordKind::Rule, "shop", "a"), Precondition::Absent, "{}"));
    changes.push(put(&RecordName::new(RecordKind::Quota, "shop2", "a"), Precondition::Absent, "{}"));
    commit(&db, changes).await;
    let mut expected = vec![("bank", "z")];
    expected.extend(names.iter().map(|name| ("shop", *name)));
    expected.push(("shop2", "a"));

    for max in [1, 2, 5, 100, usize::MAX] {
        let mut listed: Vec<RecordName> = Vec::new();
        loop {
            let page = db.list(&RecordFilter::new(RecordKind::Quota), listed.last(), max).await.unwrap();
            assert!(page.len() <= max);
            if page.is_empty() {
                break;
            }
            listed.extend(page.into_iter().map(|stored| stored.name));
        }
        let listed: Vec<_> = listed.iter().map(|name| (&*name.domain, &*name.name)).collect();
        assert_eq!(listed, expected, "pages of {max}");
    }
    assert_eq!(db.count(&RecordFilter::new(RecordKind::Quota)).await, Ok(12));
    assert_eq!(db.list(&RecordFilter::new(RecordKind::Token), None, 10).await, Ok(Vec::new()));

    for page in 0..2 {
        let changes =
            (0..MAX_LISTED_RECORDS).map(|n| put(&quota(&format!("many-{page}-{n:04}")), Precondition::Absent, "{}"));
        commit(&db, changes.collect()).await;
    }
    assert_eq!(
        db.list(&RecordFilter::new(RecordKind::Quota), None, usize::MAX).await.unwrap().len(),
        MAX_LISTED_RECORDS
    );
}

pub(crate) async fn filters_select_records(world: World) {
    let db = world.open().await;
    // Longer than an index entry, with a long common prefix.
    let (tier, other) = ("t".repeat(10_000), format!("{}u", "t".repeat(9_999)));
    let (long, longer) = (&*format!("{{\"tier\":\"{tier}\"}}"), &*format!("{{\"tier\":\"{other}\"}}"));
    let rows = [
        ("shop", "key-1", r#"{"tier":"pro"}"#),
        ("shop", "key-2", r#"{"tier":"free"}"#),
        ("shop", "key_3", r#"{"tier":5}"#),
        ("shop", "kez", r#"{"other":{"tier":"pro"}}"#),
        ("bank", "key-1", r#"{"tier":"pro"}"#),
        ("bank", "%", r#"{"tier":null}"#),
        ("bank", "long", long),
        ("bank", "longer", longer),
    ];
    let changes = rows
        .map(|(domain, name, text)| put(&RecordName::new(RecordKind::Quota, domain, name), Precondition::Absent, text));
    commit(&db, changes.to_vec()).await;
    let filter = |domain: &str, prefix: &str, tier: &str| RecordFilter {
        domain: (!domain.is_empty()).then(|| domain.to_owned()),
        prefix: (!prefix.is_empty()).then(|| prefix.to_owned()),
        member: (!tier.is_empty()).then(|| ("tier".to_owned(), tier.to_owned())),
        ..RecordFilter::new(RecordKind::Quota)
    };
    let named = |name: &str| RecordFilter { name: Some(name.to_owned()), ..RecordFilter::new(RecordKind::Quota) };
    let rows = [
        (filter("shop", "", ""), "shop/key-1 shop/key-2 shop/key_3 shop/kez"),
        (filter("", "key", ""), "bank/key-1 shop/key-1 shop/key-2 shop/key_3"),
        (filter("shop", "key-", ""), "shop/key-1 shop/key-2"),
        (filter("", "%", ""), "bank/%"),
        (filter("", "", "pro"), "bank/key-1 shop/key-1"),
        (filter("shop", "k", "pro"), "shop/key-1"),
        (filter("", "", &tier), "bank/long"),
        (filter("", "", &other), "bank/longer"),
        (filter("", "", "5"), ""),
        (filter("", "", "null"), ""),
        (filter("none", "", ""), ""),
        (named("key-1"), "bank/key-1 shop/key-1"),
        (RecordFilter { domain: Some("shop".to_owned()), ..named("key-1") }, "shop/key-1"),
        (RecordFilter { prefix: Some("l".to_owned()), ..named("key-1") }, ""),
        (named("key"), ""),
        (named("%"), "bank/%"),
        (named(""), ""),
        (RecordFilter { prefix: Some(String::new()), ..RecordFilter::new(RecordKind::Rule) }, ""),
    ];
    for (filter, expected) in rows {
        let listed = db.list(&filter, None, 100).await.unwrap();
        let names: Vec<_> =
            listed.iter().map(|stored| format!("{}/{}", stored.name.domain, stored.name.name)).collect();
        assert_eq!(names.join(" "), expected, "{filter:?}");
        assert_eq!(db.count(&filter).await, Ok(listed.len() as u64), "{filter:?}");
    }
    let before = |text: &str| RecordFilter {
        domain: Some("shop".to_owned()),
        before: Some(("tier".to_owned(), text.to_owned())),
        ..RecordFilter::new(RecordKind::Quota)
    };
    let names = |listed: Vec<StoredRecord>| listed.into_iter().map(|stored| stored.name.name).collect::<Vec<_>>();
    for (text, expected) in [("pro", vec!["key-2"]), ("pro ", vec!["key-1", "key-2"]), ("Z", vec![]), ("f", vec![])] {
        let mut found = names(db.list(&before(text), None, 100).await.unwrap());
        // A member that is not a text may match or not.
        found.retain(|name| name != "key_3");
        assert_eq!(found, expected, "{text:?}");
    }
    let odd = RecordFilter {
        before: Some(("x') OR ('1' = '1".to_owned(), String::new())),
        ..RecordFilter::new(RecordKind::Quota)
    };
    assert!(matches!(db.list(&odd, None, 1).await, Err(DbError::Invalid(_))));
    let odd = RecordFilter {
        member: Some(("x') OR ('1' = '1".to_owned(), String::new())),
        ..RecordFilter::new(RecordKind::Quota)
    };
    assert!(matches!(db.list(&odd, None, 1).await, Err(DbError::Invalid(_))));
    for nul in [filter("a\0", "", ""), named("a\0")] {
        assert!(matches!(db.count(&nul).await, Err(DbError::Invalid(_))));
    }
}

pub(crate) async fn a_bulk_write_is_all_or_nothing(world: World) {
    let db = world.open().await;
    let names: Vec<_> = (0..1_000).map(|n| quota(&format!("key-{n}"))).collect();
    let puts = |expect| names.iter().map(|name| put(name, expect, r#"{"tier":"pro"}"#)).collect::<Vec<_>>();
    assert_eq!(commit(&db, puts(Precondition::Absent)).await, 1);
    assert_eq!(db.count(&RecordFilter::new(RecordKind::Quota)).await, Ok(1_000));

    // One precondition that fails, anywhere, and nothing is written.
    for odd in [0, 99, 100, 577, 999] {
        let mut changes = puts(Precondition::Present);
        changes[odd].expect = Precondition::Absent;
        let refused = Err(WriteError::PreconditionFailed { name: names[odd].clone(), current: Some(1) });
        assert_eq!(db.write(&write(changes)).await, refused);
    }
    assert_eq!(db.generation().await, Ok(1));
    assert_eq!(db.audit(&Default::default(), 0, 1_000).await.unwrap().len(), 1_000);

    // Writes and deletions, mixed, each with what was there before.
    let mut changes = puts(Precondition::Generation(1));
    changes.iter_mut().step_by(3).for_each(|change| change.document = None);
    let Ok(WriteOutcome::Committed { generation: 2, before }) = db.write(&write(changes.clone())).await else {
        panic!()
    };
    let before: Vec<_> = before.into_iter().map(|stored| stored.unwrap().name).collect();
    assert_eq!(before, names);
    assert_eq!(db.count(&RecordFilter::new(RecordKind::Quota)).await, Ok(666));
    for change in &changes[..10] {
        let now = db.get(&change.name).await.unwrap();
        assert_eq!(now.as_ref().map(|now| now.generation), change.document.as_ref().map(|_| 2));
    }
}

pub(crate) async fn deletions_are_swept_after_a_week(world: World) {
    let db = world.open().await;
    let (early, late, live) = (quota("early"), quota("late"), quota("live"));
    let all = [&early, &late, &live].map(|name| put(name, Precondition::Absent, "{}"));
    commit(&db, all.to_vec()).await; // 1
    commit(&db, vec![delete(&early, Precondition::Present)]).await; // 2
    let mut deletion = write(vec![delete(&late, Precondition::Present)]);
    deletion.at = START.after(HOUR);
    db.write(&deletion).await.unwrap(); // 3
    let seen = async |after, with_deleted| {
        let mut seen = Vec::new();
        let read = db.for_each_since(after, with_deleted, |record| seen.push(record.name.into_owned())).await;
        read.map(|generation| {
            seen.sort();
            (generation, seen.join(" "))
        })
    };
    let ok = |seen: &str| Ok((3, seen.to_owned()));

    assert_eq!(db.sweep(START.after(DELETED_RETENTION).before(Span::from_micros(1))).await, Ok(SweepReport::default()));
    assert_eq!(seen(1, true).await, ok("early late"));
    assert_eq!(db.sweep(START.after(DELETED_RETENTION)).await, Ok(SweepReport { once: 0, deleted: 1 }));
    // A follower at generation 1 would miss the first deletion.
    assert_eq!(seen(1, true).await, Err(DbError::TooOld));
    assert_eq!(seen(2, true).await, ok("late"));
    assert_eq!(seen(0, true).await, ok("late live"));
    assert_eq!(seen(0, false).await, ok("live"));
    assert_eq!(seen(2, false).await, ok(""));
    assert_eq!(db.sweep(START.after(DELETED_RETENTION)).await, Ok(SweepReport::default()));
    assert_eq!(seen(2, true).await, ok("late"));
    assert_eq!(db.sweep(START.after(HOUR).after(DELETED_RETENTION)).await, Ok(SweepReport { once: 0, deleted: 1 }));
    assert_eq!(seen(2, true).await, Err(DbError::TooOld));
    assert_eq!(seen(3, true).await, ok(""));
    assert_eq!(seen(0, true).await, ok("live"));
    assert_eq!(db.generation().await, Ok(3));
}
