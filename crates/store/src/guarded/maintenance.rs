//! Background tasks of a guarded store: heartbeats, probes of failed shards, and sending the outbox.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tollgate_core::{Key, RegionId, Settlement, Span, Timestamp};

use super::Guarded;
use super::breaker::{Breaker, jittered};
use super::deferred::DeferredClaim;
use super::status::{Circuit, GuardStatus, Level, ShardStatus};
use crate::clock::Clock;
use crate::histogram::DurationHistogram;
use crate::join::join_all;
use crate::sharded::{HEARTBEAT, ShardId, Sharded};

/// The interval at which shards are probed and the outbox is sent.
const INTERVAL: Duration = Duration::from_millis(50);
/// The maximum number of claims sent to a region in an interval, and of debits to all of them: 1,000 a second.
const MAX_SENDS: usize = 50;
/// The number of heartbeats whose maximum is the replica count. A store that lost its data hears of one server before
/// the others; with that count, the server would take more than its share of every limit.
const HEARTBEAT_HISTORY: usize = 4;
/// How many deadlines the probe of a shard in another region may take. Nothing waits for it.
const CALLS_OF_A_PROBE: u32 = 20;
/// How long the level stays `Open` after a request passed uncounted.
const OPEN_TIME: Span = Span::from_secs(10);

impl<S: Sharded, C: Clock> Guarded<S, C> {
    /// Sends heartbeats, probes failed shards, and sends them what was counted without them. Never returns: the owner
    /// of the store runs it concurrently with the claims.
    pub async fn run(&self) {
        let (here, elsewhere) = (self.probe_shards(self.breakers.here()), self.probe_shards(self.breakers.elsewhere()));
        let debits = self.probe_shards(self.debit_breakers.elsewhere());
        // Each by itself: a region that answers late holds up no other.
        let outboxes = (0..=u8::MAX).take(self.inner.regions()).map(|number| self.drain_outbox(RegionId::new(number)));
        let outboxes = join_all(outboxes);
        tokio::join!(self.send_heartbeats(), here, elsewhere, debits, outboxes, self.send_debits());
    }

    /// The state of the shards, and the number of claims that passed without them.
    pub fn status(&self) -> GuardStatus {
        let shard = |info: crate::sharded::ShardInfo| {
            let breaker = self.breakers.for_shard(info.id);
            let (errors, last_error) = breaker.errors();
            let (circuit, region) = (breaker.circuit(), info.id.region());
            ShardStatus { name: info.name, region, circuit, errors, last_error, warning: info.warning }
        };
        let shards: Vec<ShardStatus> = self.inner.shards().into_iter().map(shard).collect();
        let (local, owed) = self.local.counts();
        GuardStatus {
            level: self.level(&shards),
            shards,
            replicas: self.replicas(),
            heartbeat_error: self
                .heartbeat_error
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .as_ref()
                .map(ToString::to_string),
            fail_open: self.fail_open.by_reason(),
            local,
            owed,
            coarse: self.local.coarse_settled(),
            waiting: self.outbox.len(),
            dropped: self.outbox.dropped(),
            calls_elsewhere: self.calls_elsewhere.iter().map(DurationHistogram::snapshot).collect(),
        }
    }

    /// How much of the store of this region is available. Without another region, only the limits that it owns follow
    /// their policies.
    fn level(&self, shards: &[ShardStatus]) -> Level {
        let here = || shards.iter().filter(|shard| shard.region.is_here());
        let unavailable = here().filter(|shard| shard.circuit != Circuit::Closed).count();
        let uncounted_at = Timestamp::from_micros(self.uncounted_at.load(Ordering::Relaxed));
        let is_open = uncounted_at > Timestamp::default() && self.clock.now().since(uncounted_at) < OPEN_TIME;
        match unavailable {
            // A store that has no shards yet has breakers for the locations that it was called with.
            0 if here().next().is_none() && self.breakers.here().any(|breaker| !breaker.is_closed()) => {
                Level::LocalOnly
            }
            0 => Level::Normal,
            _ if unavailable < here().count() => Level::Degraded,
            _ if is_open => Level::Open,
            _ => Level::LocalOnly,
        }
    }

    async fn send_heartbeats(&self) {
        // After a restart the count from before it stays for as long as one that was heard.
        let mut history = [self.counted_replicas.load(Ordering::Relaxed); HEARTBEAT_HISTORY];
        for turn in (0..HEARTBEAT_HISTORY).cycle() {
            let beat = self.inner.heartbeat(HEARTBEAT).await;
            // The last known count stays valid until there is a new one.
            if let Ok(replicas) = &beat {
                history[turn] = *replicas;
                self.counted_replicas.store(history.into_iter().fold(1, u64::max), Ordering::Relaxed);
                self.heartbeats.fetch_add(1, Ordering::Relaxed);
            }
            *self.heartbeat_error.lock().unwrap_or_else(PoisonError::into_inner) = beat.err();
            tokio::time::sleep(HEARTBEAT).await;
        }
    }

    async fn probe_shards<'b>(&'b self, breakers: impl Iterator<Item = &'b Breaker> + Clone) {
        loop {
            let now = self.clock.now();
            let due = breakers.clone().filter_map(|breaker| Some((breaker, breaker.due(now)?)));
            join_all(due.map(|(breaker, shard)| self.probe_one(breaker, shard))).await;
            tokio::time::sleep(INTERVAL).await;
        }
    }

    async fn probe_one(&self, breaker: &Breaker, shard: ShardId) {
        // Far away a call takes most of the deadline, and a probe connects first.
        let calls = if shard.region().is_here() { 1 } else { CALLS_OF_A_PROBE };
        let result = self.inner.probe(shard, self.deadline(shard) * calls).await;
        breaker.record_probe(shard, &result, self.clock.now(), jittered(self.config.cool_down));
        if result.is_ok() {
            tracing::info!(shard = self.name(shard), "a store shard is available again");
        }
    }

    /// Sends what waits for a region.
    async fn drain_outbox(&self, region: RegionId) {
        loop {
            let now = self.clock.now();
            let mut claims = self.outbox.take(region, MAX_SENDS);
            claims.retain(|claim| !self.is_expired(claim, now));
            // Claims for an unavailable shard do not block the others.
            let (claims, wait): (Vec<_>, Vec<_>) = claims.into_iter().partition(|claim| {
                claim.may_send(now) && claim.key().is_none_or(|key| self.is_available(&key)) && !self.must_wait(claim)
            });
            for claim in wait {
                self.outbox.push(claim);
            }
            join_all(claims.into_iter().map(|claim| self.send_deferred(claim))).await;
            tokio::time::sleep(INTERVAL).await;
        }
    }

    /// Sends debits of units that were counted here.
    async fn send_debits(&self) {
        loop {
            let debits =
                self.local.take_debits(MAX_SENDS, self.replicas(), self.clock.now(), |key| self.is_available(key));
            join_all(debits.into_iter().map(|debit| self.send_deferred(debit))).await;
            tokio::time::sleep(INTERVAL).await;
        }
    }

    fn is_available(&self, key: &Key<'_>) -> bool {
        self.breakers.for_shard(self.inner.locate(key).shard).is_closed()
    }

    /// Whether a claim has expired. Expired settlements are counted as dropped.
    fn is_expired(&self, claim: &DeferredClaim, now: Timestamp) -> bool {
        let is_expired = claim.is_expired(now);
        if is_expired && claim.is_repeatable() {
            self.outbox.remove_claim(claim);
            self.outbox.count_dropped();
        }
        is_expired
    }

    /// Whether the store must first receive the units that were taken here: otherwise a return would have no effect.
    fn must_wait(&self, claim: &DeferredClaim) -> bool {
        claim.is_repeatable() && self.local.owes(&claim.claim())
    }

    /// Sends a claim from the outbox, or a debit of units that were counted here. Except for settlements and releases,
    /// which are idempotent, it is settled at most once: if the outcome is unknown, it is dropped. If it was certainly not
    /// settled, it waits again.
    async fn send_deferred(&self, claim: DeferredClaim) {
        if claim.is_repeatable() {
            return self.redeliver(&claim).await;
        }
        let Some(location) = claim.key().map(|key| self.inner.locate(&key)) else { return };
        let deadline = self.deadline(location.shard);
        let sent = self.call(location, &claim.claim(), claim.record(), deadline, &mut Settlement::default()).await;
        match sent {
            Ok(()) => {
                if let Some(claim) = claim.once_more(self.clock.now()) {
                    self.outbox.push(claim);
                }
            }
            Err(failure) if failure.is_unsettled() || claim.is_release() => self.wait_again(claim),
            Err(_) => self.drop_unknown(claim),
        }
    }

    /// Drops a claim whose outcome is unknown, except for the release of holds.
    pub(super) fn drop_unknown(&self, claim: DeferredClaim) {
        match claim.into_release() {
            Some(release) => {
                self.outbox.push(release);
            }
            None => self.outbox.count_dropped(),
        }
    }

    /// Stores a claim that was not settled until it can be sent again: a debit as a debt of its counter.
    fn wait_again(&self, mut claim: DeferredClaim) {
        claim.retry_later(self.clock.now());
        if !self.local.owe_again(&claim) {
            self.outbox.push(claim);
        }
    }
}
