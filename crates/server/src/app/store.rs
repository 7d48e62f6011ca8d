//! The store, as the settings ask for it.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;

use tollgate::MemoryConfig;
use tollgate_store::guarded::GuardConfig;
use tollgate_store::redis::{ClientCert, Password, RedisConfig, RedisStore};

use crate::config::{Data, PasswordFrom, RedisSettings, Settings, Store};
use crate::counters::Counters;
use crate::counters::redis::InRedis;
use crate::health::Health;
use crate::snapshots::Snapshots;

/// The longest file that is read here.
const MOST_BYTES: u64 = 4 * 1024 * 1024;

/// Where counters are kept.
pub(super) struct Kept {
    pub(super) counters: Counters,
    /// Of counters in memory, if they outlive the process.
    pub(super) snapshots: Option<Snapshots>,
    /// What must be tended, if they are elsewhere.
    pub(super) redis: Option<Arc<InRedis>>,
}

impl Kept {
    /// # Errors
    /// If what the settings name can't be used. A Redis that is away is no error.
    pub(super) fn build(settings: &Settings, folder: Option<&Path>, health: &Health) -> Result<Kept, String> {
        match &settings.store {
            Store::Memory => {
                let snapshots = folder.map(Snapshots::within);
                let memory = MemoryConfig {
                    max_keys: settings.max_keys,
                    max_once: settings.idempotency.max,
                    ..MemoryConfig::default()
                };
                let store = match &snapshots {
                    Some(snapshots) => snapshots.load(memory, health),
                    None => memory.build(),
                };
                Ok(Kept { counters: store.into(), snapshots, redis: None })
            }
            Store::Redis(redis) => {
                if let Data::Directory { asked_for: true, .. } = settings.data {
                    tracing::info!("counters are in Redis: the data directory keeps the last good rules alone");
                }
                let redis = InRedis::new(store(redis)?, guard(redis));
                Ok(Kept { counters: Counters::Shared(redis.clone()), snapshots: None, redis: Some(redis) })
            }
        }
    }
}

fn store(settings: &RedisSettings) -> Result<RedisStore, String> {
    let access = &settings.access;
    let password = match &access.password {
        None => None,
        Some(PasswordFrom::Text(password)) => Some(password.clone()),
        Some(PasswordFrom::File(path)) => Some(password(path)?),
    };
    let client_cert = match &access.certificate {
        None => None,
        Some(one) => {
            Some(ClientCert { certificate: read("store_cert", &one.cert)?, key: read("store_key", &one.key)? })
        }
    };
    let config = RedisConfig {
        user: access.user.clone(),
        password,
        ca: access.ca.as_deref().map(|path| read("store_ca", path)).transpose()?,
        client_cert,
        prefix: settings.prefix.clone(),
        pool: settings.pool,
        ..RedisConfig::new(settings.address.clone())
    };
    config.build().map_err(|error| format!("Redis can't be used as the settings say: {error}"))
}

fn guard(settings: &RedisSettings) -> GuardConfig {
    GuardConfig {
        deadline: settings.deadline,
        cool_down: settings.cool_down,
        last_resort: settings.last_resort,
        ..GuardConfig::default()
    }
}

/// The password that a file has. Most ways to write one end it with a new line.
fn password(path: &Path) -> Result<Password, String> {
    let bytes = read("store_password_file", path)?;
    let unusable = |why: &str| format!("store_password_file: {} {why}; write the password into it", path.display());
    let text = String::from_utf8(bytes).map_err(|_| unusable("is not UTF-8"))?;
    match text.strip_suffix('\n').map_or(&*text, |line| line.strip_suffix('\r').unwrap_or(line)) {
        "" => Err(unusable("is empty")),
        password => Ok(Password::from(password)),
    }
}

pub(super) fn read(setting: &str, path: &Path) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(MOST_BYTES).read_to_end(&mut bytes));
    let why = |error| format!("{setting}: {} can't be read: {error}; name a file that can be", path.display());
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
            assert!(password(&path).unwrap() == Password::from("s3cret"), "{text:?}");
        }
        for (bytes, why) in [(&b"\n"[..], "is empty"), (b"", "is empty"), (b"\xff", "is not UTF-8")] {
            fs::write(&path, bytes).unwrap();
            let told = password(&path).unwrap_err();
            assert!(told.contains(why) && told.ends_with("; write the password into it"), "{told}");
        }
        let told = password(&folder.path().join("none")).unwrap_err();
        assert!(told.starts_with("store_password_file: ") && told.contains("can't be read"), "{told}");
    }
}
