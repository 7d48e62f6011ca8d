//! Changes of counters that are not requests: resets, credits and returns, and what operators purge.

use tollgate_core::{Ask, Claim, Key, Settlement, Source};

use super::status::PurgedLeases;
use super::tables::{Table, Tables, lock, may_be_answered};
use crate::clock::Steady;

/// A change of a counter by an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyAdjustment {
    /// The counter is as if it had never been used: units that were taken before are void.
    Reset,
    /// The counter has more room.
    Credit,
}

impl Tables {
    /// Ends a claim that the store settled whole: what operators and returns change is no longer held or paused.
    pub fn end_whole(&self, claim: &Claim<'_>, now: impl FnOnce() -> Steady, settlement: &mut Settlement) {
        // A request of a key without a pool, as most are: there is nothing to change.
        if may_be_answered(claim) {
            return;
        }
        let now = now();
        for (charge, reading) in claim.charges.iter().zip(&mut settlement.readings) {
            // An operator's change is the store's alone, whatever the rule says.
            let is_adjusted = matches!(charge.ask, Ask::Reset | Ask::Credit);
            let Some(hash) = self.pool_of(charge).or_else(|| is_adjusted.then(|| self.hash(&charge.key))) else {
                continue;
            };
            let mut table = self.table(hash);
            let Table { pools, counts, advances, generation, .. } = &mut *table;
            if is_adjusted {
                advances.forget(hash);
            }
            let Some(pool) = pools.get_mut(&hash) else { continue };
            match charge.ask {
                Ask::Reset if reading.source == Source::Store => counts.expired += pool.reset(generation.next()),
                Ask::Credit | Ask::Return { .. } => pool.end_pause(),
                // What this server holds is counted in the store, and not spent.
                Ask::Exactly if charge.units == 0 => {
                    reading.remaining = reading.remaining.saturating_add(pool.held(now)).min(charge.limit.quota());
                }
                _ => {}
            }
        }
    }

    /// Applies what operators changed on other servers. Returns the number of keys.
    pub fn adjust(&self, adjustment_of: impl Fn(&Key<'_>) -> Option<KeyAdjustment>) -> usize {
        let mut adjusted = 0;
        for table in &self.tables {
            let mut table = lock(table);
            let Table { pools, counts, generation, .. } = &mut *table;
            for pool in pools.values_mut() {
                let adjustment = adjustment_of(&pool.key().key());
                match adjustment {
                    Some(KeyAdjustment::Reset) => counts.expired += pool.reset(generation.next()),
                    Some(KeyAdjustment::Credit) => pool.end_pause(),
                    None => continue,
                }
                adjusted += 1;
            }
            table.advances.forget_if(&adjustment_of);
        }
        adjusted
    }

    /// Gives back what is held of keys, through [`take_errands`](Self::take_errands), and forgets what the store said of
    /// them. The pools stay: calls and claims in progress put units into them.
    pub fn purge(&self, now: Steady, is_purged: impl Fn(&Key<'_>) -> bool) -> PurgedLeases {
        let mut purged = PurgedLeases::default();
        for table in &self.tables {
            let mut table = lock(table);
            let Table { pools, counts, advances, generation, .. } = &mut *table;
            advances.forget_if(|key| is_purged(key).then_some(KeyAdjustment::Reset));
            for (hash, pool) in pools.iter_mut().filter(|(_, pool)| is_purged(&pool.key().key())) {
                purged.keys += 1;
                let (returns, let_go) = pool.purge(now, generation.next());
                purged.units += returns.iter().map(|charge| charge.units).sum::<u64>();
                counts.expired += let_go;
                self.push_returns(*hash, returns, counts);
            }
        }
        purged
    }
}
