//! Stores that consist of shards, each of which may fail independently.
//!
//! [`Guarded`](crate::guarded::Guarded) turns one into a [`Store`](crate::Store): it splits a claim by the locations
//! of its keys, settles the parts, counts the votes, and answers by policy for unavailable shards.

pub mod memory;

use std::fmt;
use std::future::Future;
use std::time::Duration;

use tollgate_core::{Claim, Key, RegionId, Settlement};

pub use memory::{MemoryShards, ShardFault, ShardNode};

/// A store whose shards fail independently.
///
/// Every call must return within its timeout, with [`Failure::Timeout`] or a more specific failure. [`Guarded`] relies on
/// this and sets no timer of its own, so that a check on a network store needs only one.
///
/// [`Guarded`]: crate::guarded::Guarded
pub trait Sharded: Send + Sync + 'static {
    /// The location of a key's counter, as far as it is known now.
    fn locate(&self, key: &Key<'_>) -> Location;

    /// Settles a claim whose keys, including that of `once`, all live in `location`, within the timeout.
    ///
    /// The claim is settled atomically. While keys are moved, a claim on several of them may fail with
    /// [`Failure::Moving`]; a claim on one key does not. It is sent again only after an answer that proves that it did not run. After
    /// a failure it may or may not have been settled.
    fn settle_at(
        &self,
        location: Location,
        claim: &Claim<'_>,
        record: OnceRecord<'_>,
        timeout: Duration,
        settlement: &mut Settlement,
    ) -> impl Future<Output = Result<(), Failure>> + Send;

    /// Checks that a shard answers and accepts writes, within the timeout.
    fn probe(&self, shard: ShardId, timeout: Duration) -> impl Future<Output = Result<(), Failure>> + Send;

    /// The current shards.
    fn shards(&self) -> Vec<ShardInfo>;

    /// How long a claim waits for a shard, if it is not the usual time.
    fn deadline(&self, _shard: ShardId) -> Option<Duration> {
        None
    }

    /// The number of regions in which there are shards.
    fn regions(&self) -> usize {
        1
    }

    /// Reports that this server is running, and returns the number of running servers,
    /// within the timeout. Called every [`HEARTBEAT`].
    fn heartbeat(&self, timeout: Duration) -> impl Future<Output = Result<u64, Failure>> + Send;
}

/// The heartbeat interval. A server that missed three heartbeats is considered gone.
pub const HEARTBEAT: Duration = Duration::from_secs(2);

/// Where a counter lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Location {
    /// The unit of failure.
    pub shard: ShardId,
    /// The unit of atomicity. Constant in a shard that is not divided.
    pub slot: u16,
}

/// Identifies a shard for the lifetime of the store. The high byte is its region, the rest its number there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ShardId(pub u32);

impl ShardId {
    /// The bits of the number within a region.
    const NUMBER_BITS: u32 = 24;

    /// The region.
    pub const fn region(self) -> RegionId {
        RegionId::new((self.0 >> Self::NUMBER_BITS) as u8)
    }

    /// The number in its region, as the store of that region has it.
    pub const fn in_region(self) -> ShardId {
        ShardId(self.0 & ((1 << Self::NUMBER_BITS) - 1))
    }

    /// The shard of this number in a region.
    #[must_use]
    pub const fn at(self, region: RegionId) -> ShardId {
        ShardId(self.in_region().0 | (region.number() as u32) << Self::NUMBER_BITS)
    }
}

/// A description of a shard.
#[derive(Clone, Debug)]
pub struct ShardInfo {
    /// The shard.
    pub id: ShardId,
    /// The name in metrics and on the health page: its address.
    pub name: String,
    /// A problem although the shard answers, for instance that it may evict counters.
    pub warning: Option<String>,
}

/// How to handle the record of an idempotent claim.
#[derive(Clone, Copy, Debug)]
pub enum OnceRecord<'s> {
    /// The claim is complete. Its answer is recorded if it [needs a record](Settlement::needs_record), unless its `keep`
    /// is zero.
    Whole,
    /// The claim is the part of a larger one that lives with the record. If it passes, the record stays pending until
    /// the verdict on the larger claim is known (unless `keep` is zero), so that concurrent repetitions get the same
    /// answer. If the larger claim was settled before, the answer has all of its readings.
    Pending,
    /// The claim is a part of a larger one and lives in another location than its record. It is settled once by
    /// itself, under the name of the larger claim, next to the counter given as the key of its record.
    Part(u128),
    /// The verdict on the larger claim, to be recorded. The claim gives back the units that were taken here.
    Verdict {
        /// All readings, in the order of the larger claim's charges.
        settlement: &'s Settlement,
        /// Whether the larger claim passed.
        passed: bool,
        /// How long the record lasts. Zero if there is none: the pending one is removed.
        keep: tollgate_core::Span,
    },
}

/// Counts since the start of a store that is reached over a network.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TransportStats {
    /// Claims that were sent, including repetitions.
    pub claims: u64,
    /// Script calls: one for all claims of a batch on one node; in a cluster, one for each slot.
    pub calls: u64,
    /// Round trips.
    pub batches: u64,
    /// Lost connections.
    pub lost: u64,
    /// Stored values that were invalid and counted as fresh.
    pub unsound: u64,
    /// Claims that were sent again, by the answer that proved that they had not run.
    pub resent: Vec<(&'static str, u64)>,
}

/// Why a shard did not settle a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The shard did not answer in time.
    Timeout,
    /// There was no answer in time because this process was not scheduled. The shard may have answered.
    Late,
    /// The shard cannot be reached. It did not receive the claim.
    Unreachable(String),
    /// The connection broke, or the answer cannot be read. The shard may have settled the claim.
    Interrupted(String),
    /// The shard answered with an error, and did not settle the claim.
    Refused(String),
    /// Another caller is settling the same claim, and there is no verdict yet. The shard works.
    Pending,
    /// The keys of the claim are being moved and may be on two shards. It was not settled. The shards work, and settle
    /// claims on one key.
    Moving,
}

impl Failure {
    /// Whether it is certain that the shard did not settle the claim.
    pub fn is_unsettled(&self) -> bool {
        match self {
            Failure::Unreachable(_) | Failure::Refused(_) | Failure::Pending | Failure::Moving => true,
            Failure::Timeout | Failure::Late | Failure::Interrupted(_) => false,
        }
    }

    /// The name in metrics.
    pub fn reason(&self) -> &'static str {
        match self {
            Failure::Timeout => "timeout",
            Failure::Late => "late",
            Failure::Unreachable(_) | Failure::Interrupted(_) => "unreachable",
            Failure::Refused(_) => "refused",
            Failure::Pending => "pending",
            Failure::Moving => "moving",
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Timeout => f.write_str("no answer in time"),
            Failure::Late => f.write_str("no answer in time, because this server was not scheduled"),
            Failure::Unreachable(reason) | Failure::Interrupted(reason) | Failure::Refused(reason) => {
                f.write_str(reason)
            }
            Failure::Pending => f.write_str("the same claim is being settled"),
            Failure::Moving => f.write_str("the keys of the claim are being moved"),
        }
    }
}

impl std::error::Error for Failure {}
