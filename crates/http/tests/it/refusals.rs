//! Refusals, how they are rendered, and what passes.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use tollgate::{Limiter, Source, Store};
use tollgate_http::response::{Dialects, Jitter, ResponseStyle, ScopeValues};
use tollgate_http::tower::TollgateLayer;
use tower::{Layer, Service, ServiceExt};

use crate::world::{Answer, Handler, START, TestRequest, World, ask, bare, behind, layer, of, ruleset};

const RULES: &str = "
domain: shop
entity: key
rules:
  - {name: per-key, key: [key], limit: 2/minute, algorithm: fixed_window}
  - {name: all, key: [], limit: 100/minute, algorithm: fixed_window}
";

#[tokio::test]
async fn a_refusal_has_all_headers_and_the_problem_body() {
    let world = World::new(RULES);
    let handler = Handler::default();
    let layer = world.layer().response_style(ResponseStyle { jitter: Jitter::Off, ..ResponseStyle::default() });
    let mut service = layer.layer(handler.clone());
    for _ in 0..2 {
        service.ready().await.unwrap().call(bare(of("ada-lovelace"))).await.unwrap();
    }
    let answer = Answer::of(service.ready().await.unwrap().call(bare(of("ada-lovelace"))).await.unwrap()).await;
    assert_eq!((answer.status, handler.calls()), (429, 2));
    let header = |name| answer.header(name).unwrap_or_else(|| panic!("no {name}: {answer:?}"));
    assert_eq!(header("content-type"), "application/problem+json");
    assert_eq!(
        (header("x-ratelimit-limit"), header("x-ratelimit-remaining"), header("x-ratelimit-used")),
        ("2", "0", "2")
    );
    assert_eq!(header("x-ratelimit-reset"), (START.as_micros() / 1_000_000 + 60).to_string());
    assert_eq!((header("retry-after"), header("x-ratelimit-denied-by")), ("60", "per-key"));
    assert_eq!(header("ratelimit"), "\"per-key\";r=0;t=60;pk=:N3yIzuybYvk=:");
    assert!(header("ratelimit-policy").starts_with("\"per-key\";q=2;w=60, \"all\";q=100;w=60"));
    assert!(answer.header("x-ratelimit-bucket").is_some() && answer.header("own").is_none());
    let body = answer.json();
    assert_eq!(body["status"], 429);
    assert_eq!(body["error"]["message"], "Rate limit exceeded for GET /orders. Retry after 60 seconds.");
    assert_eq!((&body["retry_after"], &body["error"]["scope"]), (&60.into(), &"key:ada-…".into()));
    let stats = layer.stats();
    assert_eq!((stats.passed, stats.refused, stats), (2, 1, service.stats()));
    assert_eq!(world.left("all", &[("key", "k")]), 98, "what was refused took nothing");
}

#[tokio::test]
async fn allowed_responses_get_headers_and_are_otherwise_unchanged() {
    let world = World::new(RULES);
    let answer = ask(&world.layer(), bare(of("k"))).await;
    assert_eq!((answer.status, answer.header("own"), &*answer.body), (201, Some("yes"), &b"done"[..]));
    assert_eq!(
        (answer.header("x-ratelimit-remaining"), answer.header("ratelimit")),
        (Some("1"), Some("\"per-key\";r=1;t=60;pk=:ZYeIlAfohPE=:"))
    );
    assert!(answer.header("retry-after").is_none() && answer.header("content-type").is_none());
    let dialects = Dialects { x_ratelimit: false, policy: false, bucket: false, ..Dialects::default() };
    let style = ResponseStyle { dialects, jitter: Jitter::Off, scope_values: ScopeValues::Hidden };
    let answer = ask(&world.layer().response_style(style), bare(of("k"))).await;
    assert_eq!(
        (answer.header("x-ratelimit-limit"), answer.header("ratelimit")),
        (None, Some("\"per-key\";r=0;t=60;pk=:ZYeIlAfohPE=:"))
    );
    let answer = ask(&world.layer().response_style(style), bare(of("k"))).await;
    assert_eq!((answer.status, &answer.json()["error"]["scope"]), (429, &"key:*".into()));
}

#[tokio::test]
async fn limits_are_those_of_the_domain_and_the_cost_is_what_the_application_says() {
    let rules = "
domain: shop
rules: [{name: per-key, key: [key], limit: 10/minute}]";
    let world = World::new(rules);
    let layer = world.layer().domain("shop").cost(|head| head.uri.query().map_or(0, |query| query.parse().unwrap()));
    for (uri, status, left) in [("/a?7", 201, 3), ("/a", 201, 3), ("/a?4", 429, 3), ("/a?3", 201, 0)] {
        let answer = ask(&layer, bare(Request::get(uri).header("key", "k"))).await;
        assert_eq!((answer.status, world.left("per-key", &[("key", "k")])), (status, left), "{uri}");
    }
    let layer = world.layer().domain("elsewhere");
    assert_eq!(ask(&layer, bare(of("k"))).await.status, 201, "there is no such domain: it can't be decided");
    assert_eq!(layer.stats().undecided, 1);
}

/// A store that is unavailable.
struct Away;

impl Store for Away {
    async fn settle_into(&self, claim: &tollgate_core::Claim<'_>, settlement: &mut tollgate_core::Settlement) {
        self.assume(claim, Source::Assumed, settlement);
    }
}

#[tokio::test]
async fn what_nobody_can_count_is_refused_or_passes_as_the_rules_say() {
    let rules = "
domain: shop
rules:
  - {name: login, key: [key], limit: 5/minute, policy: security, match: {key: k}}
  - {name: comfort, key: [key], limit: 5/minute}";
    let layer = layer(Arc::new(Limiter::new(ruleset(rules), Away)));
    let answer = ask(&layer, bare(of("k"))).await;
    assert_eq!(answer.status, 503);
    assert_eq!(answer.json()["error"]["code"], "REDUCED_CAPACITY");
    assert!(answer.header("retry-after").is_some() && answer.header("x-ratelimit-limit").is_none());
    assert_eq!(ask(&layer, bare(of("other"))).await.status, 201);
    assert_eq!((layer.stats().unavailable, layer.stats().refused, layer.stats().passed), (1, 0, 1));
}

#[tokio::test]
async fn undecided_requests_pass_and_are_reported_once_in_a_while() {
    let world = World::new(RULES);
    let reports = Arc::new(Mutex::new(Vec::new()));
    let sink = reports.clone();
    let layer = world.layer().domain("elsewhere").on_undecided(move |undecided| {
        sink.lock().unwrap().push((undecided.error.to_string(), undecided.others));
    });
    for _ in 0..3 {
        let answer = ask(&layer, bare(of("k"))).await;
        assert_eq!((answer.status, answer.header("ratelimit")), (201, None));
    }
    let sentence = "there are no rules for this domain";
    assert_eq!(*reports.lock().unwrap(), [(sentence.to_owned(), 0)]);
    assert_eq!((layer.stats().undecided, layer.stats().passed), (3, 3));
    let answer = ask(&layer.clone().refuse_undecided(), bare(of("k"))).await;
    assert_eq!((answer.status, &answer.json()["detail"]), (400, &sentence.into()));
    assert_eq!((layer.stats().undecided, layer.stats().passed), (4, 3));
}

#[tokio::test]
async fn attributes_that_are_too_long_or_too_many_are_no_way_past_the_limits() {
    let world = World::new(RULES);
    let long = "k".repeat(6_000);
    let many = || (0..60).fold(of(&long), |builder, number| builder.header(format!("h{number}"), "x"));
    let statuses = [ask(&world.layer(), bare(many())).await, ask(&world.layer(), bare(many())).await];
    assert_eq!(statuses.map(|answer| answer.status), [201, 201]);
    assert_eq!(ask(&world.layer(), bare(many())).await.status, 429);
}

#[tokio::test]
async fn the_inner_services_errors_are_its_own() {
    let world = World::new(RULES);
    let mut service = behind(&world.layer(), |_| async { Err::<Response<Full<Bytes>>, _>("out of order".to_owned()) });
    assert_eq!(service.ready().await.unwrap().call(bare(of("k"))).await.unwrap_err(), "out of order");
    assert_eq!(service.ready().await.unwrap().call(bare(of("k"))).await.unwrap_err(), "out of order");
    let refused = service.ready().await.unwrap().call(bare(of("k"))).await.unwrap();
    assert_eq!(refused.status(), 429, "which is no error");
}

/// A service that requires `poll_ready` before each call, on the same clone.
#[derive(Debug, Default)]
struct Strict {
    ready: bool,
    calls: Arc<AtomicU64>,
}

impl Clone for Strict {
    fn clone(&self) -> Strict {
        Strict { ready: false, calls: self.calls.clone() }
    }
}

impl Service<TestRequest> for Strict {
    type Response = Response<Full<Bytes>>;
    type Error = &'static str;
    type Future = std::future::Ready<Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.ready = true;
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _request: TestRequest) -> Self::Future {
        self.calls.fetch_add(1, Ordering::SeqCst);
        let ready = std::mem::take(&mut self.ready);
        std::future::ready(if ready { Ok(Response::default()) } else { Err("poll_ready was not called") })
    }
}

#[tokio::test(start_paused = true)]
async fn the_service_that_is_called_is_the_one_that_said_that_it_is_ready() {
    let rules = "
domain: shop
rules: [{name: paced, key: [key], limit: 10/second, burst: 5, algorithm: leaky_bucket}]";
    let strict = Strict::default();
    let calls = strict.calls.clone();
    let world = World::new(rules);
    let mut service = world.layer().layer(strict.clone());
    for _ in 0..3 {
        // The first passes at once, the others are delayed.
        service.ready().await.unwrap().call(bare(of("k"))).await.unwrap();
    }
    let waiting = layer(Arc::new(Limiter::new(ruleset(rules), Away)));
    let mut service: tollgate_http::tower::Tollgate<Strict> = waiting.layer(strict);
    for _ in 0..3 {
        service.ready().await.unwrap().call(bare(of("k"))).await.unwrap();
    }
    assert_eq!(calls.load(Ordering::SeqCst), 6);
}

#[test]
fn the_layer_is_what_routers_need() {
    fn shared<T: Clone + Send + Sync + 'static>(_: &T) {}
    let world = World::new(RULES);
    shared(&world.layer());
    shared(&world.layer().layer(Handler::default()));
    let layer: TollgateLayer<_> = world.layer();
    assert!(format!("{layer:?}").contains("passed: 0"), "{layer:?}");
}
