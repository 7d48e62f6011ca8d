//! Debits for other regions, on the way that their counters are reached.

use std::time::Duration;

use tollgate_core::{Claim, Key, RegionId, Settlement};

use super::Guarded;
use super::breaker::Breaker;
use crate::clock::Clock;
use crate::debits::{Courier, Routes};
use crate::sharded::{Failure, OnceRecord, ShardId, Sharded};

impl<S: Sharded, C: Clock> Routes for Guarded<S, C> {
    fn is_whole(&self, region: RegionId) -> bool {
        self.debit_breakers.of_region(region).all(|breaker| breaker.is_closed())
    }

    fn shard(&self, key: &Key<'_>) -> ShardId {
        self.inner.locate(key).shard
    }

    fn is_reachable(&self, shard: ShardId) -> bool {
        self.debit_breakers.of(shard).is_none_or(Breaker::is_closed)
    }

    fn servers_here(&self) -> u64 {
        self.replicas()
    }
}

impl<S: Sharded, C: Clock> Courier for Guarded<S, C> {
    /// A debit may take longer than a claim that a caller waits for, and has breakers of its own. For those of claims it counts
    /// as an answer only if it did not: otherwise a slow shard would seem to answer while all of its callers give up.
    async fn deliver(&self, region: RegionId, claim: &Claim<'_>, timeout: Duration) -> Result<(), Failure> {
        let unreachable =
            || Failure::Unreachable(format!("the breaker of a shard of region {} is open", region.number()));
        let Some(charge) = claim.charges.first() else { return Ok(()) };
        let location = self.inner.locate(&charge.key);
        if !self.is_reachable(location.shard) {
            return Err(unreachable());
        }
        let began = self.clock.now();
        let mut settlement = Settlement::default();
        let answer = self.inner.settle_at(location, claim, OnceRecord::Whole, timeout, &mut settlement).await;
        match &answer {
            Ok(()) => {
                self.debit_breakers.of(location.shard).into_iter().for_each(Breaker::record_answer);
                let took = Duration::from_micros(self.clock.now().since(began).as_micros());
                if took <= self.deadline(location.shard) {
                    self.breakers.for_shard(location.shard).record_answer();
                }
            }
            Err(Failure::Pending | Failure::Moving) => {}
            Err(failure) => {
                self.note_failure(&self.breakers, location.shard, failure, timeout, began);
                self.note_failure(&self.debit_breakers, location.shard, failure, timeout, began);
            }
        }
        answer
    }
}
