//! The document describes the actual responses.

use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::super::description::{self, Allowed, ProblemBody, Refused, SettledBody};
use super::super::explain::ExplainBody;
use super::super::status::StatusBody;
use super::{RULES, Reply, Server, config};
use crate::health::Readiness;
use ::http::HeaderMap;

use crate::access::AccessControl;

/// Asserts that a response has the members of a type, and no others.
#[track_caller]
fn is<T: DeserializeOwned>(reply: &Reply, status: u16) {
    assert_eq!(reply.status, status, "{}", reply.body);
    if let Err(error) = serde_json::from_str::<T>(&reply.body) {
        panic!("{error}: {}", reply.body);
    }
}

#[tokio::test]
async fn answers_are_of_the_described_shapes() {
    let server = Server::new(RULES);
    for _ in 0..3 {
        is::<Allowed>(&server.check(r#"{"api_key": "k"}"#).await, 200);
    }
    is::<Refused>(&server.check(r#"{"api_key": "k"}"#).await, 429);
    is::<Refused>(&server.check(r#"{"api_key": "k", "cost": 9}"#).await, 429);
    is::<Allowed>(&server.check("{}").await, 200);
    is::<ProblemBody>(&server.check("").await, 400);
    is::<ProblemBody>(&server.check(r#"{"domain": ""}"#).await, 404);
    is::<ProblemBody>(&server.get("/x").await, 404);
    is::<ExplainBody>(&server.ask("POST", "/v1/ratelimit/explain", &[], r#"{"api_key": "k"}"#).await, 200);
    is::<StatusBody>(&server.get("/v1/ratelimit/status/k").await, 200);
    is::<Readiness>(&server.get("/readyz").await, 503);
    let shadow = Server::build(config("domain: d\nrules: [{name: x, key: [], limit: 0/day}]\n", true, 9));
    is::<Allowed>(&shadow.check("{}").await, 200);
    let shed =
        Server::build(config("domain: d\nrules: [{name: x, key: [], limit: 9/day, policy: security}]\n", false, 0));
    is::<Refused>(&shed.check("{}").await, 503);
    is::<Refused>(&shed.authorize(&[]).await, 503);
}

#[tokio::test]
async fn answers_to_settlements_are_of_the_described_shapes() {
    let rules = "domain: d\nrules:\n  - {name: a, key: [], limit: 90/day, cost: tokens, settle: true}\n  \
                 - {name: b, key: [], limit: 9 concurrent}\n  - {name: c, key: [], limit: 0/day, mode: soft}\n";
    let server = Server::new(rules);
    let tell = async |outcome: &str| {
        let reply = server.check(r#"{"tokens": 5}"#).await;
        is::<Allowed>(&reply, 200);
        let receipt = reply.json()["receipt"].clone();
        let reply = server.settle(&json!({"receipt": receipt, "outcome": outcome}).to_string()).await;
        (receipt, reply)
    };
    let (receipt, reply) = tell("running").await;
    is::<SettledBody>(&reply, 200);
    for cost in [3, 3, 7] {
        let reply = server.settle(&json!({"receipt": receipt, "cost": cost}).to_string()).await;
        if cost == 3 {
            is::<SettledBody>(&reply, 200);
        } else {
            is::<ProblemBody>(&reply, 409);
        }
    }
    is::<ProblemBody>(&server.settle(r#"{"receipt": "x"}"#).await, 400);
    is::<SettledBody>(&tell("failed").await.1, 200);
}

#[tokio::test]
async fn the_document_names_every_path_and_method() {
    let server = Server::new(RULES);
    let reply = server.get("/openapi.json").await;
    assert_eq!((reply.status, reply.header("content-type")), (200, Some("application/json")));
    let document = reply.json();
    assert!(document["openapi"].as_str().unwrap().starts_with("3."));
    let paths = document["paths"].as_object().unwrap();
    let mut named: Vec<_> = paths
        .iter()
        .flat_map(|(path, methods)| methods.as_object().unwrap().keys().map(move |method| format!("{method} {path}")))
        .collect();
    named.sort();
    assert_eq!(
        named,
        [
            "get /healthcheck",
            "get /livez",
            "get /openapi.json",
            "get /readyz",
            "get /v1/ratelimit/authorize",
            "get /v1/ratelimit/status/{entity}",
            "head /healthcheck",
            "head /livez",
            "head /readyz",
            "head /v1/ratelimit/authorize",
            "post /json",
            "post /v1/ratelimit/authorize",
            "post /v1/ratelimit/check",
            "post /v1/ratelimit/explain",
            "post /v1/ratelimit/settle",
        ]
    );
    // Every type is there, and every reference resolves.
    // `/json` is the route of another wire, which this server does not have.
    for name in named.iter().filter(|name| *name != "post /json") {
        let (method, path) = name.split_once(' ').unwrap();
        let reply = server.ask(&method.to_uppercase(), &path.replace("{entity}", "k"), &[], "{}").await;
        let described = document["paths"][path][method]["responses"].as_object().unwrap();
        assert!(described.contains_key(&reply.status.to_string()), "{name}: {}", reply.status);
    }
    each_reference(&document, &document);
}

/// An access control that rejects all tokens.
#[derive(Debug)]
struct NobodyMayCheck;

impl AccessControl for NobodyMayCheck {
    fn may_check(&self, _: &HeaderMap) -> bool {
        false
    }

    fn may_check_by_own_header(&self, _: &HeaderMap) -> bool {
        false
    }
}

#[tokio::test]
async fn where_a_token_is_needed_the_document_says_so() {
    let open = Server::new(RULES).get("/openapi.json").await;
    assert!(!open.body.contains("401") && !open.body.contains("security"), "{}", open.body);
    let mut config = config(RULES, false, 9);
    config.access = Some(Arc::new(NobodyMayCheck));
    let server = Server::build(config);
    let document = server.get("/openapi.json").await.json();
    let mut refused = 0;
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            let reply = server.ask(&method.to_uppercase(), &path.replace("{entity}", "k"), &[], "{}").await;
            let is_described = operation["responses"]["401"].is_object() && operation["security"].is_array();
            assert_eq!(reply.status == 401, is_described, "{method} {path}");
            refused += usize::from(is_described);
            if is_described && method != "head" {
                is::<ProblemBody>(&reply, 401);
            }
        }
    }
    assert_eq!(refused, 8);
    assert_eq!(document["paths"]["/v1/ratelimit/authorize"]["get"]["security"], json!([{"header": []}]));
    each_reference(&document, &document);
}

fn each_reference(value: &Value, document: &Value) {
    match value {
        Value::Object(members) => {
            if let Some(Value::String(reference)) = members.get("$ref") {
                assert!(document.pointer(reference.trim_start_matches('#')).is_some(), "{reference}");
            }
            members.values().for_each(|value| each_reference(value, document));
        }
        Value::Array(values) => values.iter().for_each(|value| each_reference(value, document)),
        _ => {}
    }
}

#[test]
fn the_embedded_document_is_the_generated_one() {
    let document = serde_json::to_string_pretty(&description::generate()).unwrap();
    tollgate_testing::assert_generated("openapi.json", &(document + "\n"));
}
