//! Finds the keys that are busy enough for a lease. Most keys are seen rarely, and a pool for each of them would cost
//! more than it saves.

use tollgate_core::Span;

use super::policy::{self, LeasePolicy};
use crate::clock::Steady;

/// Counts the requests of keys that have no pool. A cell counts for one key at a time; requests of others lower its count,
/// and the next key takes a cell whose count is zero. So a busy key has its cell soon, however many rare ones share it.
#[derive(Debug)]
pub(super) struct Door {
    cells: Box<[Cell]>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Cell {
    /// When the count began, in milliseconds.
    since: u32,
    /// A part of the hash of the key.
    tag: u16,
    /// The interval of the last request.
    interval: u8,
    count: u8,
}

/// The number of cells of a table. A power of two.
const CELLS: usize = 4_096;

/// The requests of a key that gets a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Busy {
    pub(super) requests: u32,
    /// The time in which they came.
    pub(super) time: Span,
}

impl Door {
    pub(super) fn new() -> Door {
        Door { cells: vec![Cell::default(); CELLS].into() }
    }

    /// Counts a request. Returns the count if the key is busy.
    pub(super) fn knock(&mut self, hash: u128, now: Steady, policy: &LeasePolicy) -> Option<Busy> {
        let millis = (now.as_micros() / 1_000) as u32;
        let interval = (now.as_micros() / policy::span(policy.door_interval).as_micros().max(1)) as u8;
        let tag = (hash >> 96) as u16;
        let cell = &mut self.cells[(hash >> 64) as usize % CELLS];
        cell.count = cell.count.checked_shr(u32::from(interval.wrapping_sub(cell.interval))).unwrap_or(0);
        cell.interval = interval;
        if cell.count == 0 {
            (cell.since, cell.tag) = (millis, tag);
        } else if cell.tag != tag {
            cell.count -= 1;
            return None;
        }
        cell.count += 1;
        if cell.count < policy.door_threshold {
            return None;
        }
        let time = Span::from_micros(u64::from(millis.wrapping_sub(cell.since)) * 1_000);
        Some(Busy { requests: u32::from(std::mem::take(&mut cell.count)), time })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: u128 = 7 << 64;

    fn at(millis: u64) -> Steady {
        Steady::from_micros((70_000_000 + millis) * 1_000)
    }

    /// After how many milliseconds a key with a request every `gap` is busy, while `others` share its cell in between.
    fn busy_after(gap: u64, others: u128) -> Option<u64> {
        let (mut door, policy) = (Door::new(), &LeasePolicy::default());
        (0..100).map(|number| number * gap).find(|millis| {
            for other in 1..=others {
                assert_eq!(door.knock(KEY | (u128::from(*millis) * others + other) << 96, at(*millis), policy), None);
            }
            door.knock(KEY, at(*millis), policy).is_some()
        })
    }

    #[test]
    fn busy_keys_are_found_soon_and_rare_ones_never() {
        assert_eq!(busy_after(1, 0), Some(2));
        assert_eq!(busy_after(20, 0), Some(40));
        assert!(busy_after(500, 0).is_some_and(|millis| millis <= 3_000), "two a second");
        assert!(busy_after(4_000, 0).is_some(), "one in four seconds");
        assert_eq!(busy_after(9_000, 0), None);
    }

    #[test]
    fn rare_keys_that_share_a_cell_are_not_taken_for_a_busy_one() {
        assert_eq!(busy_after(100, 3), None);
    }
}
