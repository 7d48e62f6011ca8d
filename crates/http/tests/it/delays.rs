//! Delayed requests, and those whose delay would be too long.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tollgate_http::response::{Jitter, ResponseStyle};
use tollgate_http::tower::TollgateLayer;
use tower::{Layer, ServiceExt};

use crate::world::{Answer, Handler, Memory, World, ask, bare, of, settle_down};

const RULES: &str = "
domain: shop
entity: key
rules:
  - {name: paced, key: [key], limit: 10/second, burst: 100, algorithm: leaky_bucket}
  - {name: plain, key: [key], limit: 1000/day}
  - {name: in-flight, key: [key], limit: 100 concurrent}
";

const K: &[(&str, &str)] = &[("key", "k")];

fn layer(world: &World) -> TollgateLayer<Memory> {
    world.layer().response_style(ResponseStyle { jitter: Jitter::Off, ..ResponseStyle::default() })
}

#[tokio::test(start_paused = true)]
async fn requests_leave_evenly_spaced() {
    let world = World::new(RULES);
    let layer = layer(&world);
    let handler = Handler::default();
    let service = layer.layer(handler.clone());
    let calls: Vec<_> = (0..5).map(|_| tokio::spawn(service.clone().oneshot(bare(of("k"))))).collect();
    settle_down().await;
    assert_eq!(handler.calls(), 1);
    for passed in 2..=5 {
        world.pass(Duration::from_millis(50)).await;
        assert_eq!(handler.calls(), passed - 1, "after half of the time");
        world.pass(Duration::from_millis(50)).await;
        assert_eq!(handler.calls(), passed);
    }
    for call in calls {
        let answer = Answer::of(call.await.unwrap().unwrap()).await;
        assert_eq!((answer.status, answer.header("retry-after")), (201, None));
    }
    assert_eq!((layer.stats().delayed, layer.stats().passed), (4, 5));
}

#[tokio::test(start_paused = true)]
async fn one_who_would_have_to_wait_for_too_long_is_refused_and_takes_nothing() {
    let world = World::new(RULES);
    let layer = layer(&world).max_delay(Duration::from_millis(250));
    let handler = Handler::default();
    let service = layer.layer(handler.clone());
    let call = || tokio::spawn(service.clone().oneshot(bare(of("k"))));
    // 0, 100 and 200 ms.
    let calls = [call(), call(), call()];
    settle_down().await;
    let left = || (world.left("paced", K), world.left("plain", K), world.left("in-flight", K));
    let before = left();
    assert_eq!(before, (97, 997, 97));
    let refused = Answer::of(call().await.unwrap().unwrap()).await;
    assert_eq!((refused.status, refused.header("retry-after")), (429, Some("1")));
    assert_eq!(
        (refused.header("x-ratelimit-denied-by"), refused.header("ratelimit")),
        (Some("paced"), Some("\"paced\";r=97;t=1;pk=:ZYeIlAfohPE=:"))
    );
    assert_eq!(refused.json()["error"]["message"], "Rate limit exceeded for GET /orders. Retry after 1 second.");
    assert_eq!(left(), before);
    world.pass(Duration::from_millis(50)).await;
    let next = call();
    for call in calls {
        assert_eq!(call.await.unwrap().unwrap().status(), 201);
    }
    assert_eq!(next.await.unwrap().unwrap().status(), 201, "it comes in as if nobody had been turned away");
    assert_eq!((layer.stats().refused, layer.stats().passed, layer.stats().inside), (1, 4, 0));
    let (_, plain, in_flight) = left();
    assert_eq!((plain, in_flight), (996, 100));
}

#[tokio::test(start_paused = true)]
async fn the_retry_after_is_long_enough() {
    let rules = "
domain: shop
rules: [{name: paced, key: [key], limit: 1/second, burst: 100, algorithm: leaky_bucket}]";
    let world = World::new(rules);
    let patient = layer(&world).max_delay(Duration::from_secs(60));
    let passed_later = Arc::new(AtomicU64::new(0));
    for _ in 0..10 {
        let (patient, passed_later) = (patient.clone(), passed_later.clone());
        tokio::spawn(async move {
            passed_later.fetch_add(u64::from(ask(&patient, bare(of("k"))).await.status == 201), Ordering::SeqCst);
        });
    }
    settle_down().await;
    let layer = layer(&world).max_delay(Duration::from_secs(2));
    let refused = ask(&layer, bare(of("k"))).await;
    // Ten seconds, of which it may be delayed for two.
    assert_eq!((refused.status, refused.header("retry-after")), (429, Some("8")));
    world.pass(Duration::from_secs(7)).await;
    assert_eq!(ask(&layer, bare(of("k"))).await.status, 429);
    world.pass(Duration::from_secs(1)).await;
    assert_eq!(ask(&layer, bare(of("k"))).await.status, 201);
}

#[tokio::test(start_paused = true)]
async fn who_has_no_time_at_all_is_never_held_back() {
    let world = World::new(RULES);
    let layer = layer(&world).max_delay(Duration::ZERO);
    assert_eq!(ask(&layer, bare(of("k"))).await.status, 201);
    assert_eq!(ask(&layer, bare(of("k"))).await.status, 429);
    assert_eq!(layer.stats().delayed, 0);
}

#[tokio::test(start_paused = true)]
async fn under_a_name_it_keeps_its_place() {
    let world = World::new(RULES);
    let layer = layer(&world).idempotency_key().max_delay(Duration::from_millis(150));
    for _ in 0..2 {
        assert_eq!(ask(&layer, bare(of("k"))).await.status, 201);
    }
    let named = || bare(of("k").header("idempotency-key", "order-1"));
    let left = || (world.left("paced", K), world.left("plain", K), world.left("in-flight", K));
    let refused = ask(&layer, named()).await;
    assert_eq!((refused.status, refused.header("retry-after")), (429, Some("1")));
    assert_eq!(left(), (97, 997, 100), "it has paid, and holds no slot");
    let passed = ask(&layer, named()).await;
    assert_eq!((passed.status, passed.header("idempotent-replayed")), (201, Some("true")));
    assert_eq!(left(), (97, 997, 100), "so that it need not pay again");
}
