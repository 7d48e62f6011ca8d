//! Overload: too many checks, connections and bytes.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use tollgate_testing::{Redis, TIMEOUT, eventually};

use crate::http::{HttpResponse, get, post};
use crate::new_server;

const RULES: &str = "
domain: d
rules:
  - {name: comfort, key: [user], limit: 1/day}
  - {name: login, key: [address], limit: 1/day, policy: security}
";
const CHECK: &str = "/v1/ratelimit/check";

#[test]
fn checks_beyond_the_bound_follow_their_policies() {
    let server = new_server().rules(RULES).listen(&["http", "admin"]).args(&["--http-max-in-flight", "0"]).start();
    for _ in 0..3 {
        let comfort = post(&server.url("http", CHECK), r#"{"attributes":{"user":"u"}}"#);
        assert_eq!(comfort.status, 200);
        assert_eq!(comfort.json()["source"], "shed");
    }
    let login = post(&server.url("http", CHECK), r#"{"attributes":{"address":"a"}}"#);
    assert_eq!(login.status, 503);
    assert!(login.body.contains("temporary-reduced-capacity"), "{}", login.body);
    let metrics = get(&server.url("admin", "/metrics")).body;
    let expected = r#"tollgate_decisions_total{wire="http",outcome="allow",source="shed"} 3"#;
    assert!(metrics.contains(expected), "{metrics}");
}

/// While Redis answers nothing, checks of comfort limits give way to those of security limits.
#[test]
fn while_redis_stalls_comfort_is_shed_and_security_is_not() {
    const BOUND: usize = 10;
    let mut redis = Redis::start();
    let bound = BOUND.to_string();
    let args = ["--store", &redis.url(), "--store-deadline", "1s", "--http-max-in-flight", &bound];
    let server = new_server().rules(RULES).listen(&["http", "admin"]).args(&args).start();
    let url = server.url("http", CHECK);
    let check = |name: &str, value: usize| -> HttpResponse {
        post(&url, &format!(r#"{{"attributes":{{"{name}":"{value}"}}}}"#))
    };
    assert_eq!(
        eventually(|| Some(check("address", 0)).filter(|one| one.status == 200)).unwrap().json()["source"],
        "store"
    );
    let shed = |policy: &str| {
        let metrics = get(&server.url("admin", "/metrics")).body;
        let series = format!(r#"tollgate_shed_checks_total{{wire="http",policy="{policy}"}} "#);
        let line = metrics.lines().find_map(|line| line.strip_prefix(&series)).unwrap();
        line.parse::<u64>().unwrap()
    };
    // More comfort checks than their share, which a slow machine may not send within one deadline.
    let mut round = 0;
    let is_shed = eventually(|| {
        // Every caller has one request a day.
        round += 1;
        let caller = |number| 1_000 * round + number;
        redis.pause();
        let send = |attribute: &'static str, number: usize| (attribute, check(attribute, caller(number)));
        let responses: Vec<_> = std::thread::scope(|scope| {
            let checks = (0..3 * BOUND).map(|number| ("user", number)).chain((0..2).map(|number| ("address", number)));
            let sent: Vec<_> = checks.map(|(name, number)| scope.spawn(move || send(name, number))).collect();
            sent.into_iter().map(|sent| sent.join().unwrap()).collect()
        });
        redis.resume();
        for (attribute, response) in responses {
            // Logins are refused because the store did not answer in time, or are decided by it.
            let source = response.json()["source"].as_str().unwrap_or_default().to_owned();
            match attribute {
                "user" => assert_eq!(response.status, 200, "{response:?}"),
                _ => assert!(source != "shed" && (response.status == 503 || source == "store"), "{response:?}"),
            }
        }
        (shed("comfort") > 0).then_some(())
    });
    assert!(is_shed.is_some());
    assert_eq!((shed("security"), shed("cost")), (0, 0));
}

#[test]
fn connections_are_bounded() {
    let server = new_server().rules(RULES).listen(&["http", "admin"]).args(&["--http-max-connections", "2"]).start();
    let open = || {
        let mut stream = TcpStream::connect(server.address("http")).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        stream.write_all(b"GET /livez HTTP/1.1\r\nhost: t\r\n\r\n").unwrap();
        let mut first = [0; 15];
        stream.read_exact(&mut first).ok().map(|()| stream)
    };
    let (one, two) = (open().unwrap(), open().unwrap());
    assert!(open().is_none());
    let metrics = get(&server.url("admin", "/metrics")).body;
    assert!(metrics.contains(r#"tollgate_connections_refused_total{listener="http"} 1"#), "{metrics}");
    drop(one);
    assert!(eventually(open).is_some());
    drop(two);
}

/// A client with made-up API keys fills the memory for counters. What others have used up stays used up, and operators
/// see it.
#[test]
fn a_flood_of_new_keys_makes_nobody_forget_what_is_used_up() {
    const RULES: &str = "
domain: d
rules:
  - {name: open, key: [api_key], limit: 1000/day}
  - {name: login, key: [address], limit: 2/hour, policy: security}
  - {name: once, key: [email], limit: 1/day}
";
    let server = new_server().rules(RULES).listen(&["http", "admin"]).args(&["--max-keys", "100"]).start();
    let check = |attribute: &str, value: &str| {
        let body = format!(r#"{{"attributes":{{"{attribute}":"{value}"}}}}"#);
        post(&server.url("http", CHECK), &body)
    };
    let login = || check("address", "192.0.2.1").status;
    assert_eq!([login(), login(), login()], [200, 200, 429]);
    let metric = |name: &str| -> f64 {
        let metrics = get(&server.url("admin", "/metrics")).body;
        let value = metrics.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        value.unwrap_or_else(|| panic!("{name} in {metrics}")).parse().unwrap()
    };
    assert_eq!(get(&server.url("admin", "/readyz")).json()["degraded"], serde_json::json!([]));
    for key in 0..300 {
        assert_eq!(check("api_key", &format!("made-up-{key}")).status, 200);
    }
    assert_eq!(login(), 429, "the flood made the server forget");
    server.wait_for_log("the memory for counters is full");
    let ready = get(&server.url("admin", "/readyz"));
    assert_eq!(ready.status, 200, "degraded is not unready");
    let part = &ready.json()["degraded"][0];
    assert_eq!(part["part"], "store", "{}", ready.body);
    assert!(
        part["reason"].as_str().unwrap().contains("counters were evicted before they were stale"),
        "{}",
        ready.body
    );
    assert!(metric("tollgate_store_evicted_keys_total ") >= 200.0);
    assert_eq!(metric(r#"tollgate_degraded{part="store"} "#), 1.0);

    // Every counter of this rule refuses: what has no counter of its own shares one.
    let passed = (0..200).filter(|key| check("email", &key.to_string()).status == 200).count();
    assert!((17..=51).contains(&passed), "from the guarantee of the rule to its share, and one more: {passed}");
    let one_more = check("email", "one-more");
    assert_eq!((one_more.status, &one_more.json()["source"]), (429, &"local".into()), "{}", one_more.body);
    assert_eq!(metric("tollgate_store_coarse_charges_total "), 1.0);
    assert_eq!(login(), 429);
}

/// The memory of a process, in MiB.
pub(super) fn memory(id: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{id}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() / 1024
}

#[test]
fn endless_bodies_use_bounded_memory() {
    let server = new_server().rules(RULES).listen(&["http"]).args(&["--body-timeout", "5m"]).start();
    let before = memory(server.id());
    let head = format!("POST {CHECK} HTTP/1.1\r\nhost: t\r\ncontent-length: 65000\r\n\r\n");
    let half = [head.as_bytes(), &vec![b' '; 60_000]].concat();
    let open: Vec<TcpStream> = (0..300)
        .map(|_| {
            let mut stream = TcpStream::connect(server.address("http")).unwrap();
            stream.write_all(&half).unwrap();
            stream
        })
        .collect();
    assert_eq!(post(&server.url("http", CHECK), r#"{"attributes":{"user":"u"}}"#).status, 200);
    let after = memory(server.id());
    assert!(after - before < 100, "{before} MiB, then {after} MiB");
    drop(open);
}

/// Starts a call that sends this many bytes and does not end. Returns the message of the response.
async fn endless_call(
    sender: &mut hyper::client::conn::http2::SendRequest<EndlessBody>,
    bytes: usize,
) -> impl Future<Output = Option<Vec<u8>>> + use<> {
    let request = hyper::Request::post("http://t/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit")
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(EndlessBody { left: bytes })
        .unwrap();
    sender.ready().await.unwrap();
    let response = sender.send_request(request);
    async move {
        let mut body = response.await.ok()?.into_body();
        let mut message = Vec::new();
        while let Some(frame) = http_body_util::BodyExt::frame(&mut body).await {
            message.extend_from_slice(frame.ok()?.data_ref()?);
            if message.len() >= 7 {
                return Some(message);
            }
        }
        None
    }
}

/// A body of this many bytes that does not end.
struct EndlessBody {
    left: usize,
}

impl http_body::Body for EndlessBody {
    type Data = bytes::Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<http_body::Frame<Self::Data>, Self::Error>>> {
        const PIECE: usize = 16 * 1024;
        if self.left == 0 {
            return std::task::Poll::Pending;
        }
        self.left = self.left.saturating_sub(PIECE);
        // The first bytes announce a long message.
        let piece = [&[0, 0, 3, 0xff, 0xff][..], &[0; PIECE - 5]].concat();
        std::task::Poll::Ready(Some(Ok(http_body::Frame::data(piece.into()))))
    }
}

#[tokio::test]
async fn endless_calls_are_answered_by_policy_beyond_a_bound() {
    let args = ["--body-timeout", "5m"];
    let server = new_server().rules(RULES).listen(&["grpc"]).args(&args).start();
    let mut calls = tokio::task::JoinSet::new();
    let mut senders = Vec::new();
    for _ in 0..4 {
        let stream = tokio::net::TcpStream::connect(server.address("grpc")).await.unwrap();
        let executor = hyper_util::rt::TokioExecutor::new();
        let io = hyper_util::rt::TokioIo::new(stream);
        let (mut sender, connection) = hyper::client::conn::http2::handshake(executor, io).await.unwrap();
        tokio::spawn(connection);
        for _ in 0..200 {
            calls.spawn(endless_call(&mut sender, 128 * 1024).await);
        }
        senders.push(sender);
    }
    // The calls need 100 MiB, and the bound is 64: some are refused, since a rule with `policy: security` might apply.
    let refused = tokio::time::timeout(TIMEOUT, calls.join_next()).await.unwrap().unwrap().unwrap();
    // The prefix of a message, and `overall_code: OVER_LIMIT`.
    assert_eq!(refused.as_deref(), Some(&[0, 0, 0, 0, 2, 8, 2][..]));
    drop((senders, calls));
    let client = crate::serve::grpc::client(&server).await;
    let answered = || async { client.clone().should_rate_limit(crate::serve::grpc::request("u")).await.is_ok() };
    let mut tries = 0;
    while !answered().await {
        tries += 1;
        assert!(tries < 1000, "the reserved memory is not released");
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
}
