//! The decision log: what was decided about whom, and why, for those decisions that somebody will ask about.
//!
//! Every refusal, and what would have been one; a sample of the rest; and all decisions about a small sample of callers, so that
//! a few are known from end to end. An [`Entry`] is made of these alone, and waits in a bounded queue until it is taken. A decision
//! never waits for it: what finds no room is dropped, and counted.

mod cut;
mod entry;
mod queue;
mod sample;
mod sentence;
#[cfg(test)]
mod tests;

use tollgate::{Ask, Seen};

use crate::ruling::{Ruled, Ruling};
use crate::stripe::Striped;
use queue::Queue;

pub use cut::{LONGEST_TEXT, cut};
pub use entry::{Entry, EntryDescriptor, EntryLimit, MOST_LIMITS, MOST_TEXT};
pub use sample::Share;

/// What is logged, and how much of it waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogConfig {
    /// Nothing is logged if not.
    pub on: bool,
    /// Of decisions that are no refusals.
    pub sample: Share,
    /// Of callers about whom every decision is logged.
    pub callers: Share,
    /// The most entries that wait.
    pub most_entries: usize,
    /// The most that they take, in bytes.
    pub most_bytes: usize,
}

/// What is logged and waits to be written.
#[derive(Debug)]
pub struct DecisionLog {
    config: LogConfig,
    queue: Queue,
    counts: Striped<2>,
}

/// How many entries there were.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Logged {
    /// Entries that found room.
    pub kept: u64,
    /// Those that did not.
    pub dropped: u64,
}

const KEPT: usize = 0;
const DROPPED: usize = 1;

impl Default for LogConfig {
    /// Off. Else: one in a thousand, and 16 MiB.
    fn default() -> LogConfig {
        LogConfig {
            on: false,
            sample: Share::of_10_000(10),
            callers: Share::of_10_000(10),
            most_entries: 16_384,
            most_bytes: 16 << 20,
        }
    }
}

impl DecisionLog {
    /// One in which nothing is yet.
    pub fn new(config: LogConfig) -> DecisionLog {
        DecisionLog { config, queue: Queue::new(config.most_entries, config.most_bytes), counts: Striped::new() }
    }

    /// What is logged.
    pub fn config(&self) -> &LogConfig {
        &self.config
    }

    /// Takes all entries that wait, the oldest first.
    pub fn take(&self) -> Vec<Entry> {
        self.queue.take()
    }

    /// How many there were so far.
    pub fn logged(&self) -> Logged {
        let sums = self.counts.sums();
        Logged { kept: sums[KEPT], dropped: sums[DROPPED] }
    }

    /// A decision was made.
    #[inline]
    pub(crate) fn saw(&self, seen: &Seen<'_, '_>, ruled: Ruled) {
        if !self.config.on || seen.request.ask != Ask::Exactly {
            return;
        }
        let is_refusal = matches!(ruled.ruling, Ruling::Deny | Ruling::Blocked | Ruling::Shadow);
        if is_refusal || self.config.sample.takes_one() {
            return self.keep(seen, ruled);
        }
        if self.config.callers != Share::NONE
            && let Some(caller) = entry::caller(seen)
            && self.config.callers.has(sample::digest(seen.domain().name(), caller))
        {
            self.keep(seen, ruled);
        }
    }

    fn keep(&self, seen: &Seen<'_, '_>, ruled: Ruled) {
        let caller = entry::caller(seen);
        // Under a flood nothing is made of what has no room.
        let has_room = self.queue.has_room(|| sample::digest(seen.domain().name(), caller.unwrap_or_default()));
        let is_kept = has_room && self.queue.push(Entry::of(seen, ruled, caller));
        self.counts.mine().add(if is_kept { KEPT } else { DROPPED }, 1);
    }
}
