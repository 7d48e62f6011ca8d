//! The settings of the store: which of them belong together, and which contradict each other.

use std::path::PathBuf;

use tollgate_rules::problem::Fault;
use tollgate_store::redis::{Address, Password};

use super::read::{Reader, mismatch};
use super::settings::{Access, Certificate, PasswordFrom, RedisSettings, Store};
use super::table::Kind;
use super::text;

impl Reader<'_> {
    pub(super) fn store(&mut self) -> Option<Store> {
        let address = self.read("store", |text, _| match text {
            "memory" => Ok(None),
            text => address(text).map(Some),
        });
        let access = self.access();
        let prefix = self.read("store_prefix", |text, _| text::prefix(text));
        let pool = self.count("store_pool");
        let (deadline, cool_down) = (self.time("store_deadline"), self.time("store_cool_down"));
        let last_resort = self.or("last_resort", "off", |text, kind| match kind {
            Kind::Rate { most } => text::rate(text, most),
            _ => Err(mismatch()),
        });
        let (address, access) = (address?, access?);
        if !self.agree(address.as_ref(), &access) {
            return None;
        }
        let Some(address) = address else { return Some(Store::Memory) };
        Some(Store::Redis(Box::new(RedisSettings {
            address,
            access,
            prefix: prefix?,
            pool: pool?,
            deadline: deadline?,
            cool_down: cool_down?,
            last_resort: last_resort?,
        })))
    }

    fn access(&mut self) -> Option<Access> {
        let path = |reader: &mut Self, name| reader.or(name, "none", |text, _| Ok(PathBuf::from(text)));
        let user = self.or("store_user", "none", |text, _| Ok(text.to_owned()));
        let password = self.or("store_password", "none", |text, _| Ok(Password::from(text)));
        let file = path(self, "store_password_file");
        let (ca, cert, key) = (path(self, "store_ca"), path(self, "store_cert"), path(self, "store_key"));
        let (user, password, file, ca, cert, key) = (user?, password?, file?, ca?, cert?, key?);
        let password = match (password, file) {
            (Some(_), Some(_)) => {
                self.contradict("store_password_file", "`store_password` has a password too", "keep one of the two");
                return None;
            }
            (password, file) => password.map(PasswordFrom::Text).or(file.map(PasswordFrom::File)),
        };
        let certificate = match (cert, key) {
            (Some(cert), Some(key)) => Some(Certificate { cert, key }),
            (Some(_), None) => return self.lack("store_cert", "store_key"),
            (None, Some(_)) => return self.lack("store_key", "store_cert"),
            (None, None) => None,
        };
        Some(Access { user, password, ca, certificate })
    }

    /// Whether all that is said of the way to Redis goes together with where it is.
    fn agree(&mut self, address: Option<&Address>, access: &Access) -> bool {
        let (login, secret, user) = (self.password_setting(), access.password.is_some(), access.user.is_some());
        let (ca, certificate) = (access.ca.is_some(), access.certificate.is_some());
        let Some(address) = address else {
            let given = [("store_user", user), (login, secret), ("store_ca", ca), ("store_cert", certificate)];
            let given: Vec<_> = given.into_iter().filter_map(|(name, given)| given.then_some(name)).collect();
            for name in &given {
                let remedy = format!("set `store` to a URL such as redis://127.0.0.1:6379, or remove `{name}`");
                self.contradict(name, "counters are kept in memory (`store`), not in Redis", remedy);
            }
            return given.is_empty();
        };
        const ONE: &str = "keep one of the two";
        const NO_TLS: &str = "Redis is not reached by TLS";
        const TLS: &str = "write rediss:// in `store`, or remove it";
        let lonely = "set `store_password` or `store_password_file` too";
        let rows = [
            (secret && address.has_password(), login, "the URL in `store` has a password too", ONE),
            (user && address.has_user(), "store_user", "the URL in `store` has a user too", ONE),
            (user && !secret && !address.has_password(), "store_user", "there is no password for it", lonely),
            (ca && !address.is_tls(), "store_ca", NO_TLS, TLS),
            (certificate && !address.is_tls(), "store_cert", NO_TLS, TLS),
        ];
        let wrong: Vec<_> = rows.into_iter().filter(|(wrong, ..)| *wrong).collect();
        for (_, name, why, remedy) in &wrong {
            self.contradict(name, why, *remedy);
        }
        wrong.is_empty()
    }

    /// The setting that the password came from.
    fn password_setting(&self) -> &'static str {
        let is_none = |name| {
            self.values.given(name).is_none_or(|given| given.text.as_deref().is_ok_and(|text| text.trim() == "none"))
        };
        if is_none("store_password") { "store_password_file" } else { "store_password" }
    }

    fn contradict(&mut self, name: &str, why: &str, remedy: impl Into<String>) {
        self.refuse(name, Fault::new(format!("`{name}`: {why}"), remedy));
    }

    fn lack<T>(&mut self, given: &str, missing: &str) -> Option<T> {
        let message = format!("`{given}` needs `{missing}`, which is not set");
        self.refuse(given, Fault::new(message, format!("set `{missing}` too, or remove `{given}`")));
        None
    }
}

fn address(text: &str) -> Result<Address, Fault> {
    // The error says what to write, and has nothing of what may be a password.
    text.parse().map_err(|error: tollgate_store::redis::AddressError| {
        Fault::new(error.to_string(), "write memory, or a URL as docs/redis.md has them")
    })
}
