//! On axum: the route's path, the peer, and `Spent` as a handler's argument.

use std::net::SocketAddr;

use axum::Router;
use axum::body::Body;
use axum::extract::ConnectInfo;
use axum::routing::get;
use http::{Request, StatusCode};
use tollgate_http::tower::extract::{self, Proxies};
use tollgate_http::tower::{Spent, TollgateLayer};
use tower::ServiceExt;

use crate::world::World;

const RULES: &str = "
domain: shop
rules:
  - {name: per-route, key: [endpoint], limit: 2/minute}
  - {name: per-client, key: [remote_address], limit: 3/minute}
  - {name: tokens, key: [], match: {path: /generate}, limit: 100/day, cost: tokens, settle: true}
";

fn router(world: &World) -> Router {
    let layer = TollgateLayer::new(world.limiter.clone())
        .extract(extract::endpoint())
        .extract(extract::path())
        .extract(extract::client_address(Proxies::None))
        .attributes(|_, attributes| {
            attributes.add("tokens", "50");
        });
    Router::new()
        .route("/orders/{id}", get(async || "an order"))
        .route("/generate", get(generate))
        .layer(layer)
        .route("/health", get(async |spent: Spent| spent.report(1)))
}

async fn generate(spent: Spent) -> StatusCode {
    spent.report(10);
    StatusCode::ACCEPTED
}

async fn status(router: &Router, path: &str, peer: [u8; 4]) -> u16 {
    let mut request = Request::get(path).body(Body::empty()).unwrap();
    request.extensions_mut().insert(ConnectInfo(SocketAddr::from((peer, 4711))));
    router.clone().oneshot(request).await.unwrap().status().as_u16()
}

#[tokio::test]
async fn requests_count_by_the_route_that_matched_and_by_the_peer() {
    let world = World::new(RULES);
    let router = router(&world);
    assert_eq!(status(&router, "/orders/1?a", [10, 0, 0, 1]).await, 200);
    assert_eq!(status(&router, "/orders/2?b", [10, 0, 0, 2]).await, 200);
    assert_eq!(status(&router, "/orders/3", [10, 0, 0, 3]).await, 429, "all are the same route");
    assert_eq!(world.left("per-route", &[("endpoint", "GET /orders/{id}")]), 0);
    assert_eq!(world.left("per-client", &[("remote_address", "10.0.0.1")]), 2);
    for _ in 0..10 {
        assert_eq!(status(&router, "/health", [10, 0, 0, 1]).await, 200, "it is outside of the layer");
    }
}

#[tokio::test]
async fn a_handler_reports_what_it_spent() {
    let world = World::new(RULES);
    let router = router(&world);
    for _ in 0..2 {
        assert_eq!(status(&router, "/generate", [10, 0, 0, 1]).await, 202);
    }
    assert_eq!(world.left("tokens", &[("path", "/generate"), ("tokens", "0")]), 80);
}
