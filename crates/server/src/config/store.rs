//! The settings of the store, and their contradictions.

use std::path::PathBuf;

use tollgate_redis_address::{Address, Password};
use tollgate_rules::problem::{TextFault, quoted};

use super::read::{SettingsReader, mismatch};
use super::settings::{ClientCertificate, LeaseSettings, PasswordSource, RedisAccess, RedisSettings, StoreSettings};
use super::table::{LEASES, SettingKind};
use super::text;

impl SettingsReader<'_> {
    pub(super) fn store(&mut self) -> Option<StoreSettings> {
        let address = self.read("store", |text, _| match text {
            "memory" => Ok(None),
            text => parse_address(text).map(Some),
        });
        let access = self.access();
        let prefix = self.read("store_prefix", |text, _| text::prefix(text));
        let pool = self.count("store_pool");
        let (deadline, cool_down) = (self.time("store_deadline"), self.time("store_cool_down"));
        let last_resort = self.or("last_resort", "off", |text, kind| match kind {
            SettingKind::Rate { max } => text::rate(text, max),
            _ => Err(mismatch()),
        });
        let replicas = self.count("replicas");
        let local_keys = self.count("local_keys");
        let is_leasing = self.word("leases", LEASES, &[true, false]);
        let (lease_time, lease_keys) = (self.time("lease_time"), self.count("lease_keys"));
        let (address, access) = (address?, access?);
        if !self.is_consistent(address.as_ref(), &access) {
            return None;
        }
        let Some(address) = address else { return Some(StoreSettings::Memory) };
        Some(StoreSettings::Redis(Box::new(RedisSettings {
            address,
            access,
            prefix: prefix?,
            pool: pool?,
            deadline: deadline?,
            cool_down: cool_down?,
            last_resort: last_resort?,
            replicas: replicas?,
            local_keys: local_keys?,
            leases: LeaseSettings { is_enabled: is_leasing?, time: lease_time?, keys: lease_keys? },
        })))
    }

    fn access(&mut self) -> Option<RedisAccess> {
        let path = |reader: &mut Self, name| reader.or(name, "none", |text, _| Ok(PathBuf::from(text)));
        let user = self.or("store_user", "none", |text, _| Ok(text.to_owned()));
        let password = self.or("store_password", "none", |text, _| Ok(Password::from(text)));
        let file = path(self, "store_password_file");
        let (ca, cert, key) = (path(self, "store_ca"), path(self, "store_cert"), path(self, "store_key"));
        let (user, password, file, ca, cert, key) = (user?, password?, file?, ca?, cert?, key?);
        let password = match (password, file) {
            (Some(_), Some(_)) => {
                self.report_contradiction(
                    "store_password_file",
                    "`store_password` has a password too",
                    "keep one of the two",
                );
                return None;
            }
            (password, file) => password.map(PasswordSource::Text).or(file.map(PasswordSource::File)),
        };
        let certificate = match (cert, key) {
            (Some(cert), Some(key)) => Some(ClientCertificate { cert, key }),
            (Some(_), None) => return self.report_missing("store_cert", "store_key"),
            (None, Some(_)) => return self.report_missing("store_key", "store_cert"),
            (None, None) => None,
        };
        Some(RedisAccess { user, password, ca, certificate })
    }

    /// Whether the settings of authentication and TLS are consistent with the address.
    fn is_consistent(&mut self, address: Option<&Address>, access: &RedisAccess) -> bool {
        let (login, secret, user) = (self.password_setting(), access.password.is_some(), access.user.is_some());
        let (ca, certificate) = (access.ca.is_some(), access.certificate.is_some());
        let Some(address) = address else {
            let set = [("store_user", user), (login, secret), ("store_ca", ca), ("store_cert", certificate)];
            let set: Vec<_> = set.into_iter().filter_map(|(name, is_set)| is_set.then_some(name)).collect();
            for name in &set {
                let remedy = format!("set `store` to a URL such as redis://127.0.0.1:6379, or remove `{name}`");
                self.report_contradiction(name, "counters are in memory (`store`), not in Redis", remedy);
            }
            return set.is_empty();
        };
        const ONE: &str = "keep one of the two";
        const NO_TLS: &str = "the connection to Redis has no TLS";
        const TLS: &str = "write rediss:// in `store`, or remove it";
        let no_password = "set `store_password` or `store_password_file` too";
        let rows = [
            (secret && address.has_password(), login, "the URL in `store` has a password too", ONE),
            (user && address.has_user(), "store_user", "the URL in `store` has a user too", ONE),
            (user && !secret && !address.has_password(), "store_user", "there is no password for it", no_password),
            (ca && !address.is_tls(), "store_ca", NO_TLS, TLS),
            (certificate && !address.is_tls(), "store_cert", NO_TLS, TLS),
        ];
        let contradictions: Vec<_> = rows.into_iter().filter(|(is_wrong, ..)| *is_wrong).collect();
        for (_, name, why, remedy) in &contradictions {
            self.report_contradiction(name, why, *remedy);
        }
        contradictions.is_empty()
    }

    /// The setting that has the password.
    fn password_setting(&self) -> &'static str {
        let is_none = |name| {
            self.values.get(name).is_none_or(|value| value.text.as_deref().is_ok_and(|text| text.trim() == "none"))
        };
        if is_none("store_password") { "store_password_file" } else { "store_password" }
    }

    fn report_contradiction(&mut self, name: &str, why: &str, remedy: impl Into<String>) {
        self.reject(name, TextFault::new(format!("`{name}`: {why}"), remedy));
    }

    fn report_missing<T>(&mut self, name: &str, missing: &str) -> Option<T> {
        let message = format!("`{name}` needs `{missing}`, which is not set");
        self.reject(name, TextFault::new(message, format!("set `{missing}` too, or remove `{name}`")));
        None
    }
}

fn parse_address(text: &str) -> Result<Address, TextFault> {
    // The error has a remedy, and nothing of a possible password.
    text.parse().map_err(|error: tollgate_redis_address::AddressError| {
        let is_host_and_port = text.split_once(':').is_some_and(|(host, port)| {
            !host.is_empty()
                && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte))
                && port.parse::<u16>().is_ok()
        });
        if is_host_and_port {
            return TextFault::new(format!("{} has no scheme", quoted(text)), format!("write redis://{text}"));
        }
        TextFault::new(error.to_string(), "write memory, or a URL as in docs/redis.md")
    })
}
