//! All that a server knows of debits, and their steps: from what was taken to the answer of the other region. No I/O, no
//! clock: time, and what is known of the other regions, are arguments.

use std::sync::atomic::{AtomicI64, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use smallvec::SmallVec;
use tollgate_core::key::HashSecret;
use tollgate_core::{
    Ask, Charge, Claim, Key, Limit, Once, Reading, RegionId, RegionLink, Replay, Settlement, Source, Span, Timestamp,
};

use super::courier::Routes;
use super::link::LinkLevel;
use super::message::{DebitMessage, Delivery};
use super::outbox::RegionOutbox;
use super::pace::Pace;
use super::status::{DebitStatus, UnitCounts};
use super::takes::{HandedOver, Take, Takes};
use super::waiting::Capacity;
use super::{DebitConfig, MAX_BATCH, MAX_DEBITS_PER_SECOND, SENDERS};
use crate::clock::Steady;
use crate::histogram::DurationHistogram;
use crate::leased::KeyAdjustment;
use crate::sharded::ShardId;

/// What was taken and is to be debited in other regions, and what is known of them.
#[derive(Debug)]
pub struct DebitTables {
    secret: HashSecret,
    takes: Box<[Mutex<Takes>]>,
    /// The counters that became due since the takes were last collected.
    due: AtomicUsize,
    regions: Box<[RegionTables]>,
    /// Held while what is due is on its way from the takes to the outboxes.
    handing_over: Mutex<()>,
    /// The worst [`LinkLevel`] of all regions. All that a claim reads of it.
    link: AtomicU8,
    /// The servers that count in this region, by the last beat.
    servers: AtomicU64,
    /// The store's clock less this server's steady one, in microseconds, by the last answer.
    store_time: AtomicI64,
}

/// What is sent to one other region, and what is known of it.
#[derive(Debug)]
struct RegionTables {
    id: RegionId,
    name: String,
    outbox: Mutex<RegionOutbox>,
    link: AtomicU8,
    lag: DurationHistogram,
}

/// The limits on which a claim is settled, where they are others than its own.
#[derive(Debug)]
pub struct LoweredLimits {
    limits: SmallVec<[Option<Limit>; 4]>,
    level: LinkLevel,
    /// The number of regions, this one included.
    regions: u16,
}

/// The maximum number of counters of which units wait for a region. Beyond it the oldest are dropped.
const MAX_KEYS: usize = 100_000;
/// The maximum number of bytes of their values, which may be long. Beyond it the oldest are dropped.
const MAX_BYTES: usize = 64 << 20;
/// The number of tables of takes, each with its own lock. A power of two.
const TABLES: usize = 16;
/// The counters that are compared with those that operators reset before others get the lock.
const COMPARED_AT_ONCE: usize = 256;
/// So many counters that are due are sent before the next beat.
const EARLY_KEYS: usize = 256;

impl DebitTables {
    /// Nothing was taken yet. The secret is that of the hash by which counters are found.
    pub fn new(config: DebitConfig, secret: HashSecret, others: Vec<(RegionId, String)>) -> DebitTables {
        let beats = u64::try_from(config.beat.as_millis()).unwrap_or(u64::MAX);
        let burst = (MAX_DEBITS_PER_SECOND.saturating_mul(beats) / 1_000).max(EARLY_KEYS as u64);
        let capacity = Capacity { keys: MAX_KEYS, bytes: MAX_BYTES };
        let part = Capacity { keys: MAX_KEYS / TABLES, bytes: MAX_BYTES / TABLES };
        let other = |(id, name)| RegionTables {
            id,
            name,
            outbox: Mutex::new(RegionOutbox::new(capacity, Pace::new(MAX_DEBITS_PER_SECOND, burst))),
            link: AtomicU8::new(0),
            lag: DurationHistogram::default(),
        };
        DebitTables {
            secret,
            takes: (0..TABLES).map(|_| Mutex::new(Takes::new(part))).collect(),
            due: AtomicUsize::new(0),
            regions: others.into_iter().map(other).collect(),
            handing_over: Mutex::default(),
            link: AtomicU8::new(0),
            servers: AtomicU64::new(1),
            store_time: AtomicI64::new(0),
        }
    }

    /// Whether something is to be done for a claim.
    #[inline]
    pub fn concerns(&self, claim: &Claim<'_>) -> bool {
        !self.regions.is_empty() && claim.charges.iter().any(Charge::is_global)
    }

    /// How the other regions are doing: the worst of them.
    #[inline]
    pub fn link(&self) -> RegionLink {
        self.link_level().link()
    }

    #[inline]
    fn link_level(&self) -> LinkLevel {
        LinkLevel::from_code(self.link.load(Ordering::Relaxed))
    }

    /// The limits on which a claim is settled: lower ones while other regions are late or apart.
    pub fn lowered(&self, claim: &Claim<'_>) -> LoweredLimits {
        let (level, regions) = (self.link_level(), self.all_regions());
        let limit = |charge: &Charge<'_>| {
            // What gives back or records units follows the limit by which they were taken.
            let terms = charge.key.scope().global().filter(|_| charge.is_global() && charge.ask.is_request())?;
            level.limit(charge.limit, terms, regions)
        };
        LoweredLimits { limits: claim.charges.iter().map(limit).collect(), level, regions }
    }

    /// Says in an answer how the other regions are doing, and to what limits are lowered for that.
    pub fn note_link(&self, settlement: &mut Settlement) {
        self.link_level().note(settlement, self.all_regions());
    }

    /// The number of regions, this one included.
    fn all_regions(&self) -> u16 {
        u16::try_from(self.regions.len() + 1).unwrap_or(u16::MAX)
    }

    /// Records what the charges of a claim took, for the other regions. `settled` is the claim as it was settled, perhaps
    /// on lowered limits. Returns whether so many counters are due that the next [`beat`](Self::beat) should come at once.
    pub fn record(
        &self,
        claim: &Claim<'_>,
        settled: &Claim<'_>,
        settlement: &Settlement,
        now: impl Fn() -> Steady,
    ) -> bool {
        // A replay took nothing.
        if settlement.replay != Replay::First {
            return false;
        }
        let mut is_urgent = false;
        let settled = settled.charges.iter().zip(&settlement.readings);
        for (charge, (settled, reading)) in claim.charges.iter().zip(settled) {
            if charge.is_global() && reading.source == Source::Store {
                is_urgent |= self.record_charge(charge, settled.limit, reading, settlement.at, now());
            }
        }
        is_urgent
    }

    fn record_charge(&self, charge: &Charge<'_>, limit: &Limit, reading: &Reading, at: Timestamp, now: Steady) -> bool {
        let hash = charge.key.local_hash(self.secret, charge.key.partition(self.secret));
        let takes = &self.takes[hash as usize % TABLES];
        match charge.ask {
            Ask::Exactly | Ask::UpTo | Ask::Regardless if reading.taken > 0 => {
                self.store_time.store((at.as_micros() as i64).wrapping_sub(now.as_micros() as i64), Ordering::Relaxed);
                let used = limit.quota().saturating_sub(reading.remaining);
                let is_due =
                    charge.key.scope().global().is_some_and(|terms| terms.reaches_threshold(used, limit.quota()));
                let servers = self.servers.load(Ordering::Relaxed);
                let take = Take { hash, units: reading.taken, is_due, servers, at, now };
                let is_newly_due = lock(takes).add(take, charge);
                return is_newly_due && self.due.fetch_add(1, Ordering::Relaxed) + 1 == EARLY_KEYS;
            }
            Ask::Return { taken_at } if reading.taken > 0 => {
                lock(takes).give_back(hash, charge, reading.taken, taken_at, at, now);
            }
            Ask::Reset => {
                lock(takes).forget(hash);
                // What was handed over meanwhile is in the outboxes.
                drop(lock(&self.handing_over));
                self.regions.iter().for_each(|region| lock(&region.outbox).forget(hash));
            }
            _ => {}
        }
        false
    }

    /// Hands what is due to the outboxes, and decides which limits are lowered.
    pub fn beat(&self, now: Steady, routes: &impl Routes) {
        if self.regions.is_empty() {
            return;
        }
        let at = self.store_time(now);
        self.due.store(0, Ordering::Relaxed);
        self.servers.store(routes.servers_here(), Ordering::Relaxed);
        let handing_over = lock(&self.handing_over);
        for takes in &self.takes {
            let HandedOver { due, returns } = lock(takes).hand_over(at);
            for entry in due {
                for region in &self.regions {
                    let shard = routes.shard(&entry.target.key().in_region(region.id));
                    lock(&region.outbox).add(entry.share(), shard, at);
                }
            }
            for returned in returns.into_items() {
                for region in &self.regions {
                    let shard = routes.shard(&returned.target.key().in_region(region.id));
                    lock(&region.outbox).give_back(returned.clone(), shard, at);
                }
            }
        }
        drop(handing_over);
        for region in &self.regions {
            let shard_of = |key: Key<'_>| routes.shard(&key.in_region(region.id));
            lock(&region.outbox).reroute(|shard| routes.is_reachable(shard), shard_of, at);
        }
        self.update_links(now, routes);
    }

    /// The senders that have something to do for each other region.
    pub(super) fn senders_needed(&self) -> impl Iterator<Item = usize> {
        self.regions.iter().map(|region| lock(&region.outbox).len().div_ceil(MAX_BATCH).min(SENDERS))
    }

    /// Decides which limits are lowered.
    pub(super) fn update_links(&self, now: Steady, routes: &impl Routes) {
        let mut worst = LinkLevel::Together;
        for region in &self.regions {
            let oldest = lock(&region.outbox).oldest().map_or(Span::ZERO, |since| now.since(since));
            let before = LinkLevel::from_code(region.link.load(Ordering::Relaxed));
            let state = before.next(oldest, routes.is_whole(region.id));
            region.link.store(state.code(), Ordering::Relaxed);
            worst = worst.max(state);
        }
        self.link.store(worst.code(), Ordering::Relaxed);
    }

    /// Messages to send to a region now. Each must be [ended](Self::end).
    pub fn take(&self, region: RegionId, now: Steady, routes: &impl Routes) -> Vec<DebitMessage> {
        let Some(region) = self.region(region) else { return Vec::new() };
        lock(&region.outbox).take(MAX_BATCH, self.store_time(now), now, |shard| routes.is_reachable(shard))
    }

    /// Ends a message to a region.
    pub fn end(&self, region: RegionId, message: DebitMessage, delivery: Delivery, now: Steady, routes: &impl Routes) {
        let Some(region) = self.region(region) else { return };
        // Another node may have taken over meanwhile.
        let shard = routes.shard(&message.key(region.id));
        let lag = lock(&region.outbox).end(message, delivery, shard, self.store_time(now), now);
        if let Some(lag) = lag {
            region.lag.record(lag);
        }
    }

    /// Ends a message whose sender is gone: it is unknown what became of it.
    pub(super) fn abandon(&self, region: RegionId, message: DebitMessage) {
        let Some(region) = self.region(region) else { return };
        let shard: ShardId = message.shard;
        lock(&region.outbox).end(message, Delivery::Unsure, shard, Timestamp::default(), Steady::default());
    }

    /// Drops what waits of counters that operators reset on other servers. Returns the number of counters. Many may wait:
    /// between steps, locks are free and other tasks of the thread run.
    pub async fn adjust(&self, adjustment_of: impl Fn(&Key<'_>) -> Option<KeyAdjustment>) -> usize {
        let is_reset = |key: &Key<'_>| adjustment_of(key) == Some(KeyAdjustment::Reset);
        let mut reset = std::collections::HashSet::new();
        for takes in &self.takes {
            let mut from = Some(Default::default());
            while let Some(place) = from {
                let (hashes, next) = lock(takes).forget_some(is_reset, place, COMPARED_AT_ONCE);
                reset.extend(hashes);
                from = next;
                tokio::task::yield_now().await;
            }
        }
        // What was handed over meanwhile is in the outboxes.
        drop(lock(&self.handing_over));
        for region in &self.regions {
            let mut from = Some((ShardId(0), Default::default()));
            while let Some(place) = from {
                let (hashes, next) = lock(&region.outbox).forget_some(is_reset, place, COMPARED_AT_ONCE);
                reset.extend(hashes);
                from = next;
                tokio::task::yield_now().await;
            }
        }
        reset.len()
    }

    /// Whether units wait, or are on their way.
    pub fn has_keys(&self) -> bool {
        self.takes.iter().any(|takes| lock(takes).len() > 0)
            || self.regions.iter().any(|region| lock(&region.outbox).has_keys())
    }

    /// The debits of each other region.
    pub fn status(&self, now: Steady) -> Vec<DebitStatus> {
        let (mut taken, mut keys, mut oldest) = (UnitCounts::default(), 0, None);
        for takes in &self.takes {
            let takes = lock(takes);
            taken += takes.counts();
            keys += takes.len();
            oldest = oldest.into_iter().chain(takes.oldest()).min();
        }
        let status = |region: &RegionTables| {
            let link = LinkLevel::from_code(region.link.load(Ordering::Relaxed));
            let outbox = lock(&region.outbox);
            let mut units = outbox.counts();
            units += taken;
            DebitStatus {
                region: region.name.clone(),
                link: link.link(),
                step: link.code(),
                oldest: oldest.into_iter().chain(outbox.oldest()).min().map_or(Span::ZERO, |since| now.since(since)),
                waiting: outbox.len() + keys,
                units,
                lag: region.lag.snapshot(),
            }
        };
        self.regions.iter().map(status).collect()
    }

    /// The other regions.
    pub fn regions(&self) -> impl Iterator<Item = RegionId> {
        self.regions.iter().map(|region| region.id)
    }

    fn region(&self, id: RegionId) -> Option<&RegionTables> {
        self.regions.iter().find(|region| region.id == id)
    }

    /// The store's time, by its last answer.
    fn store_time(&self, now: Steady) -> Timestamp {
        let offset = self.store_time.load(Ordering::Relaxed);
        Timestamp::from_micros(now.as_micros().saturating_add_signed(offset))
    }
}

impl LoweredLimits {
    /// The claim on these limits.
    pub fn claim<'l>(&'l self, claim: &'l Claim<'_>) -> Claim<'l> {
        // A claim can't be shortened to the lifetime of other limits, but its values can.
        let copy = |key: &'l Key<'_>| {
            let values = key.values().iter().copied().collect();
            Key::new(key.scope(), values).in_region(key.region())
        };
        let charges = claim.charges.iter().zip(&self.limits).map(|(charge, limit)| Charge {
            key: copy(&charge.key),
            limit: limit.as_ref().unwrap_or(charge.limit),
            ..*charge
        });
        let once = claim.once.as_ref().map(|once| Once { key: copy(&once.key), ..*once });
        Claim { id: claim.id, charges: charges.collect(), once, timeout: claim.timeout }
    }

    /// Says in an answer how the other regions were doing, and to what limits were lowered for that.
    pub fn note(&self, settlement: &mut Settlement) {
        self.level.note(settlement, self.regions);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
