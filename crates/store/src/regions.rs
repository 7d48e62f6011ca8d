//! Stores of several regions as one store of shards.
//!
//! The shards of another region are more shards of the same store: claims are split by them, they have breakers, and
//! what was taken there is given back if a claim does not pass. A shard's id has its region; the store of a region
//! knows only its own numbers.

use std::time::Duration;

use tollgate_core::{Claim, Key, RegionId, Settlement};

use crate::sharded::{Failure, Location, OnceRecord, ShardId, ShardInfo, Sharded};

/// The stores of this region and of others.
#[derive(Debug)]
pub struct Regions<S> {
    here: S,
    /// By number, beginning with 1.
    others: Box<[OtherRegion<S>]>,
}

/// Another region.
#[derive(Debug)]
pub struct OtherRegion<S> {
    /// Its name.
    pub name: String,
    /// Its store, as this region reaches it.
    pub store: S,
    /// How long a claim waits for it.
    pub deadline: Duration,
}

impl<S> Regions<S> {
    /// The maximum number of other regions: a region's number is a byte, and 0 is here.
    pub const MAX_OTHERS: usize = 255;

    /// A store in this region alone.
    pub fn alone(here: S) -> Regions<S> {
        Regions { here, others: Box::default() }
    }

    /// The store of this region and those of others, in the order of their numbers: that of their names. What exceeds
    /// [`MAX_OTHERS`](Self::MAX_OTHERS) is left out.
    pub fn new(here: S, others: impl IntoIterator<Item = OtherRegion<S>>) -> Regions<S> {
        Regions { here, others: others.into_iter().take(Self::MAX_OTHERS).collect() }
    }

    /// The store of this region.
    pub fn here(&self) -> &S {
        &self.here
    }

    /// The other regions, in the order of their numbers.
    pub fn others(&self) -> &[OtherRegion<S>] {
        &self.others
    }

    /// The stores of all regions, this one first.
    pub fn stores(&self) -> impl Iterator<Item = &S> {
        std::iter::once(&self.here).chain(self.others.iter().map(|other| &other.store))
    }

    /// The store of a region.
    pub fn store(&self, region: RegionId) -> Option<&S> {
        match self.other(region) {
            None if region.is_here() => Some(&self.here),
            other => other.map(|other| &other.store),
        }
    }

    fn other(&self, region: RegionId) -> Option<&OtherRegion<S>> {
        self.others.get(usize::from(region.number()).checked_sub(1)?)
    }
}

impl<S: Sharded> Sharded for Regions<S> {
    #[inline]
    fn locate(&self, key: &Key<'_>) -> Location {
        let region = key.region();
        if region.is_here() {
            return self.here.locate(key);
        }
        match self.other(region) {
            Some(other) => {
                let Location { shard, slot } = other.store.locate(key);
                Location { shard: shard.at(region), slot }
            }
            // Calls to it fail.
            None => Location { shard: ShardId(0).at(region), slot: 0 },
        }
    }

    async fn settle_at(
        &self,
        location: Location,
        claim: &Claim<'_>,
        record: OnceRecord<'_>,
        timeout: Duration,
        settlement: &mut Settlement,
    ) -> Result<(), Failure> {
        let Location { shard, slot } = location;
        let store = self.store(shard.region()).ok_or_else(|| unknown(shard))?;
        store.settle_at(Location { shard: shard.in_region(), slot }, claim, record, timeout, settlement).await
    }

    async fn probe(&self, shard: ShardId, timeout: Duration) -> Result<(), Failure> {
        let store = self.store(shard.region()).ok_or_else(|| unknown(shard))?;
        store.probe(shard.in_region(), timeout).await
    }

    fn shards(&self) -> Vec<ShardInfo> {
        let mut shards = self.here.shards();
        for (number, other) in (1..).zip(&self.others) {
            let named = |info: ShardInfo| ShardInfo {
                id: info.id.at(RegionId::new(number)),
                name: format!("{}/{}", other.name, info.name),
                warning: info.warning,
            };
            shards.extend(other.store.shards().into_iter().map(named));
        }
        shards
    }

    #[inline]
    fn deadline(&self, shard: ShardId) -> Option<Duration> {
        match self.other(shard.region()) {
            Some(other) => Some(other.deadline),
            None => self.here.deadline(shard),
        }
    }

    fn regions(&self) -> usize {
        self.others.len() + 1
    }

    /// Servers are counted in each region by itself.
    async fn heartbeat(&self, timeout: Duration) -> Result<u64, Failure> {
        self.here.heartbeat(timeout).await
    }
}

#[cold]
fn unknown(shard: ShardId) -> Failure {
    Failure::Unreachable(format!("there is no region {}", shard.region().number()))
}
