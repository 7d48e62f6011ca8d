//! Throttles: limits that come with each request, without a rule.

use std::borrow::Borrow;
use std::future::Future;
use std::sync::Arc;

use smallvec::smallvec;
use tollgate_core::key::Home;
use tollgate_core::{
    Algorithm, Ask, Charge, Claim, Key, Limit, LimitError, Mode, OnFailure, Period, Reading, Scope, Settlement,
    Shortcuts, Source, Span, Value,
};
use tollgate_store::Store;

use crate::ids;
use crate::limiter::Limiter;

/// The limit of a key: `count` units per `period`, and up to `burst` at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Throttle {
    /// Units that are replenished per period.
    pub count: u64,
    /// The length of the period.
    pub period: Span,
    /// The largest number of units that can be taken at once.
    pub burst: u64,
}

/// A limiter for one caller that sends a limit with each key.
///
/// The counters are in a key space of their own that no rule can use. A counter is identified by the key and the period:
/// a change of the count or the burst continues the same counter, a change of the period starts a new one.
#[derive(Debug)]
pub struct Throttler<S> {
    limiter: Arc<Limiter<S>>,
    space: Box<str>,
    limits: LimitCache<CachedLimit>,
    /// The limits of detached requests, which may outlive their place in the cache.
    shared_limits: LimitCache<Arc<CachedLimit>>,
    settlement: Settlement,
}

/// The limits that were used last: building one costs more than settling a claim.
#[derive(Debug)]
struct LimitCache<K> {
    limits: Vec<K>,
    /// The index of the limit to evict next.
    oldest: usize,
}

#[derive(Debug)]
struct CachedLimit {
    throttle: Throttle,
    limit: Limit,
    scope: Scope,
}

const MAX_CACHED_LIMITS: usize = 32;

/// The rule name in scopes. No rule has it: names of rules are not empty.
const RULE: &str = "";

impl<S: Store> Throttler<S> {
    /// How many limits are cached. Others are built again for each request.
    pub const MAX_CACHED_LIMITS: usize = MAX_CACHED_LIMITS;

    /// A throttler for the counters in this key space.
    pub fn new(limiter: Arc<Limiter<S>>, space: &str) -> Throttler<S> {
        let (limits, shared_limits) = (LimitCache::default(), LimitCache::default());
        Throttler { limiter, space: space.into(), limits, shared_limits, settlement: Settlement::default() }
    }

    /// Takes all of the units or none. Zero units peek at the counter.
    ///
    /// A store failure is not an error: the key passes, and the source of the reading is not the store.
    ///
    /// # Errors
    /// If the limit can't be counted exactly.
    pub async fn take(&mut self, key: &[u8], throttle: &Throttle, units: u64) -> Result<Reading, LimitError> {
        let (limit, settlement) = (self.limits.find(&self.space, throttle)?, &mut self.settlement);
        let claim = limit.claim(key, units);
        self.limiter.settle(&claim, settlement).await;
        Ok(limit.read(&claim, settlement))
    }

    /// Like [`take`](Self::take), as a future that does not borrow the throttler, so that several can run at once. They reach
    /// the store in the order of their first polls.
    ///
    /// # Errors
    /// If the limit can't be counted exactly.
    pub fn take_detached(
        &mut self,
        key: &[u8],
        throttle: &Throttle,
        units: u64,
    ) -> Result<impl Future<Output = Reading> + Send + use<S>, LimitError>
    where
        S: 'static,
    {
        let limit = self.shared_limits.find(&self.space, throttle)?.clone();
        let (limiter, key) = (self.limiter.clone(), Box::<[u8]>::from(key));
        Ok(async move {
            let mut settlement = Settlement::default();
            let claim = limit.claim(&key, units);
            limiter.settle(&claim, &mut settlement).await;
            limit.read(&claim, &settlement)
        })
    }

    /// The reading for a key that is not counted because the limiter is overloaded: the key passes.
    ///
    /// # Errors
    /// If the limit can't be counted exactly.
    pub fn shed(&mut self, key: &[u8], throttle: &Throttle, units: u64) -> Result<Reading, LimitError> {
        let (limit, settlement) = (self.limits.find(&self.space, throttle)?, &mut self.settlement);
        let claim = limit.claim(key, units);
        self.limiter.store().assume(&claim, Source::Shed, settlement);
        Ok(limit.read(&claim, settlement))
    }
}

impl<K: Borrow<CachedLimit> + From<CachedLimit>> LimitCache<K> {
    /// The cached limit for a throttle, built if necessary.
    fn find(&mut self, space: &str, throttle: &Throttle) -> Result<&K, LimitError> {
        let at = match self.limits.iter().position(|limit| limit.borrow().throttle == *throttle) {
            Some(at) => at,
            None => self.insert(CachedLimit::new(space, *throttle)?.into()),
        };
        Ok(&self.limits[at])
    }

    fn insert(&mut self, limit: K) -> usize {
        if self.limits.len() < MAX_CACHED_LIMITS {
            self.limits.push(limit);
            return self.limits.len() - 1;
        }
        let at = self.oldest;
        self.limits[at] = limit;
        self.oldest = (at + 1) % MAX_CACHED_LIMITS;
        at
    }
}

impl<K> Default for LimitCache<K> {
    fn default() -> LimitCache<K> {
        LimitCache { limits: Vec::new(), oldest: 0 }
    }
}

impl CachedLimit {
    fn new(space: &str, throttle: Throttle) -> Result<CachedLimit, LimitError> {
        let period = Period::fixed(throttle.period)?;
        let algorithm = Algorithm::Bucket { burst: throttle.burst, paced: false };
        let scope = Scope::new(space, RULE, algorithm, &period, Home::Own);
        Ok(CachedLimit { throttle, limit: Limit::new(throttle.count, period, algorithm)?, scope })
    }

    #[inline]
    fn claim<'a>(&'a self, key: &'a [u8], units: u64) -> Claim<'a> {
        let charge = Charge {
            key: Key::new(&self.scope, smallvec![Value::bytes(key)]),
            limit: &self.limit,
            ask: Ask::Exactly,
            units,
            mode: Mode::Enforce,
            on_failure: OnFailure::Local,
            shortcuts: Shortcuts::Refusals,
        };
        Claim { id: ids::next(), charges: smallvec![charge], once: None, timeout: None }
    }

    /// The reading of the claim's only charge.
    #[inline]
    fn read(&self, claim: &Claim<'_>, settlement: &Settlement) -> Reading {
        let reading = settlement.readings.first().copied();
        let reading = reading.unwrap_or_else(|| Reading::assumed(&claim.charges[0], Source::Assumed));
        // An assumed reading reports the count, which may exceed what can be taken at once.
        Reading { remaining: reading.remaining.min(self.limit.quota()), ..reading }
    }
}
