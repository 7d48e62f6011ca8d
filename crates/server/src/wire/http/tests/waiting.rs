//! A store that makes wait.

use tollgate_store::guarded::Level;

use super::*;
use crate::counters::held::Held;

fn server(held: &Arc<Held>) -> Arc<Server> {
    let gate = Gate::new(held.limiter(ruleset(RULES)), false, 1024, Metrics::new().wire("http"));
    let envoy = Arc::new(crate::wire::envoy::Envoy::new(Arc::new(gate), Default::default()));
    let gate = Gate::new(held.limiter(ruleset(RULES)), false, 1024, Metrics::new().wire("http"));
    let extra = crate::wire::envoy::routes(envoy, Times::default().body);
    Arc::new(Server::build(HttpConfig { gate: Arc::new(gate), extra: Some(extra), ..config(RULES, false, 1) }))
}

/// What each caller waits reaches the store, but for that of proxies' clients.
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
        let held = Held::new();
        let server = server(&held);
        let asking = {
            let server = server.clone();
            let headers = [TIMEOUT, ("x-api-key", "k")];
            tokio::spawn(async move { server.ask(method, path, &headers, body).await })
        };
        let patience = held.asked(1).await;
        assert_eq!(patience, [is_heard.then_some(tollgate::Span::from_micros(15_000))], "{path}");
        assert!(!asking.is_finished());
        held.open();
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
    let held = Held::new();
    held.open();
    let server = server(&held);
    let taken = server.check(r#"{"attributes":{"api_key":"k"},"receipt":true}"#).await.json();
    assert_eq!(taken["settle_within"], 60);
    held.shut();
    let asking = {
        let (server, body) = (server.clone(), serde_json::json!({"receipt": taken["receipt"]}).to_string());
        tokio::spawn(async move { server.ask("POST", "/v1/ratelimit/settle", &[TIMEOUT], &body).await })
    };
    // Nothing was taken that would have to be settled, so the store is not asked.
    assert_eq!(asking.await.unwrap().body, r#"{"settled":true,"outcome":"ok","rules":[]}"#);

    let rules = "domain: d\nrules: [{name: slots, key: [], limit: 2 concurrent}]\n";
    let gate = Gate::new(held.limiter(ruleset(rules)), false, 1024, Metrics::new().wire("http"));
    let server = Arc::new(Server::build(HttpConfig { gate: Arc::new(gate), ..config(rules, false, 1) }));
    held.open();
    let taken = server.check("{}").await.json();
    let before = held.asked(0).await.len();
    held.shut();
    let asking = {
        let (server, body) = (server.clone(), serde_json::json!({"receipt": taken["receipt"]}).to_string());
        tokio::spawn(async move { server.ask("POST", "/v1/ratelimit/settle", &[TIMEOUT], &body).await })
    };
    let patience = held.asked(before + 1).await;
    assert_eq!(patience.last(), Some(&Some(tollgate::Span::from_micros(15_000))));
    assert!(!asking.is_finished());
    held.open();
    let told = asking.await.unwrap();
    assert_eq!((told.status, &told.json()["rules"][0]["released"]), (200, &true.into()));
}

#[tokio::test]
async fn what_a_decision_rests_on_is_told() {
    const CHECK: &str = r#"{"attributes":{"api_key":"k"},"cost":2}"#;
    let held = Held::new();
    held.open();
    let server = server(&held);
    let told = async || {
        let body = server.check(CHECK).await.json();
        (body["allowed"].as_bool(), body["source"].clone(), body["level"].clone())
    };
    assert_eq!(told().await, (Some(true), "store".into(), Value::Null));
    assert_eq!(told().await, (Some(false), "store".into(), Value::Null));
    held.is_at(Level::Degraded);
    assert_eq!(told().await, (Some(false), "store".into(), "degraded".into()));
    assert_eq!(server.check(r#"{"attributes":{"api_key":"other"}}"#).await.json()["level"], "degraded");
}
