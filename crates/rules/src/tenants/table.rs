//! A table of entries by hash. An entry is in one cache line, so that a lookup costs one cache miss.

use std::num::NonZeroU64;

use super::entry::TenantEntry;

/// A hash table with linear probing.
#[derive(Debug, Default)]
pub(crate) struct TenantTable {
    /// Empty, or with at least one free slot.
    slots: Vec<TenantSlot>,
    len: usize,
}

/// Aligned to a cache line.
#[derive(Debug)]
#[repr(align(64))]
struct TenantSlot {
    /// `None` if the slot is free.
    identity: Option<NonZeroU64>,
    entry: TenantEntry,
}

const MIN_SLOTS: usize = 8;

impl TenantTable {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The index of an entry.
    #[inline]
    pub(super) fn index_of(&self, identity: NonZeroU64) -> Option<usize> {
        if self.slots.is_empty() {
            return None;
        }
        let at = self.find(identity);
        (self.slots[at].identity == Some(identity)).then_some(at)
    }

    /// The entry at an index.
    #[inline]
    pub(super) fn at(&self, index: usize) -> Option<&TenantEntry> {
        self.slots.get(index).map(|slot| &slot.entry)
    }

    /// All entries.
    pub(super) fn iter(&self) -> impl Iterator<Item = (NonZeroU64, &TenantEntry)> {
        self.slots.iter().filter_map(|slot| Some((slot.identity?, &slot.entry)))
    }

    /// Removes an entry.
    pub(super) fn take(&mut self, identity: NonZeroU64) -> TenantEntry {
        if self.slots.is_empty() {
            return TenantEntry::Nothing;
        }
        let at = self.find(identity);
        if self.slots[at].identity != Some(identity) {
            return TenantEntry::Nothing;
        }
        let entry =
            std::mem::replace(&mut self.slots[at], TenantSlot { identity: None, entry: TenantEntry::Nothing }).entry;
        self.len -= 1;
        self.close(at);
        entry
    }

    /// Inserts an entry that is not in the table.
    pub(super) fn put(&mut self, identity: NonZeroU64, entry: TenantEntry) {
        if matches!(entry, TenantEntry::Nothing) {
            return;
        }
        // At most four fifths full.
        if (self.len + 1) * 5 > self.slots.len() * 4 {
            self.grow();
        }
        let at = self.find(identity);
        self.slots[at] = TenantSlot { identity: Some(identity), entry };
        self.len += 1;
    }

    /// The index of an entry, or of the free slot where it would be.
    #[inline]
    fn find(&self, identity: NonZeroU64) -> usize {
        let mut at = home(identity, self.slots.len());
        while self.slots[at].identity.is_some_and(|other| other != identity) {
            at = if at + 1 == self.slots.len() { 0 } else { at + 1 };
        }
        at
    }

    /// Moves later entries back over a slot that became free.
    fn close(&mut self, mut free: usize) {
        let count = self.slots.len();
        let mut at = (free + 1) % count;
        while let Some(identity) = self.slots[at].identity {
            let distance = |to: usize| (to + count - home(identity, count)) % count;
            if distance(free) < distance(at) {
                self.slots.swap(free, at);
                free = at;
            }
            at = (at + 1) % count;
        }
    }

    fn grow(&mut self) {
        let more = MIN_SLOTS.max(self.slots.len() * 5 / 4);
        let grown = (0..more).map(|_| TenantSlot { identity: None, entry: TenantEntry::Nothing }).collect();
        for slot in std::mem::replace(&mut self.slots, grown) {
            if let Some(identity) = slot.identity {
                let at = self.find(identity);
                self.slots[at] = slot;
            }
        }
    }
}

/// The preferred index of an entry. The last bits select the shard, the first bits the index.
#[inline]
fn home(identity: NonZeroU64, count: usize) -> usize {
    ((u128::from(identity.get()) * count as u128) >> 64) as usize
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_is_a_map(changes in proptest::collection::vec((0_u64..40, any::<bool>()), 0..400)) {
            let (mut table, mut map) = (TenantTable::default(), BTreeMap::new());
            for (name, put) in changes {
                // Some share their index.
                let identity = NonZeroU64::new((name % 20 + 1) << 59 | name).unwrap();
                drop(table.take(identity));
                map.remove(&identity);
                if put {
                    table.put(identity, TenantEntry::with_tier(identity));
                    map.insert(identity, identity);
                }
                prop_assert_eq!(table.len(), map.len());
                for name in 0..40 {
                    let identity = NonZeroU64::new((name % 20 + 1) << 59 | name).unwrap();
                    let tier = table.index_of(identity).and_then(|index| table.at(index)).and_then(TenantEntry::tier);
                    prop_assert_eq!(tier, map.get(&identity).copied());
                }
            }
        }
    }
}
