//! Idempotency keys: requests that are decided once.

use std::convert::Infallible;
use std::future::pending;

use bytes::Bytes;
use http::Response;
use http_body_util::Full;
use tower::ServiceExt;

use crate::world::{World, ask, bare, behind, of, settle_down};

const RULES: &str = "
domain: shop
entity: key
rules:
  - {name: per-key, key: [key], limit: 3/minute}
  - {name: in-flight, key: [key], limit: 2 concurrent}
";

const K: &[(&str, &str)] = &[("key", "k")];

#[tokio::test]
async fn the_same_name_takes_once_and_another_request_under_it_is_a_conflict() {
    let world = World::new(RULES);
    let layer = world.layer().idempotency_key();
    for (header, name) in [("idempotency-key", "a"), ("x-idempotency-key", "b")] {
        for round in 0..4 {
            let answer = ask(&layer, bare(of("k").header(header, name))).await;
            let replayed = answer.header("idempotent-replayed");
            assert_eq!((answer.status, replayed.is_some()), (201, round > 0), "{header} {round}");
        }
    }
    assert_eq!(world.left("per-key", K), 1);
    let other = ask(&layer, bare(of("k").header("idempotency-key", "a").header("more", "1"))).await;
    assert_eq!((other.status, other.header("content-type")), (422, Some("application/problem+json")));
    assert_eq!(other.json()["code"], "idempotency_conflict");
    assert_eq!((layer.stats().conflicts, world.left("per-key", K)), (1, 1));
    assert_eq!(ask(&layer, bare(of("other").header("idempotency-key", "a"))).await.status, 201);
    let unnamed = ask(&world.layer(), bare(of("k").header("idempotency-key", "a").header("more", "1"))).await;
    assert_eq!((unnamed.status, world.left("per-key", K)), (201, 0), "without the option there are no names");
}

#[tokio::test]
async fn a_name_that_none_may_have_is_no_way_past_the_limits() {
    let world = World::new(RULES);
    let layer = world.layer().idempotency_key();
    let long = "n".repeat(256);
    for (name, status) in [("", 201), (&*long, 201), ("", 201), (&*long, 429), ("", 429)] {
        let answer = ask(&layer, bare(of("k").header("idempotency-key", name))).await;
        assert_eq!(answer.status, status);
    }
    assert_eq!(layer.stats().undecided, 0);
}

#[tokio::test]
async fn who_asks_again_does_not_let_go_of_what_the_first_holds() {
    let world = World::new(RULES);
    let layer = world.layer().once(|head| Some(head.headers.get("name")?.to_str().ok()?.into()));
    let forever = behind(&layer, |_| pending::<Result<Response<Full<Bytes>>, Infallible>>());
    let first = tokio::spawn(forever.oneshot(bare(of("k").header("name", "n"))));
    settle_down().await;
    assert_eq!(world.left("in-flight", K), 1);
    assert_eq!(ask(&layer, bare(of("k").header("name", "n"))).await.status, 201);
    assert_eq!((world.left("in-flight", K), layer.stats().inside), (1, 1));
    first.abort();
    let _ = first.await;
    assert_eq!((world.left("in-flight", K), layer.stats().inside), (2, 0));
}

#[tokio::test]
async fn who_asks_again_after_the_rules_have_changed_is_answered_as_before() {
    let world = World::new(RULES);
    let layer = world.layer().idempotency_key();
    for name in ["a", "b", "c"] {
        assert_eq!(ask(&layer, bare(of("k").header("idempotency-key", name))).await.status, 201);
    }
    assert_eq!(ask(&layer, bare(of("k").header("idempotency-key", "d"))).await.status, 429);
    world.limiter.install(crate::world::ruleset(
        "
domain: shop
entity: key
rules: [{name: other, key: [key], limit: 100/hour}]",
    ));
    // What was refused took nothing and is decided anew.
    for (name, replayed, left) in [("a", Some("true"), 100), ("d", None, 99), ("d", Some("true"), 99)] {
        let answer = ask(&layer, bare(of("k").header("idempotency-key", name))).await;
        assert_eq!((answer.status, answer.header("idempotent-replayed")), (201, replayed), "{name}");
        assert_eq!(world.left("other", K), left, "{name}");
    }
}
