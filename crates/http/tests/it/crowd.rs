//! 200 clients on one key with `20 concurrent`: killed at random, with streams longer than a hold, over two processes
//! of which one is killed. By the handlers' own count there are never 21 inside, and all slots are free within a hold.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::Mutex;
use tollgate_testing::Redis;

use crate::running::{Call, KEY, Running, until_all_are_free};

// A limit that holds although Redis is unavailable for a moment: otherwise each process would count by itself.
const RULES: &str = "
domain: demo
entity: api_key
rules:
  - {name: in-flight, key: [api_key], limit: 20 concurrent, hold: 3s, policy: security}
";

const SLOTS: i64 = 20;
const CLIENTS: u64 = 200;
const HOLD: Duration = Duration::from_secs(3);
/// The length of a long stream, in pauses of 100 ms: one and a half holds.
const LONG: u64 = 45;

/// Counts the requests inside, over all processes: each has a connection to it, and reports when it enters and leaves.
#[derive(Default)]
struct Count {
    inside: AtomicI64,
    most: AtomicI64,
    entered: AtomicU64,
}

impl Count {
    /// Starts counting at this address.
    fn start() -> (Arc<Count>, SocketAddr) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let count = Arc::new(Count::default());
        let counts = count.clone();
        // It ends with the test process.
        std::thread::spawn(move || {
            for connection in listener.incoming().map_while(Result::ok) {
                let count = counts.clone();
                std::thread::spawn(move || count.one(connection));
            }
        });
        (count, address)
    }

    /// A request inside, from its first byte to the end of its connection.
    fn one(&self, mut connection: TcpStream) {
        if connection.read_exact(&mut [0]).is_err() {
            return;
        }
        let inside = self.inside.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(inside, Ordering::SeqCst);
        self.entered.fetch_add(1, Ordering::SeqCst);
        let _ = connection.write_all(b"+");
        let _ = connection.read(&mut [0]);
        self.inside.fetch_sub(1, Ordering::SeqCst);
    }
}

/// The behaviour of a client that was admitted.
#[derive(Clone, Copy, Debug)]
enum Way {
    /// Reads the response to its end.
    Stays,
    /// Disconnects in the middle of the stream.
    HangsUp,
    /// Reads a stream that is longer than a hold.
    StaysLong,
    /// Disconnects before there is a response, once; then retries.
    IsKilled,
}

/// Retries until it was admitted.
async fn client(services: Arc<Mutex<Vec<SocketAddr>>>, number: u64) {
    let mut way = match number % 10 {
        0 => Way::StaysLong,
        1..=3 => Way::HangsUp,
        4..=5 => Way::IsKilled,
        _ => Way::Stays,
    };
    for round in number.. {
        let to = {
            let services = services.lock().await;
            services[round as usize % services.len()]
        };
        if visit(to, way).await {
            return;
        }
        way = if matches!(way, Way::IsKilled) { Way::Stays } else { way };
        tokio::time::sleep(Duration::from_millis(fastrand::u64(100..250))).await;
    }
}

/// Whether it was admitted and left as it should.
async fn visit(to: SocketAddr, way: Way) -> bool {
    let (what, pause) = match way {
        Way::Stays => ("POST /generate?words=4&ms=50".to_owned(), 0),
        Way::HangsUp => ("POST /generate?words=1000&ms=20".to_owned(), fastrand::u64(0..400)),
        Way::StaysLong => (format!("POST /generate?words={LONG}&ms=100"), 0),
        Way::IsKilled => ("GET /slow?ms=1000".to_owned(), fastrand::u64(0..200)),
    };
    // Its process may be gone.
    let Some(mut call) = Call::send(to, &what, KEY).await else { return false };
    if matches!(way, Way::IsKilled) {
        let _ = tokio::time::timeout(Duration::from_millis(pause), call.head()).await;
        return false;
    }
    match call.head().await.map(|heard| heard.status) {
        Some(200) => {}
        // 503: Redis did not answer in time.
        Some(429 | 503) | None => return false,
        other => panic!("{other:?}"),
    }
    match way {
        Way::HangsUp => {
            tokio::time::sleep(Duration::from_millis(pause)).await;
            true
        }
        _ => call.ends().await,
    }
}

async fn crowd(services: Arc<Mutex<Vec<SocketAddr>>>, count: &Count) {
    let clients: Vec<_> = (0..CLIENTS).map(|number| tokio::spawn(client(services.clone(), number))).collect();
    for client in clients {
        client.await.unwrap();
    }
    let last = services.lock().await[0];
    until_all_are_free(last, SLOTS as usize, HOLD).await;
    let (most, entered) = (count.most.load(Ordering::SeqCst), count.entered.load(Ordering::SeqCst));
    assert_eq!(most, SLOTS, "inside at most");
    assert!(entered >= CLIENTS * 9 / 10 + SLOTS as u64, "{entered} were inside");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_never_more_than_20_inside_in_memory() {
    let (count, witness) = Count::start();
    let service = Running::start(RULES, &["--witness", &witness.to_string()]);
    crowd(Arc::new(Mutex::new(vec![service.address])), &count).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_never_more_than_20_inside_in_redis_with_a_process_killed() {
    let redis = Redis::start();
    let (count, witness) = Count::start();
    let start = || Running::start(RULES, &["--redis", &redis.url(), "--witness", &witness.to_string()]);
    let (one, mut other) = (start(), start());
    let services = Arc::new(Mutex::new(vec![one.address, other.address]));
    let left = services.clone();
    let killed = async {
        // While all clients are active.
        while count.entered.load(Ordering::SeqCst) < CLIENTS / 3 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let gone = other.address;
        other.kill();
        left.lock().await.retain(|address| *address != gone);
    };
    tokio::join!(crowd(services, &count), killed);
    assert_eq!(count.inside.load(Ordering::SeqCst), 0);
}
