//! Limits that come with each request, and need no rule.

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
    /// Limits that were asked for before: to make one costs more than to settle a claim.
    known: Vec<Known>,
    /// Which of them makes room for a new one.
    oldest: usize,
    settlement: Settlement,
}

#[derive(Debug)]
struct Known {
    throttle: Throttle,
    /// Shared with those who are still waiting for their answers when others take its place here.
    terms: Arc<Terms>,
}

/// What a throttle comes to in the words of claims.
#[derive(Debug)]
struct Terms {
    limit: Limit,
    scope: Scope,
}

/// In scopes, a text that no rule of a file has: names are not empty.
const RULE: &str = "";

impl<S: Store> Throttler<S> {
    /// How many limits it remembers. Past that they are made again when they come again.
    pub const MOST_KNOWN: usize = 32;

    /// The counters of this space.
    pub fn new(limiter: Arc<Limiter<S>>, space: &str) -> Throttler<S> {
        Throttler { limiter, space: space.into(), known: Vec::new(), oldest: 0, settlement: Settlement::default() }
    }

    /// Takes the units or nothing; no units are a look.
    ///
    /// A store that fails is no error: the key passes, and the reading says that nobody was asked.
    ///
    /// # Errors
    /// If the limit can't be counted exactly.
    pub async fn take(&mut self, key: &[u8], throttle: &Throttle, units: u64) -> Result<Reading, LimitError> {
        let at = self.find(throttle)?;
        let (terms, settlement) = (&*self.known[at].terms, &mut self.settlement);
        let claim = terms.claim(key, units);
        self.limiter.settle(&claim, settlement).await;
        Ok(terms.read(&claim, settlement))
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
        let at = self.find(throttle)?;
        let (limiter, terms, key) = (self.limiter.clone(), self.known[at].terms.clone(), Box::<[u8]>::from(key));
        Ok(async move {
            let mut settlement = Settlement::default();
            let claim = terms.claim(&key, units);
            limiter.settle(&claim, &mut settlement).await;
            terms.read(&claim, &settlement)
        })
    }

    /// The answer of a limiter that has too much to do to look: the key passes.
    ///
    /// # Errors
    /// If the limit can't be counted exactly.
    pub fn shed(&mut self, key: &[u8], throttle: &Throttle, units: u64) -> Result<Reading, LimitError> {
        let at = self.find(throttle)?;
        let (terms, settlement) = (&*self.known[at].terms, &mut self.settlement);
        let claim = terms.claim(key, units);
        self.limiter.store().assume(&claim, Source::Shed, settlement);
        Ok(terms.read(&claim, settlement))
    }

    /// The place of a limit among the known ones.
    fn find(&mut self, throttle: &Throttle) -> Result<usize, LimitError> {
        if let Some(at) = self.known.iter().position(|known| known.throttle == *throttle) {
            return Ok(at);
        }
        let known = Known::new(&self.space, *throttle)?;
        if self.known.len() < Self::MOST_KNOWN {
            self.known.push(known);
            return Ok(self.known.len() - 1);
        }
        let at = self.oldest;
        self.known[at] = known;
        self.oldest = (at + 1) % Self::MOST_KNOWN;
        Ok(at)
    }
}

impl Known {
    fn new(space: &str, throttle: Throttle) -> Result<Known, LimitError> {
        let period = Period::fixed(throttle.period)?;
        let algorithm = Algorithm::Bucket { burst: throttle.burst, paced: false };
        let scope = Scope::new(space, RULE, algorithm, &period, Home::Own);
        let limit = Limit::new(throttle.count, period, algorithm)?;
        Ok(Known { throttle, terms: Arc::new(Terms { limit, scope }) })
    }
}

impl Terms {
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
    fn read(&self, claim: &Claim<'_>, settlement: &Settlement) -> Reading {
        let reading = settlement.readings.first().copied();
        let reading = reading.unwrap_or_else(|| Reading::assumed(&claim.charges[0], Source::Assumed));
        // What is assumed is told of the count, which may be more than can be taken at once.
        Reading { remaining: reading.remaining.min(self.limit.quota()), ..reading }
    }
}
