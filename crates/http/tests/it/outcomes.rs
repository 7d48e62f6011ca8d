//! Outcomes and costs: refunds, and real costs in place of reserved ones.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Response};
use http_body::Frame;
use http_body_util::{BodyExt, Full};
use tollgate_http::tower::Spent;
use tower::ServiceExt;

use crate::world::{TestRequest, World, bare, behind, controlled_body, of, one_body};

const RULES: &str = "
domain: llm
entity: key
rules:
  - {name: orders, key: [key], limit: 10/day, refund: on_failure}
  - {name: plain, key: [key], limit: 10/day}
  - {name: tokens, key: [key], limit: 1000/day, cost: tokens, settle: true}
";

const K: &[(&str, &str)] = &[("key", "k"), ("tokens", "0")];

fn left(world: &World) -> (u64, u64, u64) {
    (world.left("orders", K), world.left("plain", K), world.left("tokens", K))
}

fn reserving(tokens: &str) -> TestRequest {
    bare(of("k").header("tokens", tokens))
}

#[tokio::test]
async fn a_failure_of_the_server_is_refunded_where_the_rule_says_so() {
    for (status, refunded) in [(200, 9), (302, 9), (404, 9), (429, 9), (500, 10), (503, 10)] {
        let world = World::new(RULES);
        let service = behind(&world.layer(), move |_| async move {
            let response = Response::builder().status(status).body(Full::<Bytes>::from("x"));
            Ok::<_, Infallible>(response.unwrap())
        });
        drop(service.oneshot(reserving("100")).await.unwrap());
        assert_eq!(left(&world), (refunded, 9, 900), "{status}");
    }
}

#[tokio::test]
async fn so_is_an_error_of_the_service_of_the_body_and_of_a_call_of_grpc() {
    let world = World::new(RULES);
    let service = behind(&world.layer(), |_| async { Err::<Response<Full<Bytes>>, _>("out of order") });
    service.oneshot(reserving("100")).await.unwrap_err();
    assert_eq!(left(&world), (10, 9, 900));

    let trailers = |status: &'static str| {
        let mut trailers = HeaderMap::new();
        trailers.insert("grpc-status", status.parse().unwrap());
        Ok(Frame::trailers(trailers))
    };
    let ends = [
        (Err(std::io::Error::other("gone")), true),
        (trailers("13"), true),
        (trailers("14"), true),
        (trailers("0"), false),
        (trailers("8"), false),
        (Ok(Frame::data(Bytes::from_static(b"more"))), false),
    ];
    for (number, (end, is_failure)) in ends.into_iter().enumerate() {
        let world = World::new(RULES);
        let (stream, body) = controlled_body();
        stream.send(Ok(Frame::data(Bytes::from_static(b"one")))).unwrap();
        let is_error = end.is_err();
        stream.send(end).unwrap();
        drop(stream);
        let service = behind(&world.layer(), one_body(body));
        let response = service.oneshot(reserving("100")).await.unwrap();
        assert_eq!(response.into_body().collect().await.is_err(), is_error, "the error is passed on");
        assert_eq!(left(&world), (if is_failure { 10 } else { 9 }, 9, 900), "{number}");
    }
}

#[tokio::test]
async fn so_is_a_panic_and_a_grpc_answer_of_headers_alone() {
    let world = World::new(RULES);
    let service = behind(&world.layer(), |_| async {
        tokio::task::yield_now().await;
        if true {
            panic!("a bug");
        }
        Ok::<_, Infallible>(Response::new(Full::<Bytes>::default()))
    });
    assert!(tokio::spawn(service.oneshot(reserving("100"))).await.unwrap_err().is_panic());
    assert_eq!(left(&world), (10, 9, 900));
    let service = behind(&world.layer(), |_| async {
        Ok::<_, Infallible>(Response::builder().header("grpc-status", "13").body(Full::<Bytes>::default()).unwrap())
    });
    service.oneshot(reserving("100")).await.unwrap();
    assert_eq!(left(&world), (10, 8, 800));
}

#[tokio::test]
async fn who_hangs_up_has_had_what_was_reserved() {
    let world = World::new(RULES);
    let (_stream, body) = controlled_body();
    let service = behind(&world.layer(), one_body(body));
    drop(service.oneshot(reserving("100")).await.unwrap());
    assert_eq!(left(&world), (9, 9, 900));
}

#[tokio::test]
async fn the_last_report_takes_the_place_of_what_was_reserved() {
    for (reports, tokens_left) in [(vec![], 600), (vec![100], 900), (vec![100, 700], 300), (vec![900, 0], 1000)] {
        let world = World::new(RULES);
        let all = reports.clone();
        let service = behind(&world.layer(), move |request: TestRequest| {
            let (spent, reports) = (request.extensions().get::<Spent>().unwrap().clone(), reports.clone());
            async move {
                reports.into_iter().for_each(|cost| spent.clone().report(cost));
                Ok::<_, Infallible>(Response::new(Full::<Bytes>::from("x")))
            }
        });
        service.oneshot(reserving("400")).await.unwrap().into_body().collect().await.unwrap();
        assert_eq!(left(&world), (9, 9, tokens_left), "{all:?}");
    }
}

#[tokio::test]
async fn costs_are_reported_while_streaming_and_not_after_the_end() {
    let world = World::new(RULES);
    let (stream, body) = controlled_body();
    let slot = Arc::new(Mutex::new((Some(body), Spent::default())));
    let handler = slot.clone();
    let service = behind(&world.layer(), move |request: TestRequest| {
        let mut slot = handler.lock().unwrap();
        slot.1 = request.extensions().get::<Spent>().unwrap().clone();
        let body = slot.0.take().unwrap();
        async move { Ok::<_, Infallible>(Response::new(body)) }
    });
    let mut body = service.oneshot(reserving("100")).await.unwrap().into_body();
    let spent = slot.lock().unwrap().1.clone();
    for words in [500, 2_500] {
        stream.send(Ok(Frame::data(Bytes::from_static(b"words")))).unwrap();
        body.frame().await.unwrap().unwrap();
        spent.report(words);
    }
    assert_eq!(left(&world), (9, 9, 900), "it is settled at the end");
    drop(body);
    assert_eq!(left(&world), (9, 9, 0), "above what was reserved, past the limit too");
    spent.report(0);
    assert_eq!(left(&world), (9, 9, 0));
}

#[tokio::test]
async fn a_cost_that_can_not_be_counted_is_the_largest_that_can() {
    let world = World::new(RULES);
    let service = behind(&world.layer(), |request: TestRequest| async move {
        request.extensions().get::<Spent>().unwrap().report(u64::MAX);
        Ok::<_, Infallible>(Response::new(Full::<Bytes>::from("x")))
    });
    drop(service.oneshot(reserving("1")).await.unwrap());
    assert_eq!(left(&world), (9, 9, 0));
}

#[tokio::test(start_paused = true)]
async fn who_never_reached_the_handler_has_had_nothing() {
    let rules = "
domain: llm
entity: key
rules:
  - {name: paced, key: [key], limit: 1/second, burst: 5, algorithm: leaky_bucket}
  - {name: orders, key: [key], limit: 10/day, refund: on_failure}
  - {name: plain, key: [key], limit: 10/day}
  - {name: tokens, key: [key], limit: 1000/day, cost: tokens, settle: true}
  - {name: in-flight, key: [key], limit: 5 concurrent}
";
    let world = World::new(rules);
    let layer = world.layer().max_delay(Duration::from_secs(5));
    let service = behind(&layer, |_| async { Ok::<_, Infallible>(Response::new(Full::<Bytes>::from("x"))) });
    drop(service.clone().oneshot(reserving("100")).await.unwrap());
    let held_back = tokio::spawn(service.oneshot(reserving("100")));
    crate::world::settle_down().await;
    assert_eq!((left(&world), world.left("in-flight", K)), ((8, 8, 800), 4));
    held_back.abort();
    assert!(held_back.await.unwrap_err().is_cancelled());
    assert_eq!((left(&world), world.left("in-flight", K)), ((9, 8, 900), 5));
}
