//! Builds the store of the counters from the settings.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;

use tollgate::{KeyPrivacy, Limiter, MemoryConfig};
use tollgate_store::{Counters, SavedGuard, SharedStore};

use super::component::{Foundation, Tasks};
use crate::config::{DataSettings, RedisSettings, RegionSettings, StoreSettings};
use crate::outage_state::OutageState;
use crate::snapshots::{SnapshotReporter, Snapshots};
use crate::{memory_health, store_health};

/// The longest file, in bytes.
const MAX_FILE_BYTES: u64 = 4 * 1024 * 1024;

/// The store of the counters.
pub(super) struct CounterStore {
    pub(super) counters: Counters,
    /// Snapshots of counters in memory, if there is a data directory.
    pub(super) snapshots: Option<Snapshots>,
    /// The state for an outage of a shared store, if there is a data directory.
    pub(super) outage: Option<OutageState>,
    /// The store, if it is shared with other servers.
    pub(super) shared: Option<Arc<dyn SharedStore>>,
}

impl CounterStore {
    /// # Errors
    /// If the settings can't be used. A Redis that is unavailable is not an error.
    pub(super) fn build(
        foundation: &Foundation<'_>,
        privacy: &Arc<KeyPrivacy>,
        tasks: &mut Tasks,
    ) -> Result<CounterStore, String> {
        let Foundation { settings, health, data, .. } = foundation;
        match &settings.store {
            StoreSettings::Memory => {
                let snapshots = data.as_ref().map(|data| Snapshots::in_directory(data.path()));
                let memory = MemoryConfig {
                    max_keys: settings.max_keys,
                    rule_share_bps: settings.max_keys_per_rule.bps,
                    max_once: settings.idempotency.max,
                    max_once_per_caller: settings.idempotency.max_per_caller,
                    ..MemoryConfig::default()
                };
                let store = match &snapshots {
                    Some(snapshots) => snapshots.load(memory, health),
                    None => memory.build(),
                };
                Ok(CounterStore { counters: store.into(), snapshots, outage: None, shared: None })
            }
            StoreSettings::Redis(redis) => {
                if let DataSettings::Directory { is_explicit: true, .. } = settings.data {
                    tracing::info!(
                        "counters are in Redis: the data directory stores the last good rules, and the state for an outage of Redis"
                    );
                }
                let outage = data.as_ref().map(|data| OutageState::in_directory(data.path()));
                let saved = outage.as_ref().and_then(OutageState::load);
                let shared = open_redis(redis, settings.regions.as_ref(), privacy, saved.as_ref())?;
                let (watched, watched_health) = (shared.clone(), health.clone());
                tasks.add(move |closing| store_health::watch(watched, watched_health, closing));
                if let Some(outage) = outage.clone() {
                    let (store, interval, health) = (shared.clone(), settings.snapshot_interval, health.clone());
                    tasks.add(move |closing| outage.save_periodically(store, interval, health, closing));
                }
                let counters = Counters::Shared(shared.clone());
                Ok(CounterStore { counters, snapshots: None, outage, shared: Some(shared) })
            }
        }
    }
}

#[cfg(feature = "redis")]
fn open_redis(
    settings: &RedisSettings,
    regions: Option<&RegionSettings>,
    privacy: &Arc<KeyPrivacy>,
    saved: Option<&SavedGuard>,
) -> Result<Arc<dyn SharedStore>, String> {
    Ok(Arc::new(super::redis::open(settings, regions, privacy, saved)?))
}

#[cfg(not(feature = "redis"))]
fn open_redis(
    _: &RedisSettings,
    _: Option<&RegionSettings>,
    _: &Arc<KeyPrivacy>,
    _: Option<&SavedGuard>,
) -> Result<Arc<dyn SharedStore>, String> {
    Err("store: this binary was built without Redis; write memory, or build it with the feature `redis`".to_owned())
}

/// Adds the task that reports a full memory, if counters are in memory.
pub(super) fn watch_memory(foundation: &Foundation<'_>, limiter: Arc<Limiter<Counters>>, tasks: &mut Tasks) {
    if limiter.store().memory().is_some() {
        let health = foundation.health.clone();
        tasks.add(move |closing| memory_health::watch(limiter, health, closing));
    }
}

/// Adds the task that saves counters in memory periodically.
pub(super) fn save_snapshots(
    foundation: &Foundation<'_>,
    snapshots: Snapshots,
    limiter: Arc<Limiter<Counters>>,
    tasks: &mut Tasks,
) {
    let reporter =
        SnapshotReporter { health: foundation.health.clone(), metrics: foundation.metrics.snapshots().clone() };
    let interval = foundation.settings.snapshot_interval;
    tasks.add(move |closing| snapshots.save_periodically(limiter, interval, reporter, closing));
}

pub(super) fn read(setting: &str, path: &Path) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(MAX_FILE_BYTES).read_to_end(&mut bytes));
    let why = |error| format!("{setting}: {} can't be read: {error}; name a readable file", path.display());
    read.map(|_| bytes).map_err(why)
}

#[cfg(all(test, not(feature = "redis")))]
mod tests {
    use super::*;
    use crate::config::RedisAccess;

    #[test]
    fn without_the_feature_redis_an_address_is_an_error_with_a_remedy() {
        let access = RedisAccess { user: None, password: None, ca: None, certificate: None };
        let settings = RedisSettings {
            address: "redis://127.0.0.1:6379".parse().unwrap(),
            access,
            prefix: "tg:".to_owned(),
            pool: 1,
            deadline: std::time::Duration::from_millis(8),
            cool_down: std::time::Duration::from_secs(1),
            last_resort: None,
            replicas: 1,
            local_keys: 1,
            leases: crate::config::LeaseSettings { is_enabled: true, time: std::time::Duration::from_secs(5), keys: 1 },
        };
        let error = open_redis(&settings, None, &Arc::default(), None).unwrap_err();
        assert!(error.contains("write memory") && error.contains("the feature `redis`"), "{error}");
    }
}
