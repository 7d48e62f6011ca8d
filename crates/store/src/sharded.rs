//! Stores that are made of shards, each of which may fail.
//!
//! [`Guarded`](crate::guarded::Guarded) makes a [`Store`](crate::Store) of one: it splits a claim by the places that its keys live
//! in, settles the parts, counts the vote, and answers by policy for shards that can't.

use std::fmt;
use std::future::Future;
use std::time::Duration;

use tollgate_core::{Claim, Key, Settlement};

/// A store whose shards fail one by one.
pub trait Sharded: Send + Sync + 'static {
    /// Where a key's counter lives, as far as is known now.
    fn place(&self, key: &Key<'_>) -> Place;

    /// Settles a claim whose keys, that of `once` included, all live in `place`: atomically, or not at all as far as is known.
    ///
    /// It is sent again only after an answer that proves that it did not run. After a failure it may have been settled or not.
    fn settle_at(
        &self,
        place: Place,
        claim: &Claim<'_>,
        record: Record<'_>,
        within: Duration,
        settlement: &mut Settlement,
    ) -> impl Future<Output = Result<(), Failure>> + Send;

    /// Whether a shard answers and takes writes, within this time.
    fn probe(&self, shard: ShardId, within: Duration) -> impl Future<Output = Result<(), Failure>> + Send;

    /// The shards that there are now.
    fn shards(&self) -> Vec<ShardInfo>;

    /// Says that this server lives, and how many do. Called every [`HEARTBEAT`].
    fn heartbeat(&self, within: Duration) -> impl Future<Output = Result<u64, Failure>> + Send;
}

/// How often a server says that it lives. One that was silent for three of these is gone.
pub const HEARTBEAT: Duration = Duration::from_secs(2);

/// Where a counter lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Place {
    /// What fails together.
    pub shard: ShardId,
    /// What can be settled in one step. Always the same where a shard is not divided.
    pub slot: u16,
}

/// Names a shard of a store, for as long as that store is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ShardId(pub u32);

/// A shard, for people.
#[derive(Clone, Debug)]
pub struct ShardInfo {
    /// Which.
    pub id: ShardId,
    /// What metrics and the health page call it: its address.
    pub name: String,
    /// What is not as it should be although it answers, for instance that it may evict counters.
    pub warning: Option<String>,
}

/// What becomes of the record of a claim that is settled once.
#[derive(Clone, Copy, Debug)]
pub enum Record<'s> {
    /// The claim is whole: its answer is recorded, unless it is to leave no record.
    Whole,
    /// The claim is the part of a larger one in the place of its record. Whether it passes or not, the record is pending until the
    /// verdict on all of it is known, unless it is to leave none: those who ask meanwhile are told the same. If the larger one was
    /// settled before, all of its readings are the answer.
    Pending,
    /// The claim is the part of a larger one in another place than its record. It is settled once by itself, under this name of the
    /// larger one, beside the counter whose key the record is said to have.
    Part(u128),
    /// The verdict on the larger claim, to be recorded; what was taken here and must be given back is the claim.
    Verdict {
        /// All readings, in the order of the larger claim's charges.
        settlement: &'s Settlement,
        /// Whether it passed.
        passed: bool,
        /// How long the record lasts.
        keep: tollgate_core::Span,
    },
}

/// Why a shard did not settle a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// It did not answer in time.
    Timeout,
    /// It can't be reached, or the connection broke.
    Unreachable(String),
    /// It answered with an error.
    Refused(String),
    /// The same claim is being settled by somebody else, and the verdict is not there yet. The shard is well.
    Pending,
}

impl Failure {
    /// In one word, for metrics.
    pub fn reason(&self) -> &'static str {
        match self {
            Failure::Timeout => "timeout",
            Failure::Unreachable(_) => "unreachable",
            Failure::Refused(_) => "refused",
            Failure::Pending => "pending",
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Timeout => f.write_str("no answer in time"),
            Failure::Unreachable(reason) | Failure::Refused(reason) => f.write_str(reason),
            Failure::Pending => f.write_str("the same claim is being settled"),
        }
    }
}

impl std::error::Error for Failure {}
