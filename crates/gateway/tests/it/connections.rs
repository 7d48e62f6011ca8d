//! Connections and servers that fail: what can be served is served, once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use crate::support::{App, NO_RULES, TestGateway, everything_to, read_message, scripted};

const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// An upstream that closes each connection after so many responses, a moment later. Returns the number of its requests.
async fn closing_after(responses: usize, pause: Duration) -> (std::net::SocketAddr, Arc<AtomicUsize>) {
    let requests = Arc::<AtomicUsize>::default();
    let counted = requests.clone();
    let address = scripted(move |mut stream, _| {
        let counted = counted.clone();
        async move {
            for _ in 0..responses {
                if read_message(&mut stream).await.is_empty() {
                    return;
                }
                counted.fetch_add(1, Ordering::Relaxed);
                stream.write_all(OK).await.unwrap();
            }
            tokio::time::sleep(pause).await;
        }
    });
    (address.await, requests)
}

#[tokio::test]
async fn connections_that_close_when_they_are_used_fail_no_get() {
    let (address, requests) = closing_after(1, Duration::from_millis(3)).await;
    let gateway = TestGateway::to(&[address]).await;
    let mut client = gateway.connect().await;
    for number in 0..60 {
        client.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n").await;
        let response = client.response().await;
        assert!(response.starts_with("HTTP/1.1 200 "), "{number}: {response}");
        // Around the moment at which the upstream closes its connection: before it, after it, at the same time.
        tokio::time::sleep(Duration::from_millis(2 + number % 3)).await;
    }
    assert_eq!(requests.load(Ordering::Relaxed), 60);
}

#[tokio::test]
async fn connections_that_were_just_closed_fail_no_post() {
    let closed = Arc::new(tokio::sync::Semaphore::new(0));
    let signal = closed.clone();
    let address = scripted(move |mut stream, _| {
        let signal = signal.clone();
        async move {
            read_message(&mut stream).await;
            stream.write_all(OK).await.unwrap();
            drop(stream);
            signal.add_permits(1);
        }
    })
    .await;
    let gateway = TestGateway::to(&[address]).await;
    let mut client = gateway.connect().await;
    for number in 0..60 {
        client.send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n").await;
        let response = client.response().await;
        assert!(response.starts_with("HTTP/1.1 200 "), "{number}: {response}");
        closed.acquire().await.unwrap().forget();
    }
}

#[tokio::test]
async fn a_request_that_was_read_is_repeated_only_if_that_is_safe() {
    // The first connection answers once, then reads a request and closes.
    let requests = Arc::<AtomicUsize>::default();
    let counted = requests.clone();
    let address = scripted(move |mut stream, number| {
        let counted = counted.clone();
        async move {
            loop {
                if read_message(&mut stream).await.is_empty() {
                    return;
                }
                let seen = counted.fetch_add(1, Ordering::Relaxed);
                if number == 0 && seen == 1 {
                    return;
                }
                stream.write_all(OK).await.unwrap();
            }
        }
    })
    .await;
    let gateway = TestGateway::to(&[address]).await;
    assert!(gateway.get("/").await.starts_with("HTTP/1.1 200 "));
    assert!(gateway.get("/").await.starts_with("HTTP/1.1 200 "), "a GET on a used connection is repeated");
    assert_eq!(requests.load(Ordering::Relaxed), 3);

    let (address, requests) = closing_after(0, Duration::ZERO).await;
    let gateway = TestGateway::to(&[address]).await;
    let response = gateway.request("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n").await;
    assert!(response.starts_with("HTTP/1.1 502 "), "{response}");
    assert_eq!(requests.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn an_upstream_that_misbehaves_is_a_502_or_504() {
    let rows: [(&str, &[u8]); 5] = [
        ("502", b""),
        ("502", b"garbage\r\n\r\n"),
        ("502", b"HTTP/1.1 200 OK\r\nContent-Le"),
        ("502", b"HTTP/1.1 99 Odd\r\n\r\n"),
        ("502", b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab"),
    ];
    for (status, answer) in rows {
        let address = scripted(move |mut stream, _| async move {
            read_message(&mut stream).await;
            let _ = stream.write_all(answer).await;
        })
        .await;
        let response = TestGateway::to(&[address]).await.get("/").await;
        assert!(
            response.starts_with(&format!("HTTP/1.1 {status} ")),
            "{}: {response}",
            String::from_utf8_lossy(answer)
        );
    }
    let silent = scripted(async |mut stream, _| {
        read_message(&mut stream).await;
        std::future::pending::<()>().await;
    })
    .await;
    let config = everything_to(&[silent]).replace("upstream: app}", "upstream: app, timeouts: {response: 50ms}}");
    let response = TestGateway::start(&config, NO_RULES).await.get("/").await;
    assert!(response.starts_with("HTTP/1.1 504 "), "{response}");
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let response = TestGateway::to(&[closed]).await.get("/").await;
    assert!(response.starts_with("HTTP/1.1 502 ") && response.contains("connect_failed"), "{response}");
}

#[tokio::test]
async fn half_a_body_is_not_a_whole_one() {
    let address = scripted(async |mut stream, _| {
        read_message(&mut stream).await;
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf").await.unwrap();
    })
    .await;
    let gateway = TestGateway::to(&[address]).await;
    let mut client = gateway.connect().await;
    client.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n").await;
    let response = client.rest().await;
    assert!(
        response.contains("content-length: 10") && response.ends_with("half"),
        "the client sees that it ends early: {response}"
    );
}

#[tokio::test]
async fn a_server_that_fails_is_replaced_by_another_and_ejected() {
    let app = App::start().await;
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let config = everything_to(&[closed, app.address])
        .replace("servers:", "eject: {failures: 3, for: 60s, most: 50%}, servers:");
    let gateway = TestGateway::start(&config, NO_RULES).await;
    for number in 0..40 {
        let response = gateway.get("/").await;
        assert!(response.starts_with("HTTP/1.1 200 "), "{number}: {response}");
    }
    let status = gateway.gateway.status();
    let server = |address: std::net::SocketAddr| {
        status.upstreams[0].servers.iter().find(|server| server.address == address.to_string()).unwrap()
    };
    assert!(server(closed).is_ejected && !server(app.address).is_ejected);
}

#[tokio::test]
async fn a_server_that_answers_errors_at_once_does_not_attract_all_requests() {
    let broken = scripted(async |mut stream, _| {
        while !read_message(&mut stream).await.is_empty() {
            let _ = stream.write_all(b"HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n").await;
        }
    })
    .await;
    let app = App::start().await;
    for (eject, is_ejected) in [("{failures: 3}", true), ("{failures: 3, statuses: []}", false)] {
        let config = everything_to(&[broken, app.address]).replace("servers:", &format!("eject: {eject}, servers:"));
        let gateway = TestGateway::start(&config, NO_RULES).await;
        let mut errors = 0;
        for _ in 0..60 {
            errors += usize::from(gateway.get("/").await.starts_with("HTTP/1.1 500 "));
        }
        let status = gateway.gateway.status();
        let ejected = status.upstreams[0].servers.iter().filter(|server| server.is_ejected);
        let ejected: Vec<_> = ejected.map(|server| server.address.clone()).collect();
        let expected = if is_ejected { vec![broken.to_string()] } else { vec![] };
        assert_eq!((ejected, errors == 3), (expected, is_ejected), "{eject}: {errors} errors");
    }
}

#[tokio::test]
async fn a_silent_server_is_ejected_within_three_tries_and_fails_no_get() {
    let tries = Arc::<AtomicUsize>::default();
    let counted = tries.clone();
    // As a process that is suspended: the kernel accepts connections, and nothing is answered.
    let silent = scripted(move |mut stream, _| {
        let counted = counted.clone();
        async move {
            while !read_message(&mut stream).await.is_empty() {
                counted.fetch_add(1, Ordering::Relaxed);
            }
        }
    })
    .await;
    let app = App::start().await;
    let config = everything_to(&[silent, app.address])
        .replace("servers:", "eject: {failures: 3, for: 60s, most: 50%}, servers:")
        .replace(
            "upstream: app}",
            "upstream: app, timeouts: {response: 1s}, retries: {on: [connect, reset, timeout]}}",
        );
    let gateway = TestGateway::start(&config, NO_RULES).await;
    for number in 0..40 {
        let response = gateway.get("/").await;
        assert!(response.starts_with("HTTP/1.1 200 "), "{number}: {response}");
    }
    assert_eq!(tries.load(Ordering::Relaxed), 3);
    let status = gateway.gateway.status();
    assert!(status.upstreams[0].servers.iter().any(|server| server.is_ejected));
}

#[tokio::test]
async fn unhealthy_servers_are_not_used_until_they_pass_again() {
    let is_well = Arc::new(AtomicUsize::new(0));
    let app = App::start().await;
    let answers = is_well.clone();
    let health = scripted(move |mut stream, _| {
        let answers = answers.clone();
        async move {
            loop {
                let request = read_message(&mut stream).await;
                if request.is_empty() {
                    return;
                }
                let is_check = request.starts_with("GET /healthz ");
                let status = if is_check && answers.load(Ordering::Relaxed) == 0 { "503 No" } else { "200 OK" };
                let response = format!("HTTP/1.1 {status}\r\nContent-Length: 5\r\n\r\nother");
                let _ = stream.write_all(response.as_bytes()).await;
            }
        }
    })
    .await;
    let config = everything_to(&[health, app.address])
        .replace("servers:", "health: {path: /healthz, every: 20ms, timeout: 1s, fails: 2, passes: 2}, servers:");
    let gateway = TestGateway::start(&config, NO_RULES).await;
    let has_two =
        || gateway.gateway.status().upstreams[0].servers.iter().filter(|server| server.is_healthy).count() == 2;
    eventually(|| !has_two()).await;
    for _ in 0..20 {
        assert!(!gateway.get("/").await.ends_with("other"));
    }
    is_well.store(1, Ordering::Relaxed);
    eventually(has_two).await;
    let mut others = 0;
    for _ in 0..60 {
        others += usize::from(gateway.get("/").await.ends_with("other"));
    }
    assert!(others > 0);
}

async fn eventually(is_so: impl Fn() -> bool) {
    for _ in 0..500 {
        if is_so() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("it did not become so");
}

#[tokio::test]
async fn requests_in_flight_are_answered_when_the_gateway_reloads_or_stops() {
    let slow = scripted(async |mut stream, _| {
        while !read_message(&mut stream).await.is_empty() {
            tokio::time::sleep(Duration::from_millis(150)).await;
            if stream.write_all(OK).await.is_err() {
                return;
            }
        }
    })
    .await;
    let gateway = TestGateway::to(&[slow]).await;
    let mut clients = Vec::new();
    for _ in 0..10 {
        let mut client = gateway.connect().await;
        client.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n").await;
        clients.push(client);
    }
    tokio::time::sleep(Duration::from_millis(50)).await;
    let app = App::start().await;
    gateway.reload(&everything_to(&[app.address])).await;
    let stopped = tokio::spawn(gateway.stop());
    for mut client in clients {
        let response = client.response().await;
        assert!(response.starts_with("HTTP/1.1 200 "), "{response}");
        assert_eq!(client.rest().await, "");
    }
    stopped.await.unwrap();
}

#[tokio::test]
async fn a_bound_on_connections_lets_requests_wait_and_then_refuses_them() {
    let slow = scripted(async |mut stream, _| {
        while !read_message(&mut stream).await.is_empty() {
            tokio::time::sleep(Duration::from_millis(100)).await;
            if stream.write_all(OK).await.is_err() {
                return;
            }
        }
    })
    .await;
    let config = everything_to(&[slow])
        .replace("servers:", "connections: {most: 1, waiting: 2}, servers:")
        .replace("upstream: app}", "upstream: app, timeouts: {connect: 5s}}");
    let gateway = Arc::new(TestGateway::start(&config, NO_RULES).await);
    let requests: Vec<_> = (0..6)
        .map(|_| {
            let gateway = gateway.clone();
            tokio::spawn(async move { gateway.get("/").await })
        })
        .collect();
    let mut statuses = Vec::new();
    for request in requests {
        statuses.push(request.await.unwrap()[9..12].to_owned());
    }
    statuses.sort();
    assert_eq!(statuses, ["200", "200", "200", "503", "503", "503"]);
}

#[tokio::test]
async fn a_head_that_does_not_come_is_408() {
    let app = App::start().await;
    let gateway = TestGateway::to(&[app.address]).await;
    // The second request of a connection as well as the first.
    for before in ["", "GET / HTTP/1.1\r\nHost: x\r\n\r\n"] {
        let mut client = gateway.connect().await;
        if !before.is_empty() {
            client.send(before).await;
            assert!(client.response().await.starts_with("HTTP/1.1 200 "));
        }
        client.send("GET / HTTP/1.1\r\nHost: x\r\nX-Slow: ").await;
        // Time passes when nothing else happens.
        tokio::time::pause();
        let mut answer = String::new();
        client.0.read_to_string(&mut answer).await.unwrap();
        tokio::time::resume();
        assert!(answer.starts_with("HTTP/1.1 408 ") && answer.contains("head_timeout"), "{answer}");
        assert!(answer.contains("\r\nconnection: close\r\n"), "{answer}");
    }
}

#[tokio::test]
async fn a_connection_on_which_nothing_is_sent_ends_without_an_answer() {
    let app = App::start().await;
    let gateway = TestGateway::to(&[app.address]).await;
    let mut client = gateway.connect().await;
    tokio::time::pause();
    let mut answer = String::new();
    client.0.read_to_string(&mut answer).await.unwrap();
    assert_eq!(answer, "");
}
