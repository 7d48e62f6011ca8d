//! Changes through the admin API, as events.

use serde_json::json;
use tollgate::{Span, Timestamp};
use tollgate_control::RecordName;
use tollgate_events::JournalConfig;

use super::*;
use crate::api::tests::{Bench, SHOP};

fn journal(bench: &Bench) -> Arc<Journal> {
    let directory = bench.directory().join("events");
    Arc::new(Journal::open(JournalConfig { directory, max_bytes: 1 << 20, keep: Span::from_secs(86_400) }).unwrap())
}

async fn follower(bench: &Bench) -> (AuditFollower, Db) {
    let follower = AuditFollower::new(bench.observability.clone(), bench.control.clone(), journal(bench)).await;
    (follower, bench.control.db().unwrap().clone())
}

/// The events that are new since so many.
fn events(bench: &Bench, after: usize) -> Vec<(EventType, String, String)> {
    let recent = bench.observability.sampler.events.stream().recent();
    let all = recent.into_iter().filter(|recent| recent.event.source == FLEET);
    let all = all.map(|recent| (recent.event.kind, recent.event.text.clone(), recent.event.id.clone()));
    all.skip(after).collect()
}

#[tokio::test]
async fn each_change_is_an_event_also_after_a_restart() {
    let bench = Bench::new(SHOP).await;
    let block = json!({"reason": "abuse"});
    bench.put("/admin/v1/blocks/before", &block).await.ok();
    let (mut first, db) = follower(&bench).await;
    first.step(&db).await.unwrap();
    assert_eq!(events(&bench, 0), []);
    bench.put("/admin/v1/blocks/eve", &block).await.ok();
    bench.put("/admin/v1/switches/domains/shop", &json!({"mode": "shadow", "reason": "a test"})).await.ok();
    bench.put("/admin/v1/quotas/ada", &json!({"tier": "pro"})).await;
    first.step(&db).await.unwrap();
    first.step(&db).await.unwrap();
    let found = events(&bench, 0);
    assert_eq!(
        found.iter().map(|(kind, ..)| *kind).collect::<Vec<_>>(),
        [EventType::BlockChanged, EventType::SwitchChanged]
    );
    assert_eq!(found[0].1, "a block of shop was created by token tests");
    drop(first);

    // While nobody follows.
    bench.delete("/admin/v1/blocks/eve").await.ok();
    let (mut second, db) = follower(&bench).await;
    second.step(&db).await.unwrap();
    let found = events(&bench, 2);
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].1, "a block of shop was removed by token tests");
    let journal = journal(&bench);
    assert_eq!(journal.load_text(FILE).unwrap().map(|text| text.contains("\"id\":")), Some(true));
}

#[tokio::test]
async fn another_server_continues_where_the_first_was() {
    let bench = Bench::new(SHOP).await;
    let block = json!({"reason": "abuse"});
    bench.put("/admin/v1/blocks/eve", &block).await.ok();
    bench.put("/admin/v1/blocks/mallory", &block).await.ok();
    let (mut follower, db) = follower(&bench).await;
    let newest = follower.position.clone().unwrap();
    // The first server had not sent the last one when it was heard of for the last time.
    let reported = AuditPosition { id: newest.id - 1, ..newest.clone() };
    bench.observability.hear_audit_position(reported, &bench.control.limiter().rules(), bench.control.now());
    follower.step(&db).await.unwrap();
    let found = events(&bench, 0);
    assert_eq!((found.len(), follower.position.clone()), (1, Some(newest.clone())));
    // Now it knows by itself, and an older report changes nothing.
    follower.step(&db).await.unwrap();
    assert_eq!(events(&bench, 1), []);
    let other = AuditPosition { identity: "of another store".to_owned(), id: 1 << 40 };
    bench.observability.hear_audit_position(other, &bench.control.limiter().rules(), bench.control.now());
    follower.step(&db).await.unwrap();
    assert_eq!(follower.position, Some(newest));
}

#[test]
fn private_callers_are_masked() {
    let rules = "domain: api\nentity: api_key\nrules:\n  - {name: per-key, key: [api_key], limit: 5/m}\n";
    let rules = Ruleset::from_text(rules, 1).unwrap().0;
    let privacy = KeyPrivacy::default();
    let entry = |kind: RecordKind, name: &str, document: Value| AuditEntry {
        id: 7,
        generation: 3,
        at: Timestamp::from_secs(1_700_000_000),
        by: "token ops".to_owned(),
        from: String::new(),
        action: "x.put".to_owned(),
        name: RecordName::new(kind, "api", name),
        before: None,
        after: Some(document.to_string()),
        reason: "abuse".to_owned(),
    };
    let line = |entry: AuditEntry| event(entry, "0123456789abcdef", &rules, &privacy).map(|event| event.to_line());
    let block = |range: bool| json!({"range": range, "reason": "abuse"});
    let masked = line(entry(RecordKind::Block, "sk-live-0123456789abcdef", block(false))).unwrap();
    assert!(
        !masked.contains("sk-live")
            && masked.contains("\"subject\":\"#")
            && masked.contains("\"id\":\"audit-01234567-7\"")
    );
    // Addresses and patterns are not private.
    for (name, range) in [("203.0.113.7", true), ("sk-live-*", false)] {
        assert!(
            line(entry(RecordKind::Block, name, block(range))).unwrap().contains(&format!("\"subject\":\"{name}\""))
        );
    }
    let emergency = json!({"callers": "sk-live-0123456789abcdef", "limit": "1/m"});
    let masked = line(entry(RecordKind::Emergency, "flood", emergency)).unwrap();
    assert!(!masked.contains("sk-live") && masked.contains("\"subject\":\"flood\""), "{masked}");
    assert_eq!(line(entry(RecordKind::Quota, "ada", json!({}))), None);
    // Servers write bans by names that are masked already.
    let ban = json!({"masked": true, "ban": {"rule": "per-key"}});
    let begun = line(AuditEntry { action: "block.ban".to_owned(), ..entry(RecordKind::Block, "#77", ban) }).unwrap();
    assert!(begun.contains("tollgate.ban.begun") && begun.contains("\"subject\":\"#77\""), "{begun}");
    let held = json!({"kind": "quota", "name": "sk-live-0123456789abcdef", "needs": "confirmation"});
    let held = line(AuditEntry { action: "plan.hold".to_owned(), ..entry(RecordKind::Plan, "3f2a", held) }).unwrap();
    assert!(!held.contains("sk-live") && held.contains("tollgate.plan.held"), "{held}");
    assert!(held.contains("the plan 3f2a of api is held by token ops"), "{held}");
    assert_eq!(line(entry(RecordKind::Plan, "3f2a", json!({}))), None);
}

#[test]
fn a_ban_that_ends_is_no_block_that_is_removed() {
    let rules = Ruleset::from_text("domain: api\nrules: []\n", 1).unwrap().0;
    let removed = |document: Value| {
        let entry = AuditEntry {
            id: 7,
            generation: 3,
            at: Timestamp::from_secs(1_700_000_000),
            by: "token ops".to_owned(),
            from: String::new(),
            action: "block.delete".to_owned(),
            name: RecordName::new(RecordKind::Block, "api", "203.0.113.7"),
            before: Some(document.to_string()),
            after: None,
            reason: String::new(),
        };
        event(entry, "0123456789abcdef", &rules, &KeyPrivacy::default()).unwrap()
    };
    let ended = removed(json!({"range": true, "ban": {"rule": "login"}}));
    assert_eq!((ended.kind, &*ended.text), (EventType::BanEnded, "a ban of api was removed by token ops"));
    assert_eq!(removed(json!({"range": true})).kind, EventType::BlockChanged);
}
