//! A store of shards that keeps deciding while some of its shards are unavailable.
//!
//! A claim whose keys live in one location is one call. A claim whose keys live in several locations is one call for
//! each of them, concurrently, and the votes are counted here (`split`). A `breaker` stops calls to a shard that
//! failed. Meanwhile the shard's charges are answered by their policies (`policy`), some of them by counting in
//! `local` memory. `maintenance` sends heartbeats, probes shards and drains the `outbox`. Idempotent claims that only
//! record facts take a path of their own (`settlements`).

mod breaker;
mod courier;
mod deferred;
mod last_resort;
mod local;
mod maintenance;
mod outbox;
mod policy;
mod saved;
mod settlements;
mod shared_scopes;
mod split;
mod status;
mod unknown_holds;

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tollgate_core::{Ask, Claim, Key, Settlement, Source, Span, Timestamp, settle_into};

use crate::clock::{Clock, SystemClock};
use crate::histogram::DurationHistogram;
use crate::sharded::{Failure, Location, OnceRecord, ShardId, Sharded};
use crate::{Store, secret};
use breaker::{Breakers, jittered};
use last_resort::LastResort;
use local::{Local, Recorded};
use outbox::Outbox;
use shared_scopes::SharedScopes;
use split::ClaimLocations;
use status::{FailOpen, UnavailableReason};
use unknown_holds::UnknownHolds;

pub use saved::{SavedGuard, SavedGuardError};
pub use status::{Circuit, GuardStatus, Level, ShardStatus};

/// The configuration of a guarded store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GuardConfig {
    /// How long a claim waits for the store, unless the caller's own timeout is shorter.
    pub deadline: Duration,
    /// How long an open breaker stays open before the shard is probed, plus or minus a fifth.
    pub cool_down: Duration,
    /// The maximum number of requests per second that may pass uncounted: those of rules that admit on failure.
    /// Unbounded if `None`.
    pub last_resort: Option<u64>,
    /// The maximum number of counters in local memory while shards are unavailable. Beyond it, the keys of a rule are
    /// counted together.
    pub local_keys: usize,
    /// The least number of servers among which limits are divided while shards are unavailable. More if more were seen.
    pub replicas: u64,
}

/// A store that answers every claim: from its shards while they answer, otherwise by the charges' policies.
#[derive(Debug)]
pub struct Guarded<S, C = SystemClock> {
    inner: S,
    config: GuardConfig,
    clock: C,
    breakers: Breakers,
    /// Those of debits, for other regions. Debits have more time than claims: that a shard answers claims too late says nothing
    /// about them.
    debit_breakers: Breakers,
    local: Local,
    outbox: Outbox,
    /// The rules of shared counters that were part of claims over several locations.
    divided: SharedScopes,
    last_resort: Option<LastResort>,
    /// The number of running servers at the last heartbeats, or before the last restart.
    counted_replicas: AtomicU64,
    /// The number of heartbeats that succeeded.
    heartbeats: AtomicU64,
    /// The error of the last heartbeat, if it failed.
    heartbeat_error: Mutex<Option<Failure>>,
    fail_open: FailOpen,
    /// How long calls to other regions took, by region.
    calls_elsewhere: Box<[DurationHistogram]>,
    /// When a request last passed uncounted, in microseconds.
    uncounted_at: AtomicU64,
}

/// After this many heartbeats of this server, the others have counted it.
const SETTLING_HEARTBEATS: u64 = 3;
/// The time for the answer to get from here to the caller. The store must have answered before.
const RESPONSE_MARGIN: Duration = Duration::from_millis(3);
/// With less time than this the store is not called.
const MIN_TIMEOUT: Duration = Duration::from_millis(1);
/// A timer that fires this much too late was held up by this machine: timers are exact to a millisecond.
const TIMER_SLACK: Duration = Duration::from_millis(3);
/// The pause before a claim that another caller is settling is sent again.
const PENDING_RETRY: Duration = Duration::from_millis(1);

impl Default for GuardConfig {
    fn default() -> GuardConfig {
        GuardConfig {
            deadline: Duration::from_millis(8),
            cool_down: Duration::from_secs(5),
            last_resort: Some(1_000),
            local_keys: 100_000,
            replicas: 1,
        }
    }
}

impl<S: Sharded> Guarded<S> {
    /// Guards a store, using the system clock.
    pub fn new(inner: S, config: GuardConfig) -> Self {
        Self::with_clock(inner, config, SystemClock::default())
    }
}

impl<S: Sharded, C: Clock> Guarded<S, C> {
    /// Guards a store, using the given clock.
    pub fn with_clock(inner: S, config: GuardConfig, clock: C) -> Self {
        Self::restored(inner, config, clock, None)
    }

    /// Guards a store, with the state from before a restart.
    pub fn restored(inner: S, config: GuardConfig, clock: C, saved: Option<&SavedGuard>) -> Self {
        let secret = saved.map_or_else(secret::random, |saved| saved.secret);
        let guard = Guarded {
            breakers: Breakers::new(inner.regions()),
            debit_breakers: Breakers::of_other_regions(inner.regions()),
            outbox: Outbox::new(inner.regions()),
            calls_elsewhere: (1..inner.regions()).map(|_| DurationHistogram::default()).collect(),
            inner,
            config,
            clock,
            local: Local::new(config.local_keys, secret),
            divided: SharedScopes::default(),
            last_resort: config.last_resort.and_then(LastResort::new),
            counted_replicas: AtomicU64::new(saved.map_or(1, |saved| saved.replicas)),
            heartbeats: AtomicU64::new(0),
            heartbeat_error: Mutex::default(),
            fail_open: FailOpen::default(),
            uncounted_at: AtomicU64::new(0),
        };
        if let Some(saved) = saved {
            guard.restore(saved, guard.clock.now());
        }
        guard
    }

    /// The number of servers among which limits are divided while shards are unavailable.
    pub fn replicas(&self) -> u64 {
        self.counted_replicas.load(Ordering::Relaxed).max(self.config.replicas).max(1)
    }

    /// The same, if it is certain that all servers know of this one: after several heartbeats.
    pub fn settled_replicas(&self) -> Option<u64> {
        (self.heartbeats.load(Ordering::Relaxed) >= SETTLING_HEARTBEATS).then(|| self.replicas())
    }

    /// The guarded store.
    pub fn inner(&self) -> &S {
        &self.inner
    }

    /// How long a claim waits for a shard, unless the caller's own timeout is shorter.
    #[inline]
    fn deadline(&self, shard: ShardId) -> Duration {
        self.inner.deadline(shard).unwrap_or(self.config.deadline)
    }

    /// The time that the store has to answer a claim, if the slowest of its shards has this deadline. `None` if that is too
    /// short for a call.
    fn timeout_of(&self, claim: &Claim<'_>, deadline: Duration) -> Option<Duration> {
        let timeout = match claim.timeout {
            None => deadline,
            Some(timeout) => Duration::from_micros(timeout.as_micros()).saturating_sub(RESPONSE_MARGIN).min(deadline),
        };
        (timeout >= MIN_TIMEOUT).then_some(timeout)
    }

    /// The longest deadline of a claim's locations.
    fn longest_deadline(&self, locations: &ClaimLocations) -> Duration {
        match locations {
            ClaimLocations::None => self.config.deadline,
            ClaimLocations::One(location) => self.deadline(location.shard),
            ClaimLocations::Several(locations) => {
                let deadlines = locations.iter().map(|(location, _)| self.deadline(location.shard));
                deadlines.max().unwrap_or(self.config.deadline)
            }
        }
    }

    /// The rest of that time. `None` if it is too short for a call.
    fn time_left(&self, timeout: Duration, began: Timestamp) -> Option<Duration> {
        let gone = Duration::from_micros(self.clock.now().since(began).as_micros());
        let left = timeout.saturating_sub(gone);
        (left >= MIN_TIMEOUT).then_some(left)
    }

    /// Settles a claim whose keys all live in one location.
    async fn settle_single(
        &self,
        location: Location,
        claim: &Claim<'_>,
        timeout: Duration,
        settlement: &mut Settlement,
    ) {
        if !self.breakers.for_shard(location.shard).is_closed() {
            return self.answer_by_policy(claim, UnavailableReason::Open, None, Some(location.shard), settlement);
        }
        let holds = UnknownHolds::new(self, claim);
        let answer = match claim.once {
            None => self.call(location, claim, OnceRecord::Whole, timeout, settlement).await,
            Some(_) => self.call_until_settled(location, claim, OnceRecord::Whole, timeout, settlement).await,
        };
        let has_unknown_holds = holds.end(&answer);
        match answer {
            Ok(()) => self.local.record(claim, settlement, Recorded::Countable, self.clock.now()),
            Err(Failure::Pending) => policy::refuse_as_pending(claim, self.clock.now(), settlement),
            // One key at a time, then.
            Err(Failure::Moving) => {
                let locations = ClaimLocations::by_key(&self.inner, claim);
                Box::pin(self.settle_split(claim, locations, timeout, settlement)).await
            }
            Err(failure) => {
                self.answer_by_policy(claim, UnavailableReason::from(&failure), None, Some(location.shard), settlement);
                if has_unknown_holds {
                    self.release_unknown(claim, 0..claim.charges.len(), &settlement.readings);
                }
            }
        }
    }

    /// Calls a location, repeatedly while another caller is settling the same claim.
    async fn call_until_settled(
        &self,
        location: Location,
        claim: &Claim<'_>,
        record: OnceRecord<'_>,
        timeout: Duration,
        settlement: &mut Settlement,
    ) -> Result<(), Failure> {
        let began = self.clock.now();
        let attempts = timeout.as_micros() / PENDING_RETRY.as_micros();
        for _ in 0..attempts {
            let Some(left) = self.time_left(timeout, began) else { break };
            match self.call(location, claim, record, left, settlement).await {
                Err(Failure::Pending) => tokio::time::sleep(PENDING_RETRY).await,
                answer => return answer,
            }
        }
        Err(Failure::Pending)
    }

    /// Calls a location, no longer than its shard's deadline, and records the outcome in its breaker.
    async fn call(
        &self,
        location: Location,
        claim: &Claim<'_>,
        record: OnceRecord<'_>,
        timeout: Duration,
        settlement: &mut Settlement,
    ) -> Result<(), Failure> {
        let (began, timeout) = (self.clock.now(), timeout.min(self.deadline(location.shard)));
        let answer = self.inner.settle_at(location, claim, record, timeout, settlement).await;
        if !location.shard.region().is_here() {
            self.record_call_elsewhere(location.shard, began);
        }
        match &answer {
            Ok(()) | Err(Failure::Pending | Failure::Moving) => self.breakers.for_shard(location.shard).record_answer(),
            Err(failure) => {
                self.note_failure(&self.breakers, location.shard, failure, timeout, began);
                // A late answer is none to a claim. Other failures are those of debits, too.
                if !matches!(failure, Failure::Timeout | Failure::Late) {
                    self.note_failure(&self.debit_breakers, location.shard, failure, timeout, began);
                }
            }
        }
        answer
    }

    #[cold]
    fn record_call_elsewhere(&self, shard: ShardId, began: Timestamp) {
        let index = usize::from(shard.region().number()).saturating_sub(1);
        if let Some(calls) = self.calls_elsewhere.get(index) {
            calls.record(self.clock.now().since(began));
        }
    }

    #[cold]
    fn note_failure(
        &self,
        breakers: &Breakers,
        shard: ShardId,
        failure: &Failure,
        timeout: Duration,
        began: Timestamp,
    ) {
        let Some(breaker) = breakers.of(shard) else { return };
        let now = self.clock.now();
        let failure = match failure {
            // A timeout much shorter than the deadline says little about the shard. Otherwise impatient callers could
            // open its breaker.
            Failure::Timeout | Failure::Late if timeout < self.deadline(shard) / 2 => return,
            Failure::Timeout if Duration::from_micros(now.since(began).as_micros()) > timeout + TIMER_SLACK => {
                &Failure::Late
            }
            failure => failure,
        };
        let incident = Span::from_micros(u64::try_from(self.deadline(shard).as_micros()).unwrap_or(u64::MAX));
        let cool_down = jittered(self.config.cool_down);
        if breaker.record_failure(shard, failure, now, incident, cool_down) {
            tracing::warn!(shard = self.name(shard), error = %failure, "the breaker of a store shard opened after repeated failures");
        }
    }

    /// The shard's name in logs.
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
        if let Some(once) = settlements::settlement_key(claim) {
            return Box::pin(self.settle_once(claim, once, settlement)).await;
        }
        let locations = ClaimLocations::find(&self.inner, claim);
        let Some(timeout) = self.timeout_of(claim, self.longest_deadline(&locations)) else {
            return self.answer_by_policy(claim, UnavailableReason::Timeout, None, None, settlement);
        };
        let resets = claim.charges.iter().any(|charge| charge.ask == Ask::Reset);
        match locations {
            ClaimLocations::None => settle_into(claim, &mut [], self.clock.now(), settlement),
            ClaimLocations::One(location) => self.settle_single(location, claim, timeout, settlement).await,
            // Boxed, because it is large and the futures of other claims should stay small.
            ClaimLocations::Several(locations) => {
                Box::pin(self.settle_split(claim, locations, timeout, settlement)).await
            }
        }
        if resets {
            self.drop_reset_counters(claim, settlement);
        }
    }

    fn may_be_transient(&self, key: &Key<'_>) -> bool {
        self.divided.contains(key)
    }

    fn assume(&self, claim: &Claim<'_>, source: Source, settlement: &mut Settlement) {
        if let Some(once) = settlements::settlement_key(claim) {
            return self.defer(claim, once, source, settlement);
        }
        let reason = if source == Source::Shed { UnavailableReason::Shed } else { UnavailableReason::Panic };
        self.answer_by_policy(claim, reason, Some(source), None, settlement);
    }
}
