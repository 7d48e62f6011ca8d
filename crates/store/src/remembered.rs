//! A store that remembers refusals while they hold, at most for a second.
//!
//! A caller that is over its limit and does not stop asks the same again and again. The answer is known: until its wait is over
//! there is no room, whatever others do, but for what is given back. So counters to which something may be given back (holds,
//! and charges that are `strict`) are never answered from memory.
//!
//! Operators give back to others, too, and reset them. What this server remembers of a counter it forgets then; other servers, and a
//! claim that was refused at that moment, remember it for at most a second more.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use smallvec::SmallVec;
use tollgate_core::key::Secret;
use tollgate_core::{
    Algorithm, Ask, Charge, Claim, Key, Limit, Mode, Reading, Replay, Settlement, Source, Span, Timestamp, Wait,
};

use crate::clock::{Clock, SystemClock};
use crate::{Store, secret};

/// A store that remembers the refusals of the store within.
#[derive(Debug)]
pub struct Remembered<S, C = SystemClock> {
    inner: S,
    clock: C,
    secret: Secret,
    tables: Box<[Mutex<Table>]>,
    /// When the last of them is over, in microseconds. While none is remembered a claim reads this and no more.
    last: AtomicU64,
    answered: AtomicU64,
}

/// The most refusals that are remembered. Past that the oldest go.
pub const MOST_REMEMBERED: usize = 100_000;
/// The longest that a refusal is remembered: limits are changed and counters reset meanwhile.
pub const LONGEST: Span = Span::from_secs(1);
/// Each with a lock of its own; a power of two.
const TABLES: usize = 16;

#[derive(Debug, Default)]
struct Table {
    refusals: HashMap<u128, Refusal, foldhash::fast::RandomState>,
    /// In the order of their making; what is gone, or was made anew since, is passed over.
    order: VecDeque<(u128, Timestamp)>,
}

/// A charge that was refused.
#[derive(Clone, Copy, Debug)]
struct Refusal {
    /// So many units, and therefore also more.
    units: u64,
    /// Of a limit with this amount and quota.
    limit: (u64, u64),
    /// When it was asked: the store refused it no earlier.
    made: Timestamp,
    until: Timestamp,
    wait: Span,
    remaining: u64,
    reset_after: Span,
}

impl<S: Store> Remembered<S> {
    /// Remembers what this store refuses, by the machine's clock.
    pub fn new(inner: S) -> Self {
        Self::with_clock(inner, SystemClock::default())
    }
}

impl<S: Store, C: Clock> Remembered<S, C> {
    /// Remembers what this store refuses, by a clock of the caller's.
    pub fn with_clock(inner: S, clock: C) -> Self {
        Remembered {
            inner,
            clock,
            secret: secret::draw(),
            tables: (0..TABLES).map(|_| Mutex::default()).collect(),
            last: AtomicU64::new(0),
            answered: AtomicU64::new(0),
        }
    }

    /// The store within.
    pub fn inner(&self) -> &S {
        &self.inner
    }

    /// How many claims were answered from memory.
    pub fn answered(&self) -> u64 {
        self.answered.load(Ordering::Relaxed)
    }

    /// How many refusals are remembered, those included that are over and nobody has removed yet.
    pub fn remembered(&self) -> usize {
        (0..TABLES).map(|table| self.lock(table).refusals.len()).sum()
    }

    /// Answers a claim of which a refusal is remembered. What its other charges would say is not known, and makes no difference.
    fn answer(&self, claim: &Claim<'_>, now: Timestamp, settlement: &mut Settlement) -> bool {
        if claim.once.is_some() || claim.charges.iter().any(|charge| charge.ask != Ask::Exactly) {
            return false;
        }
        let mut refused = false;
        settlement.readings.clear();
        for (charge, print) in claim.charges.iter().zip(self.prints(claim)) {
            let refusal = print.and_then(|print| self.table(print).get(print, charge, now));
            refused |= refusal.is_some();
            settlement.readings.push(refusal.map_or_else(|| unasked(charge), |refusal| refusal.reading(now)));
        }
        if refused {
            settlement.at = now;
            settlement.replay = Replay::First;
            self.answered.fetch_add(1, Ordering::Relaxed);
        }
        refused
    }

    /// Remembers what a claim was refused.
    #[cold]
    fn learn(&self, claim: &Claim<'_>, now: Timestamp, settlement: &Settlement) {
        if claim.once.is_some() {
            return;
        }
        for ((charge, reading), print) in claim.charges.iter().zip(&settlement.readings).zip(self.prints(claim)) {
            let (Some(print), Some(refusal)) = (print, Refusal::of(charge, reading, now)) else { continue };
            // Charges on one key are refused for the sake of their sum.
            if claim.charges.iter().filter(|other| other.key == charge.key).count() == 1 {
                self.table(print).insert(print, refusal, now);
                self.last.fetch_max(refusal.until.as_micros(), Ordering::Relaxed);
            }
        }
    }

    /// Forgets the refusals of counters in which a claim made room.
    #[cold]
    fn forget(&self, claim: &Claim<'_>) {
        for Charge { key, .. } in claim.charges.iter().filter(|charge| makes_room(charge)) {
            let print = key.whole(self.secret, key.partition(self.secret));
            self.table(print).refusals.remove(&print);
        }
    }

    /// A keyed hash for each charge whose refusals are remembered.
    fn prints(&self, claim: &Claim<'_>) -> SmallVec<[Option<u128>; 4]> {
        let mut before: Option<(&Key<'_>, u128)> = None;
        let mut prints = SmallVec::new();
        for charge in &claim.charges {
            // Most charges of a claim are in one caller's partition, which is hashed once.
            let partition = match before {
                Some((beside, partition)) if charge.key.is_beside(beside) => partition,
                _ => charge.key.partition(self.secret),
            };
            before = Some((&charge.key, partition));
            prints.push(is_remembered(charge).then(|| charge.key.whole(self.secret, partition)));
        }
        prints
    }

    fn table(&self, print: u128) -> MutexGuard<'_, Table> {
        self.lock(print as usize % TABLES)
    }

    fn lock(&self, table: usize) -> MutexGuard<'_, Table> {
        self.tables[table].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<S: Store, C: Clock> Store for Remembered<S, C> {
    async fn settle_into(&self, claim: &Claim<'_>, settlement: &mut Settlement) {
        // Read before the store is asked: what it says of a wait is true from a moment that is no earlier.
        let now = self.clock.now();
        if now.as_micros() < self.last.load(Ordering::Relaxed) && self.answer(claim, now, settlement) {
            return;
        }
        self.inner.settle_into(claim, settlement).await;
        if claim.charges.iter().any(makes_room) && now.as_micros() < self.last.load(Ordering::Relaxed) {
            self.forget(claim);
        }
        if settlement.readings.iter().any(|reading| !reading.admits) {
            self.learn(claim, now, settlement);
        }
    }

    fn assume(&self, claim: &Claim<'_>, source: Source, settlement: &mut Settlement) {
        self.inner.assume(claim, source, settlement);
    }
}

impl Table {
    /// The refusal that answers a charge, if there is one.
    fn get(&mut self, print: u128, charge: &Charge<'_>, now: Timestamp) -> Option<Refusal> {
        let refusal = *self.refusals.get(&print)?;
        if !refusal.holds(now) {
            self.refusals.remove(&print);
            return None;
        }
        (refusal.units <= charge.units && refusal.limit == measure(charge.limit)).then_some(refusal)
    }

    fn insert(&mut self, print: u128, refusal: Refusal, now: Timestamp) {
        while let Some((oldest, made)) = self.order.front().copied() {
            let found = self.refusals.get(&oldest).filter(|refusal| refusal.made == made);
            if found.is_some_and(|refusal| refusal.holds(now)) && self.order.len() < MOST_REMEMBERED / TABLES {
                break;
            }
            if found.is_some() {
                self.refusals.remove(&oldest);
            }
            self.order.pop_front();
        }
        self.order.push_back((print, refusal.made));
        self.refusals.insert(print, refusal);
    }
}

impl Refusal {
    fn of(charge: &Charge<'_>, reading: &Reading, now: Timestamp) -> Option<Refusal> {
        let Wait::For(wait) = reading.wait else { return None };
        let refusal = || Refusal {
            units: charge.units,
            limit: measure(charge.limit),
            made: now,
            until: now.after(wait.min(LONGEST)),
            wait,
            remaining: reading.remaining,
            reset_after: reading.reset_after,
        };
        (!reading.admits && reading.source == Source::Store).then(refusal)
    }

    /// A clock that was set back does not make it last longer.
    fn holds(&self, now: Timestamp) -> bool {
        self.made <= now && now < self.until
    }

    fn reading(&self, now: Timestamp) -> Reading {
        let gone = now.since(self.made);
        let less = |span: Span| Span::from_micros(span.as_micros().saturating_sub(gone.as_micros()));
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

/// Whether a charge that is refused is refused again until its wait is over. A look is not refused.
fn is_remembered(charge: &Charge<'_>) -> bool {
    charge.ask == Ask::Exactly
        && charge.mode == Mode::Enforce
        && charge.units > 0
        && !charge.strict
        && charge.limit.algorithm() != Algorithm::Concurrency
}

/// Whether a charge makes room that nobody waited for.
fn makes_room(charge: &Charge<'_>) -> bool {
    matches!(charge.ask, Ask::Return { .. } | Ask::Credit | Ask::Reset)
}

/// What must be the same of a limit for a refusal to hold.
fn measure(limit: &Limit) -> (u64, u64) {
    (limit.amount(), limit.quota())
}

/// What a charge reads that nobody was asked for.
fn unasked(charge: &Charge<'_>) -> Reading {
    Reading {
        admits: true,
        taken: 0,
        remaining: charge.limit.quota(),
        wait: Wait::None,
        reset_after: Span::ZERO,
        delay: Span::ZERO,
        source: Source::Cache,
    }
}
