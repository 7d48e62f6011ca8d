//! envoyproxy/ratelimit's Redis: one address from several variables.

use tollgate_rules::problem::{TextFault, quoted};

use super::{EnvoyReader, is_set, supported, value_from};
use crate::config::origin::{ConfigProblems, SettingLayer};

const BACKEND: &str = "BACKEND_TYPE";
const URL: &str = "REDIS_URL";
const TYPE: &str = "REDIS_TYPE";
const SOCKET_TYPE: &str = "REDIS_SOCKET_TYPE";
const TLS: &str = "REDIS_TLS";
const AUTH: &str = "REDIS_AUTH";

/// Variables that are one setting each, if there is a Redis.
const PARTS: [(&str, &str); 3] =
    [("REDIS_TLS_CACERT", "store_ca"), ("REDIS_TLS_CLIENT_CERT", "store_cert"), ("REDIS_TLS_CLIENT_KEY", "store_key")];

/// The maximum of `store_pool`.
const MAX_POOL: u64 = 64;

impl EnvoyReader<'_> {
    /// The address of its Redis. Without one counters are in memory, since its default is a socket that hardly anybody has.
    pub(super) fn redis(&self, layer: &mut SettingLayer, problems: &mut ConfigProblems) {
        if let Some(backend) = self.get(BACKEND)
            && !backend.as_deref().is_ok_and(|backend| backend == "redis")
        {
            problems.warning(
                BACKEND,
                "counters are in Redis or in memory, not in memcached",
                "set it to redis, or unset it",
            );
            return;
        }
        if self.get(URL).is_none() {
            let alone =
                [TYPE, SOCKET_TYPE, TLS, AUTH, "REDIS_POOL_SIZE"].into_iter().chain(PARTS.map(|(name, _)| name));
            for name in alone.filter(|name| is_set(self.environment, name)) {
                problems.warning(name, format!("it has no effect while {URL} is not set"), "set that, or unset this");
            }
            return;
        }
        let named = [URL, TYPE, SOCKET_TYPE, TLS].into_iter().filter(|name| is_set(self.environment, name));
        layer.insert("store", value_from(&named.collect::<Vec<_>>(), self.address_of_redis()));
        if let Some(auth) = self.get(AUTH) {
            let (user, password) = match &auth {
                Ok(auth) => auth.split_once(':').map_or((None, auth.as_str()), |(user, rest)| (Some(user), rest)),
                Err(_) => (None, ""),
            };
            if let Some(user) = user.filter(|user| !user.is_empty()) {
                layer.insert("store_user", value_from(&[AUTH], Ok(user.to_owned())));
            }
            layer.insert("store_password", value_from(&[AUTH], auth.clone().map(|_| password.to_owned())));
        }
        for (variable, setting) in PARTS {
            if let Some(text) = self.get(variable) {
                layer.insert(setting, value_from(&[variable], text));
            }
        }
        if let Some(text) = self.get("REDIS_POOL_SIZE") {
            layer.insert("store_pool", value_from(&["REDIS_POOL_SIZE"], text.map(pool)));
        }
        if let Some(text) = self.get("CACHE_KEY_PREFIX") {
            layer.insert("store_prefix", value_from(&["CACHE_KEY_PREFIX"], text));
        }
    }

    fn address_of_redis(&self) -> Result<String, TextFault> {
        let text = |name: &str, default: &str| self.get(name).unwrap_or_else(|| Ok(default.to_owned()));
        let url = text(URL, "")?;
        let tls = supported::go_bool(&text(TLS, "false")?)?;
        // Its default is unix, but a path can be recognised.
        let socket = match text(SOCKET_TYPE, if url.starts_with('/') { "unix" } else { "tcp" })?.as_str() {
            "tcp" => false,
            "unix" => true,
            other => {
                let message = format!("{SOCKET_TYPE} is {}", quoted(other));
                return Err(TextFault::new(message, "write tcp or unix"));
            }
        };
        let s = if tls { "s" } else { "" };
        match text(TYPE, "single")?.to_ascii_lowercase().as_str() {
            // Its client takes URLs too.
            "single" if url.contains("://") => Ok(url),
            "single" if socket => Ok(format!("redis+unix://{url}")),
            "single" => Ok(format!("redis{s}://{url}")),
            "cluster" => Ok(format!("redis{s}+cluster://{url}")),
            "sentinel" => {
                let Some((name, sentinels)) = url.split_once(',') else {
                    let message = format!("{URL} has no sentinels");
                    return Err(TextFault::new(
                        message,
                        "write the primary's name, a comma, and host:port of each sentinel",
                    ));
                };
                Ok(format!("redis{s}+sentinel://{sentinels}/{name}"))
            }
            other => Err(TextFault::new(format!("{TYPE} is {}", quoted(other)), "write single, sentinel or cluster")),
        }
    }
}

/// Claims share connections here, so more are of no use.
fn pool(text: String) -> String {
    text.parse::<u64>().map_or(text, |size| size.min(MAX_POOL).to_string())
}
