//! gRPC's loads: as many calls as the server answers, and calls at set times.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use mio::{Events, Interest, Poll, Token};

use super::h2::Connection;
use super::stock::{Asking, Stock};
use super::window::Window;
use super::{GRPC_CONNECTIONS, GRPC_STREAMS};

/// How long to wait for something to happen before looking at the clock again.
const PATIENCE: Duration = Duration::from_millis(50);
/// How long calls are made at their times before they count, and how long the last may take.
const RUN_UP: Duration = Duration::from_millis(250);
const LAST_ORDERS: Duration = Duration::from_secs(10);

/// The connections and what wakes them.
struct Connections {
    poll: Poll,
    events: Events,
    all: Vec<Connection>,
}

impl Connections {
    fn open(address: &str, streams: usize, asking: Asking) -> Connections {
        let poll = Poll::new().expect("a poll");
        let open = |number| {
            let mut connection = Connection::open(address, streams, asking.statuses());
            let both = Interest::READABLE | Interest::WRITABLE;
            poll.registry().register(&mut connection.socket, Token(number), both).expect("a place in the poll");
            connection
        };
        let all = (0..GRPC_CONNECTIONS).map(open).collect();
        Connections { poll, events: Events::with_capacity(GRPC_CONNECTIONS), all }
    }

    /// Waits so long, reads what has arrived, and gives each connection that woke to `then`.
    fn turn(&mut self, patience: Duration, mut answered: impl FnMut(u64), mut then: impl FnMut(&mut Connection)) {
        self.poll.poll(&mut self.events, Some(patience)).expect("a poll that works");
        for event in &self.events {
            let connection = &mut self.all[event.token().0];
            if event.is_readable() {
                connection.read(&mut answered);
            }
            then(connection);
            connection.flush();
        }
    }
}

/// Keeps as many calls under way as there may be, and prints how many were answered a second.
pub fn flood(address: &str, streams: usize, asking: Asking, servers: &[u32], seconds: f64) {
    let mut messages = Stock::messages(asking);
    let length = messages.draw().len();
    let mut connections = Connections::open(address, streams, asking);
    let mut window = Window::new(servers, seconds);
    while window.goes_on() {
        connections.turn(
            PATIENCE,
            |_| window.answered(),
            |connection| {
                while connection.has_room(length) {
                    connection.ask(messages.draw(), 0);
                }
            },
        );
    }
}

/// Makes calls at set times, and prints how long after its time a call was answered: the median, 99 % and 99.9 % in
/// nanoseconds; and after how long 99 % of calls had left, which is the load's own share in it.
///
/// A call that can't leave at its time counts from then all the same: what a slow server holds up is its latency.
pub fn pace(address: &str, rate: u64, seconds: f64) {
    let mut messages = Stock::messages(Asking::One);
    let length = messages.draw().len();
    let mut connections = Connections::open(address, GRPC_STREAMS, Asking::One);
    let (mut late, mut latency) = (histogram(), histogram());
    let start = Instant::now();
    let every = 1_000_000_000 / rate;
    let counted_from = RUN_UP.as_nanos() as u64;
    let ends = counted_from + Duration::from_secs_f64(seconds).as_nanos() as u64;
    let (mut due, mut turn, mut open) = (0, 0, 0u64);
    while due < ends || open > 0 {
        let now = start.elapsed();
        assert!(now < Duration::from_nanos(ends) + LAST_ORDERS, "{open} calls were not answered");
        while due < ends.min(now.as_nanos() as u64) {
            let count = connections.all.len();
            let Some(free) = (turn..turn + count).map(|at| at % count).find(|at| connections.all[*at].has_room(length))
            else {
                break;
            };
            let connection = &mut connections.all[free];
            connection.ask(messages.draw(), due);
            connection.flush();
            if due >= counted_from {
                late.saturating_record((start.elapsed().as_nanos() as u64).saturating_sub(due));
            }
            (due, turn, open) = (due + every, free + 1, open + 1);
        }
        // Never sleeps: the system wakes nobody within microseconds.
        let mut answered = |due: u64| {
            open -= 1;
            if due >= counted_from {
                latency.saturating_record((start.elapsed().as_nanos() as u64).saturating_sub(due));
            }
        };
        connections.turn(Duration::ZERO, &mut answered, |_| {});
    }
    let at = |quantile| latency.value_at_quantile(quantile);
    println!("{} {} {} {}", at(0.5), at(0.99), at(0.999), late.value_at_quantile(0.99));
}

/// From 100 ns to a minute, three digits exact.
fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(100, 60_000_000_000, 3).expect("bounds that fit")
}
