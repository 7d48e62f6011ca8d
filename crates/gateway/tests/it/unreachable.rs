//! Servers to which no connection can be made in time.

use std::net::SocketAddr;

use socket2::{Domain, Socket, Type};
use tokio::net::TcpStream;

use crate::support::{App, NO_RULES, TestGateway, everything_to, scripted};
use crate::tls_upstreams::Identity;

const POST: &str = "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n";

/// A listener that accepts nothing, and whose queue is full: the kernel drops what wants to connect.
struct BlackHole {
    address: SocketAddr,
    _listener: Socket,
    _queued: Vec<Socket>,
}

impl BlackHole {
    fn open() -> BlackHole {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let listener = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        listener.bind(&any.into()).unwrap();
        listener.listen(0).unwrap();
        let address = listener.local_addr().unwrap().as_socket().unwrap();
        let mut queued = Vec::new();
        // One that is not accepted at once never will be.
        for _ in 0..100 {
            let client = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
            let is_full = client.connect_timeout(&address.into(), std::time::Duration::from_millis(500)).is_err();
            queued.push(client);
            if is_full {
                return BlackHole { address, _listener: listener, _queued: queued };
            }
        }
        panic!("the queue has no end");
    }
}

/// A server that accepts connections, and answers nothing.
async fn mute() -> SocketAddr {
    scripted(async |stream: TcpStream, _| {
        std::future::pending::<()>().await;
        drop(stream);
    })
    .await
}

fn with(config: &str, route: &str) -> String {
    config.replace("upstream: app}", &format!("upstream: app, {route}}}"))
}

#[tokio::test]
async fn a_server_that_accepts_no_connection_is_504() {
    let hole = BlackHole::open();
    let config = with(&everything_to(&[hole.address]), "timeouts: {connect: 300ms}");
    let gateway = TestGateway::start(&config, NO_RULES).await;
    for response in [gateway.get("/").await, gateway.request(POST).await] {
        assert!(response.starts_with("HTTP/1.1 504 ") && response.contains("connect_timeout"), "{response}");
    }
}

#[tokio::test]
async fn a_server_that_answers_no_handshake_is_504() {
    let identity = Identity::make();
    let config = with(&identity.config(&[mute().await]), "timeouts: {tls: 300ms, connect: 60s}");
    for config in [config.clone(), config.replace("servers:", "protocol: http2, servers:")] {
        let gateway = TestGateway::start(&config, NO_RULES).await;
        let response = gateway.get("/").await;
        assert!(response.starts_with("HTTP/1.1 504 ") && response.contains("connect_timeout"), "{response}");
    }
}

/// Sends requests until one of them was retried. Each is answered.
async fn until_retried(gateway: &TestGateway) {
    for number in 0..200 {
        // Nothing of it was sent, so it may have any method.
        let response = gateway.request(POST).await;
        assert!(response.starts_with("HTTP/1.1 200 "), "{number}: {response}");
        if gateway.gateway.status().upstreams[0].retries > 0 {
            return;
        }
    }
    panic!("no request was sent to the server that can't be reached");
}

#[tokio::test]
async fn another_server_gets_the_request() {
    let app = App::start().await;
    let hole = BlackHole::open();
    let config = with(&everything_to(&[hole.address, app.address]), "timeouts: {connect: 300ms}");
    until_retried(&TestGateway::start(&config, NO_RULES).await).await;

    let identity = Identity::make();
    let (well, _) = crate::tls_upstreams::server(&identity, crate::tls_upstreams::More::Nothing).await;
    let config = with(&identity.config(&[mute().await, well]), "timeouts: {tls: 2s}");
    until_retried(&TestGateway::start(&config, NO_RULES).await).await;
}

#[tokio::test]
async fn no_other_server_gets_it_if_the_route_does_not_retry() {
    let hole = BlackHole::open();
    let app = App::start().await;
    let config =
        with(&everything_to(&[hole.address, app.address]), "timeouts: {connect: 300ms}, retries: {on: [reset]}");
    let gateway = TestGateway::start(&config, NO_RULES).await;
    for _ in 0..200 {
        if gateway.get("/").await.starts_with("HTTP/1.1 504 ") {
            assert_eq!(gateway.gateway.status().upstreams[0].retries, 0);
            return;
        }
    }
    panic!("no request was sent to the server that can't be reached");
}
