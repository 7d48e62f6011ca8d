//! Who is limited, as the pages tell it.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use serde_json::{Value, json};
use tollgate::{Clock as _, Descriptor, Limiter, ManualClock, MemoryConfig, MemoryStore, Request as Asking, Ruleset};
use tollgate_events::Subscriptions;
use tower::ServiceExt as _;

use super::{Answered, Bench};
use crate::api::observability::{AdminState, routes};
use crate::auth::Auth;
use crate::observe::Observability;
use crate::scopes::{AccessScope, Principal};
use tollgate_telemetry::Health;
use tollgate_telemetry::metrics::Metrics;

const RULES: &str = "\
domain: shop
entity: api_key
tiers: {free: {paid: false}, pro: {}, huge: {}}
default_tier: free
rules:
- {name: per-key, key: [api_key], limit: {free: 10/minute, pro: 100/minute, huge: unlimited}, algorithm: fixed_window}
- {name: orders, match: {endpoint: present}, key: [endpoint, api_key], limit: 100/minute, algorithm: fixed_window}
signals:
- {name: keys-per-address, distinct: api_key, per: [remote_address], threshold: 40, window: 10m}
- {name: paths-per-key, distinct: endpoint, per: [api_key], threshold: 1000}
";

/// A server's pages, and decisions that it saw.
struct Scene {
    bench: Bench,
    observability: Arc<Observability>,
    limiter: Limiter<MemoryStore<ManualClock>>,
    router: Router,
}

impl Scene {
    async fn new() -> Scene {
        let bench = Bench::new(RULES).await;
        let (metrics, observability, control) = (Metrics::new(), Observability::for_tests(), bench.control.clone());
        let auth = Auth::local(&control, &metrics);
        let state = AdminState::new(
            observability.clone(),
            metrics,
            Arc::new(Health::default()),
            control,
            auth,
            Subscriptions::none(),
        );
        let store = MemoryConfig::default().build_with(bench.clock.clone());
        let limiter = Limiter::new(Ruleset::from_text(RULES, 1).unwrap().0, store);
        let limiter = limiter.with_clock(bench.clock.clone()).with_witness(observability.observer.clone());
        Scene { bench, observability, limiter, router: routes(state) }
    }

    async fn check(&self, attributes: &[(&str, &str)], times: usize) {
        for _ in 0..times {
            let request = Asking { descriptors: &[Descriptor::new(attributes)], ..Asking::default() };
            self.limiter.check_request(&request).await.unwrap();
        }
    }

    async fn get(&self, path: &str, scopes: &[AccessScope]) -> Answered {
        let who =
            Principal { name: "token tests".to_owned(), from: String::new(), scopes: scopes.iter().copied().collect() };
        let mut request = Request::get(path).body(Body::empty()).unwrap();
        request.extensions_mut().insert(who);
        Answered::of(self.router.clone().oneshot(request).await.unwrap()).await
    }

    async fn shown(&self, path: &str) -> Value {
        self.get(path, &[AccessScope::Read, AccessScope::Audit]).await.ok()
    }
}

#[tokio::test]
async fn the_heaviest_keys_are_reported() {
    let scene = Scene::new().await;
    scene.check(&[("api_key", "ann")], 15).await;
    scene.check(&[("api_key", "bob"), ("endpoint", "GET /")], 5).await;
    let top = scene.shown("/admin/v1/top").await;
    let row = |rank: u64, rule: &str, key: &str, caller: &str, decisions: u64, refusals: u64, utilisation: f64| {
        json!({
            "rank": rank, "domain": "shop", "rule": rule, "key": key, "caller": caller, "decisions": decisions,
            "refusals": refusals, "utilisation": utilisation, "error": 0
        })
    };
    let expected = json!({
        "by": "decisions", "window": "5m", "at": "2025-06-15T15:06:40Z", "total": 25, "error": 0, "servers": 1, "keys_shown": true,
        "keys": [
            row(1, "per-key", "ann", "ann", 15, 5, 1.0),
            row(2, "orders", "GET /, bob", "bob", 5, 0, 0.05),
            row(3, "per-key", "bob", "bob", 5, 0, 0.5),
        ]
    });
    assert_eq!(top, expected);
    let refused = scene.shown("/admin/v1/top?by=refusals&window=1m&limit=1").await;
    assert_eq!(
        (&refused["total"], &refused["keys"]),
        (&json!(5), &json!([row(1, "per-key", "ann", "ann", 15, 5, 1.0)]))
    );
    let fullest = scene.shown("/admin/v1/top?by=utilisation&window=1h&domain=shop&rule=orders").await;
    assert_eq!(fullest["keys"], json!([row(1, "orders", "GET /, bob", "bob", 5, 0, 0.05)]));
    assert_eq!(scene.shown("/admin/v1/top?domain=other").await["keys"], json!([]));
    scene.bench.pass(3_600 * 2);
    assert_eq!(scene.shown("/admin/v1/top?window=1h").await["total"], 0);
}

#[tokio::test]
async fn keys_are_for_those_who_may_see_them() {
    let scene = Scene::new().await;
    scene.check(&[("api_key", "ann")], 12).await;
    let hidden = scene.get("/admin/v1/top", &[AccessScope::Read]).await.ok();
    assert_eq!(hidden["keys_shown"], false);
    let (key, caller) = (hidden["keys"][0]["key"].as_str().unwrap(), hidden["keys"][0]["caller"].as_str().unwrap());
    assert_eq!(key, caller);
    assert!(key.len() == 17 && key.starts_with('#') && u64::from_str_radix(&key[1..], 16).is_ok(), "{key}");
    assert!(!hidden.to_string().contains("ann"), "{hidden}");
    // Metrics have the same.
    assert_eq!(scene.observability.top_denied(scene.bench.clock.now()), [(key.to_owned(), 2)]);
    assert_eq!(scene.get("/admin/v1/top", &[AccessScope::Audit]).await.code(403), "forbidden");
    assert_eq!(scene.get("/admin/v1/sustained", &[AccessScope::Rules]).await.code(403), "forbidden");
}

#[tokio::test]
async fn what_is_wrong_with_a_query_is_reported() {
    let scene = Scene::new().await;
    for query in ["by=callers", "window=2m", "limit=0", "limit=201", "limit=x", "rules=a", "by="] {
        let answered = scene.get(&format!("/admin/v1/top?{query}"), &[AccessScope::Read]).await;
        assert_eq!(answered.code(400), "bad_query", "{query}");
    }
    assert_eq!(scene.get("/admin/v1/sustained?limit=1", &[AccessScope::Read]).await.code(400), "bad_query");
}

#[tokio::test]
async fn who_is_near_a_limit_for_long_is_reported_with_what_would_fit() {
    let scene = Scene::new().await;
    // To the next full minute.
    scene.bench.pass(20);
    for _ in 0..5 {
        scene.check(&[("api_key", "ann")], 30).await;
        scene.check(&[("api_key", "bob")], 7).await;
        scene.bench.pass(60);
    }
    let reply = scene.shown("/admin/v1/sustained").await;
    let expected = json!({"keys_shown": true, "items": [{
        "domain": "shop", "rule": "per-key", "key": "ann", "caller": "ann", "tier": "free", "limit": 10, "period": "minute",
        "utilisation": 1.0, "since": "2025-06-15T15:07:00Z", "fits": "pro", "fits_limit": 100,
        "says": "ann has used 80 % or more of 10/minute (rule per-key, tier free) in every minute since 15:07 UTC, 100 % in the \
                 last one, and requests about 30 in that time: tier pro (100/minute) would fit"
    }]});
    assert_eq!(reply, expected);
    let hidden = scene.get("/admin/v1/sustained", &[AccessScope::Read]).await.ok();
    assert!(!hidden.to_string().contains("ann"), "{hidden}");
    assert_eq!(hidden["items"][0]["key"], hidden["items"][0]["caller"]);
    // Much more than any limit of a tier: unlimited fits.
    for _ in 0..5 {
        scene.check(&[("api_key", "ann")], 200).await;
        scene.bench.pass(60);
    }
    let reply = scene.shown("/admin/v1/sustained").await;
    assert_eq!((&reply["items"][0]["fits"], &reply["items"][0]["fits_limit"]), (&json!("huge"), &Value::Null));
    assert_eq!(reply["items"][0]["since"], "2025-06-15T15:07:00Z");
    scene.bench.pass(60);
    assert_eq!(scene.shown("/admin/v1/sustained").await["items"], json!([]));
}

#[tokio::test]
async fn raised_signals_are_listed_with_evidence() {
    let scene = Scene::new().await;
    let list = async |path: &str, scopes: &[AccessScope]| scene.get(path, scopes).await.ok();
    for number in 0..40 {
        scene.check(&[("api_key", &format!("key-{number}")), ("remote_address", "203.0.113.7")], 1).await;
    }
    let evaluate = || {
        let rules = scene.limiter.rules();
        scene.observability.observer.signals().evaluate(&rules, &[], scene.bench.clock.now());
    };
    assert_eq!(scene.shown("/admin/v1/signals").await["items"], json!([]));
    evaluate();
    let shown = scene.shown("/admin/v1/signals").await;
    let item = &shown["items"][0];
    assert_eq!((shown["items"].as_array().unwrap().len(), &shown["omitted"]), (1, &json!(0)));
    let item_shown = json!([
        item["domain"],
        item["signal"],
        item["per"],
        item["key"],
        item["distinct"],
        item["count"],
        item["threshold"],
        item["window_seconds"],
        item["since"]
    ]);
    let expected = json!([
        "shop",
        "keys-per-address",
        ["remote_address"],
        "203.0.113.7",
        "api_key",
        40,
        40,
        600.0,
        "2025-06-15T15:06:40Z"
    ]);
    assert_eq!(item_shown, expected);
    // Keys of customers are private values: they are masked even for those who may see callers.
    let examples = item["examples"].as_array().unwrap();
    assert!(examples.len() == 8 && examples.iter().all(|one| !one.as_str().unwrap().contains("key-")), "{item}");
    let raised: Vec<_> = shown["signals"].as_array().unwrap().iter().map(|one| &one["raised"]).collect();
    assert_eq!(raised, [&json!(1), &json!(0)]);
    // Without `audit` neither addresses nor examples.
    let hidden = list("/admin/v1/signals?signal=keys-per-address", &[AccessScope::Read]).await;
    assert!(!hidden.to_string().contains("203.0.113.7"), "{hidden}");
    assert_eq!((&hidden["items"][0]["examples"], &hidden["keys_shown"]), (&json!([]), &json!(false)));
    assert_eq!(hidden["signals"].as_array().unwrap().len(), 1);
    assert_eq!(scene.shown("/admin/v1/signals?domain=other").await["items"], json!([]));
    assert_eq!(scene.get("/admin/v1/signals?limit=0", &[AccessScope::Read]).await.code(400), "bad_query");
    assert_eq!(scene.get("/admin/v1/signals", &[AccessScope::Rules]).await.code(403), "forbidden");
    scene.bench.pass(601);
    evaluate();
    assert_eq!(scene.shown("/admin/v1/signals").await["items"], json!([]));
}
