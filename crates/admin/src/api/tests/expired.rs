//! What is over is shown for a while, and then goes.

use serde_json::{Value, json};
use tollgate_control::{Change, MAX_CHANGES, Precondition, RecordFilter, RecordName};
use tollgate_records::RecordKind;
use tollgate_records::Rfc3339;
use tollgate_records::documents::BlockDocument;

use super::{Bench, SHOP, START};
use crate::store_of_record::{Author, EXPIRED_RETENTION, MAX_SWEEP_WRITES};

fn names(listed: &Value) -> Vec<&str> {
    listed["items"].as_array().unwrap().iter().map(|item| item["name"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn what_has_been_over_for_a_day_is_deleted() {
    let bench = Bench::new(SHOP).await;
    let (hour, day) = (3_600, EXPIRED_RETENTION.as_micros() / 1_000_000);
    for (path, body) in [
        ("blocks/bad", json!({"reason": "x", "for": "1h"})),
        ("blocks/203.0.113.0%2F24", json!({"reason": "x", "for": "1h"})),
        ("blocks/for-good", json!({"reason": "x"})),
        ("blocks/longer", json!({"reason": "x", "for": "2h"})),
        ("switches/everything", json!({"mode": "shadow", "for": "1h"})),
        ("switches/domains/shop", json!({"mode": "soft"})),
        ("emergencies/flood", json!({"percent": 50, "reason": "x"})),
        ("emergencies/renewed", json!({"percent": 50, "reason": "x"})),
    ] {
        bench.put(&format!("/admin/v1/{path}"), &body).await.ok();
    }
    // In force, over, and over for almost so long.
    for seconds in [hour - 1, 2, day - 2] {
        assert_eq!(bench.control.sweep_expired().await, Ok(0));
        bench.pass(seconds);
    }
    bench.post("/admin/v1/emergencies/renewed/renew", &json!({})).await.ok();
    assert_eq!(bench.control.sweep_expired().await, Ok(0));
    bench.pass(1);
    assert_eq!(bench.control.sweep_expired().await, Ok(4));
    assert_eq!(names(&bench.get("/admin/v1/blocks").await.ok()), ["for-good", "longer"]);
    assert_eq!(names(&bench.get("/admin/v1/emergencies").await.ok()), ["renewed"]);
    let switches = bench.get("/admin/v1/switches").await.ok();
    assert_eq!((switches["items"].as_array().unwrap().len(), &switches["items"][0]["domain"]), (1, &json!("shop")));
    // As everything that is written.
    let audit = bench.get("/admin/v1/audit?by=tollgate").await.ok();
    let reply: Vec<_> =
        audit["items"].as_array().unwrap().iter().map(|entry| entry["action"].as_str().unwrap()).collect();
    assert_eq!(reply, ["block.delete", "block.delete", "switch.delete", "emergency.delete"]);
    let first = &audit["items"][0];
    assert_eq!((&first["reason"], &first["after"], &first["from"]), (&json!("it expired"), &Value::Null, &json!("")));
    assert_eq!(first["before"]["reason"], "x");
    assert_eq!(bench.control.sweep_expired().await, Ok(0));
}

#[tokio::test]
async fn a_pass_deletes_a_bounded_number() {
    let bench = Bench::new(SHOP).await;
    let over = BlockDocument {
        range: false,
        status: 403,
        shadow: false,
        expires_at: Some(Rfc3339(START)),
        reason: String::new(),
        masked: false,
        ban: None,
    };
    let document = serde_json::to_string(&over).unwrap();
    let by = Author { name: "tests".to_owned(), from: String::new() };
    let block = |name: usize| Change {
        name: RecordName::new(RecordKind::Block, "shop", format!("caller-{name}")),
        expect: Precondition::Absent,
        document: Some(document.clone()),
        action: "block.put".to_owned(),
        reason: String::new(),
    };
    for page in 0..MAX_SWEEP_WRITES {
        let changes = (page * MAX_CHANGES..(page + 1) * MAX_CHANGES).map(block).collect();
        bench.control.write(&by, changes, None).await.unwrap();
    }
    bench.control.write(&by, vec![block(MAX_SWEEP_WRITES * MAX_CHANGES)], None).await.unwrap();
    bench.clock.set(START.after(EXPIRED_RETENTION));
    assert_eq!(bench.control.sweep_expired().await, Ok(MAX_SWEEP_WRITES * MAX_CHANGES));
    assert_eq!(bench.control.db().unwrap().count(&RecordFilter::new(RecordKind::Block)).await, Ok(1));
    assert_eq!(bench.control.sweep_expired().await, Ok(1));
}
