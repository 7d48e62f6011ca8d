//! Pages of numbers.

use axum::body::Body;
use axum::extract::Request;
use serde_json::{Value, json};
use tollgate::{Clock as _, SystemClock};
use tollgate_store::guarded::{Circuit, GuardStatus, Level, ShardStatus};
use tower::ServiceExt as _;

use super::super::{Answered, Bench, SHOP};
use super::{decide, second, some};
use crate::scopes::{AccessScope, AccessScopes, Principal};
use tollgate_store::conformance::gated::GatedStore;
use tollgate_store::{Counters, SharedStatus};

const OVERVIEW: &str = "/admin/v1/overview";
const ACTIVITY: &str = "/admin/v1/activity";

#[tokio::test]
async fn the_overview_tells_rates_totals_and_times() {
    let bench = Bench::new(SHOP).await;
    decide(&bench, "k", 12).await;
    second(&bench);
    bench.pass(1);
    let reply = bench.get(OVERVIEW).await.ok();
    let outcomes = ["decisions", "allow", "deny", "shadow", "soft", "shed", "blocked", "assumed"];
    assert_eq!(some(&reply["totals"], outcomes), [12, 10, 2, 0, 0, 0, 0, 0].map(Value::from));
    assert_eq!(some(&reply["rates"], outcomes), [12.0, 10.0, 2.0, 0.0, 0.0, 0.0, 0.0, 0.0].map(Value::from));
    assert_eq!(reply["at"], "2025-06-15T15:06:41Z");
    assert_eq!(
        reply["server"],
        json!({
            "name": "here", "version": env!("CARGO_PKG_VERSION"), "region": null,
            "started_at": "2025-06-15T15:06:40Z", "uptime_seconds": 2.0,
        })
    );
    for of in ["decision", "store"] {
        let [p50, p99, p999, count] = some(&reply["latency"][of], ["p50", "p99", "p999", "count"]);
        assert!(count.as_u64().unwrap() >= 8, "{reply}");
        let [p50, p99, p999] = [p50, p99, p999].map(|time| time.as_f64().unwrap());
        assert!(0.0 < p50 && p50 <= p99 && p99 <= p999 && p999 < 10.0, "{reply}");
    }
    let [kind, level, since, circuits] = some(&reply["store"], ["kind", "level", "since", "circuits"]);
    assert_eq!((kind, level, since), (json!("memory"), json!("normal"), json!(null)));
    assert_eq!(circuits, json!([{"shard": "memory", "state": "closed"}]));
    assert_eq!(
        (&reply["store"]["keys"], &reply["store"]["evicted"], &reply["in_flight"]),
        (&json!(1), &json!(0), &json!(0))
    );
    let [generation, rules, domains, valid] = some(&reply["rules"], ["generation", "rules", "domains", "valid"]);
    assert_eq!((generation, rules, domains, valid), (json!(1), json!(3), json!(1), json!(true)));
    assert_eq!(reply["control"], json!({"kind": "sqlite", "generation": 0, "snapshot_age_seconds": 2.0}));
    assert!(reply["health"].as_array().unwrap().contains(&json!({"part": "store", "degraded": false, "why": null})));
    assert_eq!(reply["log"], json!({"written": 0, "dropped": 0}));
    let servers = reply["servers"].as_array().unwrap();
    assert_eq!(servers.len(), 1);
    assert_eq!(
        some(&servers[0], ["name", "this", "decisions_per_second", "deny_per_second"]),
        [json!("here"), json!(true), json!(12.0), json!(2.0)]
    );
    let [step, to, allow, deny] = some(&reply["history"], ["step_seconds", "to", "allow", "deny"]);
    assert_eq!((step, to), (json!(1.0), json!("2025-06-15T15:06:41Z")));
    assert_eq!((allow, deny), (json!([10.0]), json!([2.0])));
    assert!(reply["history"]["p99"][0].as_f64().unwrap() > 0.0);
    second(&bench);
    let reply = bench.get(OVERVIEW).await.ok();
    assert_eq!((&reply["history"]["allow"], &reply["rates"]["deny"]), (&json!([10.0, 0.0, 0.0]), &json!(0.67)));
    assert_eq!(reply["history"]["p99"][2], json!(null));
}

#[tokio::test]
async fn a_server_that_has_decided_nothing_has_a_whole_overview() {
    let bench = Bench::new(SHOP).await;
    let reply = bench.get(OVERVIEW).await.ok();
    assert_eq!(reply["latency"]["store"], json!({"p50": null, "p99": null, "p999": null, "count": 0}));
    assert_eq!((&reply["totals"]["decisions"], &reply["history"]["allow"]), (&json!(0), &json!([])));
    assert_eq!(bench.get(ACTIVITY).await.ok()["rows"][0]["sparkline"]["allow"], json!([]));
}

#[tokio::test]
async fn rules_that_can_not_be_put_in_force_are_reported() {
    let bench = Bench::new(SHOP).await;
    let rules = async || bench.get(OVERVIEW).await.ok()["rules"].clone();
    let reloaded = rules().await["last_reload"].clone();
    assert!(reloaded.is_string());
    bench.rewrite("domain: shop\nrules: 7\n");
    let reply = rules().await;
    assert_eq!(some(&reply, ["generation", "valid", "last_reload"]), [json!(1), json!(false), reloaded]);
    assert!(reply["last_error"].as_str().unwrap().contains("rules.yaml:2"), "{reply}");
    bench.health.degrade("tls", "an old certificate".to_owned());
    let reply = bench.get(OVERVIEW).await.ok();
    let health = reply["health"].as_array().unwrap();
    let of = |part| health.iter().find(|one| one["part"] == part).unwrap();
    assert_eq!(*of("tls"), json!({"part": "tls", "degraded": true, "why": "an old certificate"}));
    assert_eq!((&of("rules")["degraded"], &of("rules")["why"]), (&json!(true), &reply["rules"]["last_error"]));
    bench.rewrite(&SHOP.replace("5/year", "6/year"));
    let reply = rules().await;
    assert_eq!(some(&reply, ["generation", "valid", "last_error"]), [json!(2), json!(true), json!(null)]);
}

#[tokio::test]
async fn a_store_that_is_away_is_reported_since_when() {
    let held = GatedStore::new();
    let bench = Bench::on(SHOP, Counters::Shared(held.clone())).await;
    let store = async || bench.get(OVERVIEW).await.ok()["store"].clone();
    second(&bench);
    let reply = store().await;
    assert_eq!(some(&reply, ["kind", "level", "since"]), [json!("redis"), json!("normal"), json!(null)]);
    let shard = ShardStatus {
        name: "10.0.0.1:6379".to_owned(),
        region: tollgate::RegionId::HERE,
        circuit: Circuit::HalfOpen,
        errors: Vec::new(),
        last_error: None,
        warning: None,
    };
    let guard = GuardStatus { level: Level::LocalOnly, shards: vec![shard], local: 3, ..GuardStatus::default() };
    held.set_status(SharedStatus { guard, ..SharedStatus::default() });
    (0..3).for_each(|_| second(&bench));
    let reply = store().await;
    assert_eq!(
        reply,
        json!({
            "kind": "redis", "level": "local-only", "since": "2025-06-15T15:06:42Z", "keys": 3, "evicted": 0,
            "circuits": [{"shard": "10.0.0.1:6379", "state": "half-open"}],
        })
    );
    // Worse is not another beginning.
    held.set_level(Level::Open);
    second(&bench);
    assert_eq!(some(&store().await, ["level", "since"]), [json!("open"), json!("2025-06-15T15:06:42Z")]);
    held.set_level(Level::Normal);
    second(&bench);
    assert_eq!(some(&store().await, ["level", "since"]), [json!("normal"), json!(null)]);
    // Nobody asks it anything, and nothing is heard of it.
    let guard = GuardStatus { heartbeat_error: Some("gone".to_owned()), ..GuardStatus::default() };
    held.set_status(SharedStatus { guard, ..SharedStatus::default() });
    second(&bench);
    assert_eq!(some(&store().await, ["level", "since"]), [json!("degraded"), json!("2025-06-15T15:06:47Z")]);
}

#[tokio::test]
async fn rules_are_reported_with_what_they_do() {
    let shop = SHOP.replace("limit: 5/year", "mode: shadow, limit: 5/year");
    let bench = Bench::new(&format!("{shop}- {{name: Tenth, enforce: 10%, key: [], limit: 9/minute}}\n")).await;
    // Peaks are by the clock of the store.
    bench.clock.set(SystemClock::default().now());
    bench.look();
    let order = [("api_key", "k"), ("endpoint", "POST /orders")];
    for _ in 0..8 {
        bench.decide(&order, 1).await;
    }
    (0..5).for_each(|_| second(&bench));
    let reply = bench.get(ACTIVITY).await.ok();
    assert_eq!(some(&reply, ["generation", "total", "offset"]), [json!(1), json!(4), json!(0)]);
    let rows = reply["rows"].as_array().unwrap();
    let names: Vec<_> = rows.iter().map(|row| some(row, ["domain", "rule", "mode"])).collect();
    let name = |rule: &str, mode: &str| [json!("shop"), json!(rule), json!(mode)];
    assert_eq!(
        names,
        [name("per-key", "enforce"), name("orders", "shadow"), name("busy", "enforce"), name("Tenth", "enforce 10%")]
    );
    let per_key = &rows[0];
    assert_eq!(some(per_key, ["key", "utilisation"]), [json!(["api_key"]), json!(0.8)]);
    assert_eq!(per_key["limits"], json!([{"tier": "free", "limit": "10/365d"}, {"tier": "pro", "limit": "1000/365d"}]));
    assert_eq!(per_key["totals"], json!({"allow": 8, "deny": 0, "would_deny": 0}));
    let [allow, deny] = some(&per_key["sparkline"], ["allow", "deny"]);
    let highest = |line: &Value| line.as_array().unwrap().iter().map(|rate| rate.as_f64().unwrap()).fold(0.0, f64::max);
    // Points are aligned to the clock. The one with eight decisions covers a second to five, and the step before it, which
    // the first look filled.
    assert!((0.8..=8.0).contains(&highest(&allow)) && highest(&deny) == 0.0, "{allow}");
    assert_eq!(per_key["sparkline"]["step_seconds"], json!(5.0));
    let tiers = per_key["tiers"].as_array().unwrap();
    assert_eq!(
        tiers.iter().map(|tier| some(tier, ["tier", "utilisation", "remaining", "limit"])).collect::<Vec<_>>(),
        [[json!("free"), json!(0.8), json!(2), json!(10)], [json!("pro"), json!(0.0), json!(1000), json!(1000)]]
    );
    let orders = &rows[1];
    assert_eq!(
        some(orders, ["key", "limits"]),
        [json!(["api_key", "endpoint"]), json!([{"tier": "default", "limit": "5/365d"}])]
    );
    assert_eq!(
        (&orders["totals"], &orders["utilisation"]),
        (&json!({"allow": 5, "deny": 0, "would_deny": 3}), &json!(1.0))
    );
    assert!(orders["rates"]["would_deny"].as_f64().unwrap() > 0.0);
    assert_eq!(orders["tiers"][0]["limit"], json!(5));
    assert_eq!(rows[2]["limits"], json!([{"tier": "default", "limit": "3 concurrent"}]));
}

#[tokio::test]
async fn tiers_of_a_rule_are_in_the_order_of_the_domain() {
    let shop = SHOP.replace("tiers: {free: {paid: false}, pro: {}}", "tiers: {pro: {}, free: {paid: false}}");
    let bench = Bench::new(&shop).await;
    bench
        .put("/admin/v1/quotas/k", &json!({"overrides": [{"rule": "per-key", "requests_per_unit": 3, "unit": "year"}]}))
        .await
        .ok();
    decide(&bench, "k", 1).await;
    second(&bench);
    let tiers = bench.get(ACTIVITY).await.ok()["rows"][0]["tiers"].clone();
    let tiers: Vec<_> = tiers.as_array().unwrap().iter().map(|tier| some(tier, ["tier", "limit"])).collect();
    assert_eq!(tiers, [[json!("pro"), json!(1000)], [json!("free"), json!(10)], [json!("override"), json!(null)]]);
}

#[tokio::test]
async fn rules_are_searched_and_come_page_by_page() {
    let bench = Bench::new(&SHOP.replace("name: busy", "name: Busy")).await;
    let rules = async |query: &str| -> (u64, Vec<String>) {
        let page = bench.get(&format!("{ACTIVITY}?{query}")).await.ok();
        let rows = page["rows"].as_array().unwrap().iter();
        (page["total"].as_u64().unwrap(), rows.map(|row| row["rule"].as_str().unwrap().to_owned()).collect())
    };
    let reply = |total, rules: &[&str]| (total, rules.iter().map(|rule| (*rule).to_owned()).collect());
    assert_eq!(rules("search=ORDER").await, reply(1, &["orders"]));
    assert_eq!(rules("search=bus").await, reply(1, &["Busy"]));
    assert_eq!(rules("search=nothing").await, reply(0, &[]));
    assert_eq!(rules("domain=shop&offset=1&limit=1").await, reply(3, &["orders"]));
    assert_eq!(rules("offset=9").await, reply(3, &[]));
    assert_eq!(bench.get(&format!("{ACTIVITY}?domain=nobody")).await.code(404), "unknown_domain");
    for query in ["limit=0", "limit=1001", "offset=-1", "order=up"] {
        assert_eq!(bench.get(&format!("{ACTIVITY}?{query}")).await.status, 400, "{query}");
    }
}

#[tokio::test]
async fn tiers_are_reported_with_their_callers_and_what_they_do() {
    let bench = Bench::new(SHOP).await;
    for caller in ["a", "b"] {
        bench.put(&format!("/admin/v1/quotas/{caller}"), &json!({"tier": "pro"})).await.ok();
    }
    bench.clock.set(SystemClock::default().now());
    bench.look();
    decide(&bench, "a", 500).await;
    decide(&bench, "k", 11).await;
    second(&bench);
    let reply = bench.get("/admin/v1/tiers").await.ok();
    let tiers = reply["tiers"].as_array().unwrap();
    let reply: Vec<_> =
        tiers.iter().map(|tier| some(tier, ["domain", "tier", "default", "callers", "utilisation"])).collect();
    assert_eq!(
        reply,
        [
            [json!("shop"), json!("free"), json!(true), json!(0), json!(1.0)],
            [json!("shop"), json!("pro"), json!(false), json!(2), json!(0.5)],
        ]
    );
    assert!(tiers.iter().all(|tier| tier["limited"] == true));
    assert!(tiers[0]["rates"]["deny"].as_f64().unwrap() > 0.0 && tiers[1]["rates"]["allow"].as_f64().unwrap() > 0.0);
}

#[tokio::test]
async fn a_request_is_explained_as_on_the_data_plane() {
    let bench = Bench::new(SHOP).await;
    let path = "/admin/v1/explain";
    let context = json!({"domain": "shop", "attributes": {"api_key": "k"}});
    decide(&bench, "k", 3).await;
    let reply = bench.post(path, &context).await.ok();
    assert_eq!(
        (&reply["domain"], &reply["allowed"], &reply["rules"][0]["fate"]),
        (&json!("shop"), &json!(true), &json!("applies"))
    );
    assert_eq!(reply["rules"][0]["counters"][0]["remaining"], 7);
    assert_eq!(bench.post(path, &context).await.ok(), reply, "nothing is consumed");
    assert_eq!(bench.post(path, &json!({"domain": "nobody", "attributes": {}})).await.code(404), "unknown_domain");
    assert_eq!(bench.ask(("POST", path), &[], "no").await.status, 400);
    second(&bench);
    assert_eq!(bench.get(OVERVIEW).await.ok()["totals"]["decisions"], 3, "looks are no decisions");
}

#[tokio::test]
async fn whoever_may_not_read_sees_nothing() {
    let bench = Bench::new(SHOP).await;
    for (method, path) in [
        ("GET", OVERVIEW),
        ("GET", ACTIVITY),
        ("GET", "/admin/v1/tiers"),
        ("GET", "/admin/v1/live"),
        ("GET", "/admin/v1/history"),
        ("GET", "/admin/v1/events"),
        ("GET", "/admin/v1/domains/shop/rules/orders"),
        ("POST", "/admin/v1/explain"),
    ] {
        let answer: Answered = bench.ask_as(&[AccessScope::Quota, AccessScope::Audit], (method, path), &[], "").await;
        assert_eq!(answer.code(403), "forbidden", "{path}");
    }
}

/// The maximal number of rows. The server samples them each second, and shows a page of them.
#[tokio::test]
async fn a_page_of_a_thousand_rules_is_quick() {
    let limits: Vec<_> = (0..10).map(|tier| format!("t{tier}: {}/hour", tier + 1)).collect();
    let tiers: Vec<_> = (0..10).map(|tier| format!("t{tier}: {{}}")).collect();
    let rule = |number| format!("- {{name: r{number}, key: [k{number}], limit: {{{}}}}}\n", limits.join(", "));
    let rules: String = (0..1_000).map(rule).collect();
    let file = format!("domain: shop\nentity: k1\ntiers: {{{}}}\ndefault_tier: t0\nrules:\n{rules}", tiers.join(", "));
    let bench = Bench::new(&file).await;
    bench.decide(&[("k7", "x"), ("k8", "y")], 1).await;
    (0..60).for_each(|_| second(&bench));
    let page = bench.get(ACTIVITY).await.ok();
    assert_eq!((&page["total"], page["rows"].as_array().unwrap().len()), (&json!(1_000), 100));
    assert_eq!(page["rows"][7]["totals"]["allow"], 1);
    let mut took = Vec::new();
    for _ in 0..5 {
        let begun = on_cpu();
        let who = Principal { name: "x".to_owned(), from: String::new(), scopes: AccessScopes::all() };
        let mut request = Request::get(ACTIVITY).body(Body::empty()).unwrap();
        request.extensions_mut().insert(who);
        let response = bench.router.clone().oneshot(request).await.unwrap();
        axum::body::to_bytes(response.into_body(), 64 << 20).await.unwrap();
        took.push((on_cpu() - begun) / 1_000_000);
    }
    assert!(*took.iter().min().unwrap() < 50, "{took:?} ms");
}

/// How long this thread has had a core, in nanoseconds: what others do on the machine does not count.
fn on_cpu() -> u64 {
    let reply = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    reply.split_whitespace().next().unwrap().parse().unwrap()
}
