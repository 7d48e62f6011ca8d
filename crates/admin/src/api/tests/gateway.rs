//! The gateway: what it does, and the switch of its shedders.

use serde_json::json;

use super::{Bench, SHOP};
use crate::gateway::for_tests;
use crate::scopes::AccessScope;

const GATEWAY: &str = "/admin/v1/gateway";
const SHEDDING: &str = "/admin/v1/gateway/shedding";

/// A server with a gateway of two upstreams.
async fn bench() -> Bench {
    let gateway = for_tests(
        "listen: 127.0.0.1:0\n\
         upstreams:\n  orders: {servers: [10.0.0.1:80, 10.0.0.2:80], adaptive: enforce}\n  users: {servers: [10.0.1.1:80], adaptive: {mode: enforce, reserve: {pro: 20%}}, fairness: enforce}\n\
         routes:\n  - {name: orders, match: \"GET /orders/*\", upstream: orders}\n  \
         - {name: users, match: \"/users/*\", upstream: users}\n",
    );
    Bench::with_gateway(SHOP, gateway).await
}

/// The mode of each upstream.
async fn modes(bench: &Bench) -> Vec<String> {
    let gateway = bench.get(GATEWAY).await.ok();
    let upstreams = gateway["upstreams"].as_array().unwrap().iter();
    upstreams.map(|upstream| upstream["cap"]["mode"].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn routes_and_upstreams_are_shown() {
    let bench = bench().await;
    let gateway = bench.ask_as(&[AccessScope::Read], ("GET", GATEWAY), &[], "").await.ok();
    assert_eq!(gateway["server"], "here");
    let route = &gateway["routes"][0];
    assert_eq!(
        (&route["name"], &route["matches"], &route["upstream"], &route["successful"], &route["limited"]),
        (&json!("orders"), &json!("GET /orders/*"), &json!("orders"), &json!(0), &json!(0))
    );
    let upstream = &gateway["upstreams"][0];
    assert_eq!((&upstream["name"], &upstream["requests"]), (&json!("orders"), &json!(0)));
    assert_eq!(
        upstream["servers"][1],
        json!({"address": "10.0.0.2:80", "healthy": true, "ejected": false, "in_flight": 0, "connections": 0})
    );
    let cap = &upstream["cap"];
    assert_eq!((&cap["mode"], &cap["in_flight"], &cap["probing"]), (&json!("enforce"), &json!(0), &json!(false)));
    assert_eq!((&cap["min_rtt_ms"], &cap["sample_rtt_ms"]), (&json!(null), &json!(null)));
    assert_eq!(cap["refused"], json!({"test": 0, "get": 0, "post": 0, "critical": 0}));
    assert!(cap["limit"].as_u64().unwrap() > 0 && cap["gradient"].is_f64() && cap["burst_queue_size"].is_f64());
    assert_eq!(bench.ask_as(&[AccessScope::Check], ("GET", GATEWAY), &[], "").await.code(403), "forbidden");
}

#[tokio::test]
async fn shedding_is_switched_for_one_upstream_or_all() {
    let bench = bench().await;
    let shadow = json!({"mode": "shadow", "upstream": "users", "reason": "incident 12"});
    let answer = bench.put(SHEDDING, &shadow).await.ok();
    assert_eq!((&answer["mode"], &answer["upstreams"]), (&json!("shadow"), &json!(["users"])));
    assert_eq!((&answer["server"], &answer["audited"]), (&json!("here"), &json!(true)));
    let detail = answer["detail"].as_str().unwrap();
    assert!(detail.starts_with("in force on this server, until it restarts"), "{detail}");
    assert_eq!(modes(&bench).await, ["enforce", "shadow"]);
    assert_eq!(bench.put(SHEDDING, &json!({"mode": "off"})).await.ok()["upstreams"], json!(["orders", "users"]));
    assert_eq!(modes(&bench).await, ["off", "off"]);
    bench.put(SHEDDING, &json!({"mode": "enforce"})).await.ok();
    assert_eq!(modes(&bench).await, ["enforce", "enforce"]);
    let log = bench.get("/admin/v1/audit?kind=gateway").await.ok();
    let entries = log["items"].as_array().unwrap();
    let actions: Vec<_> = entries.iter().map(|entry| entry["action"].as_str().unwrap()).collect();
    assert_eq!(actions, ["gateway.shedding-shadow", "gateway.shedding-off", "gateway.shedding-enforce"]);
    assert_eq!((&entries[0]["name"], &entries[0]["reason"]), (&json!("here"), &json!("incident 12")));
    assert_eq!(entries[0]["after"], json!({"shedding": "shadow", "shedder": "adaptive", "upstream": "users"}));
    let changes = bench.get("/admin/v1/events").await.ok();
    assert!(changes["items"].as_array().unwrap().iter().any(|event| event["kind"] == "gateway"), "{changes}");
}

#[tokio::test]
async fn the_worker_shedder_is_shown_and_switched() {
    let bench = bench().await;
    let worker = async || bench.get(GATEWAY).await.ok()["worker"].clone();
    let none = json!({"test": 0, "get": 0, "post": 0, "critical": 0});
    assert_eq!(worker().await, json!({"mode": "off", "utilisation": 0.0, "amount": 0.0, "refused": none}));
    let shed = bench.get(GATEWAY).await.ok()["shed"].clone();
    let by: Vec<_> = shed.as_array().unwrap().iter().map(|one| (one["by"].clone(), one["refused"].clone())).collect();
    assert_eq!(by, ["adaptive", "fairness", "worker", "fleet"].map(|by| (json!(by), none.clone())));
    let answer =
        bench.put(SHEDDING, &json!({"mode": "enforce", "shedder": "worker", "reason": "incident 13"})).await.ok();
    assert_eq!(
        (&answer["mode"], &answer["shedder"], &answer["upstreams"]),
        (&json!("enforce"), &json!("worker"), &json!([]))
    );
    assert_eq!(worker().await["mode"], "enforce");
    bench.put(SHEDDING, &json!({"mode": "shadow"})).await.ok();
    assert_eq!(worker().await["mode"], "enforce", "the caps are switched apart from it");
    assert_eq!(modes(&bench).await, ["shadow", "shadow"]);
    let log = bench.get("/admin/v1/audit?kind=gateway").await.ok();
    assert_eq!(log["items"][0]["after"], json!({"shedding": "enforce", "shedder": "worker", "upstream": null}));
    let of_upstream = json!({"mode": "off", "shedder": "worker", "upstream": "users"});
    assert_eq!(bench.put(SHEDDING, &of_upstream).await.faults().len(), 1);
    assert_eq!(bench.put(SHEDDING, &json!({"mode": "off", "shedder": "fleet"})).await.faults().len(), 1);
    assert_eq!(worker().await["mode"], "enforce");
}

#[tokio::test]
async fn fairness_is_shown_and_switched_where_it_is_configured() {
    let bench = bench().await;
    let gateway = bench.get(GATEWAY).await.ok();
    assert_eq!(
        (&gateway["upstreams"][0]["fairness"], &gateway["upstreams"][0]["cap"]["reserves"]),
        (&json!(null), &json!([]))
    );
    let users = &gateway["upstreams"][1];
    assert_eq!(
        users["cap"]["reserves"][0],
        json!({"tier": "pro", "share": 0.2, "reserved": 4, "in_flight": 0, "refused": 0})
    );
    assert_eq!(users["cap"]["reserves"][1]["tier"], json!(null));
    let fairness = &users["fairness"];
    assert_eq!(
        (&fairness["mode"], &fairness["lowered"], &fairness["fair_rate"]),
        (&json!("enforce"), &json!(0.0), &json!(null))
    );
    let tiers: Vec<_> = fairness["tiers"].as_array().unwrap().iter().map(|tier| tier["tier"].clone()).collect();
    assert_eq!(tiers, ["free", "pro", "enterprise", "custom"]);

    let off = json!({"mode": "off", "shedder": "fairness"});
    let answer = bench.put(SHEDDING, &off).await.ok();
    assert_eq!((&answer["shedder"], &answer["upstreams"]), (&json!("fairness"), &json!(["users"])));
    let gateway = bench.get(GATEWAY).await.ok();
    assert_eq!(gateway["upstreams"][1]["fairness"]["mode"], "off");
    assert_eq!(modes(&bench).await, ["enforce", "enforce"], "the caps are not switched");
    let none = bench.put(SHEDDING, &json!({"mode": "off", "shedder": "fairness", "upstream": "orders"})).await;
    let detail = none.body["detail"].as_str().unwrap();
    assert!(detail.starts_with("upstream `orders` does not have the shedder `fairness`; write `fairness`"), "{detail}");
    assert_eq!(none.code(404), "no_shedder");
    let log = bench.get("/admin/v1/audit?kind=gateway").await.ok();
    assert_eq!(log["items"][0]["after"], json!({"shedding": "off", "shedder": "fairness", "upstream": null}));
}

#[tokio::test]
async fn what_is_wrong_is_reported_and_changes_nothing() {
    let bench = bench().await;
    let unknown = bench.put(SHEDDING, &json!({"mode": "off", "upstream": "user"})).await;
    assert_eq!(unknown.body["detail"], "there is no upstream `user`; the gateway has orders, users");
    assert_eq!(unknown.code(404), "unknown_upstream");
    for body in [
        json!({}),
        json!({"mode": "soft"}),
        json!({"mode": "off", "shedder": "fleet"}),
        json!({"mode": "off", "for": "1h"}),
        json!({"mode": "off", "reason": "x".repeat(5_000)}),
    ] {
        assert_eq!(bench.put(SHEDDING, &body).await.faults().len(), 1, "{body}");
    }
    let conditional = bench.ask(("PUT", SHEDDING), &[("if-match", "*")], r#"{"mode": "off"}"#).await;
    assert_eq!(conditional.code(400), "bad_precondition");
    let all = [AccessScope::Read, AccessScope::Quota, AccessScope::Rules, AccessScope::Audit];
    let refused = bench.ask_as(&all, ("PUT", SHEDDING), &[], r#"{"mode": "off"}"#).await;
    assert!(refused.body["detail"].as_str().unwrap().contains("`emergency`: it is needed to switch the shedding"));
    assert_eq!(refused.code(403), "forbidden");
    assert_eq!((modes(&bench).await, bench.control.generation()), (vec!["enforce".to_owned(); 2], 0));
}

#[tokio::test]
async fn a_repeated_switch_is_made_once() {
    let bench = bench().await;
    let (key, body) = ([("idempotency-key", "s1")], r#"{"mode": "off"}"#);
    bench.ask(("PUT", SHEDDING), &key, body).await.ok();
    bench.put(SHEDDING, &json!({"mode": "enforce"})).await.ok();
    let again = bench.ask(("PUT", SHEDDING), &key, body).await;
    assert_eq!(again.headers["idempotent-replayed"], "true");
    assert_eq!(modes(&bench).await, ["enforce", "enforce"]);
}

#[tokio::test]
async fn a_server_without_a_gateway_says_how_to_get_one() {
    let bench = Bench::new(SHOP).await;
    let none = bench.get(GATEWAY).await;
    assert!(none.body["detail"].as_str().unwrap().contains("tollgate serve --gateway gateway.yaml"));
    assert_eq!(none.code(404), "no_gateway");
    assert_eq!(bench.put(SHEDDING, &json!({"mode": "off"})).await.code(404), "no_gateway");
}
