//! The Redis store on real servers: how claims share round trips, what reaches a server once and only once, and how servers that
//! come, go, stall and move are found again.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that fails may panic")]

mod access;
mod agreed;
mod cluster;
mod conform;
mod one;
mod outages;
mod records;
mod sentinel;
mod settles;
#[path = "../steps/mod.rs"]
mod steps;

use std::future::Future;
use std::time::Duration;

use smallvec::smallvec;
use tokio::task::JoinHandle;
use tollgate_core::key::Home;
use tollgate_core::{
    Algorithm, Ask, Charge, Claim, ClaimId, Key, Limit, Mode, OnFailure, Period, Reading, Scope, Settlement, Span,
    Value,
};
use tollgate_store::redis::{RedisConfig, RedisStore};
use tollgate_store::sharded::{Failure, Record, Sharded};

/// Long enough for anything that is to succeed.
const PATIENCE: Duration = Duration::from_secs(20);

/// A store that is tended for as long as this is there.
struct Tended {
    store: RedisStore,
    tend: JoinHandle<()>,
}

/// A rule with a counter for each caller: so many in a day, so that no test sees the end of it.
struct Rule {
    scope: Scope,
    limit: Limit,
}

impl Tended {
    fn new(config: RedisConfig) -> Tended {
        let store = config.build().unwrap();
        let tended = store.clone();
        Tended { store, tend: tokio::spawn(async move { tended.tend().await }) }
    }

    fn at(url: &str) -> Tended {
        Tended::new(config(url))
    }

    /// What a caller's counter says to a claim on so many units; none is a look.
    async fn take(&self, rule: &Rule, caller: &str, units: u64, within: Duration) -> Result<Reading, Failure> {
        let claim = rule.claim(caller, units);
        let place = self.store.place(&claim.charges[0].key);
        let mut settlement = Settlement::default();
        self.store.settle_at(place, &claim, Record::Whole, within, &mut settlement).await?;
        Ok(settlement.readings[0])
    }

    /// How many units a caller has taken.
    async fn taken(&self, rule: &Rule, caller: &str) -> u64 {
        rule.limit.amount() - self.take(rule, caller, 0, PATIENCE).await.unwrap().remaining
    }

    /// How often claims were sent again for this reason.
    fn resent(&self, reason: &str) -> u64 {
        self.store.stats().resent.into_iter().find(|(name, _)| *name == reason).unwrap().1
    }
}

impl Drop for Tended {
    fn drop(&mut self) {
        self.tend.abort();
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
            strict: false,
        };
        Claim { id: ClaimId(1), charges: smallvec![charge], once: None, patience: None }
    }
}

fn config(url: &str) -> RedisConfig {
    RedisConfig::new(url.parse().unwrap())
}

/// Asks until it is so. Other processes have their own pace; there is nothing to move here but to look again.
async fn until<F: Future<Output = bool>>(mut look: impl FnMut() -> F) {
    let looking = async {
        while !look().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(3 * PATIENCE, looking).await.expect("it never came");
}
