//! What is leased, for metrics and lists.

use tollgate_core::OwnedKey;

/// The state of all leases of a server.
#[derive(Clone, Debug, Default)]
pub struct LeaseStatus {
    /// Whether keys are leased.
    pub is_enabled: bool,
    /// The number of keys with a pool.
    pub keys: usize,
    /// The units that are held and may be spent.
    pub held: u64,
    /// The same with those that may not be spent any more and are not counted as expired yet.
    pub unspent: u64,
    /// What happened since the start.
    pub counts: LeaseCounts,
    /// The busiest keys, busiest first.
    pub hot_keys: Vec<HotKey>,
}

/// A key that is leased.
#[derive(Clone, Debug)]
pub struct HotKey {
    /// The key.
    pub key: OwnedKey,
    /// Units a second that the requests of this server take.
    pub rate: f64,
    /// The units that the store was last called for.
    pub chunk: u64,
    /// The units that are held.
    pub held: u64,
    /// The share of requests that were decided without the store.
    pub local: f64,
}

/// What was purged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use = "it says how much is given back"]
pub struct PurgedLeases {
    /// The number of keys.
    pub keys: usize,
    /// The units that are given back.
    pub units: u64,
}

/// Units and calls since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeaseCounts {
    /// Units taken from the store ahead of demand.
    pub taken: u64,
    /// Units of these that requests spent.
    pub spent: u64,
    /// Units of these that were given back.
    pub returned: u64,
    /// Units of these that expired or were dropped.
    pub expired: u64,
    /// Units that were to be given back, and the store did not answer.
    pub lost: u64,
    /// Units that the store may have given: it did not answer.
    pub unanswered: u64,
    /// Units that the store can't have given. They are not spent.
    pub impossible: u64,
    /// Requests that were refused without the store.
    pub refused: u64,
    /// Requests of leased keys that needed the store.
    pub misses: u64,
    /// Calls that took units ahead of demand.
    pub ahead: u64,
    /// Calls that gave back units.
    pub back: u64,
    /// Units that requests spent before the store counted them.
    pub advanced: u64,
    /// Calls that had the store count them.
    pub debits: u64,
}

impl LeaseCounts {
    pub(super) fn add(&mut self, other: &LeaseCounts) {
        self.taken += other.taken;
        self.spent += other.spent;
        self.returned += other.returned;
        self.expired += other.expired;
        self.lost += other.lost;
        self.unanswered += other.unanswered;
        self.impossible += other.impossible;
        self.refused += other.refused;
        self.misses += other.misses;
        self.ahead += other.ahead;
        self.back += other.back;
        self.advanced += other.advanced;
        self.debits += other.debits;
    }
}

impl LeaseStatus {
    /// Adds a key to the list if it is among the `most` busiest.
    pub(super) fn insert(&mut self, most: usize, rate: f64, key: impl FnOnce() -> HotKey) {
        let at = self.hot_keys.partition_point(|other| other.rate >= rate);
        if at < most {
            self.hot_keys.truncate(most - 1);
            self.hot_keys.insert(at, key());
        }
    }
}
