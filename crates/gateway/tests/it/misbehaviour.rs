//! Clients that send too much or read too little, and upstreams that answer in unusual ways.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http::Method;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::Semaphore;

use crate::recorder::Recorder;
use crate::support::{App, Frames, NO_RULES, TestGateway, everything_to, read_message, scripted, within};

const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

#[tokio::test]
async fn a_refused_upload_gets_its_answer_although_it_is_not_read() {
    let app = App::start().await;
    let gateway = TestGateway::to(&[app.address]).await;
    for number in 0..20 {
        let request = ["POST //odd HTTP/1.1", "CONNECT x:1 HTTP/1.1"][number % 2];
        let mut client = gateway.connect().await;
        let body = vec![b'x'; 600_000];
        let head = format!("{request}\r\nHost: x\r\nContent-Length: {}\r\n\r\n", body.len());
        // As many clients do: everything is sent before the answer is read. A reset would fail the one or destroy the other.
        client.send(&head).await;
        let sent = within(client.0.write_all(&body)).await;
        let response = client.rest().await;
        assert!(sent.is_ok() && response.starts_with("HTTP/1.1 40"), "{request}: {sent:?} {response:?}");
    }
    assert!(app.seen().is_empty());
}

#[tokio::test]
async fn an_upload_that_goes_on_after_its_answer_delays_nobody() {
    // Answers as soon as there is a head, and leaves the body unread.
    let upstream = scripted(async |mut stream, _| {
        let mut head = Vec::new();
        while let Ok(byte) = stream.read_u8().await {
            head.push(byte);
            if head.ends_with(b"\r\n\r\n") {
                let _ = stream.write_all(OK).await;
                head.clear();
            }
        }
    })
    .await;
    let gateway = TestGateway::to(&[upstream]).await;
    let mut slow = gateway.connect().await;
    slow.send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\npart").await;
    assert!(slow.response().await.starts_with("HTTP/1.1 200 "));
    for _ in 0..5 {
        assert!(gateway.get("/").await.starts_with("HTTP/1.1 200 "));
    }
    drop(slow);
}

#[tokio::test]
async fn clients_of_http_1_0_get_no_chunks() {
    let upstream = scripted(async |mut stream, _| {
        read_message(&mut stream).await;
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n").await;
    })
    .await;
    let gateway = TestGateway::to(&[upstream]).await;
    let mut client = gateway.connect().await;
    client.send("GET / HTTP/1.0\r\nHost: x\r\n\r\n").await;
    let response = client.rest().await;
    assert!(response.contains(" 200 ") && response.ends_with("\r\n\r\nok"), "{response}");
    assert!(!response.to_ascii_lowercase().contains("chunked"), "{response}");
}

#[tokio::test]
async fn answers_without_a_body_keep_their_length_and_their_connection() {
    let connections = Arc::<AtomicUsize>::default();
    let counted = connections.clone();
    let upstream = scripted(move |mut stream, _| {
        counted.fetch_add(1, Ordering::Relaxed);
        async move {
            loop {
                let request = read_message(&mut stream).await;
                let response = match request.split(' ').next().unwrap() {
                    "" => return,
                    "HEAD" => "HTTP/1.1 200 OK\r\nContent-Length: 77\r\n\r\n",
                    "PUT" => "HTTP/1.1 204 No Content\r\n\r\n",
                    _ => "HTTP/1.1 304 Not Modified\r\nETag: \"a\"\r\nContent-Length: 77\r\n\r\n",
                };
                let _ = stream.write_all(response.as_bytes()).await;
            }
        }
    })
    .await;
    let gateway = TestGateway::to(&[upstream]).await;
    let mut client = gateway.connect().await;
    for (method, expected) in [("HEAD", "content-length: 77"), ("PUT", " 204 "), ("GET", " 304 ")] {
        client.send(&format!("{method} / HTTP/1.1\r\nHost: x\r\n\r\n")).await;
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(within(client.0.read_u8()).await.unwrap());
        }
        let head = String::from_utf8_lossy(&head).to_ascii_lowercase();
        assert!(head.contains(expected), "{method}: {head}");
    }
    assert_eq!(connections.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn informational_responses_are_not_the_answer() {
    let upstream = scripted(async |mut stream, _| {
        read_message(&mut stream).await;
        let early = "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n";
        let _ = stream.write_all(early.as_bytes()).await;
        let _ = stream.write_all(OK).await;
    })
    .await;
    let response = TestGateway::to(&[upstream]).await.request("GET / HTTP/1.0\r\nHost: x\r\n\r\n").await;
    assert!(response.starts_with("HTTP/1.1 200 ") && response.ends_with("\r\n\r\nok"), "{response}");
    let endless = scripted(async |mut stream, _| {
        read_message(&mut stream).await;
        while stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await.is_ok() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let response = TestGateway::to(&[endless]).await.get("/").await;
    assert!(response.starts_with("HTTP/1.1 502 ") && response.contains("upstream_broken"), "{response}");
}

#[tokio::test]
async fn heads_of_responses_have_a_bound() {
    for part in ["X-A: ".to_owned() + &"a".repeat(1 << 20) + "\r\n", "X-A: 1\r\n".repeat(100_000)] {
        let upstream = scripted(move |mut stream, _| {
            let part = part.clone();
            async move {
                read_message(&mut stream).await;
                let _ = stream.write_all(format!("HTTP/1.1 200 OK\r\n{part}\r\n").as_bytes()).await;
            }
        })
        .await;
        let response = TestGateway::to(&[upstream]).await.get("/").await;
        assert!(response.starts_with("HTTP/1.1 502 ") && response.contains("upstream_broken"), "{response}");
    }
}

#[tokio::test]
async fn a_reset_in_a_body_is_not_its_end() {
    let upstream = scripted(async |mut stream, _| {
        read_message(&mut stream).await;
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n").await;
        stream.set_zero_linger().unwrap();
    })
    .await;
    let config = everything_to(&[upstream]);
    let gateway = TestGateway::start(&config, NO_RULES).await;
    let mut client = gateway.connect().await;
    client.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n").await;
    let response = client.rest().await;
    assert!(response.ends_with("4\r\nhalf\r\n") && !response.contains("\r\n0\r\n"), "{response}");
}

#[tokio::test]
async fn a_post_that_was_read_is_sent_once() {
    let requests = Arc::<AtomicUsize>::default();
    let counted = requests.clone();
    let upstream = scripted(move |mut stream, _| {
        let counted = counted.clone();
        async move {
            if !read_message(&mut stream).await.is_empty() {
                counted.fetch_add(1, Ordering::Relaxed);
            }
        }
    })
    .await;
    let gateway = TestGateway::to(&[upstream]).await;
    for number in 1..=5 {
        let response = gateway.request("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nab").await;
        assert!(response.starts_with("HTTP/1.1 502 "), "{response}");
        assert_eq!(requests.load(Ordering::Relaxed), number);
    }
    let response = gateway.get("/").await;
    assert!(response.starts_with("HTTP/1.1 502 "), "{response}");
    assert_eq!(requests.load(Ordering::Relaxed), 7, "a GET is sent once more");
}

#[tokio::test]
async fn clients_cannot_write_headers_of_the_gateway_in_trailers() {
    let app = App::start().await;
    let config = everything_to(&[app.address]).replace("servers:", "protocol: http2, servers:");
    let gateway = TestGateway::start(&config, NO_RULES).await;
    let stream = tokio::net::TcpStream::connect(gateway.address).await.unwrap();
    let io = hyper_util::rt::TokioIo::new(stream);
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(hyper_util::rt::TokioExecutor::new(), io).await.unwrap();
    tokio::spawn(connection);
    let mut trailers = http::HeaderMap::new();
    for (name, value) in [("x-tollgate-caller", "root"), ("x-forwarded-for", "6.6.6.6"), ("x-own", "1")] {
        trailers.insert(name, value.parse().unwrap());
    }
    let frames = [http_body::Frame::data(bytes::Bytes::from_static(b"hello")), http_body::Frame::trailers(trailers)];
    let body = Frames(frames.into());
    let response = within(sender.send_request(http::Request::post("http://x/").body(body).unwrap())).await.unwrap();
    assert_eq!(response.status(), 200);
    assert_eq!(app.trailers(), [["x-own"]]);
}

#[tokio::test]
async fn bodies_of_http2_arrive_whole_and_end_once() {
    let recorder = Recorder::start().await;
    let gateway = TestGateway::to(&[recorder.address]).await;
    let stream = tokio::net::TcpStream::connect(gateway.address).await.unwrap();
    let io = hyper_util::rt::TokioIo::new(stream);
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(hyper_util::rt::TokioExecutor::new(), io).await.unwrap();
    tokio::spawn(connection);
    // The body ends with an empty frame; a second end would be the beginning of the next request.
    for method in [Method::POST, Method::GET, Method::PUT] {
        let frames = ["hello", ""].map(|text| http_body::Frame::data(bytes::Bytes::from_static(text.as_bytes())));
        let request = http::Request::builder().method(&method).uri("http://x/").body(Frames(frames.into())).unwrap();
        assert_eq!(within(sender.send_request(request)).await.unwrap().status(), 200);
        let recorded = recorder.take();
        assert_eq!(recorded.len(), 1, "{recorded:?}");
        let request = recorded[0].request().unwrap();
        assert_eq!((&*request.method, &*request.body), (method.as_str(), &b"hello"[..]));
    }
}

#[tokio::test]
async fn chunks_of_a_get_are_forwarded() {
    let recorder = Recorder::start().await;
    let gateway = TestGateway::to(&[recorder.address]).await;
    for method in ["GET", "DELETE"] {
        let request =
            format!("{method} / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n");
        assert!(gateway.request(&request).await.starts_with("HTTP/1.1 200 "));
        let recorded = recorder.take();
        assert_eq!(recorded[0].request().unwrap().body, b"hello", "{recorded:?}");
    }
}

#[tokio::test]
async fn an_http2_server_that_says_goodbye_fails_no_request() {
    use hyper_util::rt::{TokioExecutor, TokioIo};

    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let connections = Arc::<AtomicUsize>::default();
    let counted = connections.clone();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            counted.fetch_add(1, Ordering::Relaxed);
            tokio::spawn(async move {
                let (served, mut is_served) = tokio::sync::mpsc::channel(100);
                let service = hyper::service::service_fn(move |_: http::Request<hyper::body::Incoming>| {
                    let served = served.clone();
                    async move {
                        let _ = served.send(()).await;
                        Ok::<_, std::convert::Infallible>(http::Response::new(http_body_util::Full::new(
                            bytes::Bytes::from_static(b"ok"),
                        )))
                    }
                });
                let builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                let mut connection = std::pin::pin!(builder.serve_connection(TokioIo::new(stream), service));
                let mut requests = 0;
                loop {
                    tokio::select! {
                        _ = connection.as_mut() => return,
                        Some(()) = is_served.recv() => {
                            requests += 1;
                            if requests == 3 {
                                connection.as_mut().graceful_shutdown();
                            }
                        }
                    }
                }
            });
        }
    });
    let config = everything_to(&[address]).replace("servers:", "protocol: http2, servers:");
    let gateway = Arc::new(TestGateway::start(&config, NO_RULES).await);
    let mut clients = tokio::task::JoinSet::new();
    for _ in 0..4 {
        let gateway = gateway.clone();
        clients.spawn(async move {
            let mut client = gateway.connect().await;
            for _ in 0..50 {
                client.send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nab").await;
                let response = client.response().await;
                assert!(response.starts_with("HTTP/1.1 200 "), "{response}");
            }
        });
    }
    while let Some(client) = clients.join_next().await {
        client.unwrap();
    }
    assert!(connections.load(Ordering::Relaxed) > 10);
}

/// An upstream that sends without an end, and says how many of its connections are open.
async fn endless_upstream() -> (std::net::SocketAddr, Arc<AtomicUsize>) {
    let open = Arc::<AtomicUsize>::default();
    let counted = open.clone();
    let upstream = scripted(move |mut stream, _| {
        let open = counted.clone();
        async move {
            open.fetch_add(1, Ordering::Relaxed);
            read_message(&mut stream).await;
            let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
            let chunk = format!("10000\r\n{}\r\n", "x".repeat(0x10000));
            let mut sent = stream.write_all(head.as_bytes()).await;
            while sent.is_ok() {
                sent = stream.write_all(chunk.as_bytes()).await;
            }
            open.fetch_sub(1, Ordering::Relaxed);
        }
    })
    .await;
    (upstream, open)
}

#[tokio::test]
#[ignore = "takes a minute; `make test-long` runs it"]
async fn a_client_that_reads_nothing_is_cut_off() {
    let (upstream, open) = endless_upstream().await;
    let gateway = TestGateway::to(&[upstream]).await;
    let mut client = gateway.connect().await;
    client.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n").await;
    within(async {
        while open.load(Ordering::Relaxed) == 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    for _ in 0..100 {
        tokio::time::sleep(Duration::from_secs(1)).await;
        if open.load(Ordering::Relaxed) == 0 {
            return;
        }
    }
    panic!("its upstream still sends");
}

#[tokio::test]
#[ignore = "takes 20 seconds; `make test-long` runs it"]
async fn a_head_that_never_ends_is_cut_off_and_a_slow_body_is_408() {
    let upstream = scripted(async |mut stream, _| {
        let _ = stream.read_to_end(&mut Vec::new()).await;
    })
    .await;
    let config = everything_to(&[upstream]).replace("upstream: app}", "upstream: app, timeouts: {request_idle: 1s}}");
    let gateway = TestGateway::start(&config, NO_RULES).await;
    let mut body = gateway.connect().await;
    body.send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nbegin").await;
    assert!(body.response().await.starts_with("HTTP/1.1 408 "));
    let (ended, mut heads) = (Arc::new(Semaphore::new(0)), Vec::new());
    for drip in ["", "X-A: 1\r\n"] {
        let mut client = gateway.connect().await;
        client.send("GET / HTTP/1.1\r\nHost: x\r\n").await;
        let ended = ended.clone();
        heads.push(tokio::spawn(async move {
            // A field each second does not help.
            for _ in 0..60 {
                let mut buffer = [0; 1024];
                match tokio::time::timeout(Duration::from_secs(1), client.0.read(&mut buffer)).await {
                    Ok(_) => return ended.add_permits(1),
                    Err(_) => _ = client.0.write_all(drip.as_bytes()).await,
                }
            }
        }));
    }
    for head in heads {
        head.await.unwrap();
    }
    assert_eq!(ended.available_permits(), 2, "both connections were closed");
}
