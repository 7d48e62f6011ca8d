//! What the names of fields say.

use http::HeaderName;
use http::header::{EXPECT, TE};

pub(crate) const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// The beginning of names that only the gateway sends to upstreams, in lower case.
const OWN_PREFIX: &str = "x-tollgate-";

/// Whether a field of a request is never forwarded as it is. A body is sent whether or not the upstream wants it, since the
/// decision has been made, so `Expect` is one of them.
pub(crate) fn is_left_out(name: &HeaderName) -> bool {
    *name == TE || *name == EXPECT || is_of_connection(name) || is_own(name)
}

/// Whether a field is the connection's, also if `Connection` does not name it. Those of `Proxy-…` are between a client and the proxy
/// that it chose, which the gateway is not. CGI programs take `Proxy` for their own proxy's address.
pub(crate) fn is_of_connection(name: &HeaderName) -> bool {
    let is_of_proxy =
        |name: &str| name.strip_prefix("proxy").is_some_and(|rest| rest.is_empty() || rest.starts_with('-'));
    match name.as_str() {
        "connection" | "keep-alive" | "trailer" | "transfer-encoding" | "upgrade" => true,
        text => text.starts_with('p') && has_name(name, is_of_proxy),
    }
}

/// Whether only the gateway may send a field.
pub(crate) fn is_own(name: &HeaderName) -> bool {
    name.as_str().starts_with('x') && has_name(name, |name| name.starts_with(OWN_PREFIX))
}

/// Whether only a trusted proxy may set a field: frameworks take the client's address, the scheme, the host or even the path from
/// it, and the path would be another one than rules matched.
pub(crate) fn is_of_proxies(name: &HeaderName) -> bool {
    // Most fields begin with another letter.
    name.as_str().starts_with(['c', 'd', 'f', 'h', 'p', 'r', 't', 'w', 'x']) && has_name(name, is_name_of_proxies)
}

fn is_name_of_proxies(name: &str) -> bool {
    // Some Java applications look for `HTTP_CLIENT_IP` among the fields, as CGI calls `Client-IP`.
    let name = name.strip_prefix("http-").unwrap_or(name);
    let Some(extension) = name.strip_prefix("x-") else {
        // The plug-in of WebLogic, which says the client's certificate too.
        return name.starts_with("wl-proxy-")
            || matches!(
                name,
                "forwarded"
                | "forwarded-for"
                | "client-ip"
                | "front-end-https"
                | "proxy-client-ip"
                | "remote-addr"
                | "true-client-ip"
                // Content delivery networks and clouds.
                | "cf-connecting-ip"
                | "cf-connecting-ipv6"
                | "cf-pseudo-ipv4"
                | "do-connecting-ip"
                | "fastly-client-ip"
                | "fly-client-ip"
            );
    };
    extension.starts_with("forwarded-")
        || matches!(
            extension,
            "forwarded"
                | "real-ip"
                | "client-ip"
                | "true-client-ip"
                | "cluster-client-ip"
                | "remote-ip"
                | "remote-addr"
                | "originating-ip"
                | "proxyuser-ip"
                | "appengine-user-ip"
                | "azure-clientip"
                | "azure-socketip"
                | "envoy-external-address"
                | "envoy-original-host"
                | "envoy-original-path"
                | "host"
                | "http-host-override"
                | "rewrite-url"
                | "url-scheme"
                | "original-for"
                | "original-forwarded-for"
                | "original-host"
                | "original-method"
                | "original-path"
                | "original-prefix"
                | "original-proto"
                | "original-remote-addr"
                | "original-scheme"
                | "original-uri"
                | "original-url"
        )
}

/// Whether a field is known by this name to an application. CGI and WSGI can't distinguish `_` from `-`.
fn has_name(name: &HeaderName, is_name: impl FnOnce(&str) -> bool) -> bool {
    let name = name.as_str();
    if name.contains('_') { is_name(&name.replace('_', "-")) } else { is_name(name) }
}
