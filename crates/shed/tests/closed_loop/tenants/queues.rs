//! A small model of weighted fair queues, as Kubernetes' API Priority and Fairness has them: a level for each tier, whose
//! callers are hashed to a hand of its queues. Instead of a fixed number of seats they have those of the adaptive cap.

use std::collections::VecDeque;

use tollgate_shed::{AdaptiveCap, Admission, Begun, CapSettings, Class, Monotonic, RequestEnd};

use super::Arrival;
use super::fronts::{Front, Outcome, Waiting, hash};

/// Queues of a level.
const QUEUES: usize = 64;
/// The queues of a caller, of which the shortest is used.
const HAND: u64 = 8;
/// The longest queue.
const MAX_WAITING: usize = 50;

pub(crate) struct Queues {
    cap: AdaptiveCap,
    levels: Vec<Level>,
    /// The longest wait, in nanoseconds.
    wait: u64,
}

struct Level {
    /// The part of the seats that it has when all levels want more.
    share: f64,
    in_flight: f64,
    queues: Vec<Queue>,
    waiting: usize,
}

#[derive(Default)]
struct Queue {
    requests: VecDeque<Arrival>,
    /// Virtual time: what was served of this queue. An empty one is not served later for the time that it was empty.
    served: f64,
}

impl Queues {
    /// Levels with these shares, the lowest tier first.
    pub(crate) fn new(settings: CapSettings, shares: &[f64], wait: u64, seed: u64) -> Queues {
        let level = |share: &f64| Level {
            share: *share,
            in_flight: 0.0,
            queues: (0..QUEUES).map(|_| Queue::default()).collect(),
            waiting: 0,
        };
        let cap = AdaptiveCap::new(settings, seed).expect("valid settings");
        Queues { cap, levels: shares.iter().map(level).collect(), wait }
    }

    fn level_of(&self, request: Arrival) -> usize {
        request.tier.min(self.levels.len() - 1)
    }
}

impl Level {
    /// The shortest queue of a caller's hand.
    fn queue(&self, caller: u64) -> usize {
        let hand = (0..HAND).map(|card| (hash(hash(caller) ^ card) >> 40) as usize % QUEUES);
        hand.min_by_key(|queue| self.queues[*queue].requests.len()).unwrap_or(0)
    }

    /// The queue that is served next.
    fn next(&self) -> Option<usize> {
        let waiting = self.queues.iter().enumerate().filter(|(_, queue)| !queue.requests.is_empty());
        waiting.min_by(|(_, one), (_, other)| one.served.total_cmp(&other.served)).map(|(queue, _)| queue)
    }
}

impl Front for Queues {
    fn arrive(&mut self, request: Arrival, now: u64) -> Outcome {
        let number = self.level_of(request);
        // A full cap counts what it could not admit: its limit falls only then.
        if let Admission::Admitted(begun) = self.cap.try_acquire(Class::Critical, Monotonic::from_nanos(now)) {
            self.levels[number].in_flight += 1.0;
            return Outcome::Sent(begun);
        }
        let level = &mut self.levels[number];
        let queue = level.queue(request.caller);
        let floor = level.next().map_or(0.0, |next| level.queues[next].served);
        let queue = &mut level.queues[queue];
        if queue.requests.len() >= MAX_WAITING {
            return Outcome::Refused;
        }
        if queue.requests.is_empty() {
            queue.served = queue.served.max(floor);
        }
        queue.requests.push_back(request);
        level.waiting += 1;
        Outcome::Waits
    }

    fn end(&mut self, request: Arrival, begun: Begun, now: u64) {
        let number = self.level_of(request);
        self.levels[number].in_flight -= 1.0;
        self.cap.release(begun, Monotonic::from_nanos(now), RequestEnd::Answered);
    }

    fn next_waiting(&mut self, now: u64) -> Option<Waiting> {
        for level in self.levels.iter_mut().filter(|level| level.waiting > 0) {
            for queue in &mut level.queues {
                if queue.requests.front().is_some_and(|first| now - first.at > self.wait) {
                    level.waiting -= 1;
                    return queue.requests.pop_front().map(Waiting::Expired);
                }
            }
        }
        let least = |level: &Level| level.in_flight / level.share;
        let waiting = self.levels.iter_mut().filter(|level| level.waiting > 0);
        let level = waiting.min_by(|one, other| least(one).total_cmp(&least(other)))?;
        if !self.cap.has_room(Class::Critical, Monotonic::from_nanos(now)) {
            return None;
        }
        let Admission::Admitted(begun) = self.cap.try_acquire(Class::Critical, Monotonic::from_nanos(now)) else {
            return None;
        };
        let queue = level.next()?;
        let queue = &mut level.queues[queue];
        queue.served += 1.0;
        level.waiting -= 1;
        level.in_flight += 1.0;
        queue.requests.pop_front().map(|request| Waiting::Sent(request, begun))
    }
}
