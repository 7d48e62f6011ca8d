//! Streams: events, tunnels, clients that leave.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::support::{NO_RULES, TestGateway, everything_to, read_message, scripted, within};

const ONE_SLOT: &str = "
domain: api
rules:
  - {name: in-flight, key: [host], limit: 1 concurrent, hold: 60s}
";

#[tokio::test]
async fn events_arrive_one_by_one() {
    // The next event is sent when the client has the one before.
    let arrived = Arc::new(tokio::sync::Semaphore::new(1));
    let next = arrived.clone();
    let upstream = scripted(move |mut stream, _| {
        let next = next.clone();
        async move {
            read_message(&mut stream).await;
            let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
            stream.write_all(head.as_bytes()).await.unwrap();
            for number in 0..5 {
                next.acquire().await.unwrap().forget();
                stream.write_all(format!("9\r\ndata: {number}\n\n\r\n").as_bytes()).await.unwrap();
            }
            stream.write_all(b"0\r\n\r\n").await.unwrap();
        }
    })
    .await;
    let gateway = TestGateway::to(&[upstream]).await;
    let mut client = gateway.connect().await;
    client.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n").await;
    let (mut text, mut events) = (String::new(), 0);
    let mut buffer = [0; 4096];
    while !text.ends_with("0\r\n\r\n") {
        let read = within(client.0.read(&mut buffer)).await.unwrap();
        text.push_str(&String::from_utf8_lossy(&buffer[..read]));
        let seen = text.matches("data: ").count();
        arrived.add_permits(seen - events);
        events = seen;
    }
    assert_eq!(events, 5);
}

#[tokio::test]
async fn a_client_that_leaves_ends_the_upstreams_work_and_frees_its_slot() {
    let ended = Arc::<AtomicUsize>::default();
    let counted = ended.clone();
    let upstream = scripted(move |mut stream, number| {
        let counted = counted.clone();
        async move {
            read_message(&mut stream).await;
            if number > 0 {
                stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await.unwrap();
                return;
            }
            // Never answers.
            let _ = stream.read(&mut [0; 1]).await;
            counted.fetch_add(1, Ordering::Relaxed);
        }
    })
    .await;
    let gateway = TestGateway::start(&everything_to(&[upstream]), ONE_SLOT).await;
    let mut client = gateway.connect().await;
    client.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n").await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    let request = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
    assert!(gateway.request(request).await.starts_with("HTTP/1.1 429 "));
    drop(client);
    within(async {
        while ended.load(Ordering::Relaxed) == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    assert!(gateway.request(request).await.starts_with("HTTP/1.1 200 "));
}

#[tokio::test]
async fn a_websocket_is_a_tunnel_that_holds_its_slot() {
    let upstream = scripted(async |mut stream, _| {
        let request = read_message(&mut stream).await.to_ascii_lowercase();
        if !request.contains("upgrade: websocket") || !request.contains("connection: upgrade") {
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nno").await.unwrap();
            return;
        }
        let response = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: x\r\n\r\n";
        stream.write_all(response.as_bytes()).await.unwrap();
        let (mut from, mut to) = stream.split();
        tokio::io::copy(&mut from, &mut to).await.unwrap();
    })
    .await;
    let gateway = TestGateway::start(&everything_to(&[upstream]), ONE_SLOT).await;
    let mut client = gateway.connect().await;
    let request = "GET /chat HTTP/1.1\r\nHost: api\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: x\r\nSec-WebSocket-Version: 13\r\n\r\n";
    client.send(request).await;
    let response = client.response().await.to_ascii_lowercase();
    assert!(response.starts_with("http/1.1 101 ") && response.contains("upgrade: websocket"), "{response}");
    assert!(response.contains("sec-websocket-accept: x") && response.contains("connection: upgrade"), "{response}");
    let sent: Vec<u8> = (0..1 << 20).map(|number| (number % 251) as u8).collect();
    let (mut from, mut to) = client.0.split();
    let mut received = vec![0; sent.len()];
    let (written, read) = within(async { tokio::join!(to.write_all(&sent), from.read_exact(&mut received)) }).await;
    written.unwrap();
    read.unwrap();
    assert!(sent == received, "a MiB arrives both ways");
    assert!(gateway.get("/").await.starts_with("HTTP/1.1 429 "), "the slot is held");
    drop(client);
    // The slot is free when the tunnel ends.
    within(async {
        while !gateway.get("/").await.starts_with("HTTP/1.1 200 ") {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_websocket_on_which_nothing_is_sent_ends_and_frees_its_slot() {
    let upstream = scripted(async |mut stream, _| {
        if !read_message(&mut stream).await.to_ascii_lowercase().contains("upgrade: websocket") {
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").await.unwrap();
            return;
        }
        let response = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n";
        stream.write_all(response.as_bytes()).await.unwrap();
        let (mut from, mut to) = stream.split();
        let _ = tokio::io::copy(&mut from, &mut to).await;
    })
    .await;
    let config = everything_to(&[upstream]).replace("upstream: app}", "upstream: app, timeouts: {idle: 300ms}}");
    let gateway = TestGateway::start(&config, ONE_SLOT).await;
    let mut client = gateway.connect().await;
    client.send("GET / HTTP/1.1\r\nHost: api\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n").await;
    assert!(client.response().await.starts_with("HTTP/1.1 101 "));
    client.send("hello").await;
    assert_eq!(client.rest().await, "hello", "and it is closed");
    within(async {
        while !gateway.get("/").await.starts_with("HTTP/1.1 200 ") {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
}

#[tokio::test]
async fn an_upgrade_that_nobody_requested_is_a_502() {
    let upstream = scripted(async |mut stream, _| {
        read_message(&mut stream).await;
        let _ =
            stream.write_all(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n").await;
        let _ = stream.read(&mut [0; 1]).await;
    })
    .await;
    let response = TestGateway::to(&[upstream]).await.get("/").await;
    assert!(response.starts_with("HTTP/1.1 502 "), "{response}");
}

#[tokio::test]
async fn a_stream_that_falls_silent_ends() {
    let upstream = scripted(async |mut stream, _| {
        read_message(&mut stream).await;
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nbegin").await.unwrap();
        let _ = stream.read(&mut [0; 1]).await;
    })
    .await;
    let config = everything_to(&[upstream]).replace("upstream: app}", "upstream: app, timeouts: {idle: 100ms}}");
    let gateway = TestGateway::start(&config, NO_RULES).await;
    let mut client = gateway.connect().await;
    client.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n").await;
    assert!(client.rest().await.ends_with("begin"));
}

#[tokio::test]
async fn a_whole_request_has_its_time() {
    let upstream = scripted(async |mut stream, _| {
        read_message(&mut stream).await;
        stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").await.unwrap();
        // A drop at a time, so that the stream is never idle for long.
        while stream.write_all(b"1\r\nx\r\n").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    let config = everything_to(&[upstream]).replace("upstream: app}", "upstream: app, timeouts: {whole: 200ms}}");
    let gateway = TestGateway::start(&config, NO_RULES).await;
    let mut client = gateway.connect().await;
    client.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n").await;
    let response = client.rest().await;
    assert!(response.starts_with("HTTP/1.1 200 ") && !response.ends_with("0\r\n\r\n"), "{response}");
}

#[tokio::test]
async fn a_large_body_passes_both_ways() {
    const BYTES: usize = 64 << 20;
    let upstream = scripted(async |mut stream, _| {
        let mut head = Vec::new();
        let mut byte = [0; 1];
        while !head.ends_with(b"\r\n\r\n") {
            stream.read_exact(&mut byte).await.unwrap();
            head.push(byte[0]);
        }
        let mut left = BYTES;
        let mut buffer = vec![0; 64 * 1024];
        while left > 0 {
            left -= stream.read(&mut buffer).await.unwrap();
        }
        stream.write_all(format!("HTTP/1.1 200 OK\r\nContent-Length: {BYTES}\r\n\r\n").as_bytes()).await.unwrap();
        for _ in 0..BYTES / buffer.len() {
            stream.write_all(&buffer).await.unwrap();
        }
    })
    .await;
    let config = everything_to(&[upstream]).replace("upstream: app}", "upstream: app, max_body: 1GiB}");
    let gateway = TestGateway::start(&config, NO_RULES).await;
    let mut client = gateway.connect().await;
    client.send(&format!("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: {BYTES}\r\n\r\n")).await;
    let (mut from, mut to) = client.0.split();
    let send = async {
        let part = vec![7; 1 << 20];
        for _ in 0..BYTES >> 20 {
            to.write_all(&part).await.unwrap();
        }
    };
    let read = async {
        let (mut read, mut buffer) = (0, vec![0; 1 << 20]);
        while read < BYTES {
            let count = from.read(&mut buffer).await.unwrap();
            assert!(count > 0, "ended after {read} bytes");
            read += count;
        }
    };
    within(async { tokio::join!(send, read) }).await;
}
