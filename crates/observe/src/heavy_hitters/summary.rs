//! The heaviest keys of a time window, with an upper bound (the floor) on every unlisted key.
//!
//! The algorithm is Misra–Gries in the formulation of Space-Saving. A key that arrives while unlisted may have arrived before,
//! at most as often as the floor says; from then on it is counted exactly. So for each listed key `counted ≤ true ≤ counted + missed`, where
//! `missed` is the floor at that moment. When a list is full, the floor rises to the estimate of the first excess key,
//! and all keys that are not above it are dropped. With `c = max(0, counted + missed − floor)` for each listed key, a decision raises the
//! sum of `c` by at most one, and a floor that rises by `m` lowers it by at least `(keep + 1) × m`. Hence
//!
//! ```text
//! (keep + 1) × floor + Σ c ≤ total
//! ```
//!
//! and the floor is at most `total ÷ (keep + 1)`. Summaries of other streams can be merged: estimates and floors add up, and the
//! bound holds for the sums. The doorkeeper (`current.rs`) withholds at most `total ÷ 8,192` decisions of each key; that is added to
//! `missed` of every key, and to the floor.
//!
//! Utilisation is a maximum, not a count: it is exact for keys above the floor.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use tollgate::Limit;

use super::key_name::KeyName;

/// Index of decisions in which a limit was evaluated.
pub(crate) const DECISIONS: usize = 0;
/// Index of decisions that the limit refused.
pub(crate) const REFUSALS: usize = 1;

/// The heaviest keys of a time window.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// Totals over all keys.
    pub(crate) totals: [u64; 2],
    pub(crate) floor: Floor,
    pub(crate) keys: Vec<(u128, KeyStats)>,
}

/// Upper bounds for unlisted keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Floor {
    pub(crate) missed: [u64; 2],
    /// Utilisation, with the digest up to which it holds: ties are broken by digest, so that the same keys stay in each minute.
    pub(crate) used: (u32, u64),
}

/// The counts of one key.
#[derive(Clone, Debug)]
pub(crate) struct KeyStats {
    pub(crate) name: KeyName,
    /// Counted decisions and refusals.
    pub(crate) counted: [u64; 2],
    /// What may have been missed before it was listed.
    pub(crate) missed: [u64; 2],
    /// Utilisation of its counter, per mille.
    pub(crate) used: Option<u32>,
    /// Refused units.
    pub(crate) refused_units: u64,
    /// The terms of keys near their limit.
    pub(crate) near: Option<Box<KeyTerms>>,
}

/// The tier and limit of a key.
#[derive(Clone, Debug, PartialEq)]
pub struct KeyTerms {
    /// The tier, or its placeholder.
    pub tier: Box<str>,
    /// The limit.
    pub limit: Limit,
}

/// The number of keys retained by each measure.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Retention {
    pub(crate) counted: usize,
    pub(crate) used: usize,
}

/// A hasher for keys that are hashes already.
#[derive(Debug, Default)]
pub(crate) struct IdentityHasher(u64);

pub(crate) type KeyMap<T> = HashMap<u128, T, BuildHasherDefault<IdentityHasher>>;

impl Hasher for IdentityHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.0 = self.0.rotate_left(8) ^ u64::from(*byte));
    }

    fn write_u128(&mut self, hash: u128) {
        self.0 = hash as u64;
    }
}

impl KeyStats {
    /// A key that is listed from now on.
    pub(crate) fn new(name: KeyName, floor: &Floor) -> KeyStats {
        KeyStats { name, counted: [0; 2], missed: floor.missed, used: None, refused_units: 0, near: None }
    }

    /// A copy without the terms, which only single minutes need.
    pub(crate) fn without_terms(&self) -> KeyStats {
        let KeyStats { counted, missed, used, refused_units, .. } = *self;
        KeyStats { name: self.name.clone(), counted, missed, used, refused_units, near: None }
    }

    /// The upper bound of the true count.
    #[inline]
    pub(crate) fn upper_bound(&self, measure: usize) -> u64 {
        self.counted[measure].saturating_add(self.missed[measure])
    }

    /// Adds the same key of another summary.
    fn add(&mut self, other: &KeyStats) {
        for measure in [DECISIONS, REFUSALS] {
            self.counted[measure] = self.counted[measure].saturating_add(other.counted[measure]);
            self.missed[measure] = self.missed[measure].saturating_add(other.missed[measure]);
        }
        self.used = self.used.max(other.used);
        self.refused_units = self.refused_units.saturating_add(other.refused_units);
        if self.near.is_none() {
            self.near.clone_from(&other.near);
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.name.bytes() + self.near.as_ref().map_or(0, |near| size_of_val(&**near) + near.tier.len())
    }
}

impl Floor {
    /// Whether this key has more than any unlisted key can have.
    pub(crate) fn is_below(&self, hash: u128, stats: &KeyStats) -> bool {
        (0..2).any(|measure| stats.upper_bound(measure) > self.missed[measure]) || self.is_below_used(hash, stats)
    }

    pub(crate) fn is_below_used(&self, hash: u128, stats: &KeyStats) -> bool {
        self.is_below_fullness(hash, stats.used)
    }

    #[inline]
    pub(crate) fn is_below_fullness(&self, hash: u128, used: Option<u32>) -> bool {
        used.is_some_and(|used| (used, high(hash)) > self.used)
    }

    /// Raises the floor so that at most `keep` keys are above it by each measure. One pass over all keys, which are many.
    pub(crate) fn raise<'c>(&mut self, keep: Retention, keys: impl Iterator<Item = (u128, &'c KeyStats)>) {
        let (mut counts, mut used) = ([Vec::new(), Vec::new()], Vec::new());
        for (hash, stats) in keys {
            for measure in [DECISIONS, REFUSALS] {
                let upper_bound = stats.upper_bound(measure);
                if upper_bound > self.missed[measure] {
                    counts[measure].push(upper_bound);
                }
            }
            let full = stats.used.map(|used| (used, high(hash)));
            used.extend(full.filter(|full| *full > self.used));
        }
        for (measure, counts) in counts.iter_mut().enumerate() {
            if counts.len() > keep.counted {
                self.missed[measure] = *counts.select_nth_unstable_by(keep.counted, |one, other| other.cmp(one)).1;
            }
        }
        if used.len() > keep.used {
            self.used = *used.select_nth_unstable_by(keep.used, |one, other| other.cmp(one)).1;
        }
    }
}

impl Summary {
    /// Merges summaries, whichever keys they have in common: estimates and floors add up.
    pub fn merge<'s>(summaries: impl IntoIterator<Item = &'s Summary>) -> Summary {
        Summary::merge_with(summaries, KeyStats::without_terms)
    }

    /// Merges two parts of one minute and retains the terms of keys.
    pub(crate) fn merge_same_minute(one: &Summary, other: &Summary) -> Summary {
        Summary::merge_with([one, other], KeyStats::clone)
    }

    fn merge_with<'s>(
        summaries: impl IntoIterator<Item = &'s Summary>,
        clone_stats: fn(&KeyStats) -> KeyStats,
    ) -> Summary {
        let mut all = Summary::default();
        // Each with the floors of the summaries that list it.
        let mut keys: KeyMap<(KeyStats, [u64; 2])> = HashMap::default();
        for summary in summaries {
            for measure in [DECISIONS, REFUSALS] {
                all.totals[measure] = all.totals[measure].saturating_add(summary.totals[measure]);
                all.floor.missed[measure] = all.floor.missed[measure].saturating_add(summary.floor.missed[measure]);
            }
            all.floor.used = all.floor.used.max(summary.floor.used);
            for (hash, stats) in &summary.keys {
                match keys.get_mut(hash) {
                    Some((existing, floors)) => {
                        existing.add(stats);
                        (0..2).for_each(|measure| floors[measure] += summary.floor.missed[measure]);
                    }
                    None => drop(keys.insert(*hash, (clone_stats(stats), summary.floor.missed))),
                }
            }
        }
        let missed = all.floor.missed;
        let keys = keys.into_iter().map(|(hash, (mut stats, floors))| {
            // In a summary that does not list the key, its count may be up to the floor.
            (0..2).for_each(|measure| stats.missed[measure] += missed[measure].saturating_sub(floors[measure]));
            (hash, stats)
        });
        all.keys = keys.collect();
        all
    }

    /// Accounts for up to `decisions` uncounted decisions of every key.
    pub(crate) fn with_missed(mut self, decisions: u64) -> Summary {
        self.floor.missed[DECISIONS] += decisions;
        self.keys.iter_mut().for_each(|(_, stats)| stats.missed[DECISIONS] += decisions);
        self
    }

    /// Drops all but the heaviest keys.
    pub(crate) fn prune(&mut self, keep: Retention) {
        let mut floor = self.floor;
        floor.raise(keep, self.keys.iter().map(|(hash, stats)| (*hash, stats)));
        self.floor = floor;
        self.keys.retain(|(hash, stats)| floor.is_below(*hash, stats));
        self.keys.shrink_to_fit();
    }

    /// Indexes keys by their names alone, so that summaries of several servers can be merged.
    #[must_use]
    pub fn by_name(mut self) -> Summary {
        let mut keys: KeyMap<KeyStats> = HashMap::default();
        for (_, stats) in self.keys.drain(..) {
            let hash = stats.name.digest();
            match keys.get_mut(&hash) {
                // A caller whose period changed has had two counters with one name.
                Some(existing) => existing.add(&stats),
                None => drop(keys.insert(hash, stats)),
            }
        }
        self.keys = keys.into_iter().collect();
        self
    }

    /// The listed keys.
    pub(crate) fn stats(&self) -> impl Iterator<Item = &(u128, KeyStats)> {
        self.keys.iter()
    }

    /// The memory in use, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        let keys = self.keys.iter().map(|(_, stats)| stats.bytes()).sum::<usize>();
        size_of::<Summary>() + self.keys.capacity() * size_of::<(u128, KeyStats)>() + keys
    }
}

/// The half of a hash that breaks ties: always the same keys stay.
#[inline]
fn high(hash: u128) -> u64 {
    (hash >> 64) as u64
}
