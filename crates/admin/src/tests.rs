//! The admin listener on a connection.

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tollgate::{LoadOptions, MemoryConfig};
use tollgate_rules::{RuleFile, load_sources};

use super::*;
use crate::observe::Observability;
use tollgate_net::closing::Closer;

const SHOP: &str = "\
domain: shop
entity: api_key
tiers:
  free: {paid: false}
  pro: {}
  partner: {}
default_tier: free
rules:
- {name: per-key, key: [api_key], limit: {free: 100/minute, pro: 1000/minute, partner: unlimited}, algorithm: token_bucket}
- {name: login, key: [remote_address], limit: 5/5m, policy: security}
- {name: idea, key: [api_key], limit: 50/minute, enforce: 12.5%}
";

struct Served {
    admin: Arc<Admin>,
    health: Arc<Health>,
    metrics: Arc<Metrics>,
}

fn served(files: &[&str]) -> Served {
    let sources: Vec<_> = (0..)
        .zip(files)
        .map(|(number, text)| RuleFile { name: format!("{number}.yaml"), text: (*text).to_owned() })
        .collect();
    let loaded = load_sources(&sources, &LoadOptions::default()).unwrap();
    let rules = tollgate::Ruleset::compile(loaded.domains, 3).unwrap();
    let limiter = Arc::new(tollgate::Limiter::new(rules, MemoryConfig::default().build().into()));
    let (metrics, health) = (Metrics::new(), Arc::new(Health::default()));
    let receipts = tollgate_wire::Receipts::ephemeral().unwrap();
    let scraped =
        crate::metrics::ScrapeSources::new(limiter.clone(), health.clone(), receipts, Observability::for_tests());
    crate::metrics::register(&metrics, scraped);
    let control = ControlPlane::off(limiter, &metrics, &health);
    let auth = Auth::local(&control, &metrics);
    let observability = Observability::for_tests();
    let guardrails = Guardrails::for_tests(&control, &observability, &metrics);
    Served {
        admin: Admin::new(AdminParts {
            metrics: metrics.clone(),
            health: health.clone(),
            control,
            auth,
            observability,
            gateway: None,
            sinks: Subscriptions::none(),
            guardrails,
        }),
        health,
        metrics,
    }
}

impl Served {
    /// The head and the body of the answer to a request.
    async fn ask(&self, request: &str) -> (String, String) {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let (_closer, closing) = Closer::new();
        let server = self.admin.clone().serve(Stream::Unix(ours), closing, Arc::default());
        let client = async {
            let request = format!("{request}\r\nHost: x\r\nConnection: close\r\n\r\n");
            theirs.write_all(request.as_bytes()).await.unwrap();
            let mut answer = String::new();
            theirs.read_to_string(&mut answer).await.unwrap();
            answer
        };
        let ((), answer) = tokio::join!(server, client);
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.to_owned(), body.to_owned())
    }

    /// The status and the body of a page.
    async fn get(&self, path: &str) -> (u16, String) {
        let (head, body) = self.ask(&format!("GET {path} HTTP/1.1")).await;
        (head.split(' ').nth(1).unwrap().parse().unwrap(), body)
    }

    async fn json(&self, path: &str) -> Value {
        let (status, body) = self.get(path).await;
        assert_eq!(status, 200, "{body}");
        serde_json::from_str(&body).unwrap()
    }
}

#[tokio::test]
async fn a_list_names_all_pages_that_there_are() {
    let served = served(&[SHOP]);
    let (status, pages) = served.get("/pages").await;
    assert_eq!(status, 200);
    served.health.started();
    for path in pages.lines().filter_map(|line| line.split(' ').next()).filter(|word| word.starts_with('/')) {
        assert_eq!(served.get(path).await.0, 200, "{path}");
    }
    assert_eq!(served.get("/nowhere").await.0, 404);
    assert!(served.ask("POST /metrics HTTP/1.1").await.0.starts_with("HTTP/1.1 405 "));
}

#[tokio::test]
async fn metrics_come_in_the_requested_format() {
    let served = served(&[SHOP]);
    served.metrics.wire("http").decided(false, tollgate::Source::Store);
    let (head, body) = served.ask("GET /metrics HTTP/1.1\r\nAccept: application/openmetrics-text;version=1.0.0").await;
    assert!(head.contains("content-type: application/openmetrics-text; version=1.0.0; charset=utf-8"), "{head}");
    assert!(body.ends_with("# EOF\n"), "{body}");
    let (head, body) = served.ask("GET /metrics HTTP/1.1").await;
    assert!(head.contains("content-type: text/plain; version=0.0.4; charset=utf-8"), "{head}");
    assert!(body.contains("tollgate_decisions_total{wire=\"http\",outcome=\"deny\",source=\"store\"} 1\n"), "{body}");
    assert!(body.contains("tollgate_rules_loaded 3\n"), "{body}");
}

#[tokio::test]
async fn health_follows_the_server() {
    let served = served(&[SHOP]);
    assert_eq!(served.get("/readyz").await, (503, r#"{"ready":false,"degraded":[]}"#.to_owned()));
    assert_eq!(served.get("/healthcheck").await, (500, "NOT READY".to_owned()));
    assert_eq!(served.get("/livez").await, (200, "OK".to_owned()));
    served.health.started();
    served.health.degrade("rules", "shop.yaml:3: no such algorithm".to_owned());
    let expected = r#"{"ready":true,"degraded":[{"part":"rules","reason":"shop.yaml:3: no such algorithm"}]}"#;
    assert_eq!(served.get("/readyz").await, (200, expected.to_owned()));
    assert_eq!(served.get("/healthcheck").await, (200, "OK".to_owned()));
    served.health.restore("rules");
    assert_eq!(served.get("/readyz").await, (200, r#"{"ready":true,"degraded":[]}"#.to_owned()));
    served.health.degrade("rules", "ä".repeat(100_000));
    assert!(served.get("/readyz").await.1.len() < 3_000);
    served.health.stopping();
    assert_eq!(served.get("/readyz").await.0, 503);
    assert_eq!(served.get("/livez").await.0, 200);
}

#[tokio::test]
async fn callers_do_not_see_why_a_part_is_degraded() {
    let health = Arc::new(Health::default());
    health.started();
    health.degrade("rules", "a path".to_owned());
    let router = health::routes(health, HealthAudience::Caller);
    let request = Request::get("/readyz").body(axum::body::Body::empty()).unwrap();
    let response = tower::ServiceExt::oneshot(router, request).await.unwrap();
    let body = axum::body::to_bytes(response.into_body(), 1_000).await.unwrap();
    assert_eq!(body, r#"{"ready":true,"degraded":[{"part":"rules"}]}"#);
}

#[tokio::test]
async fn rules_are_shown_with_limits_mode_and_place() {
    let page = served(&[SHOP]).json("/admin/v1/rules?domain=shop").await;
    assert_eq!((&page["generation"], &page["total"], &page["offset"]), (&json!(3), &json!(3), &json!(0)));
    assert_eq!(
        page["items"][0],
        json!({
            "domain": "shop", "name": "per-key", "mode": "enforce", "policy": "comfort", "region": "each", "file": "0.yaml", "line": 9,
            "limits": [
                {"tier": "free", "limit": "100/minute, token bucket with a burst of 100"},
                {"tier": "pro", "limit": "1000/minute, token bucket with a burst of 1000"},
                {"tier": "partner", "limit": "unlimited"},
            ],
        })
    );
    assert_eq!((&page["items"][1]["policy"], &page["items"][1]["line"]), (&json!("security"), &json!(10)));
    assert_eq!(page["items"][2]["mode"], "enforce: 12.5%");
}

#[tokio::test]
async fn lists_come_page_by_page() {
    let served =
        served(&[SHOP, "domain: other\ndescriptors:\n- {key: k, rate_limit: {unit: minute, requests_per_unit: 7}}\n"]);
    let domains = served.json("/admin/v1/domains").await;
    assert_eq!(domains["total"], 2);
    assert_eq!(
        domains["items"][0],
        json!({"name": "shop", "entity": "api_key", "tiers": ["free", "pro", "partner"], "rules": 3})
    );
    let page = served.json("/admin/v1/rules?offset=2&limit=1").await;
    assert_eq!((&page["total"], &page["offset"]), (&json!(4), &json!(2)));
    assert_eq!(page["items"].as_array().unwrap().len(), 1);
    assert_eq!(page["items"][0]["name"], "idea");
    assert_eq!(served.json("/admin/v1/rules?offset=9").await["items"], json!([]));
    for (path, status) in [
        ("/admin/v1/rules?limit=0", 400),
        ("/admin/v1/rules?limit=1001", 400),
        ("/admin/v1/rules?limit=some", 400),
        ("/admin/v1/rules?page=2", 400),
        ("/admin/v1/rules?domain=nobody", 404),
        ("/admin/v1/domains?domain=nobody", 404),
    ] {
        assert_eq!(served.get(path).await.0, status, "{path}");
    }
}

#[tokio::test]
async fn limits_are_shown_as_text_up_to_a_bound() {
    let (_, text) = served(&[SHOP]).get("/rlconfig").await;
    let lines: Vec<_> = text.lines().collect();
    assert!(lines[0].starts_with("shop.per-key: free: 100/minute, token bucket"), "{text}");
    assert_eq!(lines[1], "shop.login: 5/5m, sliding window (enforce, security)");
    assert_eq!(lines.len(), 3);

    let rule = |number| format!("- {{name: r{number}, key: [k{number}], limit: 1/minute}}\n");
    let many: String = ["domain: many\nrules:\n".to_owned()].into_iter().chain((0..10_005).map(rule)).collect();
    let (_, text) = served(&[&many]).get("/rlconfig").await;
    assert_eq!(text.lines().count(), 10_001);
    assert!(text.ends_with("and 5 more; /admin/v1/rules lists all\n"));
}
