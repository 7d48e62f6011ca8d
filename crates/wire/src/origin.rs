//! Protection against requests from web pages.
//!
//! A page of another site can send requests to this machine, and by DNS rebinding even read the responses. It can't choose
//! `Host`, `Origin` and `Sec-Fetch-Site`, which identify it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use ::http::header::{HOST, HeaderName, ORIGIN};
use ::http::{HeaderMap, HeaderValue};

static SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Whether a request comes from a page of another site.
pub fn is_foreign(headers: &HeaderMap) -> bool {
    let site = headers.get(&SEC_FETCH_SITE).map(HeaderValue::as_bytes);
    let foreign_site = site.is_some_and(|site| !matches!(site, b"same-origin" | b"none"));
    foreign_site || headers.get(ORIGIN).is_some_and(|origin| !is_own(origin, headers.get(HOST)))
}

/// Whether a page belongs to this listener.
fn is_own(origin: &HeaderValue, host: Option<&HeaderValue>) -> bool {
    let (Ok(origin), Some(Ok(host))) = (origin.to_str(), host.map(HeaderValue::to_str)) else { return false };
    let own = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
    own.is_some_and(|own| own.eq_ignore_ascii_case(host))
}

/// Whether the single `Host` of a request is a loopback name.
pub fn is_for_loopback(headers: &HeaderMap) -> bool {
    let mut hosts = headers.get_all(HOST).iter();
    let (Some(host), None) = (hosts.next(), hosts.next()) else { return false };
    host.to_str().is_ok_and(is_loopback)
}

/// Whether the `Host` of a request is a name that DNS could have resolved to this machine for a web page. An IP address is
/// not, nor is a missing `Host`, which browsers always send.
pub fn may_be_rebound(headers: &HeaderMap) -> bool {
    let is_address =
        |host: &str| host.parse::<SocketAddr>().is_ok() || host.trim_matches(['[', ']']).parse::<IpAddr>().is_ok();
    headers.contains_key(HOST)
        && !is_for_loopback(headers)
        && !headers.get_all(HOST).iter().all(|host| host.to_str().is_ok_and(is_address))
}

/// `localhost`, `127.0.0.1` and the like, `[::1]`; with or without a port.
fn is_loopback(host: &str) -> bool {
    let (name, port) = match host.strip_prefix('[').map(|rest| rest.split_once(']')) {
        Some(Some((name, rest))) => {
            let is_v6 = name.parse::<Ipv6Addr>().is_ok_and(|address| address.is_loopback());
            return is_v6 && (rest.is_empty() || rest.strip_prefix(':').is_some_and(is_port));
        }
        Some(None) => return false,
        None => host.split_once(':').map_or((host, None), |(name, port)| (name, Some(port))),
    };
    port.is_none_or(is_port)
        && (name.eq_ignore_ascii_case("localhost")
            || name.parse::<Ipv4Addr>().is_ok_and(|address| address.is_loopback()))
}

fn is_port(text: &str) -> bool {
    text.parse::<u16>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_this_machine_are_loopback() {
        for host in ["localhost", "LOCALHOST:8070", "127.0.0.1", "127.0.0.1:8070", "127.8.9.1:1", "[::1]", "[::1]:8070"]
        {
            assert!(is_loopback(host), "{host}");
        }
        for host in [
            "",
            "evil.example",
            "evil.example:8070",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "127.0.0.1:8070:80",
            "127.0.0.1:port",
            "10.0.0.1:8070",
            "0.0.0.0:8070",
            "::1",
            "[::2]:8070",
            "[::1",
            "[::1]evil",
            "localhost@evil.example",
        ] {
            assert!(!is_loopback(host), "{host}");
        }
    }

    #[test]
    fn only_names_can_be_rebound() {
        let headers = |hosts: &[&'static str]| -> HeaderMap {
            hosts.iter().map(|host| (HOST, HeaderValue::from_static(host))).collect()
        };
        for hosts in
            [&[][..], &["localhost:8070"], &["127.0.0.1"], &["10.0.0.1:8070"], &["[2001:db8::1]:1"], &["[::1]"]]
        {
            assert!(!may_be_rebound(&headers(hosts)), "{hosts:?}");
        }
        for hosts in
            [&["evil.example"][..], &["evil.example:8070"], &["10.0.0.1.evil.example"], &["localhost", "evil"], &[""]]
        {
            assert!(may_be_rebound(&headers(hosts)), "{hosts:?}");
        }
    }

    #[test]
    fn pages_of_other_sites_are_recognized() {
        let rows: [(&[(&str, &str)], bool); 12] = [
            (&[], false),
            (&[("sec-fetch-site", "none")], false),
            (&[("sec-fetch-site", "same-origin")], false),
            (&[("sec-fetch-site", "same-site")], true),
            (&[("sec-fetch-site", "cross-site")], true),
            (&[("sec-fetch-site", "?")], true),
            (&[("origin", "http://localhost:8070"), ("host", "localhost:8070")], false),
            (&[("origin", "https://LOCALHOST:8070"), ("host", "localhost:8070")], false),
            (&[("origin", "http://localhost:3000"), ("host", "localhost:8070")], true),
            (&[("origin", "http://evil.example"), ("host", "localhost:8070")], true),
            (&[("origin", "null"), ("host", "localhost:8070")], true),
            (&[("origin", "http://localhost:8070")], true),
        ];
        for (headers, foreign) in rows {
            let headers: HeaderMap = headers
                .iter()
                .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
                .collect();
            assert_eq!(is_foreign(&headers), foreign, "{headers:?}");
        }
        let twice = |host| [(HOST, HeaderValue::from_static("localhost")), (HOST, HeaderValue::from_static(host))];
        assert!(!is_for_loopback(&twice("localhost").into_iter().collect()));
    }
}
