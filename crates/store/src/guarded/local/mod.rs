//! Counters in this server's memory, for charges whose shard is unavailable. Their number is bounded, and each has
//! this server's share of its limit. Keys for which there is no room are counted together, in one coarse counter for
//! each rule.
//!
//! A counter stays until it is stale, also after its units were sent to the store. This server therefore never admits
//! more than its share in a period, however often a shard fails and recovers. A counter does not begin at zero but at
//! this server's share of what the store last said was left.

mod continuation;
mod last_readings;
mod table;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use smallvec::SmallVec;
use tollgate_core::key::HashSecret;
use tollgate_core::{
    Algorithm, Ask, Charge, Claim, Key, Limit, OnFailure, Reading, Replay, Settlement, Source, StateSlot, Timestamp,
    settle_into,
};

use super::deferred::DeferredClaim;
use crate::coarse::CoarseCounters;
use last_readings::{LastReading, LastReadings};
pub(super) use last_readings::{Room, SavedReading};
use table::LocalTable;

/// The maximum number of tables, each with its own lock. A power of two.
const MAX_TABLES: usize = 16;

/// The local counters.
#[derive(Debug)]
pub(super) struct Local {
    secret: HashSecret,
    /// A caller's counters share a table, so most claims take one lock.
    tables: Box<[Mutex<LocalTable>]>,
    readings: LastReadings,
    /// For keys without a counter of their own. Locked after the tables.
    coarse: Mutex<CoarseCounters>,
    /// Whether there ever was a coarse counter. Releases of requests are looked up there only then.
    has_coarse: AtomicBool,
    /// The table with which the next round of debits starts.
    round: AtomicUsize,
}

/// The table and the hash of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct TableKey {
    table: usize,
    key: u128,
}

/// What counts a charge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LocalKey {
    Own(TableKey),
    /// The counter that keys of this scope share.
    Coarse(u128),
}

/// The locked tables that a claim needs, by number.
struct LockedTables<'l>(SmallVec<[(usize, MutexGuard<'l, LocalTable>); 2]>);

impl Local {
    /// Counters whose keys are hashed with this secret. Saved readings are valid only with the secret they were saved with.
    pub(super) fn new(keys: usize, secret: HashSecret) -> Local {
        const KEYS_WORTH_A_TABLE: usize = 1_024;
        let tables = (keys / KEYS_WORTH_A_TABLE).clamp(1, MAX_TABLES).next_power_of_two();
        Local {
            secret,
            tables: (0..tables).map(|_| Mutex::new(LocalTable::new(keys.div_ceil(tables)))).collect(),
            readings: LastReadings::new(),
            coarse: Mutex::default(),
            has_coarse: AtomicBool::new(false),
            round: AtomicUsize::new(0),
        }
    }

    /// The number of charges that were settled on coarse counters.
    pub(super) fn coarse_settled(&self) -> u64 {
        self.coarse().settled()
    }

    /// The number of counters, and the number of those with units that were not sent to the store.
    pub(super) fn counts(&self) -> (usize, usize) {
        let counts = (0..self.tables.len()).map(|at| self.lock(at).counts());
        counts.fold((0, 0), |(all, owed), (more, more_owed)| (all + more, owed + more_owed))
    }

    /// Records the store's answers to a claim: those that local memory would need, or all.
    pub(super) fn record(&self, claim: &Claim<'_>, settlement: &Settlement, which: Recorded, now: Timestamp) {
        if settlement.replay != Replay::First {
            return;
        }
        let mut before: Option<(&Key<'_>, u128)> = None;
        for (charge, reading) in claim.charges.iter().zip(&settlement.readings) {
            if reading.source != Source::Store || !which.has(charge) {
                continue;
            }
            // Most charges of a claim are in one caller's partition, which is hashed once.
            let partition = match before {
                Some((other, partition)) if charge.key.shares_partition_with(other) => partition,
                _ => charge.key.partition(self.secret),
            };
            before = Some((&charge.key, partition));
            self.readings.record(charge.key.local_hash(self.secret, partition), charge, reading, now);
        }
    }

    /// The secret, and all that this server knows of the counters and that still has an effect.
    pub(super) fn save(&self, replicas: u64, now: Timestamp) -> (HashSecret, Vec<SavedReading>) {
        for number in 0..self.tables.len() {
            self.lock(number).for_each_left(replicas, now, |key, limit, left, until| {
                self.readings.record_local(key, limit, left, until, now);
            });
        }
        (self.secret, self.readings.effective(now))
    }

    pub(super) fn restore(&self, saved: &[SavedReading], now: Timestamp) {
        self.readings.restore(saved, now);
    }

    /// The refusal of a charge that the store refused before, until its wait is over.
    pub(super) fn refusal(&self, charge: &Charge<'_>, now: Timestamp) -> Option<Reading> {
        self.readings.get(self.table_key(&charge.key).key, charge.limit, now)?.refusal(charge, now)
    }

    /// The room that a charge will probably find in the store, by the last reading. A counter without one is probably
    /// full.
    pub(super) fn room(&self, charge: &Charge<'_>, now: Timestamp) -> Option<Room> {
        let needs_room = charge.ask == Ask::Exactly && charge.units > 0;
        let last = || self.readings.get(self.table_key(&charge.key).key, charge.limit, now);
        needs_room.then(|| last().unwrap_or_else(|| LastReading::full(charge.limit)).room_for(charge, now))
    }

    /// Settles a claim atomically, with this server's share of each limit. There is no reading for a charge without a
    /// counter, which happens only beyond the bound on coarse counters.
    pub(super) fn settle(&self, claim: &Claim<'_>, replicas: u64, now: Timestamp) -> SmallVec<[Option<Reading>; 4]> {
        let keys: SmallVec<[TableKey; 4]> = claim.charges.iter().map(|charge| self.table_key(&charge.key)).collect();
        let shares: SmallVec<[Limit; 4]> = claim.charges.iter().map(|charge| share(charge.limit, replicas)).collect();
        let mut locked = self.lock_all(&keys);
        let mut coarse: Option<MutexGuard<'_, CoarseCounters>> = None;
        let mut counted: SmallVec<[(usize, LocalKey); 4]> = SmallVec::new();
        let mut part = Claim { id: claim.id, charges: SmallVec::new(), once: None, timeout: None };
        let mut slots: SmallVec<[StateSlot; 4]> = SmallVec::new();
        for (at, (charge, table_key)) in claim.charges.iter().zip(&keys).enumerate() {
            let own = locked.table(*table_key).ensure_counter(table_key.key, charge, now);
            // What gives back units creates no counter.
            let gives_back = matches!(charge.ask, Ask::Return { .. });
            if !own && gives_back && !self.has_coarse.load(Ordering::Relaxed) {
                continue;
            }
            if own && let Some(last) = self.readings.get(table_key.key, charge.limit, now) {
                locked.table(*table_key).continue_from(table_key.key, &last, &shares[at]);
            }
            let key = if own { LocalKey::Own(*table_key) } else { LocalKey::Coarse(charge.key.scope().digest()) };
            let slot = match counted.iter().position(|(_, earlier)| *earlier == key) {
                Some(earlier) => Some(StateSlot::same_as(earlier)),
                None if own => Some(locked.table(*table_key).lend(table_key.key)),
                None => {
                    let coarse = coarse.get_or_insert_with(|| self.coarse());
                    let scope = charge.key.scope();
                    if gives_back && !coarse.contains(scope, now) { None } else { coarse.lend(scope, now) }
                }
            };
            let Some(slot) = slot else { continue };
            slots.push(slot);
            let Charge { ask, units, mode, on_failure, shortcuts, .. } = *charge;
            // The same key with a lifetime that may be as short as that of the share.
            let key_of_part = Key::new(charge.key.scope(), charge.key.values().iter().copied().collect());
            part.charges.push(Charge { key: key_of_part, limit: &shares[at], ask, units, mode, on_failure, shortcuts });
            counted.push((at, key));
        }
        let mut settlement = Settlement::default();
        settle_into(&part, &mut slots, now, &mut settlement);
        let mut readings: SmallVec<[Option<Reading>; 4]> = claim.charges.iter().map(|_| None).collect();
        for (number, (slot, reading)) in slots.into_iter().zip(settlement.readings).enumerate() {
            let (at, key) = counted[number];
            let charge = &claim.charges[at];
            match (key, &mut coarse) {
                (LocalKey::Own(TableKey { key, .. }), _) => {
                    let table = locked.table(keys[at]);
                    table.take_back(key, slot);
                    table.owe(key, claim.id, charge, reading.taken, now);
                }
                (LocalKey::Coarse(_), Some(coarse))
                    if !counted[..number].iter().any(|(_, earlier)| *earlier == key) =>
                {
                    coarse.take_back(charge.key.scope(), slot);
                    self.has_coarse.store(true, Ordering::Relaxed);
                }
                (LocalKey::Coarse(_), _) => {}
            }
            readings[at] = Some(reading);
        }
        readings
    }

    /// Removes a counter, with its units that were not sent to the store.
    pub(super) fn remove(&self, key: &Key<'_>) {
        let table_key = self.table_key(key);
        self.lock(table_key.table).remove(table_key.key);
    }

    /// Whether a claim gives back units to a counter whose units were not all sent to the store yet. The store would
    /// have nothing to give back.
    pub(super) fn owes(&self, claim: &Claim<'_>) -> bool {
        let mut returns = claim.charges.iter().filter(|charge| matches!(charge.ask, Ask::Return { .. }));
        returns.any(|charge| {
            let table_key = self.table_key(&charge.key);
            self.lock(table_key.table).owes_units(table_key.key)
        })
    }

    /// Debits of units that the store has not received, for the counters whose shards are available: at most `max`
    /// claims. Each unit is returned only once.
    pub(super) fn take_debits(
        &self,
        max: usize,
        replicas: u64,
        now: Timestamp,
        is_available: impl Fn(&Key<'_>) -> bool,
    ) -> Vec<DeferredClaim> {
        let mut debits = Vec::new();
        let first = self.round.fetch_add(1, Ordering::Relaxed);
        for step in 0..self.tables.len() {
            let mut table = self.lock(first.wrapping_add(step) % self.tables.len());
            table.take_debits(max, replicas, now, &is_available, &mut debits);
        }
        debits
    }

    /// Adds the units of a debit that the store did not receive to what its counter owes. Returns false if the claim is
    /// not a debit of a counter that is still here.
    pub(super) fn owe_again(&self, claim: &DeferredClaim) -> bool {
        let [charge] = &*claim.charges else { return false };
        if charge.ask != Ask::Regardless {
            return false;
        }
        let table_key = self.table_key(&charge.key.key());
        self.lock(table_key.table).owe_again(table_key.key, claim.id, charge.units, claim.until)
    }

    fn table_key(&self, key: &Key<'_>) -> TableKey {
        let partition = key.partition(self.secret);
        TableKey { table: partition as usize & (self.tables.len() - 1), key: key.local_hash(self.secret, partition) }
    }

    /// Locks the tables of these keys, each once, by number.
    fn lock_all(&self, keys: &[TableKey]) -> LockedTables<'_> {
        let mut numbers: SmallVec<[usize; 4]> = keys.iter().map(|table_key| table_key.table).collect();
        numbers.sort_unstable();
        numbers.dedup();
        LockedTables(numbers.into_iter().map(|number| (number, self.lock(number))).collect())
    }

    fn lock(&self, number: usize) -> MutexGuard<'_, LocalTable> {
        // A panic in `settle` leaves fresh states behind, which are valid.
        self.tables[number].lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn coarse(&self) -> MutexGuard<'_, CoarseCounters> {
        self.coarse.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl LockedTables<'_> {
    fn table(&mut self, table_key: TableKey) -> &mut LocalTable {
        let at = self.0.partition_point(|(number, _)| *number < table_key.table);
        &mut self.0[at].1
    }
}

/// The answers that are recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Recorded {
    /// Those to charges that local memory might have to count.
    Countable,
    /// Also those to charges that are refused when their shard fails.
    All,
}

impl Recorded {
    fn has(self, charge: &Charge<'_>) -> bool {
        let is_included = self == Recorded::All || charge.ask != Ask::Exactly || charge.on_failure != OnFailure::Deny;
        is_included && charge.limit.algorithm() != Algorithm::Concurrency
    }
}

/// This server's share of a limit.
fn share(limit: &Limit, replicas: u64) -> Limit {
    limit.with_amount(limit.amount().div_ceil(replicas.max(1)))
}
