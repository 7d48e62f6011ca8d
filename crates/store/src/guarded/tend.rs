//! What goes on beside the claims: heartbeats, probes of shards that failed, and what the store is told later.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tollgate_core::{Key, Settlement, Span, Timestamp};

use super::Guarded;
use super::breaker::{Breaker, jittered};
use super::owned::Errand;
use super::status::{Circuit, GuardStatus, Level, ShardStatus};
use super::together::{in_time, together};
use crate::clock::Clock;
use crate::sharded::{HEARTBEAT, ShardId, Sharded};

/// How often is looked for shards to probe and errands to run.
const BEAT: Duration = Duration::from_millis(50);
/// How many errands are run in a beat: 1,000 a second.
const ERRANDS_A_BEAT: usize = 50;
/// The most servers of so many beats count. A store that lost what it had hears of one server before the others; who believed it
/// would take more than its share of every limit.
const BEATS_HEARD: usize = 4;
/// How long after a request passed that nobody counted the store as a whole counts as open.
const OPEN_FOR: Span = Span::from_secs(10);

impl<S: Sharded, C: Clock> Guarded<S, C> {
    /// Says that this server lives, tries shards that failed, and tells them what was counted without them. It never ends:
    /// whoever owns the store runs it beside the claims.
    pub async fn tend(&self) {
        tokio::join!(self.live(), self.probe(), self.run_errands());
    }

    /// How the shards are, and what passed without them.
    pub fn status(&self) -> GuardStatus {
        let shard = |info: crate::sharded::ShardInfo| {
            let breaker = self.breakers.of(info.id);
            let (errors, last_error) = breaker.errors();
            ShardStatus { name: info.name, circuit: breaker.circuit(), errors, last_error, warning: info.warning }
        };
        let shards: Vec<ShardStatus> = self.inner.shards().into_iter().map(shard).collect();
        let (local, owed) = self.local.counts();
        GuardStatus {
            level: self.level(&shards),
            shards,
            replicas: self.replicas.load(Ordering::Relaxed),
            unheard: self.unheard.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(ToString::to_string),
            fail_open: self.fail_open.by_reason(),
            local,
            owed,
            waiting: self.errands.len(),
            dropped: self.errands.dropped(),
        }
    }

    fn level(&self, shards: &[ShardStatus]) -> Level {
        let away = shards.iter().filter(|shard| shard.circuit != Circuit::Closed).count();
        let uncounted_at = Timestamp::from_micros(self.uncounted_at.load(Ordering::Relaxed));
        let is_open = uncounted_at > Timestamp::default() && self.clock.now().since(uncounted_at) < OPEN_FOR;
        match away {
            // A store that knows no shard yet has the breakers of those that it asked for.
            0 if shards.is_empty() && self.breakers.all().any(|breaker| !breaker.is_closed()) => Level::LocalOnly,
            0 => Level::Normal,
            _ if away < shards.len() => Level::Degraded,
            _ if is_open => Level::Open,
            _ => Level::LocalOnly,
        }
    }

    async fn live(&self) {
        let mut heard = [1; BEATS_HEARD];
        for turn in (0..BEATS_HEARD).cycle() {
            let beat = in_time(HEARTBEAT, self.inner.heartbeat(HEARTBEAT)).await;
            // What was heard last counts until there is something else.
            if let Ok(replicas) = &beat {
                heard[turn] = *replicas;
                self.replicas.store(heard.into_iter().fold(1, u64::max), Ordering::Relaxed);
            }
            *self.unheard.lock().unwrap_or_else(PoisonError::into_inner) = beat.err();
            tokio::time::sleep(HEARTBEAT).await;
        }
    }

    async fn probe(&self) {
        loop {
            let now = self.clock.now();
            let due = self.breakers.all().filter_map(|breaker| Some((breaker, breaker.due(now)?)));
            together(due.map(|(breaker, shard)| self.probe_one(breaker, shard))).await;
            tokio::time::sleep(BEAT).await;
        }
    }

    async fn probe_one(&self, breaker: &Breaker, shard: ShardId) {
        let deadline = self.config.deadline;
        let found = in_time(deadline, self.inner.probe(shard, deadline)).await;
        breaker.probed(shard, &found, self.clock.now(), jittered(self.config.cool_down));
        if found.is_ok() {
            tracing::info!(shard = self.name(shard), "a shard of the store is back");
        }
    }

    async fn run_errands(&self) {
        loop {
            let now = self.clock.now();
            let is_there = |key: &Key<'_>| self.breakers.of(self.inner.place(key).shard).is_closed();
            let mut errands = self.errands.take(ERRANDS_A_BEAT);
            errands.retain(|errand| !self.is_over(errand, now));
            // What waits for a shard that is away holds nothing else up.
            let (mut errands, wait): (Vec<_>, Vec<_>) = errands.into_iter().partition(|errand| {
                errand.may_be_told(now) && errand.key().is_none_or(|key| is_there(&key)) && !self.comes_later(errand)
            });
            for errand in wait {
                self.errands.push(errand);
            }
            let most = ERRANDS_A_BEAT - errands.len();
            errands.extend(self.local.tell(most, self.replicas.load(Ordering::Relaxed), now, is_there));
            together(errands.into_iter().map(|errand| self.run(errand))).await;
            tokio::time::sleep(BEAT).await;
        }
    }

    /// Whether nothing is told of it any more. That facts are lost counts.
    fn is_over(&self, errand: &Errand, now: Timestamp) -> bool {
        let is_over = errand.is_over(now);
        if is_over && errand.is_repeatable() {
            self.errands.forget_errand(errand);
            self.errands.drop_one();
        }
        is_over
    }

    /// Whether the store must be told first what was taken here: else it would have nothing to give back.
    fn comes_later(&self, errand: &Errand) -> bool {
        errand.is_repeatable() && self.local.owes(&errand.claim())
    }

    /// Runs an errand. But for facts, which are settled once, it is not run twice: one whose outcome is not known is over.
    async fn run(&self, errand: Errand) {
        if errand.is_repeatable() {
            return self.tell_again(&errand).await;
        }
        let Some(place) = errand.key().map(|key| self.inner.place(&key)) else { return };
        let deadline = self.config.deadline;
        if self.ask(place, &errand.claim(), errand.record(), deadline, &mut Settlement::default()).await.is_err() {
            self.errands.drop_one();
        }
    }
}
