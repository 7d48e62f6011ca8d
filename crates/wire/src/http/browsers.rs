//! Requests of web pages, which run in the browser of whoever operates this machine.
//!
//! No page has business here. But gateways send whatever `Host` and headers they like, and a check that is refused is
//! often a request that passes: only what a browser alone sends is refused.

use http::HeaderMap;
use http::header::{CONTENT_TYPE, HOST, HeaderValue, ORIGIN};

use super::{AUTHORIZE, CHECK, PUBLIC_PATHS, SETTLE};
use crate::origin::{is_foreign, may_be_rebound};

/// What is known about the hosts of a listener.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostSettings {
    /// Whether the listener can be reached only from this machine: pages reach it by DNS rebinding.
    pub is_loopback: bool,
    /// Names, without a port, under which a listener on loopback is called, besides those of loopback itself.
    pub allowed: Vec<String>,
}

/// The path of Envoy's call as JSON, an additional route.
const JSON: &str = "/json";

impl HostSettings {
    /// Whether a request is refused because a web page sent it.
    #[inline]
    pub(super) fn refuses(&self, path: &str, headers: &HeaderMap) -> bool {
        match path {
            // Browsers send `Origin` with every POST.
            CHECK | SETTLE | JSON => headers.contains_key(ORIGIN) && self.refuses_write(headers),
            // Its headers are those of the original request, which may be a browser's.
            AUTHORIZE => false,
            path if PUBLIC_PATHS.contains(&path) => false,
            _ => is_foreign(headers) || self.is_rebound(headers),
        }
    }

    /// A page can't send JSON to another origin without a preflight request, which gets no permission. Only then is the
    /// body of a foreign page read.
    #[cold]
    fn refuses_write(&self, headers: &HeaderMap) -> bool {
        is_foreign(headers) && !is_json(headers) || self.is_rebound(headers)
    }

    /// Whether the name that a client used is one that a page might have had resolved to loopback.
    fn is_rebound(&self, headers: &HeaderMap) -> bool {
        self.is_loopback && may_be_rebound(headers) && !self.is_allowed(headers.get(HOST))
    }

    fn is_allowed(&self, host: Option<&HeaderValue>) -> bool {
        let Some(Ok(host)) = host.map(HeaderValue::to_str) else { return false };
        let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
        self.allowed.iter().any(|allowed| allowed.eq_ignore_ascii_case(name))
    }
}

fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    kind.eq_ignore_ascii_case("application/json")
}
