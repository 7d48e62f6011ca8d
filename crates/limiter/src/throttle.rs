//! Limits that come with each request, and need no rule.

use std::borrow::Borrow;
use std::future::Future;
use std::sync::Arc;

use smallvec::smallvec;
use tollgate_core::key::Home;
use tollgate_core::{
    Algorithm, Ask, Charge, Claim, Key, Limit, LimitError, Mode, OnFailure, Period, Reading, Scope, Settlement, Source,
    Span, Value,
};
use tollgate_store::Store;

use crate::ids;
use crate::limiter::Limiter;

/// What a caller says that a key may do: `count` in a `period`, and up to `burst` at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Throttle {
    /// Units that come back in a period.
    pub count: u64,
    /// The period.
    pub period: Span,
    /// The most units that can be taken at once.
    pub burst: u64,
}

/// A limiter in the hands of one caller who brings a limit along with each key.
///
/// The counters are in a key space of their own, which no rule can name. A counter is named by the key and the period: who asks
/// for another count or burst finds it as it stands, who asks for another period begins a new one.
#[derive(Debug)]
pub struct Throttler<S> {
    limiter: Arc<Limiter<S>>,
    space: Box<str>,
    known: Shelf<Known>,
    /// The same for those who are still waiting for their answers when others take its place here.
    shared: Shelf<Arc<Known>>,
    settlement: Settlement,
}

/// Limits that were asked for before: to make one costs more than to settle a claim.
#[derive(Debug)]
struct Shelf<K> {
    known: Vec<K>,
    /// Which of them makes room for a new one.
    oldest: usize,
}

#[derive(Debug)]
struct Known {
    throttle: Throttle,
    limit: Limit,
    scope: Scope,
}

const MOST_KNOWN: usize = 32;

/// In scopes, a text that no rule of a file has: names are not empty.
const RULE: &str = "";

impl<S: Store> Throttler<S> {
    /// How many limits it remembers. Past that they are made again when they come again.
    pub const MOST_KNOWN: usize = MOST_KNOWN;

    /// The counters of this space.
    pub fn new(limiter: Arc<Limiter<S>>, space: &str) -> Throttler<S> {
        let (known, shared) = (Shelf::default(), Shelf::default());
        Throttler { limiter, space: space.into(), known, shared, settlement: Settlement::default() }
    }

    /// Takes the units or nothing; no units are a look.
    ///
    /// A store that fails is no error: the key passes, and the reading says that nobody was asked.
    ///
    /// # Errors
    /// If the limit can't be counted exactly.
    pub async fn take(&mut self, key: &[u8], throttle: &Throttle, units: u64) -> Result<Reading, LimitError> {
        let (known, settlement) = (self.known.find(&self.space, throttle)?, &mut self.settlement);
        let claim = known.claim(key, units);
        self.limiter.settle(&claim, settlement).await;
        Ok(known.read(&claim, settlement))
    }

    /// The same for those who ask for more before they have the answer. What is polled first is asked first.
    ///
    /// # Errors
    /// If the limit can't be counted exactly.
    pub fn taking(
        &mut self,
        key: &[u8],
        throttle: &Throttle,
        units: u64,
    ) -> Result<impl Future<Output = Reading> + Send + use<S>, LimitError>
    where
        S: 'static,
    {
        let known = self.shared.find(&self.space, throttle)?.clone();
        let (limiter, key) = (self.limiter.clone(), Box::<[u8]>::from(key));
        Ok(async move {
            let mut settlement = Settlement::default();
            let claim = known.claim(&key, units);
            limiter.settle(&claim, &mut settlement).await;
            known.read(&claim, &settlement)
        })
    }

    /// The answer of a limiter that has too much to do to look: the key passes.
    ///
    /// # Errors
    /// If the limit can't be counted exactly.
    pub fn shed(&mut self, key: &[u8], throttle: &Throttle, units: u64) -> Result<Reading, LimitError> {
        let (known, settlement) = (self.known.find(&self.space, throttle)?, &mut self.settlement);
        let claim = known.claim(key, units);
        self.limiter.store().assume(&claim, Source::Shed, settlement);
        Ok(known.read(&claim, settlement))
    }
}

impl<K: Borrow<Known> + From<Known>> Shelf<K> {
    /// The limit that was asked for.
    fn find(&mut self, space: &str, throttle: &Throttle) -> Result<&K, LimitError> {
        let at = match self.known.iter().position(|known| known.borrow().throttle == *throttle) {
            Some(at) => at,
            None => self.put(Known::new(space, *throttle)?.into()),
        };
        Ok(&self.known[at])
    }

    fn put(&mut self, known: K) -> usize {
        if self.known.len() < MOST_KNOWN {
            self.known.push(known);
            return self.known.len() - 1;
        }
        let at = self.oldest;
        self.known[at] = known;
        self.oldest = (at + 1) % MOST_KNOWN;
        at
    }
}

impl<K> Default for Shelf<K> {
    fn default() -> Shelf<K> {
        Shelf { known: Vec::new(), oldest: 0 }
    }
}

impl Known {
    fn new(space: &str, throttle: Throttle) -> Result<Known, LimitError> {
        let period = Period::fixed(throttle.period)?;
        let algorithm = Algorithm::Bucket { burst: throttle.burst, paced: false };
        let scope = Scope::new(space, RULE, algorithm, &period, Home::Own);
        Ok(Known { throttle, limit: Limit::new(throttle.count, period, algorithm)?, scope })
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
            strict: false,
        };
        Claim { id: ids::next(), charges: smallvec![charge], once: None, patience: None }
    }

    /// What the one charge of a claim reads.
    #[inline]
    fn read(&self, claim: &Claim<'_>, settlement: &Settlement) -> Reading {
        let reading = settlement.readings.first().copied();
        let reading = reading.unwrap_or_else(|| Reading::assumed(&claim.charges[0], Source::Assumed));
        // What is assumed is told of the count, which may be more than can be taken at once.
        Reading { remaining: reading.remaining.min(self.limit.quota()), ..reading }
    }
}
