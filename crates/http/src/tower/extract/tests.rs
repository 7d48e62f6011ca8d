//! Extractors against example requests.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::Request;

use super::*;

fn head(uri: &str, headers: &[(&str, &str)]) -> Parts {
    let request = headers.iter().fold(Request::post(uri), |request, (name, value)| request.header(*name, *value));
    request.body(()).unwrap().into_parts().0
}

fn found(extractor: &impl Extract, head: &Parts) -> Vec<(String, String)> {
    let mut attributes = Attributes::default();
    extractor.extract(head, &mut attributes);
    attributes.entries().iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

fn one(name: &str, value: &str) -> Vec<(String, String)> {
    vec![(name.to_owned(), value.to_owned())]
}

#[test]
fn headers_methods_and_paths() {
    let head = head("/orders/7?urgent=1#x", &[("x-api-key", "first"), ("x-api-key", "second")]);
    let key = header(HeaderName::from_static("x-api-key"));
    assert_eq!(found(&key, &head), one("x-api-key", "first"));
    assert_eq!(found(&key.named("api_key"), &head), one("api_key", "first"));
    assert_eq!(found(&header(HeaderName::from_static("absent")), &head), []);
    assert_eq!(found(&method(), &head), one("method", "POST"));
    assert_eq!(found(&path(), &head), one("path", "/orders/7"));
    assert_eq!(found(&endpoint().named("what"), &head), one("what", "POST /orders/7"));
}

#[test]
fn a_path_has_one_spelling() {
    for target in ["/%6frders/7", "//orders/7?x", "/x/../orders/./7"] {
        let head = head(target, &[]);
        assert_eq!(found(&path(), &head), one("path", "/orders/7"), "{target}");
        assert_eq!(found(&endpoint(), &head), one("endpoint", "POST /orders/7"), "{target}");
    }
}

#[test]
fn a_header_that_is_no_text_is_still_something() {
    let mut head = head("/", &[]);
    head.headers.insert("key", http::HeaderValue::from_bytes(b"a\xffb").unwrap());
    assert_eq!(found(&header(HeaderName::from_static("key")), &head), one("key", r"a\xffb"));
}

/// Headers, and their idempotency key.
type Named<'a> = (&'a [(&'a str, &'a str)], Option<&'a str>);

#[test]
fn names_for_requests() {
    let name = |headers: &[(&str, &str)]| idempotency_key(&head("/", headers)).map(Cow::into_owned);
    let rows: [Named<'_>; 11] = [
        (&[], None),
        (&[("idempotency-key", "a")], Some("a")),
        (&[("x-idempotency-key", "b")], Some("b")),
        (&[("idempotency-key", "\"order 7\"")], Some("order 7")),
        (&[("idempotency-key", "a"), ("x-idempotency-key", "\"a\"")], Some("a")),
        (&[("idempotency-key", "a"), ("x-idempotency-key", "b")], None),
        (&[("idempotency-key", "a"), ("idempotency-key", "b")], None),
        (&[("idempotency-key", "")], None),
        (&[("idempotency-key", "\" \"")], None),
        (&[("idempotency-key", "\"a")], None),
        (&[("idempotency-key", "schlüssel")], None),
    ];
    for (headers, expected) in rows {
        assert_eq!(name(headers).as_deref(), expected, "{headers:?}");
    }
}

/// The address behind these proxies, for a peer and `X-Forwarded-For` lines.
fn client(proxies: &Proxies, peer: Option<&str>, lines: &[&str]) -> Option<String> {
    let lines: Vec<_> = lines.iter().map(|line| ("x-forwarded-for", *line)).collect();
    let mut head = head("/", &lines);
    if let Some(peer) = peer {
        head.extensions.insert(PeerAddress(peer.parse().unwrap()));
    }
    let found = found(&client_address(proxies.clone()), &head);
    found.into_iter().next().map(|(name, value)| {
        assert_eq!(name, "remote_address");
        value
    })
}

/// Proxies, the peer, `X-Forwarded-For` lines, and the client.
type Row<'a> = (Proxies, Option<&'a str>, &'a [&'a str], Option<&'a str>);

#[test]
fn the_client_is_whom_trusted_proxies_speak_for() {
    use Proxies::{Count, None as Nobody};
    let within = Proxies::within(["10.0.0.0/8", "192.0.2.1", "fd00::/8"]).unwrap();
    let peer = Some("10.0.0.1");
    #[rustfmt::skip]
    let rows: [Row<'_>; 24] = [
        (Nobody, peer, &["198.51.100.7"], Some("10.0.0.1")),
        (Nobody, None, &["198.51.100.7"], None),
        (Count(0), peer, &["198.51.100.7"], Some("10.0.0.1")),
        (Count(1), peer, &["198.51.100.7"], Some("198.51.100.7")),
        // The caller wrote the first two.
        (Count(1), peer, &["1.1.1.1, 2.2.2.2, 198.51.100.7"], Some("198.51.100.7")),
        (Count(2), peer, &["1.1.1.1, 2.2.2.2, 198.51.100.7"], Some("2.2.2.2")),
        // Lines are concatenated.
        (Count(2), peer, &["1.1.1.1", "2.2.2.2", "198.51.100.7"], Some("2.2.2.2")),
        (Count(1), peer, &["1.1.1.1, ,", "198.51.100.7,"], Some("198.51.100.7")),
        // Fewer entries than proxies.
        (Count(5), peer, &["1.1.1.1, 2.2.2.2"], Some("1.1.1.1")),
        (Count(5), peer, &[], Some("10.0.0.1")),
        (Count(1), None, &["198.51.100.7"], Some("198.51.100.7")),
        (Count(1), None, &[], None),
        // Not an address.
        (Count(1), peer, &["1.1.1.1, unknown"], Some("10.0.0.1")),
        (Count(2), peer, &["unknown, 2.2.2.2"], Some("2.2.2.2")),
        (Count(1), peer, &["198.51.100.7:4711"], Some("198.51.100.7")),
        (Count(1), peer, &["[2001:db8::1]:4711"], Some("2001:db8::1")),
        (Count(1), peer, &["[2001:db8::1]"], Some("2001:db8::1")),
        (Count(1), peer, &["::ffff:198.51.100.7"], Some("198.51.100.7")),
        (within.clone(), peer, &["1.1.1.1, 198.51.100.7, 192.0.2.1, fd00::1"], Some("198.51.100.7")),
        // Not a trusted proxy: its entries are not read.
        (within.clone(), Some("203.0.113.9"), &["198.51.100.7"], Some("203.0.113.9")),
        (within.clone(), peer, &["10.1.1.1, 10.2.2.2"], Some("10.1.1.1")),
        (within.clone(), peer, &["198.51.100.7, unknown, 10.2.2.2"], Some("10.2.2.2")),
        (within.clone(), None, &["198.51.100.7"], None),
        (within, Some("::ffff:10.0.0.1"), &["198.51.100.7"], Some("198.51.100.7")),
    ];
    for (proxies, peer, lines, expected) in rows {
        assert_eq!(client(&proxies, peer, lines).as_deref(), expected, "{proxies:?} {peer:?} {lines:?}");
    }
    let endless = ["10.0.0.2"; 1_000].join(",");
    let all = Proxies::within(["10.0.0.0/8"]).unwrap();
    assert_eq!(
        client(&all, peer, &["198.51.100.7", &endless]).as_deref(),
        Some("10.0.0.2"),
        "it is not followed for ever"
    );
    assert_eq!(Proxies::within(["10.0.0.0/33"]).unwrap_err().message, "`10.0.0.0/33` is not a network");
}

#[test]
fn ipv6_addresses_may_count_by_their_networks() {
    let mut head = head("/", &[]);
    head.extensions.insert(PeerAddress("2001:db8:0:1ff::7".parse().unwrap()));
    let address = client_address(Proxies::None).named("client");
    assert_eq!(found(&address.clone().ipv6_prefix(56), &head), one("client", "2001:db8:0:100::"));
    assert_eq!(found(&address.clone().ipv6_prefix(0), &head), one("client", "::"));
    assert_eq!(found(&address.clone().ipv6_prefix(255), &head), one("client", "2001:db8:0:1ff::7"));
    head.extensions.insert(PeerAddress("198.51.100.7".parse().unwrap()));
    assert_eq!(found(&address.ipv6_prefix(8), &head), one("client", "198.51.100.7"));
}

#[cfg(feature = "axum")]
#[test]
fn what_axum_knows_of_the_peer_counts_before_what_the_application_says() {
    let mut head = head("/", &[]);
    head.extensions.insert(PeerAddress("198.51.100.7".parse().unwrap()));
    head.extensions.insert(axum::extract::ConnectInfo(std::net::SocketAddr::from(([203, 0, 113, 9], 80))));
    assert_eq!(found(&client_address(Proxies::None), &head), one("remote_address", "203.0.113.9"));
}

#[test]
fn whose_token_it_is() {
    let token = |claims: &str| format!("Bearer e30.{}.c2ln", URL_SAFE_NO_PAD.encode(claims));
    let long = format!(r#"{{"sub":"ada","more":"{}"}}"#, "x".repeat(8_000));
    let deep = format!(r#"{{"more":{}{},"sub":"ada"}}"#, "[".repeat(5_000), "]".repeat(5_000));
    let rows = [
        (token(r#"{"iss":"x","sub":"ada","exp":1,"more":{"sub":"other"}}"#), Some("ada")),
        (token(r#"{"sub":"ad\u0061"}"#), Some("ada")),
        (token(r#"{"sub":"ada"}"#).replace("Bearer", "bearer"), Some("ada")),
        (token(r#"{"sub":""}"#), Some("")),
        (token(r#"{"iss":"x"}"#), None),
        (token(r#"{"sub":7}"#), None),
        (token(r#"{"sub":null}"#), None),
        (token(r#"["sub"]"#), None),
        (token("nonsense"), None),
        (token(&long), None),
        (token(&deep), None),
        (token(r#"{"sub":"ada"}"#).replace("Bearer", "Basic"), None),
        (format!("{}.more", token(r#"{"sub":"ada"}"#)), None),
        ("Bearer opaque".to_owned(), None),
        ("Bearer a.***.b".to_owned(), None),
        ("Bearer".to_owned(), None),
    ];
    for (authorization, subject) in rows {
        let head = head("/", &[("authorization", &authorization)]);
        let expected = subject.map_or(Vec::new(), |subject| one("user", subject));
        assert_eq!(found(&bearer_subject(), &head), expected, "{authorization}");
    }
    assert_eq!(found(&bearer_subject(), &head("/", &[])), []);
}
