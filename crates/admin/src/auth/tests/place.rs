//! Where clients connect from, what is recorded of those that are refused, and what browsers may do with responses.

use serde_json::{Value, json};
use tollgate_control::DbLocation;

use super::super::AuthConfig;
use super::{ALL, SWITCHES, elsewhere, here, on_unix, open_to_others, peer, served, served_from};
use crate::store_of_record::{Sources, load};

#[tokio::test]
async fn refused_access_is_summed_up_in_the_audit_log() {
    let (served, ops) = open_to_others().await;
    let reader = served.make(&ops, json!({"name": "reader", "scopes": ["read"]})).await.secret();
    for _ in 0..25 {
        served.by("tg_wrong", SWITCHES, &Value::Null).await;
    }
    served.status(elsewhere(), SWITCHES, &[]).await;
    served.by(&reader, "DELETE /admin/v1/quotas/k?domain=shop", &Value::Null).await;
    served.by(&reader, "PUT /admin/v1/blocks/k", &json!({"reason": "x"})).await;
    served.auth.refusals.write(&served.control).await;
    let log = served.by(&ops, "GET /admin/v1/audit?kind=access", &Value::Null).await.body;
    let items = log["items"].as_array().unwrap();
    let of = |by: &str, name: &str| {
        let mut found = items.iter().filter(|item| item["by"] == by && item["name"] == name);
        let item = found.next().unwrap_or_else(|| panic!("{by} {name}: {log:#}"));
        assert_eq!(
            (&item["from"], &item["action"], found.next()),
            (&json!("192.0.2.7"), &json!("access.refused"), None)
        );
        item["after"].clone()
    };
    let guesses = of("unauthenticated", "unknown_token");
    assert_eq!((&guesses["count"], &guesses["status"]), (&json!(25), &json!(401)), "{log:#}");
    assert_eq!(of("unauthenticated", "no_credentials")["count"], 1);
    let forbidden = of("token reader", "forbidden");
    assert_eq!((&forbidden["count"], &forbidden["status"]), (&json!(2), &json!(403)));
    assert_eq!(forbidden["request"], "DELETE /admin/v1/quotas/k");
    assert_eq!(items.len(), 3, "{log:#}");
    // They are written once, and contain no secret.
    served.auth.refusals.write(&served.control).await;
    let again = served.by(&ops, "GET /admin/v1/audit?kind=access", &Value::Null).await.body;
    assert_eq!(again["items"].as_array().unwrap().len(), 3);
    assert!(!log.to_string().contains("tg_"), "{log:#}");
}

#[tokio::test]
async fn a_client_is_on_this_machine_if_both_ends_of_its_connection_are() {
    let served = served(AuthConfig::default()).await;
    let sidecar = [127, 0, 0, 6];
    for (from, to, status) in [
        ([127, 0, 0, 1], [127, 0, 0, 1], 200),
        (sidecar, [127, 0, 0, 1], 200),
        (sidecar, [10, 0, 0, 7], 403),
        ([10, 0, 0, 7], [127, 0, 0, 1], 403),
        ([10, 0, 0, 7], [10, 0, 0, 7], 403),
    ] {
        assert_eq!(served.status(peer(from, to), SWITCHES, &[]).await, status, "{from:?} {to:?}");
    }
    assert_eq!(served.status(on_unix(), SWITCHES, &[]).await, 200);
    // On a listener that others can reach, nobody is.
    let place = Some(DbLocation::File(served._folder.path().join("control.db")));
    let loaded = load(&Sources { place, copy: None, snapshots: None }).await.unwrap();
    let setup = AuthConfig { is_open: true, ..AuthConfig::default() };
    let open = served_from(setup, loaded, tempfile::tempdir().unwrap());
    for peer in [here(), peer(sidecar, [127, 0, 0, 1]), elsewhere()] {
        let reply = open.ask(peer, SWITCHES, &[], "").await;
        assert_eq!((reply.status, reply.code()), (403, "not_local"), "{reply:?}");
    }
}

#[tokio::test]
async fn open_pages_of_a_local_listener_are_read_by_its_own_names() {
    let local = served(AuthConfig::default()).await;
    for (host, status) in
        [("localhost:8070", 200), ("127.0.0.1", 200), ("10.0.0.7:8070", 200), ("evil.example:8070", 403)]
    {
        for page in ["GET /metrics", "GET /readyz"] {
            let reply = local.ask(here(), page, &[&format!("Host: {host}")], "").await;
            let answered = if status == 200 && page.ends_with("readyz") { 503 } else { status };
            assert_eq!(reply.status, answered, "{page} {host} {reply:?}");
        }
    }
    let ops = local.first().await;
    let authorization = format!("Authorization: Bearer {ops}");
    let named = ["Host: evil.example", &*authorization];
    assert_eq!(local.status(here(), "GET /metrics", &named).await, 200);
    assert_eq!(local.status(on_unix(), "GET /metrics", &["Host: evil.example"]).await, 200);
    // Scrapers address a listener that others can reach by its name.
    let (open, _) = open_to_others().await;
    assert_eq!(open.status(elsewhere(), "GET /metrics", &["Host: tollgate.internal"]).await, 200);
}

#[tokio::test]
async fn responses_are_neither_cached_nor_sniffed() {
    let served = served(AuthConfig::default()).await;
    let made =
        served.ask(here(), "POST /admin/v1/tokens", &[], &json!({"name": "ops", "scopes": ALL}).to_string()).await;
    let ops = made.secret();
    let mut replies =
        vec![made, served.ask(here(), SWITCHES, &[], "").await, served.ask(here(), "GET /none", &[], "").await];
    for page in [SWITCHES, "GET /admin/v1/me", "GET /metrics", "GET /readyz", "GET /rlconfig", "GET /pages"] {
        replies.push(served.ask(here(), page, &[&format!("Authorization: Bearer {ops}")], "").await);
    }
    for reply in replies {
        assert!(reply.head.contains("\r\ncache-control: no-store"), "{reply:?}");
        assert!(reply.head.contains("\r\nx-content-type-options: nosniff"), "{reply:?}");
    }
    // The page revalidates; its files, which never change, are cached.
    let page = served.ask(here(), "GET /", &[], "").await;
    assert!(page.head.contains("\r\ncache-control: no-cache") && !page.head.contains("no-store"), "{page:?}");
}
