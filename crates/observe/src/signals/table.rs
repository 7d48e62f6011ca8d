//! The keys of one signal, each with the distinct values of its window.
//!
//! A window is a ring of slices, a quarter of it each, so that values leave it a quarter at a time. The table is bounded by keys and
//! by bytes. When it is full, a new key displaces the one with the fewest values among a few that are drawn: a flood of keys with a
//! value each displaces itself, and not the keys that have many.

use std::collections::HashMap;

use tollgate::{Span, Timestamp};

use super::distinct::DistinctSketch;
use crate::heavy_hitters::KeyName;

/// The keys of one signal.
#[derive(Debug)]
pub(crate) struct SignalTable {
    slice: Span,
    keys: Vec<SignalKey>,
    /// By the hash of a key, its index.
    places: HashMap<u128, usize>,
    bytes: usize,
    bounds: TableBounds,
    /// Where the next draw begins.
    draw: u64,
    /// Keys that were displaced.
    displaced: u64,
}

/// The bounds of a table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TableBounds {
    pub(crate) keys: usize,
    pub(crate) bytes: usize,
}

/// A key and its values.
#[derive(Debug)]
pub(crate) struct SignalKey {
    pub(crate) hash: u128,
    pub(crate) name: KeyName,
    slices: [Option<Slice>; SLICES],
    /// The newest slice.
    newest: u64,
    /// Distinct values in the window when they last changed, at most.
    count: u64,
    /// Changes since they were last estimated.
    changes: u64,
    /// The newest values, for whoever looks into it.
    pub(crate) examples: Vec<String>,
    pub(crate) last: Timestamp,
}

#[derive(Debug)]
struct Slice {
    number: u64,
    sketch: DistinctSketch,
}

/// A value that is counted for a key, by their hashes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SignalValue {
    pub(crate) key: u128,
    pub(crate) value: u64,
    pub(crate) at: Timestamp,
    /// From this count on, examples are recorded.
    pub(crate) examples_from: u64,
}

/// The parts of a window.
pub(crate) const SLICES: usize = 4;

/// Values of a key that are listed.
pub const MAX_EXAMPLES: usize = 8;

/// The bounds of a signal's table.
pub(crate) const TABLE_BOUNDS: TableBounds = TableBounds { keys: MAX_SIGNAL_KEYS, bytes: MAX_TABLE_BYTES };

/// Keys of one signal.
pub const MAX_SIGNAL_KEYS: usize = 10_000;

/// Memory of one signal, in bytes.
pub const MAX_TABLE_BYTES: usize = 16 << 20;

/// Keys of which the one with the fewest values is displaced.
const DRAWN: usize = 8;

/// Of many values, those of a window are estimated again after this part of them has changed.
const ESTIMATE_ONE_IN: u64 = 64;

impl SignalTable {
    pub(crate) fn new(window: Span, bounds: TableBounds) -> SignalTable {
        let slice = Span::from_micros((window.as_micros() / SLICES as u64).max(1));
        SignalTable { slice, keys: Vec::new(), places: HashMap::new(), bytes: 0, bounds, draw: 0, displaced: 0 }
    }

    /// Counts a value. `name` names its key, if that is new; `example` is the value as it may be displayed.
    pub(crate) fn count(
        &mut self,
        value: SignalValue,
        name: impl FnOnce() -> KeyName,
        example: impl FnOnce() -> String,
    ) {
        let slice = self.slice_at(value.at);
        let place = match self.places.get(&value.key) {
            Some(place) => *place,
            None => self.add(value.key, name(), slice),
        };
        let Some(key) = self.keys.get_mut(place) else { return };
        let before = key.bytes();
        if key.count_value(slice, value) && key.count >= value.examples_from {
            key.add_example(example());
        }
        self.bytes = self.bytes.saturating_sub(before) + key.bytes();
        while self.bytes > self.bounds.bytes && self.keys.len() > 1 {
            self.displace(Some(value.key));
        }
    }

    /// Drops everything.
    pub(crate) fn clear(&mut self) {
        self.keys.clear();
        self.places.clear();
        self.bytes = 0;
    }

    /// Drops what is no longer in the window.
    pub(crate) fn expire(&mut self, now: Timestamp) {
        let slice = self.slice_at(now);
        let mut place = 0;
        while let Some(key) = self.keys.get_mut(place) {
            let before = key.bytes();
            key.roll_to(slice);
            if key.is_empty() {
                self.bytes = self.bytes.saturating_sub(before);
                self.remove(place);
            } else {
                self.bytes = self.bytes.saturating_sub(before) + key.bytes();
                place += 1;
            }
        }
    }

    pub(crate) fn keys(&self) -> &[SignalKey] {
        &self.keys
    }

    pub(crate) fn key(&self, hash: u128) -> Option<&SignalKey> {
        self.keys.get(*self.places.get(&hash)?)
    }

    /// Keys that were displaced by others.
    pub(crate) fn displaced(&self) -> u64 {
        self.displaced
    }

    /// The memory in use, without what hash tables have to spare.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    fn slice_at(&self, at: Timestamp) -> u64 {
        at.as_micros() / self.slice.as_micros()
    }

    fn add(&mut self, hash: u128, name: KeyName, slice: u64) -> usize {
        if self.keys.len() >= self.bounds.keys {
            self.displace(None);
        }
        let key = SignalKey::new(hash, name, slice);
        self.bytes += key.bytes();
        self.places.insert(hash, self.keys.len());
        self.keys.push(key);
        self.keys.len() - 1
    }

    /// Removes the key with the fewest values of some that are drawn, but not this one.
    fn displace(&mut self, but: Option<u128>) {
        let number = self.keys.len() as u64;
        let drawn = (0..DRAWN as u64).map(|one| {
            // Successive multiples of an odd number without a pattern are spread evenly.
            let at = (self.draw + one).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
            (at % number.max(1)) as usize
        });
        let fewest = drawn.filter(|place| Some(self.keys[*place].hash) != but);
        let fewest = fewest.min_by_key(|place| (self.keys[*place].count, self.keys[*place].last));
        let other = || self.keys.iter().position(|key| Some(key.hash) != but);
        if let Some(place) = fewest.or_else(other) {
            self.bytes = self.bytes.saturating_sub(self.keys[place].bytes());
            self.remove(place);
            self.displaced += 1;
        }
        self.draw = self.draw.wrapping_add(DRAWN as u64);
    }

    fn remove(&mut self, place: usize) {
        let removed = self.keys.swap_remove(place);
        self.places.remove(&removed.hash);
        if let Some(moved) = self.keys.get(place) {
            self.places.insert(moved.hash, place);
        }
    }
}

impl SignalKey {
    fn new(hash: u128, name: KeyName, newest: u64) -> SignalKey {
        let (slices, examples) = (Default::default(), Vec::new());
        SignalKey { hash, name, slices, newest, count: 0, changes: 0, examples, last: Timestamp::default() }
    }

    /// The number of distinct values in the window, as of the last count. It lags behind by 1/64 of it at most.
    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// The distinct values in the window.
    pub(crate) fn sketch(&self) -> DistinctSketch {
        let mut slices = self.slices.iter().flatten().map(|slice| &slice.sketch);
        let mut merged = slices.next().cloned().unwrap_or_default();
        slices.for_each(|sketch| merged.merge(sketch));
        merged
    }

    /// Returns whether the value is new, as far as the sketch can tell.
    fn count_value(&mut self, slice: u64, value: SignalValue) -> bool {
        self.roll_to(slice);
        self.last = self.last.max(value.at);
        let number = self.newest;
        let slice = self.slices[(number % SLICES as u64) as usize]
            .get_or_insert_with(|| Slice { number, sketch: DistinctSketch::default() });
        let is_new = slice.sketch.insert(value.value);
        if is_new {
            self.changes += 1;
            if self.changes > self.count / ESTIMATE_ONE_IN {
                self.estimate();
            }
        }
        is_new
    }

    fn add_example(&mut self, example: String) {
        if !self.examples.contains(&example) {
            if self.examples.len() == MAX_EXAMPLES {
                self.examples.remove(0);
            }
            self.examples.push(example);
        }
    }

    fn estimate(&mut self) {
        (self.count, self.changes) = (self.sketch().estimate(), 0);
    }

    /// Makes this slice the newest one, and drops those that are no longer in the window. A clock that is behind by less than a
    /// window counts in the newest slice.
    fn roll_to(&mut self, slice: u64) {
        let window = SLICES as u64;
        if slice == self.newest || (slice < self.newest && self.newest - slice < window) {
            return;
        }
        self.newest = slice;
        let mut dropped = false;
        for one in &mut self.slices {
            if one.as_ref().is_some_and(|one| one.number > slice || slice - one.number >= window) {
                *one = None;
                dropped = true;
            }
        }
        if dropped {
            self.estimate();
        }
    }

    fn is_empty(&self) -> bool {
        self.slices.iter().all(Option::is_none)
    }

    fn bytes(&self) -> usize {
        let sketches: usize = self.slices.iter().flatten().map(|slice| slice.sketch.bytes()).sum();
        let examples: usize = self.examples.iter().map(|text| text.len() + size_of::<String>()).sum();
        size_of::<SignalKey>() + self.name.bytes() + sketches + examples
    }
}
