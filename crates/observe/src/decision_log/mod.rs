//! The decision log: decisions with their reasons.
//!
//! It has every refusal and every would-be refusal of a shadow limit, a sample of the other decisions, and all decisions about
//! a small sample of callers, so that a few can be followed from end to end. Only these become a [`DecisionEntry`], which waits in
//! a bounded queue. A decision never waits for it: entries that find no room are dropped and counted.

mod entry;
mod explanation;
mod queue;
mod sample;
#[cfg(test)]
mod tests;
mod truncate;

use tollgate::{Ask, DecisionEvent};

use crate::outcome::{DecisionOutcome, DecisionResult};
use crate::stripe::StripedCounters;
use queue::EntryQueue;

pub use entry::{DecisionEntry, EntryDescriptor, EntryLimit, MAX_DESCRIPTOR_BYTES, MAX_LIMITS};
pub use sample::SampleRate;
pub use truncate::{MAX_TEXT_BYTES, truncate};

/// Configuration of the decision log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogConfig {
    /// Whether decisions are counts at all.
    pub on: bool,
    /// Sample rate of decisions that are not refusals.
    pub sample: SampleRate,
    /// Sample rate of callers whose every decision is counts.
    pub callers: SampleRate,
    /// Entries in the queue.
    pub max_entries: usize,
    /// Bytes of entries in the queue.
    pub max_bytes: usize,
}

/// The decision log of one server, with the entries that wait to be written.
#[derive(Debug)]
pub struct DecisionLog {
    config: LogConfig,
    queue: EntryQueue,
    counts: StripedCounters<2>,
}

/// Entries so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogCounts {
    /// Entries that were queued.
    pub queued: u64,
    /// Entries that found no room.
    pub dropped: u64,
}

const QUEUED: usize = 0;
const DROPPED: usize = 1;

impl Default for LogConfig {
    /// Off. When on: one in a thousand, and 16 MiB.
    fn default() -> LogConfig {
        LogConfig {
            on: false,
            sample: SampleRate::from_bps(10),
            callers: SampleRate::from_bps(10),
            max_entries: 16_384,
            max_bytes: 16 << 20,
        }
    }
}

impl DecisionLog {
    /// Creates an empty log.
    pub fn new(config: LogConfig) -> DecisionLog {
        DecisionLog {
            config,
            queue: EntryQueue::new(config.max_entries, config.max_bytes),
            counts: StripedCounters::new(),
        }
    }

    /// The configuration.
    pub fn config(&self) -> &LogConfig {
        &self.config
    }

    /// Takes all queued entries, oldest first.
    pub fn take(&self) -> Vec<DecisionEntry> {
        self.queue.take()
    }

    /// Entries so far.
    pub fn counts(&self) -> LogCounts {
        let sums = self.counts.sums();
        LogCounts { queued: sums[QUEUED], dropped: sums[DROPPED] }
    }

    /// Logs a decision if it is a refusal or sampled.
    #[inline]
    pub(crate) fn record(&self, event: &DecisionEvent<'_, '_>, result: DecisionResult) {
        if !self.config.on || event.request.ask != Ask::Exactly {
            return;
        }
        let is_refusal =
            matches!(result.outcome, DecisionOutcome::Deny | DecisionOutcome::Blocked | DecisionOutcome::Shadow);
        if is_refusal || self.config.sample.is_sampled() {
            return self.push(event, result);
        }
        if self.config.callers != SampleRate::NONE
            && let Some(caller) = entry::caller(event)
            && self.config.callers.contains(sample::caller_digest(event.domain().name(), caller))
        {
            self.push(event, result);
        }
    }

    fn push(&self, event: &DecisionEvent<'_, '_>, result: DecisionResult) {
        let caller = entry::caller(event);
        // Under a flood no entries are built that have no room.
        let has_room = self.queue.has_room(|| sample::caller_digest(event.domain().name(), caller.unwrap_or_default()));
        let is_queued = has_room && self.queue.push(DecisionEntry::from_event(event, result, caller));
        self.counts.local().add(if is_queued { QUEUED } else { DROPPED }, 1);
    }
}
