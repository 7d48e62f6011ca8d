//! The way to other regions.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tollgate_core::{Claim, Key, RegionId};

use crate::sharded::{Failure, ShardId};

/// The shards of other regions, and the servers of this one.
pub trait Routes {
    /// Whether all shards of a region can be reached, as far as is known. Otherwise the regions are apart.
    fn is_whole(&self, region: RegionId) -> bool;

    /// The shard of a key in its region.
    fn shard(&self, key: &Key<'_>) -> ShardId;

    /// Whether there is hope that a shard answers. While there is none, its debits wait.
    fn is_reachable(&self, shard: ShardId) -> bool;

    /// The servers that count in the store of this region, this one included.
    fn servers_here(&self) -> u64;
}

/// Brings debits to other regions.
///
/// An implementation needs no memory: what certainly did not arrive is handed to it again, and nothing else is.
pub trait Courier: Routes + Send + Sync {
    /// Has a region settle a claim of one charge, whose key is in that region, within the timeout.
    ///
    /// # Errors
    /// If there was no answer in time. The failure says whether it is certain that the claim was not settled.
    fn deliver(
        &self,
        region: RegionId,
        claim: &Claim<'_>,
        timeout: Duration,
    ) -> impl Future<Output = Result<(), Failure>> + Send;
}

impl<K: Routes> Routes for Arc<K> {
    fn is_whole(&self, region: RegionId) -> bool {
        K::is_whole(self, region)
    }

    fn shard(&self, key: &Key<'_>) -> ShardId {
        K::shard(self, key)
    }

    fn is_reachable(&self, shard: ShardId) -> bool {
        K::is_reachable(self, shard)
    }

    fn servers_here(&self) -> u64 {
        K::servers_here(self)
    }
}

impl<K: Courier> Courier for Arc<K> {
    fn deliver(
        &self,
        region: RegionId,
        claim: &Claim<'_>,
        timeout: Duration,
    ) -> impl Future<Output = Result<(), Failure>> + Send {
        K::deliver(self, region, claim, timeout)
    }
}
