//! The deny cache: answers repeated requests of callers that are over their limits, for at most a second.
//!
//! A caller that is over its limit and keeps sending requests gets the same answer until its wait is over: there is
//! no room until then, unless units are given back. Counters to which units may be given back (holds, charges without shortcuts,
//! and those from which the store takes units for a moment) are therefore never cached.
//!
//! Operators can also give back units and reset counters. This server then drops its cached denials of these
//! counters; other servers, and a claim that was refused at the same moment, keep theirs for at most a second. They can
//! also purge denials.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use smallvec::SmallVec;
use tollgate_core::key::HashSecret;
use tollgate_core::{
    Algorithm, Ask, Charge, Claim, Key, Limit, Mode, OwnedKey, Reading, Replay, Settlement, Shortcuts, Source, Span,
    Timestamp, Value, Wait,
};

use crate::clock::{Clock, SystemClock};
use crate::{Store, secret};

/// A store that caches the refusals of an inner store.
#[derive(Debug)]
pub struct DenyCache<S, C = SystemClock> {
    inner: S,
    clock: C,
    secret: HashSecret,
    tables: Box<[Mutex<DenialTable>]>,
    /// When the last cached denial expires, in microseconds. Without a valid denial a claim reads only this.
    last: AtomicU64,
    hits: AtomicU64,
}

/// The maximum number of cached denials. Beyond it the oldest are dropped.
pub const MAX_DENIALS: usize = 100_000;
/// The maximum lifetime of a cached denial. Limits may change and counters may be reset meanwhile.
pub const MAX_AGE: Span = Span::from_secs(1);
/// Each denial answers only for its units and more, because fewer may fit sooner. A caller whose units fall a little each
/// time would evade the cache: after this many falls, a denial answers for everything that exceeds what remained …
const MAX_FALLS: u8 = 8;
/// … for this time, in which not much can become free. The wait is that of the refused units, in which fewer fit as well.
const FALLING_AGE: Span = Span::from_micros(50_000);
/// The longest values of a key that is stored with its denial, in bytes. Callers choose the values, so that 100,000 long ones
/// would be too many.
const MAX_VALUE_BYTES: usize = 256;
/// The number of tables, each with its own lock. A power of two.
const TABLES: usize = 16;

#[derive(Debug, Default)]
struct DenialTable {
    denials: HashMap<u128, CachedDenial, foldhash::fast::RandomState>,
    /// By time of insertion. Entries that were removed or replaced since are skipped.
    order: VecDeque<(u128, Timestamp)>,
}

/// A refused charge, and its key, by which it can be purged.
#[derive(Debug)]
struct CachedDenial {
    denial: Denial,
    /// `None` if it is long.
    key: Option<Box<OwnedKey>>,
}

/// A refused charge.
#[derive(Clone, Copy, Debug)]
struct Denial {
    /// The refused units. More units are refused as well, and see [`MAX_FALLS`].
    units: u64,
    /// The amount and quota of the limit.
    limit: (u64, u64),
    /// When the claim was sent. The store refused it no earlier.
    sent_at: Timestamp,
    until: Timestamp,
    wait: Span,
    remaining: u64,
    reset_after: Span,
    /// How often in a row the store refused fewer units than the cached denial had.
    falls: u8,
}

impl<S: Store> DenyCache<S> {
    /// Caches the refusals of a store, using the system clock.
    pub fn new(inner: S) -> Self {
        Self::with_clock(inner, SystemClock::default())
    }
}

impl<S: Store, C: Clock> DenyCache<S, C> {
    /// Caches the refusals of a store, using the given clock.
    pub fn with_clock(inner: S, clock: C) -> Self {
        DenyCache {
            inner,
            clock,
            secret: secret::random(),
            tables: (0..TABLES).map(|_| Mutex::default()).collect(),
            last: AtomicU64::new(0),
            hits: AtomicU64::new(0),
        }
    }

    /// The inner store.
    pub fn inner(&self) -> &S {
        &self.inner
    }

    /// The number of claims that were answered from the cache.
    pub fn hits(&self) -> u64 {
        self.hits.load(Ordering::Relaxed)
    }

    /// The number of cached denials, including expired ones that were not removed yet.
    pub fn denials(&self) -> usize {
        (0..TABLES).map(|table| self.lock(table).denials.len()).sum()
    }

    /// Drops the denials of keys: the inner store decides their next requests. Returns the number of those that were
    /// still valid. Denials of keys that are too long to be stored are dropped with any others.
    pub fn purge(&self, is_purged: impl Fn(&Key<'_>) -> bool) -> usize {
        let now = self.clock.now();
        let mut purged = 0;
        for table in 0..TABLES {
            self.lock(table).denials.retain(|_, CachedDenial { denial, key }| {
                let is_purged = key.as_ref().is_none_or(|key| is_purged(&key.key()));
                purged += usize::from(is_purged && denial.is_valid(now));
                !is_purged
            });
        }
        purged
    }

    /// Answers a claim from the cache, if one of its charges has a valid denial. The readings of the other charges
    /// are unknown and do not matter.
    fn answer(&self, claim: &Claim<'_>, now: Timestamp, settlement: &mut Settlement) -> bool {
        if claim.once.is_some() || claim.charges.iter().any(|charge| charge.ask != Ask::Exactly) {
            return false;
        }
        let mut refused = false;
        settlement.readings.clear();
        for (charge, fingerprint) in claim.charges.iter().zip(self.fingerprints(claim)) {
            let denial = fingerprint.and_then(|fingerprint| self.table(fingerprint).get(fingerprint, charge, now));
            refused |= denial.is_some();
            settlement
                .readings
                .push(denial.map_or_else(|| Reading::unread(charge, Source::Cache), |denial| denial.reading(now)));
        }
        if refused {
            settlement.at = now;
            settlement.replay = Replay::First;
            self.hits.fetch_add(1, Ordering::Relaxed);
        }
        refused
    }

    /// Caches the refusals of a claim.
    #[cold]
    fn store_denials(&self, claim: &Claim<'_>, now: Timestamp, settlement: &Settlement) {
        if claim.once.is_some() {
            return;
        }
        for ((charge, reading), fingerprint) in
            claim.charges.iter().zip(&settlement.readings).zip(self.fingerprints(claim))
        {
            let (Some(fingerprint), Some(denial)) = (fingerprint, Denial::new(charge, reading, now)) else { continue };
            if self.inner.may_be_transient(&charge.key) {
                continue;
            }
            // Charges with the same key were refused for their sum.
            if claim.charges.iter().filter(|other| other.key == charge.key).count() == 1 {
                self.table(fingerprint).insert(fingerprint, denial, &charge.key, now);
                self.last.fetch_max(denial.until.as_micros(), Ordering::Relaxed);
            }
        }
    }

    /// Drops the denials of counters to which a claim gave back units.
    #[cold]
    fn invalidate(&self, claim: &Claim<'_>) {
        for Charge { key, .. } in claim.charges.iter().filter(|charge| makes_room(charge)) {
            let fingerprint = key.local_hash(self.secret, key.partition(self.secret));
            self.table(fingerprint).denials.remove(&fingerprint);
        }
    }

    /// A keyed hash for each charge whose refusals may be cached.
    fn fingerprints(&self, claim: &Claim<'_>) -> SmallVec<[Option<u128>; 4]> {
        let mut before: Option<(&Key<'_>, u128)> = None;
        let mut fingerprints = SmallVec::new();
        for charge in &claim.charges {
            // Most charges of a claim are in one caller's partition, which is hashed once.
            let partition = match before {
                Some((other, partition)) if charge.key.shares_partition_with(other) => partition,
                _ => charge.key.partition(self.secret),
            };
            before = Some((&charge.key, partition));
            fingerprints.push(is_cacheable(charge).then(|| charge.key.local_hash(self.secret, partition)));
        }
        fingerprints
    }

    fn table(&self, fingerprint: u128) -> MutexGuard<'_, DenialTable> {
        self.lock(fingerprint as usize % TABLES)
    }

    fn lock(&self, table: usize) -> MutexGuard<'_, DenialTable> {
        self.tables[table].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<S: Store, C: Clock> Store for DenyCache<S, C> {
    async fn settle_into(&self, claim: &Claim<'_>, settlement: &mut Settlement) {
        // Read before the store is called: the store's waits begin no earlier.
        let now = self.clock.now();
        if now.as_micros() < self.last.load(Ordering::Relaxed) && self.answer(claim, now, settlement) {
            return;
        }
        self.inner.settle_into(claim, settlement).await;
        if claim.charges.iter().any(makes_room) && now.as_micros() < self.last.load(Ordering::Relaxed) {
            self.invalidate(claim);
        }
        if settlement.readings.iter().any(|reading| !reading.admits) {
            self.store_denials(claim, now, settlement);
        }
    }

    fn assume(&self, claim: &Claim<'_>, source: Source, settlement: &mut Settlement) {
        self.inner.assume(claim, source, settlement);
    }
}

impl DenialTable {
    /// The denial that answers a charge, if there is one.
    fn get(&mut self, fingerprint: u128, charge: &Charge<'_>, now: Timestamp) -> Option<Denial> {
        let denial = self.denials.get(&fingerprint)?.denial;
        if !denial.is_valid(now) {
            self.denials.remove(&fingerprint);
            return None;
        }
        (denial.covers(charge.units, now) && denial.limit == limit_identity(charge.limit)).then_some(denial)
    }

    fn insert(&mut self, fingerprint: u128, mut denial: Denial, key: &Key<'_>, now: Timestamp) {
        if let Some(before) = self.denials.get(&fingerprint) {
            denial.falls = before.denial.falls_to(&denial);
        }
        while let Some((oldest, sent_at)) = self.order.front().copied() {
            let current = self.denials.get(&oldest).filter(|cached| cached.denial.sent_at == sent_at);
            if current.is_some_and(|cached| cached.denial.is_valid(now)) && self.order.len() < MAX_DENIALS / TABLES {
                break;
            }
            if current.is_some() {
                self.denials.remove(&oldest);
            }
            self.order.pop_front();
        }
        self.order.push_back((fingerprint, denial.sent_at));
        let cached = self.denials.entry(fingerprint).or_insert_with(|| CachedDenial { denial, key: stored_key(key) });
        cached.denial = denial;
    }
}

impl Denial {
    fn new(charge: &Charge<'_>, reading: &Reading, now: Timestamp) -> Option<Denial> {
        let Wait::For(wait) = reading.wait else { return None };
        let denial = || Denial {
            units: charge.units,
            limit: limit_identity(charge.limit),
            sent_at: now,
            until: now.after(wait.min(MAX_AGE)),
            wait,
            remaining: reading.remaining,
            reset_after: reading.reset_after,
            falls: 0,
        };
        (!reading.admits && reading.source == Source::Store).then(denial)
    }

    /// A clock that was set back does not extend the lifetime.
    fn is_valid(&self, now: Timestamp) -> bool {
        self.sent_at <= now && now < self.until
    }

    /// Whether these units are refused as well.
    fn covers(&self, units: u64, now: Timestamp) -> bool {
        let is_falling = self.falls >= MAX_FALLS && now.since(self.sent_at) < FALLING_AGE;
        units >= self.units || (is_falling && units > self.remaining)
    }

    /// The falls of a denial that follows this one.
    fn falls_to(&self, next: &Denial) -> u8 {
        let is_recent = self.sent_at <= next.sent_at && next.sent_at.since(self.sent_at) < MAX_AGE;
        if is_recent && next.units < self.units { self.falls.saturating_add(1) } else { 0 }
    }

    fn reading(&self, now: Timestamp) -> Reading {
        let elapsed = now.since(self.sent_at);
        let less = |span: Span| Span::from_micros(span.as_micros().saturating_sub(elapsed.as_micros()));
        Reading {
            admits: false,
            taken: 0,
            remaining: self.remaining,
            wait: Wait::For(less(self.wait)),
            reset_after: less(self.reset_after),
            delay: Span::ZERO,
            source: Source::Cache,
        }
    }
}

/// Whether a refusal of the charge stays valid until its wait is over. A peek is not refused.
fn is_cacheable(charge: &Charge<'_>) -> bool {
    charge.ask == Ask::Exactly
        && charge.mode == Mode::Enforce
        && charge.units > 0
        && charge.shortcuts != Shortcuts::None
        && charge.limit.algorithm() != Algorithm::Concurrency
}

/// The key to store with a denial, unless it is long.
fn stored_key(key: &Key<'_>) -> Option<Box<OwnedKey>> {
    let bytes = |value: &Value<'_>| match value {
        Value::Text(text) => text.len(),
        Value::Bytes(bytes) => bytes.len(),
        Value::Absent | Value::Network { .. } => 0,
    };
    let length: usize = key.values().iter().map(bytes).sum();
    (length <= MAX_VALUE_BYTES).then(|| Box::new(OwnedKey::from(key)))
}

/// Whether a charge makes room before the wait is over.
fn makes_room(charge: &Charge<'_>) -> bool {
    matches!(charge.ask, Ask::Return { .. } | Ask::Credit | Ask::Reset)
}

/// The properties of a limit that must be unchanged for a denial to be valid.
fn limit_identity(limit: &Limit) -> (u64, u64) {
    (limit.amount(), limit.quota())
}
