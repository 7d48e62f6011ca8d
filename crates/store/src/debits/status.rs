//! The status of debits.

use std::ops::AddAssign;

use tollgate_core::{RegionLink, Span};

use crate::histogram::Durations;

/// The debits of one other region.
#[derive(Clone, Debug, Default)]
pub struct DebitStatus {
    /// The name of the region.
    pub region: String,
    /// How its debits are doing.
    pub link: RegionLink,
    /// By how many steps limits are lowered for it: 0 if they are together, 7 if they are apart.
    pub step: u8,
    /// The age of the oldest debit that is due and has no answer. Zero if there is none.
    pub oldest: Span,
    /// The counters of which units wait, those below their threshold included.
    pub waiting: usize,
    /// Units since the start.
    pub units: UnitCounts,
    /// How long it took from the first take of a debit to its answer.
    pub lag: Durations,
}

/// Units by what became of them. What was taken is the sum of the first six and what waits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnitCounts {
    /// The other region counts them.
    pub sent: u64,
    /// It is unknown whether the other region counts them. They are not sent again.
    pub unsure: u64,
    /// They no longer counted when they could have been sent.
    pub aged: u64,
    /// They were too many, or too long ago, for what the outbox holds.
    pub dropped: u64,
    /// They were below the threshold of their limit when too many counters waited. The others were not to know of them yet.
    pub evicted: u64,
    /// They were given back before they were sent.
    pub returned: u64,
    /// They were given back after they were sent: their return was sent, and counted there.
    pub back: u64,
    /// The same, and it is unknown whether it did.
    pub back_unsure: u64,
    /// The same, and there was no room for the message.
    pub back_dropped: u64,
}

impl AddAssign for UnitCounts {
    fn add_assign(&mut self, other: UnitCounts) {
        self.sent += other.sent;
        self.unsure += other.unsure;
        self.aged += other.aged;
        self.dropped += other.dropped;
        self.evicted += other.evicted;
        self.returned += other.returned;
        self.back += other.back;
        self.back_unsure += other.back_unsure;
        self.back_dropped += other.back_dropped;
    }
}
