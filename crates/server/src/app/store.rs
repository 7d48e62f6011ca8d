//! Builds the store of the counters from the settings.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;

use tollgate::{Limiter, MemoryConfig};
use tollgate_redis::{ClientCert, Password, RedisConfig, RedisCounters};
use tollgate_store::Counters;
use tollgate_store::guarded::GuardConfig;

use super::component::{Foundation, Tasks};
use crate::config::{DataSettings, PasswordSource, RedisSettings, StoreSettings};
use crate::snapshots::{SnapshotReporter, Snapshots};
use crate::store_health;

/// The longest file, in bytes.
const MAX_FILE_BYTES: u64 = 4 * 1024 * 1024;

/// The store of the counters.
pub(super) struct CounterStore {
    pub(super) counters: Counters,
    /// Snapshots of counters in memory, if there is a data directory.
    pub(super) snapshots: Option<Snapshots>,
    /// Counters in Redis.
    pub(super) redis: Option<Arc<RedisCounters>>,
}

impl CounterStore {
    /// # Errors
    /// If the settings can't be used. A Redis that is unavailable is not an error.
    pub(super) fn build(foundation: &Foundation<'_>, tasks: &mut Tasks) -> Result<CounterStore, String> {
        let Foundation { settings, health, data, .. } = foundation;
        match &settings.store {
            StoreSettings::Memory => {
                let snapshots = data.as_ref().map(|data| Snapshots::in_directory(data.path()));
                let memory = MemoryConfig {
                    max_keys: settings.max_keys,
                    max_once: settings.idempotency.max,
                    ..MemoryConfig::default()
                };
                let store = match &snapshots {
                    Some(snapshots) => snapshots.load(memory, health),
                    None => memory.build(),
                };
                Ok(CounterStore { counters: store.into(), snapshots, redis: None })
            }
            StoreSettings::Redis(redis) => {
                if let DataSettings::Directory { is_explicit: true, .. } = settings.data {
                    tracing::info!("counters are in Redis: the data directory stores only the last good rules");
                }
                let redis = RedisCounters::new(config(redis)?, guard(redis));
                let redis = redis.map_err(|error| format!("the settings of Redis are invalid: {error}"))?;
                let redis = Arc::new(redis);
                let (watched, health) = (redis.clone(), health.clone());
                tasks.add(move |closing| store_health::watch(watched, health, closing));
                Ok(CounterStore { counters: Counters::Shared(redis.clone()), snapshots: None, redis: Some(redis) })
            }
        }
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

fn config(settings: &RedisSettings) -> Result<RedisConfig, String> {
    let access = &settings.access;
    let password = match &access.password {
        None => None,
        Some(PasswordSource::Text(password)) => Some(password.clone()),
        Some(PasswordSource::File(path)) => Some(password_from_file(path)?),
    };
    let client_cert = match &access.certificate {
        None => None,
        Some(one) => {
            Some(ClientCert { certificate: read("store_cert", &one.cert)?, key: read("store_key", &one.key)? })
        }
    };
    Ok(RedisConfig {
        user: access.user.clone(),
        password,
        ca: access.ca.as_deref().map(|path| read("store_ca", path)).transpose()?,
        client_cert,
        prefix: settings.prefix.clone(),
        pool: settings.pool,
        ..RedisConfig::new(settings.address.clone())
    })
}

fn guard(settings: &RedisSettings) -> GuardConfig {
    GuardConfig {
        deadline: settings.deadline,
        cool_down: settings.cool_down,
        last_resort: settings.last_resort,
        ..GuardConfig::default()
    }
}

/// The password in a file, without a newline at its end.
fn password_from_file(path: &Path) -> Result<Password, String> {
    let bytes = read("store_password_file", path)?;
    let unusable = |why: &str| format!("store_password_file: {} {why}; write the password to it", path.display());
    let text = String::from_utf8(bytes).map_err(|_| unusable("is not UTF-8"))?;
    match text.strip_suffix('\n').map_or(&*text, |line| line.strip_suffix('\r').unwrap_or(line)) {
        "" => Err(unusable("is empty")),
        password => Ok(Password::from(password)),
    }
}

pub(super) fn read(setting: &str, path: &Path) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(MAX_FILE_BYTES).read_to_end(&mut bytes));
    let why = |error| format!("{setting}: {} can't be read: {error}; name a readable file", path.display());
    read.map(|_| bytes).map_err(why)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_password_is_read_without_the_end_of_its_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("password");
        for text in ["s3cret", "s3cret\n", "s3cret\r\n"] {
            fs::write(&path, text).unwrap();
            assert!(password_from_file(&path).unwrap() == Password::from("s3cret"), "{text:?}");
        }
        for (bytes, why) in [(&b"\n"[..], "is empty"), (b"", "is empty"), (b"\xff", "is not UTF-8")] {
            fs::write(&path, bytes).unwrap();
            let error = password_from_file(&path).unwrap_err();
            assert!(error.contains(why) && error.ends_with("; write the password to it"), "{error}");
        }
        let error = password_from_file(&folder.path().join("none")).unwrap_err();
        assert!(error.starts_with("store_password_file: ") && error.contains("can't be read"), "{error}");
    }
}
