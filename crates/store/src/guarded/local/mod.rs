//! Counters in this server's memory, for charges whose shard is away: bounded, each at this server's share of its limit.
//!
//! A counter stays until it is stale, also when the store was told what it counted. So this server never admits more than its
//! share in a period, however often a shard comes and goes.

mod table;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use smallvec::SmallVec;
use tollgate_core::key::Secret;
use tollgate_core::{Ask, Charge, Claim, Key, Limit, Reading, Settlement, Slot, Timestamp, settle_into};

use super::owned::Errand;
use crate::secret;
use table::Table;

/// The most tables, each with a lock of its own; a power of two.
const MOST_TABLES: usize = 16;

/// The counters.
#[derive(Debug)]
pub(super) struct Local {
    secret: Secret,
    /// A caller's counters share a table, so that most claims take one lock.
    tables: Box<[Mutex<Table>]>,
    /// Where the next round of telling begins.
    round: AtomicUsize,
}

/// Where a key's counter is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Print {
    table: usize,
    key: u128,
}

/// The tables that a claim needs, held, in the order of their numbers.
struct Held<'l>(SmallVec<[(usize, MutexGuard<'l, Table>); 2]>);

impl Local {
    pub(super) fn new(keys: usize) -> Local {
        const KEYS_WORTH_A_TABLE: usize = 1_024;
        let tables = (keys / KEYS_WORTH_A_TABLE).clamp(1, MOST_TABLES).next_power_of_two();
        Local {
            secret: secret::draw(),
            tables: (0..tables).map(|_| Mutex::new(Table::new(keys.div_ceil(tables)))).collect(),
            round: AtomicUsize::new(0),
        }
    }

    /// How many counters there are, and how many of them counted what the store was not told.
    pub(super) fn counts(&self) -> (usize, usize) {
        let counts = (0..self.tables.len()).map(|at| self.lock(at).counts());
        counts.fold((0, 0), |(all, owed), (more, owing)| (all + more, owed + owing))
    }

    /// Settles a claim in one step, each limit shared out among so many servers. There is no reading for a charge whose counter
    /// there is no room for.
    pub(super) fn settle(&self, claim: &Claim<'_>, replicas: u64, now: Timestamp) -> SmallVec<[Option<Reading>; 4]> {
        let prints: SmallVec<[Print; 4]> = claim.charges.iter().map(|charge| self.print(&charge.key)).collect();
        let shares: SmallVec<[Limit; 4]> = claim.charges.iter().map(|charge| share(charge.limit, replicas)).collect();
        let mut held = self.hold(&prints);
        let mut kept: SmallVec<[usize; 4]> = SmallVec::new();
        let mut part = Claim { id: claim.id, charges: SmallVec::new(), once: None, patience: None };
        let mut slots: SmallVec<[Slot; 4]> = SmallVec::new();
        for (at, (charge, print)) in claim.charges.iter().zip(&prints).enumerate() {
            if !held.table(*print).keeps(print.key, charge, now) {
                continue;
            }
            slots.push(match kept.iter().position(|earlier| prints[*earlier] == *print) {
                Some(earlier) => Slot::same_as(earlier),
                None => held.table(*print).lend(print.key),
            });
            let Charge { ask, units, mode, on_failure, strict, .. } = *charge;
            // The same key, which may live no longer than the share.
            let key = Key::new(charge.key.scope(), charge.key.values().iter().copied().collect());
            part.charges.push(Charge { key, limit: &shares[at], ask, units, mode, on_failure, strict });
            kept.push(at);
        }
        let mut settlement = Settlement::default();
        settle_into(&part, &mut slots, now, &mut settlement);
        let mut readings: SmallVec<[Option<Reading>; 4]> = claim.charges.iter().map(|_| None).collect();
        for ((at, slot), reading) in kept.into_iter().zip(slots).zip(settlement.readings) {
            let table = held.table(prints[at]);
            table.take_back(prints[at].key, slot);
            table.owe(prints[at].key, claim.id, &claim.charges[at], reading.taken, now);
            readings[at] = Some(reading);
        }
        readings
    }

    /// Forgets a counter, and what the store was to be told of it.
    pub(super) fn remove(&self, key: &Key<'_>) {
        let print = self.print(key);
        self.lock(print.table).remove(print.key);
    }

    /// Whether a claim gives units back to a counter of which the store was not told all that was taken: it would find nothing there.
    pub(super) fn owes(&self, claim: &Claim<'_>) -> bool {
        let mut returns = claim.charges.iter().filter(|charge| matches!(charge.ask, Ask::Return { .. }));
        returns.any(|charge| {
            let print = self.print(&charge.key);
            self.lock(print.table).owes_units(print.key)
        })
    }

    /// What the store should be told of the counters of which it can be: at most so many claims, each only once.
    pub(super) fn tell(
        &self,
        most: usize,
        replicas: u64,
        now: Timestamp,
        can_be_told: impl Fn(&Key<'_>) -> bool,
    ) -> Vec<Errand> {
        let mut errands = Vec::new();
        let first = self.round.fetch_add(1, Ordering::Relaxed);
        for step in 0..self.tables.len() {
            let mut table = self.lock(first.wrapping_add(step) % self.tables.len());
            table.tell(most, replicas, now, &can_be_told, &mut errands);
        }
        errands
    }

    fn print(&self, key: &Key<'_>) -> Print {
        let partition = key.partition(self.secret);
        Print { table: partition as usize & (self.tables.len() - 1), key: key.whole(self.secret, partition) }
    }

    /// Locks the tables of these keys, each once, in the order of their numbers.
    fn hold(&self, prints: &[Print]) -> Held<'_> {
        let mut numbers: SmallVec<[usize; 4]> = prints.iter().map(|print| print.table).collect();
        numbers.sort_unstable();
        numbers.dedup();
        Held(numbers.into_iter().map(|number| (number, self.lock(number))).collect())
    }

    fn lock(&self, number: usize) -> MutexGuard<'_, Table> {
        // What a panic in `settle` leaves behind is a fresh state, which is one like any other.
        self.tables[number].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Held<'_> {
    fn table(&mut self, print: Print) -> &mut Table {
        let at = self.0.partition_point(|(held, _)| *held < print.table);
        &mut self.0[at].1
    }
}

/// This server's share of a limit.
fn share(limit: &Limit, replicas: u64) -> Limit {
    limit.with_amount(limit.amount().div_ceil(replicas.max(1)))
}
