//! Clients of HTTP/2 that make no room for their responses.

use std::sync::Arc;

use bytes::Bytes;
use http::Request;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;

use crate::support::{TestGateway, everything_to, read_message, scripted, within};

const ONE_SLOT: &str = "
domain: api
rules:
  - {name: in-flight, key: [host], limit: 1 concurrent, hold: 60s}
";

#[tokio::test]
async fn the_whole_timeout_ends_a_response_for_which_a_client_makes_no_room() {
    let closed = Arc::new(Semaphore::new(0));
    let close = closed.clone();
    // The first response has no end.
    let upstream = scripted(move |mut stream, number| {
        let close = close.clone();
        async move {
            read_message(&mut stream).await;
            if number > 0 {
                stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await.unwrap();
                return;
            }
            let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n";
            stream.write_all(head.as_bytes()).await.unwrap();
            let _ = stream.read(&mut [0; 1]).await;
            close.add_permits(1);
        }
    })
    .await;
    let config = everything_to(&[upstream]).replace("upstream: app}", "upstream: app, timeouts: {whole: 1s}}");
    let gateway = TestGateway::start(&config, ONE_SLOT).await;
    let stream = TcpStream::connect(gateway.address).await.unwrap();
    let (mut sender, connection) =
        h2::client::Builder::new().initial_window_size(0).handshake::<_, Bytes>(stream).await.unwrap();
    tokio::spawn(connection);
    let request = Request::get("http://x/").body(()).unwrap();
    let response = within(sender.send_request(request, true).unwrap().0).await.unwrap();
    assert_eq!(response.status(), 200);
    assert!(gateway.request("GET / HTTP/1.1\r\nHost: x\r\n\r\n").await.starts_with("HTTP/1.1 429 "));
    let error = within(response.into_body().data()).await.unwrap().unwrap_err();
    assert_eq!(error.reason(), Some(h2::Reason::CANCEL), "{error}");
    within(closed.acquire()).await.unwrap().forget();
    assert!(gateway.request("GET / HTTP/1.1\r\nHost: x\r\n\r\n").await.starts_with("HTTP/1.1 200 "));
}
