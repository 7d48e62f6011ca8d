//! On hyper without axum: real connections, and peer addresses that the application sets.

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tollgate_http::tower::TollgateLayer;
use tollgate_http::tower::extract::{PeerAddress, Proxies, client_address};
use tower::{Layer, ServiceExt};

use crate::world::World;

const RULES: &str = "
domain: shop
rules:
  - {name: per-client, key: [remote_address], limit: 2/minute}
";

async fn get(address: SocketAddr) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

#[tokio::test]
async fn the_layer_serves_connections_of_hyper() {
    let world = World::new(RULES);
    let layer = TollgateLayer::new(world.limiter.clone()).extract(client_address(Proxies::None));
    let inner = tower::service_fn(|_: Request<Incoming>| async {
        Ok::<_, Infallible>(Response::new(Full::new(Bytes::from_static(b"hello"))))
    });
    let service = layer.layer(inner);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let serving = tokio::spawn(async move {
        loop {
            let (stream, peer) = listener.accept().await.unwrap();
            let service = service.clone().map_request(move |mut request: Request<Incoming>| {
                request.extensions_mut().insert(PeerAddress(peer.ip()));
                request
            });
            let connection =
                http1::Builder::new().serve_connection(TokioIo::new(stream), TowerToHyperService::new(service));
            tokio::spawn(connection);
        }
    });
    for left in ["1", "0"] {
        let answer = get(address).await;
        assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("hello"), "{answer}");
        assert!(answer.contains(&format!("x-ratelimit-remaining: {left}\r\n")), "{answer}");
    }
    let answer = get(address).await;
    assert!(answer.starts_with("HTTP/1.1 429") && answer.contains("\r\nretry-after: "), "{answer}");
    assert!(answer.contains(r#""error":{"code":"RATE_LIMITED""#), "{answer}");
    assert_eq!(world.left("per-client", &[("remote_address", "127.0.0.1")]), 0);
    serving.abort();
}
