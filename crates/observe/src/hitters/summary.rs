//! The heaviest keys of a stretch of time, with what is known of all others: that none had more than the floor.
//!
//! Counting is that of Misra and Gries, told as Space-Saving tells it. A key that comes while it is not listed may have come before,
//! at most as often as the floor says; from then on it is counted exactly. So of each listed key `seen ≤ true ≤ seen + missed`, where
//! `missed` is the floor at that moment. When a list is full, the floor rises to the estimate of the first key that is one too many,
//! and all that are not above it go. With `c = max(0, seen + missed − floor)` for each listed key, a decision raises the sum of `c`
//! by at most one, and a floor that rises by `m` lowers it by at least `(keep + 1) × m`. Hence
//!
//! ```text
//! (keep + 1) × floor + Σ c ≤ total
//! ```
//!
//! and the floor is at most `total ÷ (keep + 1)`. Lists of other streams can be added: estimates add up, and so do floors, and the same
//! holds for the sums. What is kept at the door before it is listed (`live.rs`) is at most `total ÷ 8,192` of each key; it is added to all
//! that keys may have missed, and to the floor.
//!
//! How full a counter was is no count but a highest value: of those above their floor it is exact.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

use tollgate::Limit;

use super::name::Name;

/// Decisions that a limit had a say in.
pub(crate) const DECISIONS: usize = 0;
/// Decisions that it refused.
pub(crate) const REFUSALS: usize = 1;

/// The heaviest keys of a stretch of time.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// All that was counted, of all keys.
    pub(crate) totals: [u64; 2],
    pub(crate) floor: Floor,
    pub(crate) cells: Vec<(u128, Cell)>,
}

/// What keys that are not listed had at most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Floor {
    pub(crate) missed: [u64; 2],
    /// And the digest up to which it holds, where it is the same for many keys: those that stay are the same in each minute.
    pub(crate) used: (u32, u64),
}

/// One key.
#[derive(Clone, Debug)]
pub(crate) struct Cell {
    pub(crate) name: Name,
    /// What was counted for it.
    pub(crate) seen: [u64; 2],
    /// What may have come before it was listed.
    pub(crate) missed: [u64; 2],
    /// How full its counter was, in thousandths.
    pub(crate) used: Option<u32>,
    /// Units that it was refused.
    pub(crate) refused_units: u64,
    /// What it is held to, of keys that are near their limit.
    pub(crate) near: Option<Box<Terms>>,
}

/// What a key is held to.
#[derive(Clone, Debug, PartialEq)]
pub struct Terms {
    /// The tier, or what stands for it.
    pub tier: Box<str>,
    /// The limit.
    pub limit: Limit,
}

/// How many keys are kept by each measure.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Keep {
    pub(crate) counted: usize,
    pub(crate) used: usize,
}

/// The hash of a hash.
#[derive(Debug, Default)]
pub(crate) struct Hashed(u64);

pub(crate) type ByHash<T> = HashMap<u128, T, BuildHasherDefault<Hashed>>;

impl Hasher for Hashed {
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

impl Cell {
    /// One that is listed from now on.
    pub(crate) fn new(name: Name, floor: &Floor) -> Cell {
        Cell { name, seen: [0; 2], missed: floor.missed, used: None, refused_units: 0, near: None }
    }

    /// The same without what it is held to, which is asked of single minutes alone.
    pub(crate) fn counted(&self) -> Cell {
        let Cell { seen, missed, used, refused_units, .. } = *self;
        Cell { name: self.name.clone(), seen, missed, used, refused_units, near: None }
    }

    /// No key has more than this.
    #[inline]
    pub(crate) fn most(&self, measure: usize) -> u64 {
        self.seen[measure].saturating_add(self.missed[measure])
    }

    /// The same key in another stretch of time.
    fn add(&mut self, other: &Cell) {
        for measure in [DECISIONS, REFUSALS] {
            self.seen[measure] = self.seen[measure].saturating_add(other.seen[measure]);
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
    /// Whether a key with this cell is known to have more than those that are not listed.
    pub(crate) fn is_below(&self, hash: u128, cell: &Cell) -> bool {
        (0..2).any(|measure| cell.most(measure) > self.missed[measure]) || self.is_below_used(hash, cell)
    }

    pub(crate) fn is_below_used(&self, hash: u128, cell: &Cell) -> bool {
        self.is_below_fullness(hash, cell.used)
    }

    #[inline]
    pub(crate) fn is_below_fullness(&self, hash: u128, used: Option<u32>) -> bool {
        used.is_some_and(|used| (used, high(hash)) > self.used)
    }

    /// Raises it so that no more than `keep` keys are above it, by each measure. All keys are looked at once: they are many.
    pub(crate) fn raise<'c>(&mut self, keep: Keep, cells: impl Iterator<Item = (u128, &'c Cell)>) {
        let (mut counts, mut used) = ([Vec::new(), Vec::new()], Vec::new());
        for (hash, cell) in cells {
            for measure in [DECISIONS, REFUSALS] {
                let most = cell.most(measure);
                if most > self.missed[measure] {
                    counts[measure].push(most);
                }
            }
            let full = cell.used.map(|used| (used, high(hash)));
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
    /// All of these together, whichever keys they have in common: estimates and floors add up.
    pub fn together<'s>(summaries: impl IntoIterator<Item = &'s Summary>) -> Summary {
        Summary::merged(summaries, Cell::counted)
    }

    /// The same of parts of one minute: what keys are held to is kept.
    pub(crate) fn of_one_minute(one: &Summary, other: &Summary) -> Summary {
        Summary::merged([one, other], Cell::clone)
    }

    fn merged<'s>(summaries: impl IntoIterator<Item = &'s Summary>, taken: fn(&Cell) -> Cell) -> Summary {
        let mut all = Summary::default();
        // With the floors of those in which a key is listed.
        let mut cells: ByHash<(Cell, [u64; 2])> = HashMap::default();
        for summary in summaries {
            for measure in [DECISIONS, REFUSALS] {
                all.totals[measure] = all.totals[measure].saturating_add(summary.totals[measure]);
                all.floor.missed[measure] = all.floor.missed[measure].saturating_add(summary.floor.missed[measure]);
            }
            all.floor.used = all.floor.used.max(summary.floor.used);
            for (hash, cell) in &summary.cells {
                match cells.get_mut(hash) {
                    Some((known, floors)) => {
                        known.add(cell);
                        (0..2).for_each(|measure| floors[measure] += summary.floor.missed[measure]);
                    }
                    None => drop(cells.insert(*hash, (taken(cell), summary.floor.missed))),
                }
            }
        }
        let missed = all.floor.missed;
        let cells = cells.into_iter().map(|(hash, (mut cell, floors))| {
            // Where a key is not listed it may have come as often as the floor says.
            (0..2).for_each(|measure| cell.missed[measure] += missed[measure].saturating_sub(floors[measure]));
            (hash, cell)
        });
        all.cells = cells.collect();
        all
    }

    /// The same, where of every key up to so many decisions were not counted.
    pub(crate) fn missing(mut self, decisions: u64) -> Summary {
        self.floor.missed[DECISIONS] += decisions;
        self.cells.iter_mut().for_each(|(_, cell)| cell.missed[DECISIONS] += decisions);
        self
    }

    /// No more than these.
    pub(crate) fn prune(&mut self, keep: Keep) {
        let mut floor = self.floor;
        floor.raise(keep, self.cells.iter().map(|(hash, cell)| (*hash, cell)));
        self.floor = floor;
        self.cells.retain(|(hash, cell)| floor.is_below(*hash, cell));
        self.cells.shrink_to_fit();
    }

    /// The same keys, found by their names alone: so those of other servers are found beside them.
    #[must_use]
    pub fn by_name(mut self) -> Summary {
        let mut cells: ByHash<Cell> = HashMap::default();
        for (_, cell) in self.cells.drain(..) {
            let hash = cell.name.digest();
            match cells.get_mut(&hash) {
                // A caller whose period changed has had two counters of one name.
                Some(known) => known.add(&cell),
                None => drop(cells.insert(hash, cell)),
            }
        }
        self.cells = cells.into_iter().collect();
        self
    }

    /// Its keys.
    pub(crate) fn cells(&self) -> impl Iterator<Item = &(u128, Cell)> {
        self.cells.iter()
    }

    /// Bytes that it takes.
    pub(crate) fn bytes(&self) -> usize {
        let cells = self.cells.iter().map(|(_, cell)| cell.bytes()).sum::<usize>();
        size_of::<Summary>() + self.cells.capacity() * size_of::<(u128, Cell)>() + cells
    }
}

/// The half of a hash that tells keys with the same value apart: always the same ones stay.
#[inline]
fn high(hash: u128) -> u64 {
    (hash >> 64) as u64
}
