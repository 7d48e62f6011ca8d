//! Requests that come whatever happens (Poisson), for several proxies at the same time: the same requests at the same moments, each
//! with the same service time, and an upstream of its own behind each proxy.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use mio::{Events, Poll};

use super::UPSTREAM;
use super::http1::{Arrived, Connection};
use super::slots::{MEAN_SERVICE, SLOTS, Slots};
use super::upstream::Upstream;
use crate::workload::Random;

/// Connections of clients to one proxy. Those that answer late need more of them.
const MOST_CONNECTIONS: usize = 4_000;
/// How long the last requests may take.
const LAST_ORDERS: Duration = Duration::from_secs(15);
/// The bytes of an answer.
const ANSWER: usize = 100;
const ROOM: usize = 16 * 1024;

/// A kind of requests: its share of all, and the start of its head.
struct Kind {
    share: f64,
    line: &'static str,
    header: &'static str,
}

/// Test mode, reads, writes, and the critical ones. `WORLD` becomes the number of the proxy.
const KINDS: [Kind; 4] = [
    Kind { share: 0.10, line: "GET /v1/WORLD/orders", header: "x-mode: test\r\n" },
    Kind { share: 0.60, line: "GET /v1/WORLD/orders", header: "" },
    Kind { share: 0.25, line: "POST /v1/WORLD/orders", header: "content-length: 0\r\n" },
    Kind { share: 0.05, line: "POST /v1/WORLD/charges", header: "content-length: 0\r\n" },
];
const READS: usize = 1;

/// A proxy, its clients, and what came of their requests.
struct World<'a> {
    number: usize,
    address: &'a str,
    connections: Vec<ClientConnection>,
    free: Vec<usize>,
    slots: Slots,
    latency: Histogram<u64>,
    counts: [Count; KINDS.len()],
    /// Answers of the upstream before the end.
    in_time: u64,
    open: u64,
}

struct ClientConnection {
    connection: Connection,
    /// The request under way, or one that waits until the connection is made.
    sent: Option<Sent>,
}

struct Sent {
    due: u64,
    kind: usize,
    /// Not written yet.
    waiting: Option<Vec<u8>>,
}

/// Requests of a kind.
#[derive(Clone, Copy, Default)]
struct Count {
    sent: u64,
    passed: u64,
    refused: u64,
}

/// Sends requests for so many seconds at so many times the capacity of an upstream. Prints a line for each proxy: answers in time over
/// capacity, the latency of half and of 99 % in nanoseconds, and for each kind how many were sent, passed, and were refused.
pub fn run(load: f64, kinds: &str, seed: u64, seconds: f64, addresses: &[&str]) {
    let mut poll = Poll::new().expect("a poll");
    let mut upstream = Upstream::of_bytes(ANSWER, poll.registry());
    let mut worlds: Vec<World<'_>> =
        addresses.iter().enumerate().map(|(number, address)| World::new(number, address)).collect();
    let mut random = Random::seeded(seed);
    let mut exponential = |mean: f64| (-(1.0 - random.unit()).ln() * mean) as u64;
    let every = MEAN_SERVICE as f64 / SLOTS as f64 / load;
    let mut lots = Random::seeded(seed + 1_000);
    let (mut events, mut room) = (Events::with_capacity(1024), vec![0; ROOM]);
    let start = Instant::now();
    let end = Duration::from_secs_f64(seconds).as_nanos() as u64;
    let mut due = exponential(every);
    loop {
        let now = start.elapsed().as_nanos() as u64;
        while due <= now.min(end) {
            let kind = if kinds == "all" { kind_of(lots.unit()) } else { READS };
            let service = exponential(MEAN_SERVICE as f64);
            for world in &mut worlds {
                world.send(due, kind, service, &poll);
            }
            due += exponential(every);
        }
        for world in &mut worlds {
            while let Some(connection) = world.slots.end(now) {
                upstream.answer(connection);
            }
        }
        if now > end && worlds.iter().all(|world| world.open == 0) {
            break;
        }
        assert!(now < end + LAST_ORDERS.as_nanos() as u64, "requests were not answered");
        // Never sleeps: the system wakes nobody within microseconds.
        poll.poll(&mut events, Some(Duration::ZERO)).expect("a poll that works");
        for event in &events {
            let token = event.token().0;
            if token >= UPSTREAM {
                upstream.event(event, poll.registry(), |_, connection, head| {
                    let (world, service) = read_head(head);
                    worlds[world].slots.arrive(connection, service, now);
                });
            } else {
                let (world, number) = (token / MOST_CONNECTIONS, token % MOST_CONNECTIONS);
                let now = start.elapsed().as_nanos() as u64;
                worlds[world].event(number, event, &mut room, now, now <= end);
            }
        }
    }
    for world in &worlds {
        world.print(seconds);
    }
}

impl World<'_> {
    fn new(number: usize, address: &str) -> World<'_> {
        World {
            number,
            address,
            connections: Vec::new(),
            free: Vec::new(),
            slots: Slots::default(),
            latency: Histogram::new_with_bounds(1_000, 60_000_000_000, 3).expect("bounds that fit"),
            counts: [Count::default(); KINDS.len()],
            in_time: 0,
            open: 0,
        }
    }

    /// Sends a request on a connection that is free, or on a new one.
    fn send(&mut self, due: u64, kind: usize, service: u64, poll: &Poll) {
        let Kind { line, header, .. } = &KINDS[kind];
        let line = line.replace("WORLD", &self.number.to_string());
        let request = format!("{line} HTTP/1.1\r\nhost: bench\r\nx-service: {service}\r\n{header}\r\n").into_bytes();
        self.counts[kind].sent += 1;
        self.open += 1;
        match self.free.pop() {
            Some(number) => {
                let free = &mut self.connections[number];
                free.connection.send(&request);
                free.sent = Some(Sent { due, kind, waiting: None });
            }
            None => {
                let number = self.connections.len();
                assert!(number < MOST_CONNECTIONS, "too many requests are not answered");
                let token = self.number * MOST_CONNECTIONS + number;
                let connection = Connection::open(self.address, token, poll.registry());
                let sent = Some(Sent { due, kind, waiting: Some(request) });
                self.connections.push(ClientConnection { connection, sent });
            }
        }
    }

    fn event(&mut self, number: usize, event: &mio::event::Event, room: &mut [u8], now: u64, is_in_time: bool) {
        let ClientConnection { connection, sent } = &mut self.connections[number];
        if connection.may_send(event)
            && let Some(waiting) = sent.as_mut().and_then(|sent| sent.waiting.take())
        {
            connection.send(&waiting);
        }
        if !event.is_readable() {
            return;
        }
        let status = match connection.read(room) {
            Arrived::Part => return,
            Arrived::Answer(status) => status,
            // A proxy may close what was idle for long. Its place is not used again.
            Arrived::End => {
                self.free.retain(|free| *free != number);
                assert!(sent.is_none(), "the proxy has closed a connection with a request");
                return;
            }
        };
        let Some(Sent { due, kind, .. }) = sent.take() else { return };
        self.free.push(number);
        self.open -= 1;
        let count = &mut self.counts[kind];
        match status {
            200 => {
                count.passed += 1;
                self.in_time += u64::from(is_in_time);
                self.latency.saturating_record(now - due);
            }
            503 => count.refused += 1,
            _ => panic!("an answer of status {status}"),
        }
    }

    fn print(&self, seconds: f64) {
        let capacity = seconds * 1e9 / MEAN_SERVICE as f64 * SLOTS as f64;
        let at = |quantile| self.latency.value_at_quantile(quantile);
        print!("{} {} {}", self.in_time as f64 / capacity, at(0.5), at(0.99));
        for Count { sent, passed, refused } in &self.counts {
            print!(" {sent} {passed} {refused}");
        }
        println!();
    }
}

/// The kind at this point between 0 and 1.
fn kind_of(point: f64) -> usize {
    let mut sum = 0.0;
    let ends = KINDS.iter().map(|kind| {
        sum += kind.share;
        sum
    });
    ends.into_iter().position(|end| point < end).unwrap_or(READS)
}

/// The number of the proxy, and how long the request takes.
fn read_head(head: &[u8]) -> (usize, u64) {
    let text = std::str::from_utf8(head).expect("a head in ASCII");
    let world = text.split('/').nth(2).and_then(|world| world.parse().ok()).expect("the number of a proxy");
    let lower = text.to_ascii_lowercase();
    let service = lower.split("x-service: ").nth(1).and_then(|rest| rest.split("\r\n").next()?.parse().ok());
    (world, service.expect("how long a request takes"))
}
