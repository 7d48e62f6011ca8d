//! The live stream, look by look.

use axum::body::Body;
use axum::extract::Request;
use http_body_util::BodyExt as _;
use serde_json::{Value, json};

use super::super::{Bench, SHOP};
use super::{decide, second, some};
use crate::scopes::{AccessScope, AccessScopes, Principal};
use tollgate_net::Closing;
use tollgate_net::closing::Closer;

/// Begins to listen.
async fn listen(bench: &Bench, query: &str, closing: &Closing) -> axum::response::Response {
    listen_as("x", bench, query, closing).await
}

async fn listen_as(name: &str, bench: &Bench, query: &str, closing: &Closing) -> axum::response::Response {
    let who = Principal {
        name: name.to_owned(),
        from: String::new(),
        scopes: [AccessScope::Read].into_iter().collect::<AccessScopes>(),
    };
    let mut request = Request::get(format!("/admin/v1/live{query}")).body(Body::empty()).unwrap();
    request.extensions_mut().insert(closing.clone());
    bench.send(who, request).await
}

/// The next event: its name and its data.
async fn event(body: &mut Body) -> Option<(String, Value)> {
    let frame = body.frame().await?.unwrap();
    let text = String::from_utf8(frame.into_data().unwrap().to_vec()).unwrap();
    let (name, data) = text.strip_prefix("event: ").unwrap().split_once("\ndata: ").unwrap();
    Some((name.to_owned(), serde_json::from_str(data.strip_suffix("\n\n").unwrap()).unwrap()))
}

async fn expect(body: &mut Body, name: &str) -> Value {
    let (reply, data) = event(body).await.unwrap();
    assert_eq!(reply, name, "{data}");
    data
}

#[tokio::test]
async fn each_look_is_an_event_and_every_other_one_tells_of_rules() {
    let bench = Bench::new(SHOP).await;
    let (closer, closing) = Closer::new();
    let response = listen(&bench, "?rules=true", &closing).await;
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    let mut body = response.into_body();
    let first = expect(&mut body, "overview").await;
    assert_eq!(
        (&first["totals"]["decisions"], &first["history"], &first["servers"]),
        (&json!(0), &json!(null), &json!(null))
    );
    decide(&bench, "k", 12).await;
    second(&bench);
    assert_eq!(expect(&mut body, "overview").await["rates"]["deny"], 2.0);
    second(&bench);
    expect(&mut body, "overview").await;
    let rules = expect(&mut body, "rules").await;
    assert_eq!(rules["at"], "2025-06-15T15:06:42Z");
    let rows = rules["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 1, "the others did nothing: {rules}");
    assert_eq!(some(&rows[0], ["domain", "rule", "mode"]), [json!("shop"), json!("per-key"), json!("enforce")]);
    assert_eq!(rows[0]["totals"], json!({"allow": 10, "deny": 2, "would_deny": 0}));
    assert_eq!(rows[0]["rates"], json!({"allow": 5.0, "deny": 1.0, "would_deny": 0.0}));
    // The same rates, but for the ten seconds over which they are.
    (0..10).for_each(|_| second(&bench));
    expect(&mut body, "overview").await;
    expect(&mut body, "rules").await;
    (0..2).for_each(|_| second(&bench));
    assert_eq!(expect(&mut body, "overview").await["totals"]["decisions"], 12);
    second(&bench);
    second(&bench);
    expect(&mut body, "overview").await;
    closer.close();
    assert_eq!(event(&mut body).await, None);
}

#[tokio::test]
async fn rules_that_change_or_fail_to_are_reported_at_once() {
    let bench = Bench::new(SHOP).await;
    let (_closer, closing) = Closer::new();
    let mut body = listen(&bench, "", &closing).await.into_body();
    expect(&mut body, "overview").await;
    bench.rewrite(&SHOP.replace("5/year", "6/year"));
    assert_eq!(expect(&mut body, "reload").await, json!({"generation": 2, "valid": true, "error": null}));
    bench.rewrite("domain: shop\nrules: 7\n");
    let reply = expect(&mut body, "reload").await;
    assert_eq!((&reply["generation"], &reply["valid"]), (&json!(2), &json!(false)));
    assert!(reply["error"].as_str().unwrap().contains("rules.yaml:2"), "{reply}");
    // Without rules there is nothing between two overviews.
    second(&bench);
    expect(&mut body, "overview").await;
    second(&bench);
    expect(&mut body, "overview").await;
}

#[tokio::test]
async fn streams_are_bounded_and_one_that_ends_makes_room() {
    let bench = Bench::new(SHOP).await;
    let (_closer, closing) = Closer::new();
    let mut bodies = Vec::new();
    // No token takes all of them.
    for name in ["token a", "token b", "token c", "token d"] {
        for _ in 0..8 {
            let response = listen_as(name, &bench, "", &closing).await;
            assert_eq!(response.status(), 200, "{name}");
            let mut body = response.into_body();
            expect(&mut body, "overview").await;
            bodies.push(body);
        }
        assert_eq!(listen_as(name, &bench, "", &closing).await.status(), 503, "{name}");
    }
    let refused = listen_as("token e", &bench, "", &closing).await;
    assert_eq!(refused.status(), 503);
    assert_eq!(refused.headers()["content-type"], "application/problem+json");
    bodies.pop();
    // Its end is seen by the task that serves it.
    let mut tries = 0;
    while listen_as("token e", &bench, "", &closing).await.status() != 200 {
        tokio::task::yield_now().await;
        tries += 1;
        assert!(tries < 1_000);
    }
}

#[tokio::test]
async fn an_idle_stream_gets_keepalives() {
    let bench = Bench::new(SHOP).await;
    let (_closer, closing) = Closer::new();
    // From here on time passes when nobody has anything to do.
    tokio::time::pause();
    let mut body = listen(&bench, "", &closing).await.into_body();
    expect(&mut body, "overview").await;
    let frame = body.frame().await.unwrap().unwrap().into_data().unwrap();
    assert_eq!(frame, ": here\n\n");
}

#[tokio::test]
async fn a_reader_that_takes_nothing_is_dropped() {
    let bench = Bench::new(SHOP).await;
    let (_closer, closing) = Closer::new();
    tokio::time::pause();
    let mut body = listen(&bench, "", &closing).await.into_body();
    // Two events wait, a third has no room.
    for _ in 0..3 {
        second(&bench);
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }
    tokio::time::sleep(std::time::Duration::from_secs(11)).await;
    expect(&mut body, "overview").await;
    expect(&mut body, "overview").await;
    assert_eq!(event(&mut body).await, None);
}
