//! Tests of forwarding headers.

use super::*;

fn trusted(networks: &[&str], unix: bool) -> TrustedProxies {
    TrustedProxies { networks: networks.iter().map(|network| network.parse().unwrap()).collect(), unix }
}

fn headers(fields: &[(&str, &str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in fields {
        headers.append(name.parse::<HeaderName>().unwrap(), HeaderValue::from_bytes(value.as_bytes()).unwrap());
    }
    headers
}

fn peer(text: &str) -> Peer {
    if text == "unix" { Peer::Unix } else { Peer::Address(text.parse().unwrap()) }
}

#[test]
fn the_client_is_the_last_untrusted_hop() {
    let proxies = trusted(&["10.0.0.0/8", "fd00::/8"], true);
    for (from, lists, expected) in [
        ("203.0.113.7", &[][..], "203.0.113.7"),
        ("203.0.113.7", &["1.2.3.4"], "203.0.113.7"),
        ("::ffff:203.0.113.7", &[], "203.0.113.7"),
        ("10.0.0.1", &[], "10.0.0.1"),
        ("::ffff:10.0.0.1", &["1.2.3.4"], "1.2.3.4"),
        ("10.0.0.1", &["1.2.3.4"], "1.2.3.4"),
        ("10.0.0.1", &["6.6.6.6, 1.2.3.4"], "1.2.3.4"),
        ("10.0.0.1", &["6.6.6.6, 1.2.3.4,10.9.9.9 , 10.8.8.8"], "1.2.3.4"),
        ("10.0.0.1", &["6.6.6.6", "1.2.3.4, 10.9.9.9", "10.8.8.8"], "1.2.3.4"),
        ("10.0.0.1", &["10.1.1.1, 10.2.2.2"], "10.1.1.1"),
        ("10.0.0.1", &["1.2.3.4, unknown, 10.2.2.2"], "10.2.2.2"),
        ("10.0.0.1", &["1.2.3.4, \u{e4}"], "10.0.0.1"),
        ("10.0.0.1", &["1.2.3.4,, ,"], "1.2.3.4"),
        ("10.0.0.1", &["1.2.3.4:5678"], "1.2.3.4"),
        ("10.0.0.1", &["[2001:db8::7]:443"], "2001:db8::7"),
        ("10.0.0.1", &["[2001:db8::7]"], "2001:db8::7"),
        ("fd00::1", &["2001:db8::7"], "2001:db8::7"),
        ("unix", &["1.2.3.4"], "1.2.3.4"),
        ("unix", &[], "none"),
        ("unix", &["x"], "none"),
    ] {
        let headers = headers(&lists.iter().map(|list| ("x-forwarded-for", *list)).collect::<Vec<_>>());
        let client = client_address(peer(from), &proxies, &headers);
        assert_eq!(client.map_or("none".to_owned(), |client| client.to_string()), expected, "{from} {lists:?}");
    }
    let given = headers(&[("x-forwarded-for", "1.2.3.4")]);
    assert_eq!(client_address(Peer::Unix, &trusted(&["0.0.0.0/0"], false), &given), None);
}

#[test]
fn a_long_list_is_read_in_part() {
    let proxies = trusted(&["10.0.0.0/8"], false);
    let client = |hops: u8| {
        let list: Vec<_> = (1..=hops).map(|hop| format!("10.1.1.{hop}")).collect();
        let headers = headers(&[("x-forwarded-for", &format!("1.2.3.4, {}", list.join(", ")))]);
        client_address(peer("10.0.0.1"), &proxies, &headers).unwrap().to_string()
    };
    assert_eq!(client(31), "1.2.3.4");
    assert_eq!(client(32), "10.1.1.1");
    assert_eq!(client(40), "10.1.1.9");
}

fn forwarded(from: &str, is_trusted: bool, fields: &[(&str, &str)]) -> Vec<String> {
    let mut headers = headers(fields);
    let address = match peer(from) {
        Peer::Address(address) => HeaderValue::try_from(address.to_canonical().to_string()).ok(),
        Peer::Unix => None,
    };
    let authority = HeaderValue::from_static("api.example:8443");
    let hop = Hop { address: address.as_ref(), is_trusted, is_tls: true, authority: &authority };
    let marks = FieldMarks::of(&headers);
    set_forwarded(&mut headers, marks, &hop, || 0xab);
    let mut lines: Vec<_> =
        headers.iter().map(|(name, value)| format!("{name}: {}", value.to_str().unwrap())).collect();
    lines.sort();
    lines
}

#[test]
fn what_an_untrusted_peer_says_is_replaced() {
    let said = [
        ("x-forwarded-for", "6.6.6.6"),
        ("x-forwarded-for", "7.7.7.7"),
        ("x-forwarded-proto", "http"),
        ("x-forwarded-host", "evil"),
        ("x-forwarded-port", "1"),
        ("x-original-url", "/admin"),
        ("x-real-ip", "6.6.6.6"),
        ("forwarded", "for=6.6.6.6"),
        ("traceparent", "00-1"),
        ("x-request-id", "mine"),
    ];
    let expected = [
        "traceparent: 00-1",
        "x-forwarded-for: 1.2.3.4",
        "x-forwarded-host: api.example:8443",
        "x-forwarded-proto: https",
        "x-request-id: mine",
    ];
    assert_eq!(forwarded("1.2.3.4", false, &said), expected);
    let unix: Vec<_> = expected.into_iter().filter(|line| !line.starts_with("x-forwarded-for")).collect();
    assert_eq!(forwarded("unix", false, &said), unix);
}

#[test]
fn names_that_proxies_use_are_removed_in_every_spelling() {
    for name in [
        "X-Forwarded-By",
        "X-Forwarded-Anything",
        "X_Forwarded_For",
        "X-Forwarded_Proto",
        "X_Real_IP",
        "X-Client-IP",
        "Client-IP",
        "True-Client-IP",
        "X-Cluster-Client-IP",
        "CF-Connecting-IP",
        "X-Original-Host",
        "X-Original-URI",
        "X-Original-Method",
        "X-Original-For",
        "X-Rewrite-URL",
        "X-HTTP-Host-Override",
        "Front-End-Https",
        "Proxy-Client-IP",
        "Proxy_Client_IP",
        "WL-Proxy-Client-IP",
        "WL-Proxy-Client-Cert",
        "HTTP-Client-IP",
        "HTTP_CLIENT_IP",
        "HTTP_X_FORWARDED_FOR",
        "Remote-Addr",
        "Forwarded-For",
        "X-Forwarded",
    ] {
        let left = forwarded("1.2.3.4", false, &[(name, "6.6.6.6"), ("x-request-id", "mine")]).join("\n");
        assert!(!left.contains("6.6.6.6"), "{name}: {left}");
        let trusted = forwarded("10.0.0.1", true, &[(name, "6.6.6.6"), ("x-request-id", "mine")]).join("\n");
        assert_eq!(trusted.contains("6.6.6.6"), !name.contains('_'), "{name}: {trusted}");
    }
    let own = [("x-original-filename", "a"), ("x-clients", "b"), ("http2-settings", "c"), ("x_own", "d")];
    assert_eq!(forwarded("1.2.3.4", false, &own).len(), own.len() + 4);
}

#[test]
fn what_a_trusted_peer_says_is_forwarded() {
    let said = [
        ("x-forwarded-for", "6.6.6.6"),
        ("x-forwarded-for", " 7.7.7.7 "),
        ("x-forwarded-proto", "http"),
        ("x-forwarded-host", "www"),
        ("forwarded", "for=6.6.6.6"),
        ("x-request-id", "1234"),
    ];
    let expected = [
        "forwarded: for=6.6.6.6",
        "x-forwarded-for: 6.6.6.6, 7.7.7.7, 10.0.0.1",
        "x-forwarded-host: www",
        "x-forwarded-proto: http",
        "x-request-id: 1234",
    ];
    assert_eq!(forwarded("::ffff:10.0.0.1", true, &said), expected);
    assert_eq!(forwarded("unix", true, &said)[1], "x-forwarded-for: 6.6.6.6, 7.7.7.7");
    assert_eq!(
        forwarded("10.0.0.1", true, &[])[..2],
        ["x-forwarded-for: 10.0.0.1", "x-forwarded-host: api.example:8443"]
    );
}

#[test]
fn a_request_without_a_usable_identifier_gets_one() {
    let made = "x-request-id: 000000000000000000000000000000ab";
    let id = |ids: &[(&str, &str)]| forwarded("1.2.3.4", false, ids).pop().unwrap();
    assert_eq!(id(&[]), made);
    assert_eq!(id(&[("x-request-id", "")]), made);
    assert_eq!(id(&[("x-request-id", "a b")]), made);
    assert_eq!(id(&[("x-request-id", "a"), ("x-request-id", "b")]), made);
    assert_eq!(id(&[("x-request-id", &"x".repeat(129))]), made);
    assert_eq!(id(&[("x-request-id", &"x".repeat(128))]), format!("x-request-id: {}", "x".repeat(128)));
}
