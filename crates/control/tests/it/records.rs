//! Records: written, read, listed, deleted.

use tollgate_control::{DbError, Expect, Filter, KEEP_DELETED, MOST_LISTED, Name, Stored, Swept, WriteError, Written};
use tollgate_core::Span;
use tollgate_records::RecordKind;

use crate::world::{START, World, delete, document, numbered, put, quota, write, written};

const HOUR: Span = Span::from_secs(3_600);

pub(crate) async fn what_is_written_is_read(world: World) {
    let db = world.open().await;
    assert_eq!(db.generation().await, Ok(0));
    let name = quota("key-1 ü ' \" $1");
    assert_eq!(db.get(&name).await, Ok(None));

    // Text comes back as it was, not as a database would write it.
    let text = r#"{"b": 1, "a":  "é \"quoted\" $2 ☃", "n": 12345678901234567890}"#;
    assert_eq!(written(&db, vec![put(&name, Expect::Anything, text)]).await, 1);
    let first = Stored {
        name: name.clone(),
        generation: 1,
        document: Some(text.to_owned()),
        created_at: START,
        updated_at: START,
        updated_by: "ann".to_owned(),
        reason: "asked".to_owned(),
    };
    assert_eq!(db.get(&name).await, Ok(Some(first.clone())));

    let mut again = write(vec![put(&name, Expect::Anything, "{}")]);
    again.at = START.after(HOUR);
    again.by = "bob".to_owned();
    again.changes[0].reason = "again".to_owned();
    assert_eq!(db.write(&again).await, Ok(Written::Now { generation: 2, before: vec![Some(first.clone())] }));
    let second = Stored {
        generation: 2,
        document: Some("{}".to_owned()),
        updated_at: START.after(HOUR),
        updated_by: "bob".to_owned(),
        reason: "again".to_owned(),
        ..first
    };
    assert_eq!(db.get(&name).await, Ok(Some(second.clone())));
    assert_eq!(db.generation().await, Ok(2));

    // Kind and domain tell records apart.
    for other in [Name::new(RecordKind::Block, "shop", &*name.name), Name::new(RecordKind::Quota, "", &*name.name)] {
        assert_eq!(db.get(&other).await, Ok(None));
        written(&db, vec![put(&other, Expect::Absent, &numbered(9))]).await;
        assert_eq!(document(db.get(&other).await.unwrap()), numbered(9));
    }
    assert_eq!(db.get(&name).await, Ok(Some(second.clone())));

    // All of it is there for who comes later.
    drop(db);
    let db = world.open().await;
    assert_eq!(db.get(&name).await, Ok(Some(second)));
    assert_eq!(db.generation().await, Ok(4));
}

pub(crate) async fn expectations_decide(world: World) {
    #[derive(Clone, Copy, Debug, PartialEq)]
    enum State {
        There,
        Gone,
        Never,
    }
    // What is there, what is expected of it (a generation is counted from its own), and whether that holds.
    let rows = [
        (State::There, Expect::Anything, true),
        (State::There, Expect::Absent, false),
        (State::There, Expect::Present, true),
        (State::There, Expect::Generation(0), true),
        (State::There, Expect::Generation(1), false),
        (State::Gone, Expect::Anything, true),
        (State::Gone, Expect::Absent, true),
        (State::Gone, Expect::Present, false),
        (State::Gone, Expect::Generation(0), false),
        (State::Never, Expect::Anything, true),
        (State::Never, Expect::Absent, true),
        (State::Never, Expect::Present, false),
        (State::Never, Expect::Generation(0), false),
    ];
    let db = world.open().await;
    for (row, (state, expect, holds)) in rows.into_iter().enumerate() {
        for deletes in [false, true] {
            let name = quota(&format!("{row} {deletes}"));
            if state != State::Never {
                written(&db, vec![put(&name, Expect::Absent, "{}")]).await;
            }
            if state == State::Gone {
                written(&db, vec![delete(&name, Expect::Present)]).await;
            }
            let (before, at) = (db.get(&name).await.unwrap(), db.generation().await.unwrap());
            let expect = match expect {
                Expect::Generation(later) => Expect::Generation(at + later),
                expect => expect,
            };
            let change = if deletes { delete(&name, expect) } else { put(&name, expect, r#"{"new":1}"#) };
            let answer = db.write(&write(vec![change])).await;
            let now = db.get(&name).await.unwrap();
            if holds {
                assert_eq!(
                    answer,
                    Ok(Written::Now { generation: at + 1, before: vec![before] }),
                    "{state:?} {expect:?}"
                );
                assert_eq!(now.is_some(), !deletes, "{state:?} {expect:?}");
            } else {
                let generation = before.as_ref().map(|before| before.generation);
                assert_eq!(answer, Err(WriteError::Lost { name, now: generation }), "{state:?} {expect:?}");
                assert_eq!((now, db.generation().await), (before, Ok(at)), "{state:?} {expect:?}");
            }
        }
    }
}

pub(crate) async fn what_is_deleted_is_gone_and_may_come_back(world: World) {
    let db = world.open().await;
    let name = quota("a");
    written(&db, vec![put(&name, Expect::Absent, &numbered(1))]).await;
    let first = db.get(&name).await.unwrap();
    let mut deletion = write(vec![delete(&name, Expect::Generation(1))]);
    deletion.at = START.after(HOUR);
    assert_eq!(db.write(&deletion).await, Ok(Written::Now { generation: 2, before: vec![first] }));
    assert_eq!(db.get(&name).await, Ok(None));
    assert_eq!(db.list(&Filter::of(RecordKind::Quota), None, 10).await, Ok(Vec::new()));
    assert_eq!(db.count(&Filter::of(RecordKind::Quota)).await, Ok(0));

    // To delete what is not there is told, and changes no record.
    assert_eq!(db.write(&deletion).await, Err(WriteError::Lost { name: name.clone(), now: None }));
    let unasked = written(&db, vec![delete(&name, Expect::Anything), delete(&quota("b"), Expect::Absent)]).await;
    assert_eq!(unasked, 3);
    let mut seen = Vec::new();
    db.each_since(0, true, |record| {
        seen.push((record.name.into_owned(), record.generation, record.document.is_some()))
    })
    .await
    .unwrap();
    assert_eq!(seen, [("a".to_owned(), 2, false)]);

    let mut back = write(vec![put(&name, Expect::Absent, &numbered(2))]);
    back.at = START.after(HOUR).after(HOUR);
    assert_eq!(db.write(&back).await, Ok(Written::Now { generation: 4, before: vec![None] }));
    let stored = db.get(&name).await.unwrap().unwrap();
    assert_eq!((stored.created_at, stored.updated_at), (back.at, back.at));
}

pub(crate) async fn pages_follow_one_another(world: World) {
    let db = world.open().await;
    // Ordered by bytes, in every language: capitals first, what is beyond ASCII last.
    let names = ["B", "a", "a-1", "a1", "ab", "b", "ä", "ü", "ﬁ", "😀"];
    let mut changes: Vec<_> = names.iter().map(|name| put(&quota(name), Expect::Absent, "{}")).collect();
    changes.reverse();
    changes.push(put(&Name::new(RecordKind::Quota, "bank", "z"), Expect::Absent, "{}"));
    changes.push(put(&Name::new(RecordKind::Rule, "shop", "a"), Expect::Absent, "{}"));
    changes.push(put(&Name::new(RecordKind::Quota, "shop2", "a"), Expect::Absent, "{}"));
    written(&db, changes).await;
    let mut expected = vec![("bank", "z")];
    expected.extend(names.iter().map(|name| ("shop", *name)));
    expected.push(("shop2", "a"));

    for most in [1, 2, 5, 100, usize::MAX] {
        let mut listed: Vec<Name> = Vec::new();
        loop {
            let page = db.list(&Filter::of(RecordKind::Quota), listed.last(), most).await.unwrap();
            assert!(page.len() <= most);
            if page.is_empty() {
                break;
            }
            listed.extend(page.into_iter().map(|stored| stored.name));
        }
        let listed: Vec<_> = listed.iter().map(|name| (&*name.domain, &*name.name)).collect();
        assert_eq!(listed, expected, "pages of {most}");
    }
    assert_eq!(db.count(&Filter::of(RecordKind::Quota)).await, Ok(12));
    assert_eq!(db.list(&Filter::of(RecordKind::Token), None, 10).await, Ok(Vec::new()));

    for page in 0..2 {
        let changes = (0..MOST_LISTED).map(|n| put(&quota(&format!("many-{page}-{n:04}")), Expect::Absent, "{}"));
        written(&db, changes.collect()).await;
    }
    assert_eq!(db.list(&Filter::of(RecordKind::Quota), None, usize::MAX).await.unwrap().len(), MOST_LISTED);
}

pub(crate) async fn filters_choose(world: World) {
    let db = world.open().await;
    // More than an index takes, and alike for longer than it looks.
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
    let changes =
        rows.map(|(domain, name, text)| put(&Name::new(RecordKind::Quota, domain, name), Expect::Absent, text));
    written(&db, changes.to_vec()).await;
    let filter = |domain: &str, prefix: &str, tier: &str| Filter {
        domain: (!domain.is_empty()).then(|| domain.to_owned()),
        prefix: (!prefix.is_empty()).then(|| prefix.to_owned()),
        member: (!tier.is_empty()).then(|| ("tier".to_owned(), tier.to_owned())),
        ..Filter::of(RecordKind::Quota)
    };
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
        (Filter { prefix: Some(String::new()), ..Filter::of(RecordKind::Rule) }, ""),
    ];
    for (filter, expected) in rows {
        let listed = db.list(&filter, None, 100).await.unwrap();
        let names: Vec<_> =
            listed.iter().map(|stored| format!("{}/{}", stored.name.domain, stored.name.name)).collect();
        assert_eq!(names.join(" "), expected, "{filter:?}");
        assert_eq!(db.count(&filter).await, Ok(listed.len() as u64), "{filter:?}");
    }
    let before = |text: &str| Filter {
        domain: Some("shop".to_owned()),
        before: Some(("tier".to_owned(), text.to_owned())),
        ..Filter::of(RecordKind::Quota)
    };
    let names = |listed: Vec<Stored>| listed.into_iter().map(|stored| stored.name.name).collect::<Vec<_>>();
    for (text, expected) in [("pro", vec!["key-2"]), ("pro ", vec!["key-1", "key-2"]), ("Z", vec![]), ("f", vec![])] {
        let mut found = names(db.list(&before(text), None, 100).await.unwrap());
        // What is no text may or may not come before one.
        found.retain(|name| name != "key_3");
        assert_eq!(found, expected, "{text:?}");
    }
    let odd = Filter { before: Some(("x') OR ('1' = '1".to_owned(), String::new())), ..Filter::of(RecordKind::Quota) };
    assert!(matches!(db.list(&odd, None, 1).await, Err(DbError::Invalid(_))));
    let odd = Filter { member: Some(("x') OR ('1' = '1".to_owned(), String::new())), ..Filter::of(RecordKind::Quota) };
    assert!(matches!(db.list(&odd, None, 1).await, Err(DbError::Invalid(_))));
    assert!(matches!(db.count(&filter("a\0", "", "")).await, Err(DbError::Invalid(_))));
}

pub(crate) async fn a_bulk_is_written_whole_or_not_at_all(world: World) {
    let db = world.open().await;
    let names: Vec<_> = (0..1_000).map(|n| quota(&format!("key-{n}"))).collect();
    let puts = |expect| names.iter().map(|name| put(name, expect, r#"{"tier":"pro"}"#)).collect::<Vec<_>>();
    assert_eq!(written(&db, puts(Expect::Absent)).await, 1);
    assert_eq!(db.count(&Filter::of(RecordKind::Quota)).await, Ok(1_000));

    // One that does not fit, anywhere, and nothing is written.
    for odd in [0, 99, 100, 577, 999] {
        let mut changes = puts(Expect::Present);
        changes[odd].expect = Expect::Absent;
        let lost = Err(WriteError::Lost { name: names[odd].clone(), now: Some(1) });
        assert_eq!(db.write(&write(changes)).await, lost);
    }
    assert_eq!(db.generation().await, Ok(1));
    assert_eq!(db.audit(&Default::default(), 0, 1_000).await.unwrap().len(), 1_000);

    // Writes and deletions, mixed, each with what was there before.
    let mut changes = puts(Expect::Generation(1));
    changes.iter_mut().step_by(3).for_each(|change| change.document = None);
    let Ok(Written::Now { generation: 2, before }) = db.write(&write(changes.clone())).await else { panic!() };
    let before: Vec<_> = before.into_iter().map(|stored| stored.unwrap().name).collect();
    assert_eq!(before, names);
    assert_eq!(db.count(&Filter::of(RecordKind::Quota)).await, Ok(666));
    for change in &changes[..10] {
        let now = db.get(&change.name).await.unwrap();
        assert_eq!(now.as_ref().map(|now| now.generation), change.document.as_ref().map(|_| 2));
    }
}

pub(crate) async fn deletions_are_forgotten_in_time(world: World) {
    let db = world.open().await;
    let (early, late, kept) = (quota("early"), quota("late"), quota("kept"));
    let all = [&early, &late, &kept].map(|name| put(name, Expect::Absent, "{}"));
    written(&db, all.to_vec()).await; // 1
    written(&db, vec![delete(&early, Expect::Present)]).await; // 2
    let mut deletion = write(vec![delete(&late, Expect::Present)]);
    deletion.at = START.after(HOUR);
    db.write(&deletion).await.unwrap(); // 3
    let seen = async |after, with_deleted| {
        let mut seen = Vec::new();
        let asked = db.each_since(after, with_deleted, |record| seen.push(record.name.into_owned())).await;
        asked.map(|generation| {
            seen.sort();
            (generation, seen.join(" "))
        })
    };
    let ok = |seen: &str| Ok((3, seen.to_owned()));

    assert_eq!(db.sweep(START.after(KEEP_DELETED).before(Span::from_micros(1))).await, Ok(Swept::default()));
    assert_eq!(seen(1, true).await, ok("early late"));
    assert_eq!(db.sweep(START.after(KEEP_DELETED)).await, Ok(Swept { once: 0, deleted: 1 }));
    // Who had seen 1 would never hear of the first deletion.
    assert_eq!(seen(1, true).await, Err(DbError::TooOld));
    assert_eq!(seen(2, true).await, ok("late"));
    assert_eq!(seen(0, true).await, ok("kept late"));
    assert_eq!(seen(0, false).await, ok("kept"));
    assert_eq!(seen(2, false).await, ok(""));
    assert_eq!(db.sweep(START.after(KEEP_DELETED)).await, Ok(Swept::default()));
    assert_eq!(seen(2, true).await, ok("late"));
    assert_eq!(db.sweep(START.after(HOUR).after(KEEP_DELETED)).await, Ok(Swept { once: 0, deleted: 1 }));
    assert_eq!(seen(2, true).await, Err(DbError::TooOld));
    assert_eq!(seen(3, true).await, ok(""));
    assert_eq!(seen(0, true).await, ok("kept"));
    assert_eq!(db.generation().await, Ok(3));
}
