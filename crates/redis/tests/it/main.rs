//! The Redis store on real servers: how claims share round trips, that each is settled exactly once, and how servers
//! that start, stop, stall and move are found again.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that fails may panic")]

mod access;
mod agreement;
mod bulletin;
mod cluster;
mod conform;
mod debits;
mod far;
mod moving;
mod one;
mod outages;
mod privacy;
mod records;
mod refunds;
mod sentinel;
mod settles;
mod summed;

use std::future::Future;
use std::time::Duration;

use smallvec::smallvec;
use tokio::task::JoinHandle;
use tollgate_core::key::Home;
use tollgate_core::{
    Algorithm, Ask, Charge, Claim, ClaimId, Key, Limit, Mode, OnFailure, Period, Reading, Scope, Settlement, Shortcuts,
    Span, Value,
};
use tollgate_redis::{RedisConfig, RedisStore};
use tollgate_store::sharded::{Failure, OnceRecord, Sharded};

/// Long enough for everything that succeeds.
const TIMEOUT: Duration = Duration::from_secs(20);

/// A store that runs for the lifetime of this value.
struct RunningStore {
    store: RedisStore,
    task: JoinHandle<()>,
}

/// A rule with a counter for each caller: an amount per day, so that no test reaches the end of the period.
struct Rule {
    scope: Scope,
    limit: Limit,
}

impl RunningStore {
    fn new(config: RedisConfig) -> RunningStore {
        let store = config.build().unwrap();
        let running = store.clone();
        RunningStore { store, task: tokio::spawn(async move { running.run().await }) }
    }

    fn at(url: &str) -> RunningStore {
        RunningStore::new(config(url))
    }

    /// The reading of a caller's counter for a claim of these units. 0 is a peek.
    async fn take(&self, rule: &Rule, caller: &str, units: u64, timeout: Duration) -> Result<Reading, Failure> {
        let claim = rule.claim(caller, units);
        let location = self.store.locate(&claim.charges[0].key);
        let mut settlement = Settlement::default();
        self.store.settle_at(location, &claim, OnceRecord::Whole, timeout, &mut settlement).await?;
        Ok(settlement.readings[0])
    }

    /// The units that a caller has taken.
    async fn taken(&self, rule: &Rule, caller: &str) -> u64 {
        rule.limit.amount() - self.take(rule, caller, 0, TIMEOUT).await.unwrap().remaining
    }

    /// How often claims were sent again for this reason.
    fn resent(&self, reason: &str) -> u64 {
        self.store.stats().resent.into_iter().find(|(name, _)| *name == reason).unwrap().1
    }
}

impl Drop for RunningStore {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Rule {
    fn new(amount: u64) -> Rule {
        let limit = Limit::new(
            amount,
            Period::fixed(Span::from_secs(86_400)).unwrap(),
            Algorithm::SlidingWindow { sub_windows: 1 },
        );
        let limit = limit.unwrap();
        Rule { scope: Scope::new("shop", "all", limit.algorithm(), limit.period(), Home::Caller(0)), limit }
    }

    fn claim<'a>(&'a self, caller: &'a str, units: u64) -> Claim<'a> {
        let charge = Charge {
            key: Key::new(&self.scope, smallvec![Value::Text(caller)]),
            limit: &self.limit,
            ask: Ask::Exactly,
            units,
            mode: Mode::Enforce,
            on_failure: OnFailure::Deny,
            shortcuts: Shortcuts::Refusals,
        };
        Claim { id: ClaimId(1), charges: smallvec![charge], once: None, timeout: None }
    }
}

fn config(url: &str) -> RedisConfig {
    RedisConfig::new(url.parse().unwrap())
}

/// Polls until the condition is true. Other processes have their own clocks, so there is no clock to advance.
async fn until<F: Future<Output = bool>>(mut condition: impl FnMut() -> F) {
    let looking = async {
        while !condition().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(3 * TIMEOUT, looking).await.expect("it never came");
}
