//! Opens the counters in Redis.

use std::path::Path;
use std::sync::Arc;

use tollgate::{KeyPrivacy, Span};
use tollgate_redis::{ClientCert, Password, RedisConfig, RedisCounters};
use tollgate_store::{GuardConfig, LeaseConfig, SavedGuard};

use super::store::read;
use crate::config::{LeaseSettings, PasswordSource, RedisSettings};

/// # Errors
/// If the settings can't be used. A Redis that is unavailable is not an error.
pub(super) fn open(
    settings: &RedisSettings,
    privacy: &Arc<KeyPrivacy>,
    saved: Option<&SavedGuard>,
) -> Result<RedisCounters, String> {
    let config = RedisConfig { key_privacy: privacy.clone(), ..config(settings)? };
    let counters = RedisCounters::restored(config, guard(settings), leases(settings), saved);
    counters.map_err(|error| format!("the settings of Redis are invalid: {error}"))
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
        replicas: settings.replicas,
        local_keys: settings.local_keys,
    }
}

fn leases(settings: &RedisSettings) -> LeaseConfig {
    let LeaseSettings { is_enabled, time, keys } = settings.leases;
    let time = Span::from_micros(u64::try_from(time.as_micros()).unwrap_or(u64::MAX));
    LeaseConfig { is_enabled, time, keys }
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
