//! Slots: held while a request is inside, however long that is, and released however it ends.

use std::convert::Infallible;
use std::future::pending;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::Response;
use http_body::Frame;
use http_body_util::{BodyExt, Full};
use tokio::runtime::Handle;
use tollgate::{Limiter, poll_once};
use tower::ServiceExt;

use crate::world::{Memory, TestRequest, World, ask, bare, behind, controlled_body, left, of, one_body, settle_down};

const RULES: &str = "
domain: llm
entity: key
rules:
  - {name: in-flight, key: [key], limit: 2 concurrent, hold: 3s}
  - {name: tokens, key: [key], limit: 1000/day, cost: tokens, settle: true, hold: 10m}
";

const K: &[(&str, &str)] = &[("key", "k"), ("tokens", "0")];

/// The number of tasks on this test's runtime.
fn tasks() -> usize {
    Handle::current().metrics().num_alive_tasks()
}

#[tokio::test(start_paused = true)]
async fn a_slot_is_held_to_the_end_of_the_body() {
    let world = World::new(RULES);
    let layer = world.layer();
    let (stream, body) = controlled_body();
    let service = behind(&layer, one_body(body));
    let response = service.oneshot(bare(of("k"))).await.unwrap();
    assert_eq!((world.left("in-flight", K), layer.stats().inside), (1, 1));
    let mut body = response.into_body();
    stream.send(Ok(Frame::data(Bytes::from_static(b"one")))).unwrap();
    assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "one");
    assert_eq!(world.left("in-flight", K), 1);
    drop(stream);
    assert!(body.frame().await.is_none());
    assert_eq!((world.left("in-flight", K), layer.stats().inside), (2, 0));
    settle_down().await;
    assert_eq!(tasks(), 0, "nobody keeps a slot that is free");
    assert!(body.frame().await.is_none(), "and it stays at its end");
}

#[tokio::test(start_paused = true)]
async fn a_slot_is_free_when_the_body_is_dropped() {
    let world = World::new(RULES);
    let (stream, body) = controlled_body();
    let response = behind(&world.layer(), one_body(body)).oneshot(bare(of("k"))).await.unwrap();
    let mut body = response.into_body();
    stream.send(Ok(Frame::data(Bytes::from_static(b"one")))).unwrap();
    body.frame().await.unwrap().unwrap();
    assert_eq!(world.left("in-flight", K), 1);
    drop(body);
    assert!(stream.is_closed(), "the handler's body goes first");
    assert_eq!(world.left("in-flight", K), 2);
}

#[tokio::test(start_paused = true)]
async fn a_slot_is_free_when_the_client_hangs_up_before_there_is_an_answer() {
    let world = World::new(RULES);
    let layer = world.layer();
    let service = behind(&layer, |_| pending::<Result<Response<Full<Bytes>>, Infallible>>());
    let calls: Vec<_> = (0..2).map(|_| tokio::spawn(service.clone().oneshot(bare(of("k"))))).collect();
    settle_down().await;
    assert_eq!((world.left("in-flight", K), layer.stats().inside), (0, 2));
    assert_eq!(service.clone().oneshot(bare(of("k"))).await.unwrap().status(), 429);
    for call in calls {
        call.abort();
        assert!(call.await.unwrap_err().is_cancelled());
    }
    assert_eq!((world.left("in-flight", K), layer.stats().inside), (2, 0));
    settle_down().await;
    assert_eq!(tasks(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_slot_is_free_when_the_handler_panics() {
    let world = World::new(RULES);
    let at_once = behind(&world.layer(), |request| {
        if request.headers().contains_key("at-once") {
            panic!("before there is a future");
        }
        async {
            tokio::task::yield_now().await;
            if true {
                panic!("in the future");
            }
            Ok::<_, Infallible>(Response::new(Full::<Bytes>::default()))
        }
    });
    for request in [of("k").header("at-once", "1"), of("k")] {
        assert!(tokio::spawn(at_once.clone().oneshot(bare(request))).await.unwrap_err().is_panic());
        assert_eq!(world.left("in-flight", K), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn a_slot_is_free_at_once_where_the_body_is_empty() {
    let world = World::new(RULES);
    let service = behind(&world.layer(), |_| async { Ok::<_, Infallible>(Response::new(Full::<Bytes>::default())) });
    let _response = service.oneshot(bare(of("k"))).await.unwrap();
    assert_eq!(world.left("in-flight", K), 2);
}

#[tokio::test(start_paused = true)]
async fn a_slot_is_extended_past_its_hold_whether_or_not_the_body_is_polled() {
    let world = World::new(RULES);
    let layer = world.layer();
    let (stream, body) = controlled_body();
    // Together with a hold of 10 minutes: the shortest counts.
    let request = of("k").header("tokens", "100");
    let response = behind(&layer, one_body(body)).oneshot(bare(request)).await.unwrap();
    let handler = behind(&layer, |_| pending::<Result<Response<Full<Bytes>>, Infallible>>());
    let call = tokio::spawn(handler.oneshot(bare(of("k"))));
    settle_down().await;
    for second in 1..=60 {
        world.pass(Duration::from_secs(1)).await;
        assert_eq!(world.left("in-flight", K), 0, "after {second} s");
    }
    assert_eq!(tasks(), 3, "the call, and one for each of the two inside");
    assert_eq!(layer.stats().lost, 0);
    drop((response, stream));
    assert_eq!(world.left("in-flight", K), 1);
    call.abort();
    let _ = call.await;
    assert_eq!(world.left("in-flight", K), 2);
    settle_down().await;
    assert_eq!((tasks(), layer.stats().inside), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_lost_slot_is_reported_and_taken_again() {
    let world = World::new(RULES);
    let layer = world.layer();
    let service = behind(&layer, |_| pending::<Result<Response<Full<Bytes>>, Infallible>>());
    let call = tokio::spawn(service.clone().oneshot(bare(of("k"))));
    settle_down().await;
    // Only the store's clock: as if this process had been suspended for longer than its hold.
    world.clock.set(tollgate::Clock::now(&world.clock).after(tollgate::Span::from_secs(60)));
    assert_eq!(world.left("in-flight", K), 2);
    let others: Vec<_> = (0..2).map(|_| tokio::spawn(service.clone().oneshot(bare(of("k"))))).collect();
    settle_down().await;
    assert_eq!(world.left("in-flight", K), 0);
    world.pass(Duration::from_secs(1)).await;
    assert_eq!(layer.stats().lost, 1);
    for other in others {
        other.abort();
        let _ = other.await;
    }
    world.pass(Duration::from_secs(1)).await;
    assert_eq!(world.left("in-flight", K), 1, "there is one again");
    call.abort();
    let _ = call.await;
    assert_eq!(world.left("in-flight", K), 2);
}

#[test]
fn without_a_runtime_slots_are_held_and_freed_but_not_for_longer_than_a_hold() {
    let world = World::new(RULES);
    let (_stream, body) = controlled_body();
    let response = poll_once(behind(&world.layer(), one_body(body)).oneshot(bare(of("k")))).unwrap().unwrap();
    assert_eq!(world.left("in-flight", K), 1);
    drop(response);
    assert_eq!(world.left("in-flight", K), 2);
}

#[test]
fn a_body_may_end_where_there_is_no_runtime() {
    let world = World::new(RULES);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (_stream, body) = controlled_body();
    let response = runtime.block_on(behind(&world.layer(), one_body(body)).oneshot(bare(of("k")))).unwrap();
    assert_eq!(world.left("in-flight", K), 1);
    drop(runtime);
    drop(response);
    assert_eq!(world.left("in-flight", K), 2);
}

#[tokio::test(start_paused = true)]
async fn rules_may_change_while_a_request_is_inside() {
    let world = World::new(RULES);
    let layer = world.layer();
    let service = behind(&layer, |_| pending::<Result<Response<Full<Bytes>>, Infallible>>());
    let call = tokio::spawn(service.clone().oneshot(bare(of("k"))));
    settle_down().await;
    world.limiter.install(crate::world::ruleset(
        "
domain: llm
rules: [{name: other, key: [key], limit: 5/minute}]",
    ));
    world.pass(Duration::from_secs(10)).await;
    assert_eq!(ask(&layer, bare(of("k"))).await.status, 201);
    world.limiter.install(crate::world::ruleset(RULES));
    world.pass(Duration::from_secs(1)).await;
    assert_eq!(world.left("in-flight", K), 1, "it was changed back");
    call.abort();
    let _ = call.await;
    settle_down().await;
    assert_eq!((tasks(), layer.stats().inside), (0, 0));
    assert_eq!(world.left("in-flight", K), 2);
}

/// Records, when it is dropped, how many slots are left.
struct Last {
    limiter: Arc<Limiter<Memory>>,
    seen: Arc<Mutex<Vec<u64>>>,
}

impl Drop for Last {
    fn drop(&mut self) {
        self.seen.lock().unwrap().push(left(&self.limiter, "in-flight", K));
    }
}

/// A body of one frame that owns this.
struct OneFrame {
    _last: Last,
    given: bool,
}

impl http_body::Body for OneFrame {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let is_first = !std::mem::replace(&mut self.given, true);
        Poll::Ready(is_first.then(|| Ok(Frame::data(Bytes::from_static(b"x")))))
    }
}

#[tokio::test(start_paused = true)]
async fn the_handler_is_gone_before_its_slot_is_free() {
    let world = World::new(RULES);
    let (limiter, seen) = (world.limiter.clone(), Arc::new(Mutex::new(Vec::new())));
    let last = Last { limiter: limiter.clone(), seen: seen.clone() };
    drop(last);
    let watched = seen.clone();
    let service = behind(&world.layer(), move |request: TestRequest| {
        let last = Last { limiter: limiter.clone(), seen: watched.clone() };
        async move {
            if request.headers().contains_key("forever") {
                pending::<()>().await;
            }
            Ok::<_, Infallible>(Response::new(OneFrame { _last: last, given: false }))
        }
    });
    // A dropped future, a dropped body, and a body that is read to its end.
    let call = tokio::spawn(service.clone().oneshot(bare(of("k").header("forever", "1"))));
    settle_down().await;
    call.abort();
    let _ = call.await;
    drop(service.clone().oneshot(bare(of("k"))).await.unwrap());
    let mut body = service.clone().oneshot(bare(of("k"))).await.unwrap().into_body();
    body.frame().await.unwrap().unwrap();
    assert!(body.frame().await.is_none());
    assert_eq!(*seen.lock().unwrap(), [2, 1, 1, 1], "the first was never inside");
    assert_eq!(world.left("in-flight", K), 2);
}
