//! What HTTP/1.1 servers may send, and whether their connections are used again after it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;

use crate::support::{NO_RULES, TestGateway, everything_to, http2, read_message, scripted, within};

const OK: &str = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// An upstream that sends this for each request whose path is `/odd`, and [`OK`] for others. Returns the number of its
/// connections.
async fn odd(response: &'static str, is_closed: bool) -> (SocketAddr, Arc<AtomicUsize>) {
    let connections = Arc::<AtomicUsize>::default();
    let counted = connections.clone();
    let address = scripted(move |mut stream, _| {
        counted.fetch_add(1, Ordering::Relaxed);
        async move {
            loop {
                let request = read_message(&mut stream).await;
                if request.is_empty() {
                    return;
                }
                let is_odd = request.split(' ').nth(1).is_some_and(|path| path == "/odd");
                let response = if is_odd { response } else { OK };
                if stream.write_all(response.as_bytes()).await.is_err() || (is_odd && is_closed) {
                    return;
                }
            }
        }
    });
    (address.await, connections)
}

/// A response up to the end of its head, in lower case.
async fn head(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(within(stream.read_u8()).await.unwrap());
    }
    String::from_utf8_lossy(&head).to_ascii_lowercase()
}

/// How a response that a server sends arrives, and whether its connection is used again.
struct Case {
    method: &'static str,
    sent: &'static str,
    /// The end of the head in lower case, without the date, and the body.
    expected: &'static str,
    body: &'static str,
    is_reused: bool,
}

const CASES: [Case; 11] = [
    Case { method: "GET", sent: OK, expected: "200 ok\r\ncontent-length: 2", body: "ok", is_reused: true },
    Case {
        method: "POST",
        sent: "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
        expected: "200 ok\r\ncontent-length: 2",
        body: "ok",
        is_reused: true,
    },
    Case {
        method: "HEAD",
        sent: "HTTP/1.1 200 OK\r\nContent-Length: 77\r\n\r\n",
        expected: "200 ok\r\ncontent-length: 77",
        body: "",
        is_reused: true,
    },
    Case {
        method: "HEAD",
        sent: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
        expected: "200 ok",
        body: "",
        is_reused: true,
    },
    // A body that must not be there.
    Case { method: "HEAD", sent: OK, expected: "200 ok\r\ncontent-length: 2", body: "", is_reused: false },
    Case {
        method: "GET",
        sent: "HTTP/1.1 304 Not Modified\r\nContent-Length: 77\r\n\r\n",
        expected: "304 not modified\r\ncontent-length: 77",
        body: "",
        is_reused: true,
    },
    Case {
        method: "GET",
        sent: "HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n",
        expected: "204 no content",
        body: "",
        is_reused: true,
    },
    Case {
        method: "GET",
        sent: "HTTP/1.1 204 No Content\r\nContent-Length: 2\r\n\r\nok",
        expected: "204 no content",
        body: "",
        is_reused: false,
    },
    Case {
        method: "GET",
        sent: "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil",
        expected: "200 ok\r\ncontent-length: 2",
        body: "ok",
        is_reused: false,
    },
    Case {
        method: "GET",
        sent: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\nHTTP/1.1 200 OK\r\n\r\n",
        expected: "200 ok\r\ntransfer-encoding: chunked",
        body: "2\r\nok\r\n0\r\n\r\n",
        is_reused: false,
    },
    Case {
        method: "GET",
        sent: "HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok",
        expected: "200 ok\r\ncontent-length: 2",
        body: "ok",
        is_reused: false,
    },
];

#[tokio::test]
async fn a_connection_is_used_again_only_if_nothing_is_left_on_it() {
    for Case { method, sent, expected, body, is_reused } in CASES {
        let (address, connections) = odd(sent, false).await;
        let gateway = TestGateway::to(&[address]).await;
        let mut client = gateway.connect().await;
        client.send(&format!("{method} /odd HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n")).await;
        let head = head(&mut client.0).await;
        let fields = head.split("\r\n").filter(|line| !line.starts_with("date: ")).collect::<Vec<_>>().join("\r\n");
        assert_eq!(fields.trim_end(), format!("http/1.1 {expected}"), "{method} {sent}");
        let mut rest = vec![0; body.len()];
        within(client.0.read_exact(&mut rest)).await.unwrap();
        assert_eq!(String::from_utf8_lossy(&rest), body, "{method} {sent}");
        // Nothing of a body that must not be there is the next response.
        for _ in 0..2 {
            client.send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n").await;
            let next = client.response().await;
            assert!(next.starts_with("HTTP/1.1 200 ") && next.ends_with("\r\n\r\nok"), "{method} {sent}: {next}");
        }
        assert_eq!(connections.load(Ordering::Relaxed), if is_reused { 1 } else { 2 }, "{method} {sent}");
    }
}

#[tokio::test]
async fn a_body_without_a_length_ends_with_its_connection() {
    let (address, connections) = odd("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\nall of it", true).await;
    let gateway = TestGateway::to(&[address]).await;
    for number in 1..=3 {
        let response = gateway.get("/odd").await;
        assert!(response.starts_with("HTTP/1.1 200 ") && response.contains("all of it"), "{response}");
        assert!(response.ends_with("0\r\n\r\n"), "it is whole: {response}");
        assert_eq!(connections.load(Ordering::Relaxed), number);
    }
}

#[tokio::test]
async fn a_response_before_the_end_of_an_upload_ends_the_connection() {
    let connections = Arc::<AtomicUsize>::default();
    let counted = connections.clone();
    // Answers a head at once, with keep-alive, and reads what comes.
    let upstream = scripted(move |mut stream, _| {
        counted.fetch_add(1, Ordering::Relaxed);
        async move {
            let mut bytes = Vec::new();
            while let Ok(byte) = stream.read_u8().await {
                bytes.push(byte);
                if bytes.ends_with(b"\r\n\r\n") {
                    let _ = stream.write_all(OK.as_bytes()).await;
                }
            }
        }
    })
    .await;
    let gateway = TestGateway::to(&[upstream]).await;
    let mut client = gateway.connect().await;
    client.send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\npart").await;
    assert!(client.response().await.ends_with("\r\n\r\nok"));
    assert!(gateway.get("/").await.starts_with("HTTP/1.1 200 "));
    assert_eq!(connections.load(Ordering::Relaxed), 2, "the rest of the upload is not the next request");
}

#[tokio::test]
async fn a_server_that_asks_for_the_body_first_gets_it() {
    let upstream = scripted(async |mut stream, _| {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.unwrap());
        }
        stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await.unwrap();
        let mut body = [0; 5];
        stream.read_exact(&mut body).await.unwrap();
        assert_eq!(&body, b"hello");
        stream.write_all(OK.as_bytes()).await.unwrap();
    })
    .await;
    let gateway = TestGateway::to(&[upstream]).await;
    let mut client = gateway.connect().await;
    client.send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n").await;
    tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    client.send("hello").await;
    assert!(client.response().await.ends_with("\r\n\r\nok"));
}

#[tokio::test]
async fn a_response_that_is_complete_before_a_reset_is_delivered() {
    let resets = Arc::new(Semaphore::new(0));
    let signal = resets.clone();
    let upstream = scripted(move |mut stream, _| {
        let signal = signal.clone();
        async move {
            read_message(&mut stream).await;
            stream.write_all(OK.as_bytes()).await.unwrap();
            stream.set_zero_linger().unwrap();
            drop(stream);
            signal.add_permits(1);
        }
    })
    .await;
    let gateway = TestGateway::to(&[upstream]).await;
    let mut client = gateway.connect().await;
    for number in 0..20 {
        let method = ["GET", "POST"][number % 2];
        client.send(&format!("{method} / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nab")).await;
        let response = client.response().await;
        assert!(response.starts_with("HTTP/1.1 200 ") && response.ends_with("\r\n\r\nok"), "{number}: {response}");
        // The next one finds a connection that was reset.
        resets.acquire().await.unwrap().forget();
    }
}

/// An upstream that sends informational responses before its own.
async fn hinting(hints: usize, room: Arc<Semaphore>) -> SocketAddr {
    scripted(move |mut stream, _| {
        let room = room.clone();
        async move {
        read_message(&mut stream).await;
        let hint = "HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\nConnection: X-Hop\r\nX-Hop: 1\r\nContent-Length: 9\r\n\r\n";
        let first = format!("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 102 Processing\r\n\r\n{}", hint.repeat(hints));
        stream.write_all(first.as_bytes()).await.unwrap();
        let _permit = room.acquire().await;
        let _ = stream.write_all(OK.as_bytes()).await;
        }
    })
    .await
}

#[tokio::test]
async fn informational_responses_reach_clients_of_http11_only() {
    let room = Arc::new(Semaphore::new(0));
    let upstream = hinting(2, room.clone()).await;
    let gateway = TestGateway::to(&[upstream]).await;
    let mut client = gateway.connect().await;
    client.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n").await;
    assert_eq!(client.response().await, "HTTP/1.1 102 Processing\r\n\r\n");
    let hint = "HTTP/1.1 103 Early Hints\r\nlink: </a.css>\r\n\r\n";
    assert_eq!([client.response().await, client.response().await], [hint, hint]);
    // The response has not been sent yet.
    room.add_permits(1);
    let response = client.response().await;
    assert!(response.starts_with("HTTP/1.1 200 ") && response.ends_with("ok"), "{response}");

    let direct = scripted(async |mut stream, _| {
        read_message(&mut stream).await;
        let both = "HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
        stream.write_all(both.as_bytes()).await.unwrap();
        read_message(&mut stream).await;
    })
    .await;
    let gateway = TestGateway::to(&[direct]).await;
    let old = gateway.request("GET / HTTP/1.0\r\nHost: x\r\n\r\n").await;
    assert!(old.starts_with("HTTP/1.1 200 "), "{old}");
    let mut sender = http2(&gateway).await;
    let request = http::Request::get("http://x/").body(http_body_util::Empty::<bytes::Bytes>::new()).unwrap();
    assert_eq!(within(sender.send_request(request)).await.unwrap().status(), 200);
    // With the response in one piece, they come before it.
    let mut client = gateway.connect().await;
    client.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n").await;
    assert!(client.response().await.starts_with("HTTP/1.1 103 "));
    assert!(client.response().await.starts_with("HTTP/1.1 200 "));
}

#[tokio::test]
async fn too_many_informational_responses_are_a_failure() {
    let upstream = hinting(20, Arc::new(Semaphore::new(1))).await;
    let response = TestGateway::to(&[upstream]).await.request("GET / HTTP/1.0\r\nHost: x\r\n\r\n").await;
    assert!(response.starts_with("HTTP/1.1 502 "), "{response}");
}

/// A server that counts its connections, and those that were closed.
async fn counting() -> (SocketAddr, Arc<AtomicUsize>, Arc<Semaphore>) {
    let (opened, closed) = (Arc::<AtomicUsize>::default(), Arc::new(Semaphore::new(0)));
    let (counted, ended) = (opened.clone(), closed.clone());
    let address = scripted(move |mut stream, _| {
        counted.fetch_add(1, Ordering::Relaxed);
        let ended = ended.clone();
        async move {
            while !read_message(&mut stream).await.is_empty() {
                stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await.unwrap();
            }
            ended.add_permits(1);
        }
    })
    .await;
    (address, opened, closed)
}

fn with_connections(server: SocketAddr, settings: &str) -> String {
    everything_to(&[server]).replace("servers:", &format!("connections: {{{settings}}}, servers:"))
}

#[tokio::test]
async fn a_connection_that_is_too_old_gets_no_further_requests() {
    let (server, opened, closed) = counting().await;
    let gateway = TestGateway::start(&with_connections(server, "idle: 1h, age: 300ms"), NO_RULES).await;
    // It is in use all the time.
    within(async {
        while opened.load(Ordering::Relaxed) < 3 {
            assert!(gateway.get("/").await.starts_with("HTTP/1.1 200 "));
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    within(closed.acquire_many(2)).await.unwrap().forget();
    let (server, opened, _) = counting().await;
    let gateway = TestGateway::start(&with_connections(server, "idle: 1h, age: 1h"), NO_RULES).await;
    for _ in 0..20 {
        assert!(gateway.get("/").await.starts_with("HTTP/1.1 200 "));
    }
    assert_eq!(opened.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn a_connection_that_is_not_used_is_closed() {
    let (server, opened, closed) = counting().await;
    let gateway = TestGateway::start(&with_connections(server, "idle: 300ms"), NO_RULES).await;
    assert!(gateway.get("/").await.starts_with("HTTP/1.1 200 "));
    within(closed.acquire()).await.unwrap().forget();
    assert!(gateway.get("/").await.starts_with("HTTP/1.1 200 "));
    assert_eq!(opened.load(Ordering::Relaxed), 2);
}
