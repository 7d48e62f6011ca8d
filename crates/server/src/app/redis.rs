//! Opens the counters in Redis.

use std::path::Path;
use std::sync::Arc;

use tollgate::{KeyPrivacy, Span};
use tollgate_redis::{Address, ClientCert, Password, RedisConfig, RedisCounters, RedisRegion};
use tollgate_store::{DebitConfig, GuardConfig, LeaseConfig, SavedGuard};

use super::store::read;
use crate::config::{LeaseSettings, OtherRegion, PasswordSource, RedisAccess, RedisSettings, RegionSettings};

/// # Errors
/// If the settings can't be used. A Redis that is unavailable is not an error.
pub(super) fn open(
    settings: &RedisSettings,
    regions: Option<&RegionSettings>,
    privacy: &Arc<KeyPrivacy>,
    saved: Option<&SavedGuard>,
) -> Result<RedisCounters, String> {
    let config =
        RedisConfig { key_privacy: privacy.clone(), ..config(settings, &settings.address, &settings.access, "store")? };
    let debits = regions.map_or_else(DebitConfig::default, |regions| DebitConfig { beat: regions.beat });
    let others: Result<Vec<_>, String> = regions.map_or(Ok(Vec::new()), |regions| {
        let other = |other: &OtherRegion| {
            let config = RedisConfig {
                key_privacy: Arc::new(privacy.for_another_store()),
                ..self::config(settings, &other.address, &regions.access, "region")?
            };
            Ok(RedisRegion { name: other.name.clone(), config, deadline: regions.deadline })
        };
        regions.others.iter().map(other).collect()
    });
    let counters = RedisCounters::in_regions(config, others?, guard(settings), leases(settings), debits, saved);
    counters.map_err(|error| format!("the settings of Redis are invalid: {error}"))
}

/// The settings of a Redis at this address. Those of its access begin with `prefix`.
fn config(
    settings: &RedisSettings,
    address: &Address,
    access: &RedisAccess,
    prefix: &str,
) -> Result<RedisConfig, String> {
    let named = |part: &str| format!("{prefix}_{part}");
    let password = match &access.password {
        None => None,
        Some(PasswordSource::Text(password)) => Some(password.clone()),
        Some(PasswordSource::File(path)) => Some(password_from_file(&named("password_file"), path)?),
    };
    let client_cert = match &access.certificate {
        None => None,
        Some(one) => {
            let (certificate, key) = (read(&named("cert"), &one.cert)?, read(&named("key"), &one.key)?);
            Some(ClientCert { certificate, key })
        }
    };
    Ok(RedisConfig {
        user: access.user.clone(),
        password,
        ca: access.ca.as_deref().map(|path| read(&named("ca"), path)).transpose()?,
        client_cert,
        prefix: settings.prefix.clone(),
        pool: settings.pool,
        ..RedisConfig::new(address.clone())
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
fn password_from_file(setting: &str, path: &Path) -> Result<Password, String> {
    let bytes = read(setting, path)?;
    let unusable = |why: &str| format!("{setting}: {} {why}; write the password to it", path.display());
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

    const SETTING: &str = "store_password_file";

    #[test]
    fn a_password_is_read_without_the_end_of_its_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("password");
        for text in ["s3cret", "s3cret\n", "s3cret\r\n"] {
            fs::write(&path, text).unwrap();
            assert!(password_from_file(SETTING, &path).unwrap() == Password::from("s3cret"), "{text:?}");
        }
        for (bytes, why) in [(&b"\n"[..], "is empty"), (b"", "is empty"), (b"\xff", "is not UTF-8")] {
            fs::write(&path, bytes).unwrap();
            let error = password_from_file(SETTING, &path).unwrap_err();
            assert!(error.contains(why) && error.ends_with("; write the password to it"), "{error}");
        }
        let error = password_from_file(SETTING, &folder.path().join("none")).unwrap_err();
        assert!(error.starts_with("store_password_file: ") && error.contains("can't be read"), "{error}");
    }
}
