//! Overload: too many checks, connections and bytes.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use tollgate_testing::{TIMEOUT, eventually};

use crate::http::{get, post};
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
