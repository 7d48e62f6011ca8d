//! The audit log, page by page and followed.

use axum::body::Body;
use axum::extract::Request;
use http_body_util::BodyExt as _;
use serde_json::{Value, json};

use super::{Bench, SHOP};
use crate::scopes::{AccessScope, AccessScopes, Principal};
use tollgate_net::closing::Closer;

const LOG: &str = "/admin/v1/audit";

fn ids(page: &Value) -> Vec<u64> {
    page["items"].as_array().unwrap().iter().map(|entry| entry["id"].as_u64().unwrap()).collect()
}

#[tokio::test]
async fn every_write_is_in_the_log() {
    let bench = Bench::new(SHOP).await;
    bench.put("/admin/v1/quotas/k", &json!({"tier": "pro", "reason": "paid"})).await.ok();
    bench.put("/admin/v1/blocks/k", &json!({"reason": "stolen"})).await.ok();
    bench.delete("/admin/v1/blocks/k").await.ok();
    bench.put("/v1/ratelimit/config/r", &json!({"key_pattern": "{api_key}", "rate": 7, "unit": "hour"})).await.ok();
    let log = bench.get(LOG).await.ok();
    let actions: Vec<_> = log["items"].as_array().unwrap().iter().map(|entry| &entry["action"]).collect();
    assert_eq!(actions, ["quota.put", "block.put", "block.delete", "rule.put", "rule.version"]);
    let first = &log["items"][0];
    assert_eq!((&first["by"], &first["from"]), (&json!("token tests"), &json!("192.0.2.1")));
    assert_eq!((&first["at"], &first["reason"]), (&json!("2025-06-15T15:06:40Z"), &json!("paid")));
    assert_eq!((&first["before"], &first["after"]["tier"]), (&json!(null), &json!("pro")));
    assert_eq!((&log["items"][2]["before"]["reason"], &log["items"][2]["after"]), (&json!("stolen"), &json!(null)));

    for (query, expected) in [
        ("kind=block", &[2, 3][..]),
        ("kind=block&newest", &[3, 2]),
        ("name=k", &[1, 2, 3]),
        ("after=3", &[4, 5]),
        ("newest&before=3", &[2, 1]),
        ("by=nobody", &[]),
        ("domain=shop&limit=2", &[1, 2]),
        ("since=2025-06-15T15:06:41Z", &[]),
        ("until=2025-06-15T15:06:41Z&after=4", &[5]),
    ] {
        assert_eq!(ids(&bench.get(&format!("{LOG}?{query}")).await.ok()), expected, "{query}");
    }
    let page = bench.get(&format!("{LOG}?limit=2")).await.ok();
    assert_eq!(page["next"], "2");
    for query in ["kind=mood", "since=monday", "after=-1", "limit=0", "follow=perhaps", "newest&after=3", "who=me"] {
        assert_eq!(bench.get(&format!("{LOG}?{query}")).await.status, 400, "{query}");
    }
    assert_eq!(bench.ask_as(&[AccessScope::Read], ("GET", LOG), &[], "").await.code(403), "forbidden");
}

/// The next line of a body.
async fn line(body: &mut Body) -> Option<Value> {
    let frame = body.frame().await?.unwrap();
    Some(serde_json::from_slice(&frame.into_data().unwrap()).unwrap())
}

#[tokio::test]
async fn a_follower_hears_of_what_happens_until_the_server_stops() {
    let bench = Bench::new(SHOP).await;
    let put = async |number: u64| {
        bench.put(&format!("/admin/v1/quotas/k{number}"), &json!({"tier": "pro"})).await.ok();
    };
    let who = Principal {
        name: "x".to_owned(),
        from: String::new(),
        scopes: [AccessScope::Audit].into_iter().collect::<AccessScopes>(),
    };
    let (closer, closing) = Closer::new();
    let follow = async |query: &str| {
        let mut request = Request::get(format!("{LOG}?follow{query}")).body(Body::empty()).unwrap();
        request.extensions_mut().insert(closing.clone());
        let response = bench.send(who.clone(), request).await;
        assert_eq!(response.headers()["content-type"], "application/jsonl");
        response.into_body()
    };
    for number in 1..=60 {
        put(number).await;
    }
    let (mut past, mut live) = (follow("&after=2").await, follow("").await);
    for id in 3..=60 {
        assert_eq!(line(&mut past).await.unwrap()["id"], id);
    }
    put(61).await;
    assert_eq!(line(&mut past).await.unwrap()["id"], 61);
    assert_eq!(line(&mut live).await.unwrap()["name"], "k61");
    drop(past);
    put(62).await;
    assert_eq!(line(&mut live).await.unwrap()["id"], 62);
    closer.close();
    assert_eq!(line(&mut live).await, None);
}
