//! Samples the counters and the store once a second. Pages and streams show the last sample, so that no number of readers
//! contends with decisions.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::MissedTickBehavior;
use tollgate::Timestamp;
use tollgate_events::{EventSeverity, EventType};
use tollgate_observe::{History, Observer};
use tollgate_store::guarded::{Circuit, Level};

use super::events::{EventKind, ServerEvents};
use super::region_durations::{RegionDurations, RegionSamples};
use crate::observe::Observability;
use crate::rule_source::ReloadStatus;
use crate::store_of_record::ControlPlane;
use tollgate_net::Closing;
use tollgate_store::{Counters, SharedStatus};

/// The result of the last sample.
#[derive(Debug)]
pub struct Sampler {
    history: Mutex<History>,
    /// How long debits and calls of other regions took.
    regions: Mutex<RegionSamples>,
    store: Mutex<Arc<StoreHealth>>,
    /// The reload that was last seen.
    reload: Mutex<Option<ReloadStatus>>,
    /// What happened to this server.
    pub events: ServerEvents,
    /// The number of samples so far.
    samples: watch::Sender<u64>,
}

/// The state of the store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoreHealth {
    pub level: Level,
    /// When it was first other than normal; `None` if it is normal.
    pub since: Option<Timestamp>,
    pub circuits: Vec<(String, Circuit)>,
    /// Counters in this server's memory.
    pub keys: u64,
    /// Live counters that were evicted.
    pub evicted: u64,
}

/// The sampling interval.
const INTERVAL: Duration = Duration::from_secs(1);
/// The sample of recent requests follows the traffic once in so many samples.
const TRAFFIC_ADJUSTED_EVERY: u64 = 10;
/// Hot keys are looked at once in so many samples.
const HOT_KEYS_EVERY: u64 = 10;
/// The shard name of the memory store.
const MEMORY_SHARD: &str = "memory";

impl Sampler {
    pub fn new(server: &str, begin: Timestamp) -> Sampler {
        Sampler {
            history: Mutex::new(History::new(begin)),
            regions: Mutex::default(),
            store: Mutex::new(Arc::new(StoreHealth { circuits: memory_circuits(), ..StoreHealth::default() })),
            reload: Mutex::default(),
            events: ServerEvents::new(server),
            samples: watch::Sender::new(0),
        }
    }

    /// Takes a sample.
    pub fn sample(&self, observer: &Observer, control: &ControlPlane) {
        let (limiter, now) = (control.limiter(), control.now());
        // Rules without traffic get rows too.
        observer.tally().prepare(&limiter.rules());
        self.history().sample(observer, now);
        let before = self.store();
        let status = limiter.store().shared().map(|store| store.status());
        if let Some(status) = &status {
            self.regions().add(status);
        }
        let health = StoreHealth::from_counters(limiter.store(), status, &before, now);
        if health.level != before.level {
            self.emit_level(&before, &health, now);
        }
        self.observe_reload(control.rules().reloads().borrow().clone(), now);
        *self.store.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(health);
        if self.samples.borrow().is_multiple_of(TRAFFIC_ADJUSTED_EVERY) {
            observer.traffic().adjust(now);
        }
        self.samples.send_modify(|samples| *samples += 1);
    }

    /// Adds an event if rules were reloaded since the last sample, or could not be.
    fn observe_reload(&self, status: ReloadStatus, now: Timestamp) {
        let mut last = self.reload.lock().unwrap_or_else(PoisonError::into_inner);
        let before = last.replace(status.clone());
        // The rules that a server starts with are not reloaded.
        let (failed, reloaded) = match &before {
            None => (status.error.is_some(), false),
            Some(before) => (status.error != before.error, status.generation != before.generation),
        };
        if reloaded {
            let (text, at) = (format!("rules of generation {} are in force", status.generation), status.at);
            let stream = self.events.stream();
            let mut event = stream.event(at.unwrap_or(now), EventType::RulesReloaded, EventSeverity::Info, text);
            event.data.insert("generation".to_owned(), status.generation.into());
            self.events.emit(EventKind::Reload, event);
        }
        if let Some(error) = status.error.filter(|_| failed) {
            let stream = self.events.stream();
            let event = stream.event(now, EventType::RulesRejected, EventSeverity::Warning, error);
            self.events.emit(EventKind::ReloadFailed, event);
        }
    }

    fn emit_level(&self, before: &StoreHealth, health: &StoreHealth, now: Timestamp) {
        let text = format!("the counter store is {}", health.level.name());
        let severity = if health.level == Level::Normal { EventSeverity::Info } else { EventSeverity::Critical };
        let mut event = self.events.stream().event(now, EventType::StoreLevel, severity, text);
        let levels = [("level", health.level), ("before", before.level)];
        event.data.extend(levels.map(|(name, level)| (name.to_owned(), level.name().into())));
        self.events.emit(EventKind::Store, event);
    }

    /// The decision history. No decision waits for this lock.
    pub fn history(&self) -> MutexGuard<'_, History> {
        self.history.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn regions(&self) -> MutexGuard<'_, RegionSamples> {
        self.regions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How long debits and calls of each other region took in the last minute.
    pub fn region_durations(&self) -> Vec<RegionDurations> {
        self.regions().last_minute()
    }

    pub fn store(&self) -> Arc<StoreHealth> {
        self.store.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Notifies of each sample.
    pub fn samples(&self) -> watch::Receiver<u64> {
        self.samples.subscribe()
    }
}

impl StoreHealth {
    fn from_counters(
        counters: &Counters,
        status: Option<SharedStatus>,
        before: &StoreHealth,
        now: Timestamp,
    ) -> StoreHealth {
        let Some(SharedStatus { guard, .. }) = status else {
            let stats = counters.memory().map(|store| store.stats()).unwrap_or_default();
            return StoreHealth {
                circuits: memory_circuits(),
                keys: stats.keys as u64,
                evicted: stats.evicted,
                ..StoreHealth::default()
            };
        };
        // A store that has not been heard of is not normal, even without requests.
        let level = if guard.heartbeat_error.is_some() { guard.level.max(Level::Degraded) } else { guard.level };
        // Nodes of other regions are not a part of this region's store.
        let own = guard.shards.into_iter().filter(|shard| shard.region.is_here());
        StoreHealth {
            level,
            since: (level != Level::Normal).then(|| before.since.unwrap_or(now)),
            circuits: own.map(|shard| (shard.name, shard.circuit)).collect(),
            keys: guard.local as u64,
            evicted: 0,
        }
    }
}

fn memory_circuits() -> Vec<(String, Circuit)> {
    vec![(MEMORY_SHARD.to_owned(), Circuit::Closed)]
}

/// Samples until the server is about to stop.
pub async fn run(observability: Arc<Observability>, control: Arc<ControlPlane>, mut closing: Closing) {
    let mut samples = tokio::time::interval(INTERVAL);
    samples.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = samples.tick() => {}
            () = closing.begun() => return,
        }
        let (observability, control) = (observability.clone(), control.clone());
        // There may be ten thousand rows: not on an async thread.
        let sampled = tokio::task::spawn_blocking(move || {
            observability.sampler.sample(&observability.observer, &control);
            observability.evaluate_signals(&control.limiter().rules(), control.now());
            if observability.sampler.samples.borrow().is_multiple_of(HOT_KEYS_EVERY) {
                observability.evaluate_hot_keys(control.limiter().store(), control.now());
            }
        })
        .await;
        if let Err(error) = sampled {
            tracing::warn!(%error, "the counters could not be sampled");
        }
    }
}
