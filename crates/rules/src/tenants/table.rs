//! Entries by their names, which are hashes already: each in one place, so that finding one costs one cache miss.

use super::held::Held;

/// A hash table with linear probing.
#[derive(Debug, Default)]
pub(crate) struct Table {
    /// Empty, or at least one of them is free.
    slots: Vec<Slot>,
    len: usize,
}

/// A cache line of its own.
#[derive(Debug)]
#[repr(align(64))]
struct Slot {
    /// 0 if it is free.
    identity: u64,
    held: Held,
}

const FIRST: usize = 8;

impl Table {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The place of an entry.
    #[inline]
    pub(super) fn place(&self, identity: u64) -> Option<usize> {
        if self.slots.is_empty() {
            return None;
        }
        let at = self.find(identity);
        (self.slots[at].identity == identity).then_some(at)
    }

    /// The entry at a place.
    #[inline]
    pub(super) fn at(&self, place: usize) -> Option<&Held> {
        self.slots.get(place).map(|slot| &slot.held)
    }

    /// Takes an entry out.
    pub(super) fn take(&mut self, identity: u64) -> Held {
        if self.slots.is_empty() {
            return Held::Nothing;
        }
        let at = self.find(identity);
        if self.slots[at].identity != identity {
            return Held::Nothing;
        }
        let held = std::mem::replace(&mut self.slots[at], Slot { identity: 0, held: Held::Nothing }).held;
        self.len -= 1;
        self.close(at);
        held
    }

    /// Puts in an entry that is not there.
    pub(super) fn put(&mut self, identity: u64, held: Held) {
        if matches!(held, Held::Nothing) {
            return;
        }
        // Four fifths full at most.
        if (self.len + 1) * 5 > self.slots.len() * 4 {
            self.grow();
        }
        let at = self.find(identity);
        self.slots[at] = Slot { identity, held };
        self.len += 1;
    }

    /// The place of an entry, or the free one where it would be.
    #[inline]
    fn find(&self, identity: u64) -> usize {
        let mut at = home(identity, self.slots.len());
        while self.slots[at].identity != identity && self.slots[at].identity != 0 {
            at = if at + 1 == self.slots.len() { 0 } else { at + 1 };
        }
        at
    }

    /// Moves later entries back over a place that became free.
    fn close(&mut self, mut free: usize) {
        let count = self.slots.len();
        let mut at = (free + 1) % count;
        while self.slots[at].identity != 0 {
            let distance = |to: usize| (to + count - home(self.slots[at].identity, count)) % count;
            if distance(free) < distance(at) {
                self.slots.swap(free, at);
                free = at;
            }
            at = (at + 1) % count;
        }
    }

    fn grow(&mut self) {
        let more = FIRST.max(self.slots.len() * 5 / 4);
        let grown = (0..more).map(|_| Slot { identity: 0, held: Held::Nothing }).collect();
        for slot in std::mem::replace(&mut self.slots, grown) {
            if slot.identity != 0 {
                let at = self.find(slot.identity);
                self.slots[at] = slot;
            }
        }
    }
}

/// Where an entry belongs. The last bits chose the shard; the first choose the place.
#[inline]
fn home(identity: u64, count: usize) -> usize {
    ((u128::from(identity) * count as u128) >> 64) as usize
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_is_a_map(changes in proptest::collection::vec((0_u64..40, any::<bool>()), 0..400)) {
            let (mut table, mut map) = (Table::default(), BTreeMap::new());
            for (name, put) in changes {
                // Some share their place.
                let identity = (name % 20 + 1) << 59 | name;
                drop(table.take(identity));
                map.remove(&identity);
                if put {
                    table.put(identity, Held::tier(identity));
                    map.insert(identity, identity);
                }
                prop_assert_eq!(table.len(), map.len());
                for name in 0..40 {
                    let identity = (name % 20 + 1) << 59 | name;
                    let tier = table.place(identity).and_then(|place| table.at(place)).map(Held::tier_of);
                    prop_assert_eq!(tier, map.get(&identity).copied());
                }
            }
        }
    }
}
