//! A store of shards that keeps deciding while some of them are away.
//!
//! A claim whose keys live in one place is one call. One whose keys live in several is a call for each, at the same time, and the
//! votes of all are counted here: `split`. A shard that fails is left alone by its `breaker`; meanwhile its charges are read by
//! their policies (`policy`), those that are to be counted here in `local` memory. `tend` brings all of that back in order. Claims that
//! only record what has happened go a way of their own: `facts`.

mod breaker;
mod errands;
mod facts;
mod last_resort;
mod local;
mod owned;
mod policy;
mod split;
mod status;
mod tend;
mod together;

use std::sync::Mutex;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use tollgate_core::{Ask, Claim, Settlement, Source, Span, Timestamp, settle_into};

use crate::Store;
use crate::clock::{Clock, SystemClock};
use crate::sharded::{Failure, Place, Record, ShardId, Sharded};
use breaker::{Breakers, jittered};
use errands::Errands;
use last_resort::LastResort;
use local::Local;
use split::Places;
use status::{FailOpen, Why};
use together::in_time;

pub use status::{Circuit, GuardStatus, Level, ShardStatus};

/// How a guarded store treats its shards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GuardConfig {
    /// How long a claim waits for the store. Less where its asker waits less.
    pub deadline: Duration,
    /// How long a shard that failed is left alone before it is tried again, give or take a fifth.
    pub cool_down: Duration,
    /// How many requests a second may pass that nobody counted. Without it there is no bound.
    pub last_resort: Option<u64>,
    /// The most counters that are kept in memory while shards are away.
    pub local_keys: usize,
}

/// A store that answers every claim: by its shards while they answer, by the charges' policies while they do not.
#[derive(Debug)]
pub struct Guarded<S, C = SystemClock> {
    inner: S,
    config: GuardConfig,
    clock: C,
    breakers: Breakers,
    local: Local,
    errands: Errands,
    last_resort: Option<LastResort>,
    /// Servers that live, as last heard.
    replicas: AtomicU64,
    /// Why the last heartbeat failed, if it did.
    unheard: Mutex<Option<Failure>>,
    fail_open: FailOpen,
    /// When a request last passed that nobody counted, in microseconds.
    uncounted_at: AtomicU64,
}

/// What an answer takes from here to whoever asked: the store must have answered by then.
const WAY_BACK: Duration = Duration::from_millis(3);
/// With less time than this the store is not asked.
const LEAST: Duration = Duration::from_millis(1);
/// When to ask again for a claim that somebody else is settling.
const ASK_AGAIN: Duration = Duration::from_millis(1);

impl Default for GuardConfig {
    fn default() -> GuardConfig {
        GuardConfig {
            deadline: Duration::from_millis(8),
            cool_down: Duration::from_secs(5),
            last_resort: None,
            local_keys: 100_000,
        }
    }
}

impl<S: Sharded> Guarded<S> {
    /// Guards this store, by the machine's clock.
    pub fn new(inner: S, config: GuardConfig) -> Self {
        Self::with_clock(inner, config, SystemClock::default())
    }
}

impl<S: Sharded, C: Clock> Guarded<S, C> {
    /// Guards this store, by a clock of the caller's.
    pub fn with_clock(inner: S, config: GuardConfig, clock: C) -> Self {
        Guarded {
            inner,
            config,
            clock,
            breakers: Breakers::new(),
            local: Local::new(config.local_keys),
            errands: Errands::default(),
            last_resort: config.last_resort.and_then(LastResort::new),
            replicas: AtomicU64::new(1),
            unheard: Mutex::default(),
            fail_open: FailOpen::default(),
            uncounted_at: AtomicU64::new(0),
        }
    }

    /// The store that is guarded.
    pub fn inner(&self) -> &S {
        &self.inner
    }

    /// How long the store has to answer a claim, if there is time to ask it at all.
    fn within(&self, claim: &Claim<'_>) -> Option<Duration> {
        let within = match claim.patience {
            None => self.config.deadline,
            Some(patience) => {
                Duration::from_micros(patience.as_micros()).saturating_sub(WAY_BACK).min(self.config.deadline)
            }
        };
        (within >= LEAST).then_some(within)
    }

    /// What is left of that time.
    fn left(&self, within: Duration, began: Timestamp) -> Option<Duration> {
        let gone = Duration::from_micros(self.clock.now().since(began).as_micros());
        let left = within.saturating_sub(gone);
        (left >= LEAST).then_some(left)
    }

    /// Settles a claim whose keys all live in one place.
    async fn settle_whole(&self, place: Place, claim: &Claim<'_>, within: Duration, settlement: &mut Settlement) {
        if !self.breakers.of(place.shard).is_closed() {
            return self.do_without(claim, Why::Open, Some(place.shard), settlement);
        }
        let answer = match claim.once {
            None => self.ask(place, claim, Record::Whole, within, settlement).await,
            Some(_) => self.ask_patiently(place, claim, Record::Whole, within, settlement).await,
        };
        match answer {
            Ok(()) => {}
            Err(Failure::Pending) => policy::refuse_for_now(claim, self.clock.now(), settlement),
            Err(failure) => self.do_without(claim, Why::of(&failure), Some(place.shard), settlement),
        }
    }

    /// Asks a place, again and again while somebody else is settling the same claim.
    async fn ask_patiently(
        &self,
        place: Place,
        claim: &Claim<'_>,
        record: Record<'_>,
        within: Duration,
        settlement: &mut Settlement,
    ) -> Result<(), Failure> {
        let began = self.clock.now();
        let most = within.as_micros() / ASK_AGAIN.as_micros();
        for _ in 0..most {
            let Some(left) = self.left(within, began) else { break };
            match self.ask(place, claim, record, left, settlement).await {
                Err(Failure::Pending) => tokio::time::sleep(ASK_AGAIN).await,
                answer => return answer,
            }
        }
        Err(Failure::Pending)
    }

    /// Asks a place, and remembers if it failed.
    async fn ask(
        &self,
        place: Place,
        claim: &Claim<'_>,
        record: Record<'_>,
        within: Duration,
        settlement: &mut Settlement,
    ) -> Result<(), Failure> {
        let answer = in_time(within, self.inner.settle_at(place, claim, record, within, settlement)).await;
        if let Err(failure) = &answer {
            // Who had little patience learned little of the shard. Else impatient callers could have it left alone.
            let was_hasty = *failure == Failure::Timeout && within < self.config.deadline / 2;
            if !was_hasty {
                self.note(place.shard, failure);
            }
        }
        answer
    }

    #[cold]
    fn note(&self, shard: ShardId, failure: &Failure) {
        let hiccup = Span::from_micros(u64::try_from(self.config.deadline.as_micros()).unwrap_or(u64::MAX));
        let rest = jittered(self.config.cool_down);
        if self.breakers.of(shard).failed(shard, failure, self.clock.now(), hiccup, rest) {
            tracing::warn!(shard = self.name(shard), error = %failure, "a shard of the store is left alone: it failed too often");
        }
    }

    /// What people call a shard.
    fn name(&self, shard: ShardId) -> String {
        let info = self.inner.shards().into_iter().find(|info| info.id == shard);
        info.map_or_else(|| shard.0.to_string(), |info| info.name)
    }
}

impl<S: Sharded, C: Clock> Store for Guarded<S, C> {
    async fn settle_into(&self, claim: &Claim<'_>, settlement: &mut Settlement) {
        if claim.charges.iter().any(policy::is_release) {
            self.release(claim);
        }
        if let Some(once) = facts::named(claim) {
            return Box::pin(self.settle_facts(claim, once, settlement)).await;
        }
        let Some(within) = self.within(claim) else {
            return self.do_without(claim, Why::Timeout, None, settlement);
        };
        let resets = claim.charges.iter().any(|charge| charge.ask == Ask::Reset);
        match Places::of(&self.inner, claim) {
            Places::None => settle_into(claim, &mut [], self.clock.now(), settlement),
            Places::One(place) => self.settle_whole(place, claim, within, settlement).await,
            // On the heap: it is large, and the futures of other claims need not be.
            Places::Several(parts) => Box::pin(self.settle_split(claim, parts, within, settlement)).await,
        }
        if resets {
            self.forget_reset(claim, settlement);
        }
    }

    fn assume(&self, claim: &Claim<'_>, source: Source, settlement: &mut Settlement) {
        if let Some(once) = facts::named(claim) {
            return self.put_off(claim, once, source, settlement);
        }
        let why = if source == Source::Shed { Why::Shed } else { Why::Panic };
        self.answer(claim, why, Some(source), None, settlement);
    }
}
