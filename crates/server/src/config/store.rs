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
        let access = self.access("store");
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

    /// The settings of authentication and TLS whose names begin with `prefix`.
    pub(super) fn access(&mut self, prefix: &str) -> Option<RedisAccess> {
        let name = |part: &str| format!("{prefix}_{part}");
        let path = |reader: &mut Self, part| reader.or(&name(part), "none", |text, _| Ok(PathBuf::from(text)));
        let user = self.or(&name("user"), "none", |text, _| Ok(text.to_owned()));
        let password = self.or(&name("password"), "none", |text, _| Ok(Password::from(text)));
        let file = path(self, "password_file");
        let (ca, cert, key) = (path(self, "ca"), path(self, "cert"), path(self, "key"));
        let (user, password, file, ca, cert, key) = (user?, password?, file?, ca?, cert?, key?);
        let password = match (password, file) {
            (Some(_), Some(_)) => {
                let why = format!("`{}` has a password too", name("password"));
                self.report_contradiction(&name("password_file"), &why, "keep one of the two");
                return None;
            }
            (password, file) => password.map(PasswordSource::Text).or(file.map(PasswordSource::File)),
        };
        let certificate = match (cert, key) {
            (Some(cert), Some(key)) => Some(ClientCertificate { cert, key }),
            (Some(_), None) => return self.report_missing(&name("cert"), &name("key")),
            (None, Some(_)) => return self.report_missing(&name("key"), &name("cert")),
            (None, None) => None,
        };
        Some(RedisAccess { user, password, ca, certificate })
    }

    /// Whether the settings of authentication and TLS are consistent with the address.
    fn is_consistent(&mut self, address: Option<&Address>, access: &RedisAccess) -> bool {
        match address {
            None => self.has_no_access("store", access, |name| {
                let remedy = format!("set `store` to a URL such as redis://127.0.0.1:6379, or remove `{name}`");
                ("counters are in memory (`store`), not in Redis", remedy)
            }),
            Some(address) => self.fits("store", "store", &[address], access),
        }
    }

    /// Whether no setting of authentication and TLS is set; those that are have been reported.
    pub(super) fn has_no_access(
        &mut self,
        prefix: &str,
        access: &RedisAccess,
        fault: impl Fn(&str) -> (&'static str, String),
    ) -> bool {
        let login = self.password_setting(prefix);
        let set = [
            (format!("{prefix}_user"), access.user.is_some()),
            (login, access.password.is_some()),
            (format!("{prefix}_ca"), access.ca.is_some()),
            (format!("{prefix}_cert"), access.certificate.is_some()),
        ];
        let set: Vec<_> = set.into_iter().filter_map(|(name, is_set)| is_set.then_some(name)).collect();
        for name in &set {
            let (why, remedy) = fault(name);
            self.report_contradiction(name, why, remedy);
        }
        set.is_empty()
    }

    /// Whether the settings of authentication and TLS are consistent with the addresses in the setting `urls`.
    pub(super) fn fits(&mut self, prefix: &str, urls: &str, addresses: &[&Address], access: &RedisAccess) -> bool {
        let login = self.password_setting(prefix);
        let (secret, user) = (access.password.is_some(), access.user.is_some());
        let (ca, certificate) = (access.ca.is_some(), access.certificate.is_some());
        let any = |test: fn(&Address) -> bool| addresses.iter().any(|address| test(address));
        const ONE: &str = "keep one of the two";
        const NO_TLS: &str = "the connection to Redis has no TLS";
        let tls = format!("write rediss:// in `{urls}`, or remove it");
        let no_password = format!("set `{prefix}_password` or `{prefix}_password_file` too");
        let (password_too, user_too) =
            (format!("the URL in `{urls}` has a password too"), format!("the URL in `{urls}` has a user too"));
        let named = |part: &str| format!("{prefix}_{part}");
        let rows = [
            (secret && any(Address::has_password), login, password_too.as_str(), ONE),
            (user && any(Address::has_user), named("user"), &user_too, ONE),
            (
                user && !secret && !any(Address::has_password),
                named("user"),
                "there is no password for it",
                &no_password,
            ),
            (ca && !any(Address::is_tls), named("ca"), NO_TLS, &tls),
            (certificate && !any(Address::is_tls), named("cert"), NO_TLS, &tls),
        ];
        let contradictions: Vec<_> = rows.into_iter().filter(|(is_wrong, ..)| *is_wrong).collect();
        for (_, name, why, remedy) in &contradictions {
            self.report_contradiction(name, why, *remedy);
        }
        contradictions.is_empty()
    }

    /// The setting that has the password.
    fn password_setting(&self, prefix: &str) -> String {
        let name = format!("{prefix}_password");
        let is_none =
            self.values.get(&name).is_none_or(|value| value.text.as_deref().is_ok_and(|text| text.trim() == "none"));
        if is_none { format!("{name}_file") } else { name }
    }

    pub(super) fn report_contradiction(&mut self, name: &str, why: &str, remedy: impl Into<String>) {
        self.reject(name, TextFault::new(format!("`{name}`: {why}"), remedy));
    }

    pub(super) fn report_missing<T>(&mut self, name: &str, missing: &str) -> Option<T> {
        let message = format!("`{name}` needs `{missing}`, which is not set");
        self.reject(name, TextFault::new(message, format!("set `{missing}` too, or remove `{name}`")));
        None
    }
}

pub(super) fn parse_address(text: &str) -> Result<Address, TextFault> {
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
