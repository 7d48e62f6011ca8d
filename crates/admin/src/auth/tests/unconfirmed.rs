//! A store of record that is another one than before opens nothing.

use serde_json::{Value, json};
use tollgate_control::DbLocation;

use super::super::AuthConfig;
use super::{SWITCHES, Served, here, served, served_from};
use crate::store_of_record::{Sources, load};

/// A server whose store of record is another one than that of its copy, and the files.
async fn with_another_store(copy: &std::path::Path, store: &std::path::Path) -> Served {
    let place = Some(DbLocation::File(store.to_owned()));
    let loaded = load(&Sources { place, copy: Some(copy.to_owned()), snapshots: None }).await.unwrap();
    served_from(AuthConfig::default(), loaded, tempfile::tempdir().unwrap())
}

#[tokio::test]
async fn an_empty_store_of_record_opens_nothing_until_it_is_confirmed() {
    let first = served(AuthConfig::default()).await;
    let ops = first.first().await;
    let reader = first.make(&ops, json!({"name": "reader", "scopes": ["read"]})).await.secret();
    first.by(&ops, "PUT /admin/v1/quotas/k1", &json!({"overrides": [{"rule": "per-key", "limit": "7/day"}]})).await;
    first.by(&ops, "PUT /admin/v1/blocks/k2", &json!({"reason": "stolen"})).await;
    let known = first.control.generation();
    let folder = tempfile::tempdir().unwrap();
    let (copy, empty) = (folder.path().join("copy"), folder.path().join("empty.db"));
    let db = first.control.db().unwrap();
    let (out, mut chunks) = tokio::sync::mpsc::channel(100);
    first.control.send_own_snapshot(db, out).await;
    let mut bytes = Vec::new();
    while let Ok(chunk) = chunks.try_recv() {
        bytes.extend_from_slice(&chunk.bytes);
    }
    std::fs::write(&copy, &bytes).unwrap();

    // The copy survives restarts, and is in force.
    for _ in 0..2 {
        let served = with_another_store(&copy, &empty).await;
        served.control.catch_up(None).await.unwrap();
        assert_eq!(served.status(here(), SWITCHES, &[]).await, 401);
        assert_eq!(served.control.generation(), known);
        let put = served.by(&ops, "PUT /admin/v1/quotas/k3", &json!({"tier": null})).await;
        assert_eq!((put.status, put.code()), (409, "control_unconfirmed"), "{put:?}");
        assert_eq!(std::fs::read(&copy).unwrap(), bytes);
    }
    let served = with_another_store(&copy, &empty).await;
    let state = served.by(&reader, "GET /admin/v1/control", &Value::Null).await.body;
    let waiting = &state["unconfirmed"];
    let missing = |count: u64| json!({"missing": count, "changed": 0, "added": 0});
    for (kind, count) in [("tokens", 2), ("blocks", 1), ("quotas", 1), ("rules", 0), ("switches", 0)] {
        assert_eq!(waiting["differences"][kind], missing(count), "{kind} {state}");
    }
    assert_eq!((&waiting["known"]["generation"], &waiting["found"]["generation"]), (&json!(known), &json!(0)));
    let confirm = "POST /admin/v1/control/confirm";
    let identity = waiting["found"]["identity"].as_str().unwrap();
    let body = |identity: &str, reason: &str| json!({"identity": identity, "reason": reason});
    for (token, body, status) in [
        (&reader, body(identity, "wiped"), 403),
        (&ops, body(identity, ""), 422),
        (&ops, body("other", "wiped"), 409),
        (&ops, body(identity, "wiped"), 200),
        // It is in force: the token is unknown.
        (&ops, body(identity, "wiped"), 401),
    ] {
        let reply = served.by(token, confirm, &body).await;
        assert_eq!(reply.status, status, "{reply:?}");
    }
    assert_eq!(served.status(here(), SWITCHES, &[]).await, 200);
    let log = served.ask(here(), "GET /admin/v1/audit?kind=control", &[], "").await.body;
    assert_eq!((&log["items"][0]["action"], &log["items"][0]["by"]), (&json!("control.confirm"), &json!("token ops")));
    assert_eq!(log["items"][0]["after"]["differences"]["tokens"]["missing"], 2);
    // One confirmation is enough for all servers, and there is nothing else to confirm.
    let other = with_another_store(&copy, &empty).await;
    assert_eq!(other.status(here(), SWITCHES, &[]).await, 200);
    let again = other.ask(here(), confirm, &[], &body(identity, "again").to_string()).await;
    assert_eq!((again.status, again.code()), (409, "nothing_to_confirm"));
}

#[tokio::test]
async fn another_store_of_record_with_the_same_records_needs_no_confirmation() {
    let first = served(AuthConfig::default()).await;
    let ops = first.first().await;
    let path = first._folder.path().join("control.db");
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("copy");
    let (out, mut chunks) = tokio::sync::mpsc::channel(100);
    first.control.send_own_snapshot(first.control.db().unwrap(), out).await;
    let mut text = String::new();
    while let Ok(chunk) = chunks.try_recv() {
        text.push_str(std::str::from_utf8(&chunk.bytes).unwrap());
    }
    let identity = first.control.feed().at().identity;
    // As if the copy were one of a database with another identity.
    std::fs::write(&copy, text.replace(&identity, "another")).unwrap();
    let served = with_another_store(&copy, &path).await;
    assert!(served.control.unconfirmed().is_none());
    assert_eq!(served.by(&ops, SWITCHES, &Value::Null).await.status, 200);
    // Records that it has in addition may be those of revoked tokens.
    first.make(&ops, json!({"name": "revoked", "scopes": ["read"]})).await.secret();
    let served = with_another_store(&copy, &path).await;
    assert_eq!(served.control.unconfirmed().unwrap().differences.tokens.added, 1);
}
