//! The decision log: decisions with their reasons.
//!
//! It has the refusals and would-be refusals of a shadow limit, a sample of the other decisions, and all decisions about a small
//! sample of callers, so that a few can be followed from end to end. Only these become a [`DecisionEntry`], which waits in a bounded
//! queue. Refusals of the same caller by the same rule are summarized after the first few of a minute. A decision never waits for the
//! log: entries that find no room are dropped and counted.

mod entry;
mod explanation;
mod queue;
mod repeats;
mod sample;
mod shed;
#[cfg(test)]
mod tests;
mod truncate;

use std::sync::Arc;

use tollgate::{Ask, DecisionEvent, KeyPrivacy, Timestamp};

use crate::outcome::{DecisionOutcome, DecisionResult};
use crate::stripe::StripedCounters;
use queue::EntryQueue;
use repeats::{Repeat, RepeatCounter};

pub use entry::{DecisionEntry, EntryDescriptor, EntryLimit, MAX_DESCRIPTOR_BYTES, MAX_LIMITS, MAX_VALUE_BYTES};
pub use repeats::{MAX_REPEATING, Repetition, SUMMARY_INTERVAL};
pub use sample::SampleRate;
pub use shed::{EntryShed, ShedRequest};
pub use truncate::{MAX_TEXT_BYTES, truncate};

pub use entry::truncate_attribute;
pub(crate) use entry::{AttributeMask, caller};
pub(crate) use sample::{quick_caller_digest, random};

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
    /// Refusals of one caller by one rule in a minute that are entries of their own.
    pub max_single: u64,
}

/// The decision log of one server, with the entries that wait to be written.
#[derive(Debug)]
pub struct DecisionLog {
    config: LogConfig,
    queue: EntryQueue,
    repeats: RepeatCounter,
    counts: StripedCounters<3>,
    privacy: Arc<KeyPrivacy>,
}

/// Entries so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogCounts {
    /// Entries that were queued.
    pub queued: u64,
    /// Entries that found no room.
    pub dropped: u64,
    /// Refusals that are counted in the entry of another.
    pub summarized: u64,
}

const QUEUED: usize = 0;
const DROPPED: usize = 1;
const SUMMARIZED: usize = 2;

impl Default for LogConfig {
    /// Off. When on: one in a thousand, and 16 MiB.
    fn default() -> LogConfig {
        LogConfig {
            on: false,
            sample: SampleRate::from_bps(10),
            callers: SampleRate::from_bps(10),
            max_entries: 16_384,
            max_bytes: 16 << 20,
            max_single: 20,
        }
    }
}

impl DecisionLog {
    /// Creates an empty log, with private values in this form.
    pub fn new(config: LogConfig, privacy: Arc<KeyPrivacy>) -> DecisionLog {
        DecisionLog {
            config,
            queue: EntryQueue::new(config.max_entries, config.max_bytes),
            repeats: RepeatCounter::new(config.max_single),
            counts: StripedCounters::new(),
            privacy,
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

    /// Takes the entries that stand for many refusals, if a minute is over; at the end of the log (`now` is `None`) in any case.
    pub fn take_summaries(&self, now: Option<Timestamp>) -> Vec<DecisionEntry> {
        now.map_or_else(|| self.repeats.take_all(), |now| self.repeats.take(now))
    }

    /// These entries as they are now. They stay.
    pub fn summaries(&self) -> Vec<DecisionEntry> {
        self.repeats.current()
    }

    /// Entries so far.
    pub fn counts(&self) -> LogCounts {
        let sums = self.counts.sums();
        LogCounts { queued: sums[QUEUED], dropped: sums[DROPPED], summarized: sums[SUMMARIZED] }
    }

    /// Logs a decision if it is a refusal or sampled.
    #[inline]
    pub(crate) fn record(&self, event: &DecisionEvent<'_, '_>, result: DecisionResult) {
        if !self.config.on || event.request.ask != Ask::Exactly {
            return;
        }
        let is_refusal =
            matches!(result.outcome, DecisionOutcome::Deny | DecisionOutcome::Blocked | DecisionOutcome::Shadow);
        if is_refusal {
            return self.record_refusal(event, result);
        }
        if self.config.sample.is_sampled() {
            return self.push(event, result);
        }
        if self.config.callers != SampleRate::NONE
            && let Some(caller) = entry::caller(event)
            && self.config.callers.contains(sample::caller_digest(event.domain().name(), caller))
        {
            self.push(event, result);
        }
    }

    /// Logs a request that a shedder refused. Of those of the same shedder, class and route, the first few of a minute are
    /// entries of their own.
    pub(crate) fn record_shed(&self, shed: &ShedRequest<'_>) {
        if !self.config.on {
            return;
        }
        let digest = shed.repeat_digest();
        let count = match self.repeats.count(digest, shed.at) {
            Repeat::Single => {
                let has_room = self.queue.has_room(|| digest);
                let is_queued = has_room && self.queue.push(shed.entry(self.privacy.log_secret()));
                if is_queued { QUEUED } else { DROPPED }
            }
            Repeat::First(slot) => {
                self.repeats.store(slot, digest, shed.entry(self.privacy.log_secret()));
                SUMMARIZED
            }
            Repeat::Counted => SUMMARIZED,
        };
        self.counts.local().add(count, 1);
    }

    fn record_refusal(&self, event: &DecisionEvent<'_, '_>, result: DecisionResult) {
        let digest = entry::repeat_digest(event, result);
        match self.repeats.count(digest, event.settlement.at) {
            Repeat::Single => return self.push(event, result),
            Repeat::First(slot) => {
                let entry = DecisionEntry::from_event(event, result, entry::caller(event), self.privacy.log_secret());
                self.repeats.store(slot, digest, entry);
            }
            Repeat::Counted => {}
        }
        self.counts.local().add(SUMMARIZED, 1);
    }

    fn push(&self, event: &DecisionEvent<'_, '_>, result: DecisionResult) {
        let caller = entry::caller(event);
        // Under a flood no entries are built that have no room.
        let has_room = self.queue.has_room(|| sample::caller_digest(event.domain().name(), caller.unwrap_or_default()));
        let entry = || DecisionEntry::from_event(event, result, caller, self.privacy.log_secret());
        let is_queued = has_room && self.queue.push(entry());
        self.counts.local().add(if is_queued { QUEUED } else { DROPPED }, 1);
    }
}
