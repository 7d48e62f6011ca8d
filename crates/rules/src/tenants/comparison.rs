//! How two states of the tenants differ, in numbers. Names are not stored, so nothing else can be said.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::PoisonError;

use super::Tenants;
use super::entry::TenantEntry;

/// How many settings of one kind are in one of two states only, or differ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DifferenceCount {
    /// In the first state only.
    pub missing: usize,
    /// In both, and not the same.
    pub changed: usize,
    /// In the second state only.
    pub added: usize,
}

/// How many settings of tenants differ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TenantsDifference {
    /// Quotas of callers and of globs.
    pub quotas: DifferenceCount,
    /// Emergencies.
    pub emergencies: DifferenceCount,
    /// Blocks of callers, of globs and of address ranges.
    pub blocks: DifferenceCount,
}

impl DifferenceCount {
    /// All of them.
    pub fn total(self) -> usize {
        self.missing + self.changed + self.added
    }

    /// Compares two tables.
    pub fn between<K: Eq + Hash, V: PartialEq>(
        known: impl IntoIterator<Item = (K, V)>,
        found: impl IntoIterator<Item = (K, V)>,
    ) -> DifferenceCount {
        let mut known: HashMap<K, V> = known.into_iter().collect();
        let mut count = DifferenceCount::default();
        for (key, value) in found {
            count.add(known.remove(&key).as_ref(), Some(&value));
        }
        count.missing += known.len();
        count
    }

    fn add<V: PartialEq>(&mut self, known: Option<&V>, found: Option<&V>) {
        match (known, found) {
            (Some(known), Some(found)) => self.changed += usize::from(known != found),
            (Some(_), None) => self.missing += 1,
            (None, Some(_)) => self.added += 1,
            (None, None) => {}
        }
    }

    pub(super) fn plus(self, other: DifferenceCount) -> DifferenceCount {
        DifferenceCount {
            missing: self.missing + other.missing,
            changed: self.changed + other.changed,
            added: self.added + other.added,
        }
    }
}

impl Tenants {
    /// Without tenants, for a state that will be [compared](Tenants::difference) with this one.
    pub fn empty_like(&self) -> Tenants {
        Tenants { secret: self.secret, ..Tenants::default() }
    }

    /// How another state, which began as [`Tenants::empty_like`] of this one, differs from it.
    pub fn difference(&self, found: &Tenants) -> TenantsDifference {
        let mut difference = TenantsDifference::default();
        for (known, found) in self.shards.iter().zip(&found.shards) {
            let (known, found) = (
                known.read().unwrap_or_else(PoisonError::into_inner),
                found.read().unwrap_or_else(PoisonError::into_inner),
            );
            for (identity, entry) in known.iter() {
                let other = found.index_of(identity).and_then(|at| found.at(at));
                difference.add(Some(entry), other);
            }
            for (identity, entry) in found.iter() {
                if known.index_of(identity).is_none() {
                    difference.add(None, Some(entry));
                }
            }
        }
        let of_many = self.wildcards.load().difference(&found.wildcards.load());
        TenantsDifference {
            quotas: difference.quotas.plus(of_many.quotas),
            emergencies: of_many.emergencies,
            blocks: difference.blocks.plus(of_many.blocks),
        }
    }
}

impl TenantsDifference {
    /// Compares what two states have for a caller.
    fn add(&mut self, known: Option<&TenantEntry>, found: Option<&TenantEntry>) {
        let stages = |entry: Option<&TenantEntry>| {
            entry.map(|entry| entry.clone().into_stages()).filter(|stages| !stages.is_empty())
        };
        let block = |entry: Option<&TenantEntry>| entry.and_then(TenantEntry::block);
        self.quotas.add(stages(known).as_ref(), stages(found).as_ref());
        self.blocks.add(block(known).as_ref(), block(found).as_ref());
    }
}

#[cfg(test)]
mod tests {
    use tollgate_core::Timestamp;

    use super::*;
    use crate::pattern::Pattern;
    use crate::tenants::{
        Block, BlockAction, BlockSubject, Emergency, Override, OverrideCap, Quota, QuotaStage, Selector, TimeRange,
    };

    fn limited(amount: u64) -> Override {
        Override { selector: Selector::EVERY, cap: OverrideCap::Amount(amount), during: TimeRange::ALWAYS }
    }

    fn quota(amount: u64) -> Quota {
        let stage = QuotaStage { during: TimeRange::ALWAYS, tier: None, home: None, overrides: vec![limited(amount)] };
        Quota { stages: vec![stage] }
    }

    fn block(until: u64) -> Block {
        let during = TimeRange { until: Timestamp::from_secs(until), ..TimeRange::ALWAYS };
        Block { during, action: BlockAction::Forbidden }
    }

    /// Blocks of a caller, of a glob and of a range.
    fn set_blocks(tenants: &Tenants, block: Option<Block>) {
        for caller in ["a", "b-*"] {
            let who = BlockSubject::Caller { domain: "d".to_owned(), caller: caller.to_owned() };
            tenants.set_block(&who, block);
        }
        let network = "10.0.0.0/8".parse().unwrap();
        tenants.set_block(&BlockSubject::Range { domain: None, network }, block);
    }

    fn set_emergency(tenants: &Tenants, amount: Option<u64>) {
        let emergency = amount.map(|amount| Emergency { callers: Pattern::new("*"), limit: limited(amount) });
        tenants.set_emergency(None, "flood", emergency.as_ref());
    }

    #[test]
    fn what_is_missing_changed_and_added_is_counted() {
        let known = Tenants::default();
        let (found, same) = (known.empty_like(), known.empty_like());
        for tenants in [&known, &same] {
            for caller in ["a", "b", "c", "glob-*"] {
                tenants.set_quota("d", caller, Some(&quota(7)));
            }
            set_blocks(tenants, Some(block(9)));
            set_emergency(tenants, Some(3));
        }
        assert_eq!(known.difference(&same), TenantsDifference::default());
        let count = |missing, changed, added| DifferenceCount { missing, changed, added };
        let empty = TenantsDifference { quotas: count(4, 0, 0), emergencies: count(1, 0, 0), blocks: count(3, 0, 0) };
        assert_eq!(known.difference(&found), empty);
        found.set_quota("d", "a", Some(&quota(7)));
        found.set_quota("d", "b", Some(&quota(8)));
        found.set_quota("d", "new", Some(&quota(8)));
        found.set_quota("d", "glob-*", Some(&quota(8)));
        set_blocks(&found, Some(block(10)));
        set_emergency(&found, Some(4));
        let differs = TenantsDifference { quotas: count(1, 2, 1), emergencies: count(0, 1, 0), blocks: count(0, 3, 0) };
        assert_eq!(known.difference(&found), differs);
        assert_eq!(known.difference(&found).quotas.total(), 4);
        let reverse = found.difference(&known);
        assert_eq!((reverse.quotas, reverse.blocks), (count(1, 2, 1), count(0, 3, 0)));
    }
}
