//! A store that waits.

use tollgate_store::guarded::Level;

use super::*;
use tollgate_store::conformance::gated::GatedStore;

fn server(store: &Arc<GatedStore>) -> Arc<Server> {
    let gate =
        Gate::new(crate::test_support::limiter_on(store, ruleset(RULES)), false, 1024, Metrics::new().wire("http"));
    let envoy = Arc::new(crate::envoy::Envoy::new(Arc::new(gate), Default::default()));
    let gate =
        Gate::new(crate::test_support::limiter_on(store, ruleset(RULES)), false, 1024, Metrics::new().wire("http"));
    let extra = crate::envoy::routes(envoy, HttpTimeouts::default().body);
    Arc::new(Server::build(HttpConfig { gate: Arc::new(gate), extra: Some(extra), ..config(RULES, false, 1) }))
}

/// The timeout of each caller reaches the store, except that of proxies' clients.
#[tokio::test]
async fn checks_are_answered_when_the_store_is() {
    const TIMEOUT: (&str, &str) = ("x-envoy-expected-rq-timeout-ms", "15");
    const JSON: &str = r#"{"domain":"shop","descriptors":[{"entries":[{"key":"api_key","value":"k"}]}]}"#;
    const CHECK: &str = r#"{"attributes":{"api_key":"k"}}"#;
    let rows = [
        ("POST", "/v1/ratelimit/check", CHECK, true),
        ("POST", "/json", JSON, true),
        ("GET", "/v1/ratelimit/authorize", "", false),
    ];
    for (method, path, body, is_heard) in rows {
        let store = GatedStore::new();
        let server = server(&store);
        let asking = {
            let server = server.clone();
            let headers = [TIMEOUT, ("x-api-key", "k")];
            tokio::spawn(async move { server.ask(method, path, &headers, body).await })
        };
        let patience = store.timeouts(1).await;
        assert_eq!(patience, [is_heard.then_some(tollgate::Span::from_micros(15_000))], "{path}");
        assert!(!asking.is_finished());
        store.open();
        assert_eq!(asking.await.unwrap().status, 200, "{path}");
        // And from then on until the limit.
        let mut statuses = Vec::new();
        for _ in 0..3 {
            statuses.push(server.ask(method, path, &[("x-api-key", "k")], body).await.status);
        }
        assert_eq!(statuses, [200, 200, 429], "{path}");
    }
}

#[tokio::test]
async fn receipts_are_settled_when_the_store_answers() {
    const TIMEOUT: (&str, &str) = ("x-envoy-expected-rq-timeout-ms", "15");
    let store = GatedStore::new();
    store.open();
    let server = server(&store);
    let taken = server.check(r#"{"attributes":{"api_key":"k"},"receipt":true}"#).await.json();
    assert_eq!(taken["settle_within"], 60);
    store.close();
    let asking = {
        let (server, body) = (server.clone(), serde_json::json!({"receipt": taken["receipt"]}).to_string());
        tokio::spawn(async move { server.ask("POST", "/v1/ratelimit/settle", &[TIMEOUT], &body).await })
    };
    // There is nothing to settle, so the store is not involved.
    assert_eq!(asking.await.unwrap().body, r#"{"settled":true,"outcome":"ok","rules":[]}"#);

    let rules = "domain: d\nrules: [{name: slots, key: [], limit: 2 concurrent}]\n";
    let gate =
        Gate::new(crate::test_support::limiter_on(&store, ruleset(rules)), false, 1024, Metrics::new().wire("http"));
    let server = Arc::new(Server::build(HttpConfig { gate: Arc::new(gate), ..config(rules, false, 1) }));
    store.open();
    let taken = server.check("{}").await.json();
    let before = store.timeouts(0).await.len();
    store.close();
    let asking = {
        let (server, body) = (server.clone(), serde_json::json!({"receipt": taken["receipt"]}).to_string());
        tokio::spawn(async move { server.ask("POST", "/v1/ratelimit/settle", &[TIMEOUT], &body).await })
    };
    let patience = store.timeouts(before + 1).await;
    assert_eq!(patience.last(), Some(&Some(tollgate::Span::from_micros(15_000))));
    assert!(!asking.is_finished());
    store.open();
    let reply = asking.await.unwrap();
    assert_eq!((reply.status, &reply.json()["rules"][0]["released"]), (200, &true.into()));
}

#[tokio::test]
async fn the_source_of_a_decision_is_reported() {
    const CHECK: &str = r#"{"attributes":{"api_key":"k"},"cost":2}"#;
    let store = GatedStore::new();
    store.open();
    let server = server(&store);
    let check = async || {
        let body = server.check(CHECK).await.json();
        (body["allowed"].as_bool(), body["source"].clone(), body["level"].clone())
    };
    assert_eq!(check().await, (Some(true), "store".into(), Value::Null));
    assert_eq!(check().await, (Some(false), "store".into(), Value::Null));
    store.set_level(Level::Degraded);
    assert_eq!(check().await, (Some(false), "store".into(), "degraded".into()));
    assert_eq!(server.check(r#"{"attributes":{"api_key":"other"}}"#).await.json()["level"], "degraded");
}
