//! The example under load: real connections, clients that disconnect midway, in memory and in Redis.

use std::net::SocketAddr;
use std::time::Duration;

use tollgate::{Clock, SystemClock};
use tollgate_testing::Redis;

use crate::running::{Call, KEY, Running, ask, until, until_all_are_free};

const RULES: &str = "
domain: demo
entity: api_key
rules:
  - {name: in-flight, key: [api_key], limit: 4 concurrent, hold: 2s, policy: security}
  - {name: tokens, key: [api_key], match: {endpoint: 'POST /generate'}, limit: 1000/day, cost: max_tokens, settle: true}
  - {name: orders, key: [api_key], match: {endpoint: 'POST /orders'}, limit: 3/day, refund: on_failure}
  - {name: paced, key: [api_key], match: {endpoint: 'GET /paced'}, limit: 10/second, burst: 20, algorithm: leaky_bucket}
  - {name: polite, key: [api_key], match: {endpoint: 'GET /paced'}, limit: 2/day, mode: soft}
";

const SLOTS: usize = 4;
const HOLD: Duration = Duration::from_secs(2);

/// A client that repeats requests and disconnects during half of them.
async fn client(to: SocketAddr, number: u64) -> (u64, u64) {
    let (mut passed, mut refused) = (0, 0);
    for round in 0..12 {
        let what = match (number + round) % 3 {
            0 => "GET /slow?ms=40",
            1 => "POST /generate?words=5&ms=10",
            _ => "POST /generate?words=1000&ms=10",
        };
        let mut call = Call::send(to, what, KEY).await.unwrap();
        if what.contains("slow") && round % 2 == 0 {
            // Before there is a response.
            let _ = tokio::time::timeout(Duration::from_millis(fastrand::u64(0..40)), call.head()).await;
            continue;
        }
        let status = call.head().await.map(|heard| heard.status);
        match status {
            Some(200) => passed += 1,
            Some(429 | 503) => refused += 1,
            other => panic!("{other:?}"),
        }
        if what.contains("words=5") {
            call.whole().await;
        } else {
            tokio::time::sleep(Duration::from_millis(fastrand::u64(0..60))).await;
        }
        tokio::time::sleep(Duration::from_millis(fastrand::u64(0..30))).await;
    }
    (passed, refused)
}

async fn clients_that_hang_up(service: &Running) {
    let to = service.address;
    let clients: Vec<_> = (0..16).map(|number| tokio::spawn(client(to, number))).collect();
    let (mut passed, mut refused) = (0, 0);
    for client in clients {
        let (more, less) = client.await.unwrap();
        (passed, refused) = (passed + more, refused + less);
    }
    until_all_are_free(to, SLOTS, HOLD).await;
    let inside = ask(to, "GET /inside").await;
    assert_eq!(inside.body(), "0 inside, 4 at most\n");
    assert!(passed > 10 && refused > 10, "{passed} passed, {refused} were refused: that is no load");
    assert_eq!(ask(to, "GET /health").await.status, 200);
}

/// A stream that is longer than a hold keeps its slot: no other request gets it, and the stream completes.
async fn a_long_stream(service: &Running) {
    let to = service.address;
    let stream = || Call::send(to, "POST /generate?words=90&ms=100", "x-api-key: long\r\n");
    let mut calls = Vec::new();
    for _ in 0..SLOTS {
        calls.push(stream().await.unwrap());
    }
    for call in &mut calls {
        assert_eq!(call.head().await.unwrap().status, 200);
    }
    // The streams take 9 s. On a busy machine a round takes more than its pause.
    for round in 0..40 {
        let other = Call::send(to, "GET /slow", "x-api-key: long\r\n").await.unwrap().whole().await.unwrap();
        assert!(other.is_refusal(), "{round}: {other:?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    for call in calls {
        assert!(call.ends().await);
    }
    until(to, "GET /slow", "x-api-key: long\r\n", Ok(200)).await;
}

async fn ends_and_costs(service: &Running) {
    let to = service.address;
    for _ in 0..5 {
        until(to, "POST /orders?fails=true", KEY, Ok(500)).await;
    }
    for _ in 0..3 {
        until(to, "POST /orders", KEY, Ok(201)).await;
    }
    // Three are admitted: failed ones did not count.
    until(to, "POST /orders", KEY, Err("orders")).await;
    let reserve = async |tokens: u64, words: u64, expected| {
        let headers = format!("{KEY}x-max-tokens: {tokens}\r\n");
        until(to, &format!("POST /generate?words={words}&ms=1"), &headers, expected).await
    };
    reserve(900, 10, Ok(200)).await;
    reserve(900, 20, Ok(200)).await;
    // 30 of 1,000 are used, and then all.
    reserve(971, 1, Err("tokens")).await;
    reserve(970, 970, Ok(200)).await;
    reserve(1, 1, Err("tokens")).await;
}

async fn delays(service: &Running) {
    let to = service.address;
    let clock = SystemClock::default();
    let began = clock.now();
    let mut signals = Vec::new();
    for _ in 0..4 {
        let answer = until(to, "GET /paced", KEY, Ok(200)).await;
        signals.push(answer.header("x-ratelimit-signal").map(str::to_owned));
    }
    // The first at once, the others at intervals of a tenth of a second.
    assert!(clock.now().since(began).as_micros() >= 295_000);
    assert_eq!(signals, [None, None, Some("polite".to_owned()), Some("polite".to_owned())]);
}

async fn all(service: &Running) {
    clients_that_hang_up(service).await;
    let others = async {
        ends_and_costs(service).await;
        delays(service).await;
    };
    tokio::join!(a_long_stream(service), others);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_in_memory() {
    all(&Running::start(RULES, &[])).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_in_redis() {
    let redis = Redis::start();
    all(&Running::start(RULES, &["--redis", &redis.url()])).await;
}
