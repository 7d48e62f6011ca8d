//! Faults under a steady load: servers that are suspended, a gateway that is stopped.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use tollgate_testing::{Server, TIMEOUT, eventually};

use super::{Load, everything_to, with_gateway};
use crate::clients::http::{Connection, Head, read_head};
use crate::new_server;

/// A path of an upstream that is a server of this build.
const PATH: &str = "/v1/ratelimit/authorize";

fn upstream_process() -> Server {
    new_server().rules("domain: d\nrules: [{name: a, key: [nobody], limit: 1/s}]\n").listen(&["http"]).start()
}

#[test]
fn at_most_one_get_fails_while_one_of_two_upstreams_is_suspended() {
    let (first, mut second) = (upstream_process(), upstream_process());
    let health = format!("health: {{path: {PATH}, every: 200ms, timeout: 2s, fails: 2, passes: 2}}, eject:");
    let file = everything_to(&[first.address("http"), second.address("http")])
        .replace("eject: {failures: 3, for: 30s, most: 50%}", "eject: {failures: 3, for: 1s, most: 50%}")
        .replace("eject:", &health)
        .replace(
            "upstream: app}",
            "upstream: app, timeouts: {response: 2s}, retries: {on: [connect, reset, timeout]}}",
        );
    let server = with_gateway(&file).start();
    let load = Load::start(&server.url("gateway", PATH));
    load.wait_for(300);
    first.signal("STOP");
    server.wait_for_log("unhealthy: not used until its checks pass");
    load.wait_for(300);
    first.signal("CONT");
    server.wait_for_log("healthy again");
    // It is used again: soon it is the only one.
    load.wait_for(300);
    second.kill();
    load.wait_for(300);
    let failures = load.stop();
    assert!(failures.len() <= 1, "{} failures: {failures:?}\n{}", failures.len(), server.log());
}

/// An upstream that notes which requests it answered.
struct Answering {
    address: String,
    answered: Arc<Mutex<BTreeSet<usize>>>,
}

impl Answering {
    fn start() -> Answering {
        let answered = Arc::<Mutex<BTreeSet<usize>>>::default();
        let shared = answered.clone();
        let address = serve(move |mut stream: &TcpStream, head| {
            let number: Option<usize> = head.first.split(['/', ' ']).find_map(|word| word.parse().ok());
            shared.lock().unwrap().extend(number);
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").is_ok()
        });
        Answering { address, answered }
    }
}

/// A server of HTTP/1.1 with these answers. A connection ends with the first that is `false`.
fn serve(answer: impl Fn(&TcpStream, &Head) -> bool + Send + Sync + 'static) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let answer = Arc::new(answer);
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let answer = answer.clone();
            std::thread::spawn(move || {
                let mut reader = BufReader::new(stream);
                while let Ok(Some(head)) = read_head(&mut reader) {
                    if head.body(&mut reader).is_err() || !answer(reader.get_ref(), &head) {
                        return;
                    }
                }
            });
        }
    });
    address
}

#[test]
fn a_gateway_that_stops_under_load_answers_what_it_accepted() {
    let upstream = Answering::start();
    let mut server = with_gateway(&everything_to(&[&upstream.address])).start();
    let address = server.address("gateway").to_owned();
    let (next, is_over) = (Arc::<AtomicUsize>::default(), Arc::<AtomicBool>::default());
    let clients: Vec<JoinHandle<BTreeSet<usize>>> = (0..4)
        .map(|_| {
            let (address, next, is_over) = (address.clone(), next.clone(), is_over.clone());
            std::thread::spawn(move || clients_requests(&address, &next, &is_over))
        })
        .collect();
    let reached = eventually(|| (upstream.answered.lock().unwrap().len() > 300).then_some(()));
    assert!(reached.is_some());
    let status = server.stop();
    is_over.store(true, Ordering::Relaxed);
    let answers: BTreeSet<usize> = clients.into_iter().flat_map(|client| client.join().unwrap()).collect();
    assert_eq!(status.code(), Some(0), "{}", server.log());
    let answered = upstream.answered.lock().unwrap();
    let lost: Vec<_> = answered.difference(&answers).collect();
    assert!(lost.is_empty() && answers.len() > 300, "{} of {} lost: {lost:?}", lost.len(), answered.len());
}

/// The numbers of the requests that were answered, until no connection can be made.
fn clients_requests(address: &str, next: &AtomicUsize, is_over: &AtomicBool) -> BTreeSet<usize> {
    let mut answers = BTreeSet::new();
    while !is_over.load(Ordering::Relaxed) {
        let Ok(mut connection) = Connection::open(address) else { continue };
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            match connection.send("GET", &format!("/{number}"), &[], "") {
                Ok(response) if response.status == 200 => _ = answers.insert(number),
                // A connection that is not used may be closed at any time.
                _ => break,
            }
        }
    }
    answers
}

#[test]
fn streams_and_tunnels_go_on_while_a_gateway_stops() {
    // Answers with a stream or a tunnel, and copies what the test sends on a side channel.
    let (sender, receiver) = std::sync::mpsc::channel::<TcpStream>();
    let upstream = serve(move |mut stream: &TcpStream, head| {
        let text = if head.header("upgrade").is_some() {
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n"
        } else {
            "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 100\r\n\r\n"
        };
        stream.write_all(text.as_bytes()).unwrap();
        sender.send(stream.try_clone().unwrap()).is_ok() && head.header("upgrade").is_none()
    });
    let mut server = with_gateway(&everything_to(&[&upstream])).args(&["--shutdown-timeout", "3s"]).start();
    let upgrade = [("Connection", "Upgrade"), ("Upgrade", "websocket"), ("Sec-WebSocket-Key", "x")];
    let mut ends = Vec::new();
    for headers in [&[][..], &upgrade] {
        let mut client = TcpStream::connect(server.address("gateway")).unwrap();
        client.set_read_timeout(Some(TIMEOUT)).unwrap();
        let fields: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        write!(client, "GET /s HTTP/1.1\r\nHost: x\r\n{fields}\r\n").unwrap();
        let mut client = BufReader::new(client);
        let mut line = String::new();
        while line != "\r\n" {
            line.clear();
            assert!(client.read_line(&mut line).unwrap() > 0);
        }
        ends.push((client, receiver.recv_timeout(TIMEOUT).unwrap()));
    }
    server.signal("TERM");
    server.wait_for_log("stopping");
    let is_closed = || TcpStream::connect(server.address("gateway")).is_err().then_some(());
    assert!(eventually(is_closed).is_some(), "{}", server.log());
    for (client, upstream) in &mut ends {
        upstream.write_all(b"later").unwrap();
        let mut bytes = [0; 5];
        client.read_exact(&mut bytes).unwrap();
        assert_eq!(&bytes, b"later");
    }
    // They have no end of their own: `shutdown_timeout` ends them.
    assert_eq!(server.wait().code(), Some(0), "{}", server.log());
    for (client, _) in &mut ends {
        // A reset ends it as well.
        let _ = client.get_ref().set_read_timeout(Some(Duration::from_secs(10)));
        assert!(matches!(client.read(&mut [0; 1]), Ok(0) | Err(_)));
    }
}
