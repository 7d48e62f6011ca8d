//! Upstreams with a fixed number of slots and a queue in front of them.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// How many requests an upstream works on at a time, and how long one takes on average, in nanoseconds.
pub const SLOTS: usize = 16;
pub const MEAN_SERVICE: u64 = 20_000_000;

/// An upstream's slots. Times are nanoseconds since the start.
#[derive(Default)]
pub struct Slots {
    /// When a request in a slot ends, and its connection.
    busy: BinaryHeap<Reverse<(u64, usize)>>,
    /// The connection of a request, and how long it takes.
    queue: VecDeque<(usize, u64)>,
}

impl Slots {
    /// A request arrives.
    pub fn arrive(&mut self, connection: usize, service: u64, now: u64) {
        if self.busy.len() < SLOTS {
            self.busy.push(Reverse((now + service, connection)));
        } else {
            self.queue.push_back((connection, service));
        }
    }

    /// The connection of a request that has ended by now, if there is one.
    pub fn end(&mut self, now: u64) -> Option<usize> {
        self.busy.peek().filter(|Reverse((at, _))| *at <= now)?;
        let Reverse((at, connection)) = self.busy.pop()?;
        // The slot was free from then on, however late this is called.
        if let Some((next, service)) = self.queue.pop_front() {
            self.busy.push(Reverse((at + service, next)));
        }
        Some(connection)
    }
}
