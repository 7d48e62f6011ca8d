//! Clients that try to get past the limits. No check fails, although Envoy would let the request pass then.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;

use tollgate_testing::TIMEOUT;

use super::{Envoy, EnvoyConfig, server};

const KEY_ACTION: &str = "- request_headers: {header_name: x-api-key, descriptor_key: api_key}";

/// The statuses of this many requests with a header that is any bytes.
#[track_caller]
fn statuses(envoy: &Envoy, count: usize, path: &str, headers: &[(&str, &[u8])]) -> Vec<u16> {
    let mut request = format!("GET {path} HTTP/1.1\r\nHost: application\r\nConnection: close\r\n").into_bytes();
    for (name, value) in headers {
        request.extend([name.as_bytes(), b": ", value, b"\r\n"].concat());
    }
    request.extend(b"\r\n");
    let send = |_| {
        let mut stream = TcpStream::connect(&envoy.address).unwrap();
        stream.set_read_timeout(Some(TIMEOUT)).unwrap();
        stream.write_all(&request).unwrap();
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line).unwrap();
        line.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or_else(|| panic!("{line:?}"))
    };
    (0..count).map(send).collect()
}

#[test]
fn no_value_makes_a_check_fail() {
    let server = server();
    let envoy = Envoy::start(&server);
    let from = |address: &'static [u8]| ("x-forwarded-for", address);
    // By key, until the limit of the address is reached.
    assert_eq!(statuses(&envoy, 4, "/orders", &[("x-api-key", b"k1"), from(b"192.0.2.9")]), [200, 200, 429, 429]);
    let long = "k".repeat(5_000);
    for key in [long.as_bytes(), b"k1\xff"] {
        // The first takes the last unit of the address.
        let address = if key[0] == key[1] { [200, 429, 429] } else { [429; 3] };
        assert_eq!(statuses(&envoy, 3, "/orders", &[("x-api-key", key), from(b"192.0.2.9")]), address);
        // And from elsewhere the key has a limit of its own.
        let expected = if key[0] == key[1] { [200, 429, 429] } else { [200, 200, 429] };
        assert_eq!(statuses(&envoy, 3, "/orders", &[("x-api-key", key), from(b"192.0.2.10")]), expected);
    }
    // A header as long as Envoy accepts.
    let longest = "z".repeat(58_000);
    assert_eq!(statuses(&envoy, 3, "/orders", &[("x-api-key", longest.as_bytes())]), [200, 200, 429]);
    // A cost that is no number counts as 1: of ten points, these take three.
    for path in ["/batch", "/search"] {
        assert_eq!(statuses(&envoy, 2, path, &[("x-cost", b"abc")]), [200, 200], "{path}");
        let third = envoy.get(path, &[("x-cost", "abc")]);
        assert_eq!(third.header("x-ratelimit-remaining"), Some("7"), "{path}: {third:?}");
    }
    assert_eq!(envoy.failed_checks(), 0);
}

#[test]
fn an_idempotency_key_of_another_request_has_no_effect() {
    let server = server();
    let envoy = Envoy::start(&server);
    let once = ("idempotency-key", &b"o1"[..]);
    // A retry costs nothing.
    assert_eq!(statuses(&envoy, 5, "/payments", &[("x-api-key", b"a"), once]), [200; 5]);
    let long = "o".repeat(5_000);
    assert_eq!(statuses(&envoy, 5, "/payments", &[("x-api-key", b"a"), (once.0, long.as_bytes())]), [200; 5]);
    assert_eq!(statuses(&envoy, 3, "/payments", &[("x-api-key", b"a")]), [200, 429, 429]);
    assert_eq!(statuses(&envoy, 2, "/payments", &[("x-api-key", b"a"), (once.0, b"")]), [429, 429]);
    assert_eq!(envoy.failed_checks(), 0);
}

#[test]
fn five_long_headers_are_decided() {
    let server = server();
    let headers = ["x-api-key", "x-b", "x-c", "x-d", "x-e"];
    let indent = "\n                                  ";
    let actions = headers.map(|name| {
        let key = if name == "x-api-key" { "api_key" } else { name };
        format!("- request_headers: {{header_name: {name}, descriptor_key: {key}}}{indent}")
    });
    // Of the first descriptor only the beginning is in the tree, so the limit by key is that of a descriptor of its own.
    let own = format!("{KEY_ACTION}\n                              - actions:{indent}{}", actions.concat());
    let config = EnvoyConfig::new(server.address("grpc")).with(KEY_ACTION, own.trim_end());
    let config =
        config.with("stat_prefix: clients", "stat_prefix: clients\n                max_request_headers_kb: 1024");
    let envoy = config.start();
    let long = "v".repeat(60_000);
    let values = headers.map(|name| (name, long.as_bytes()));
    assert_eq!(statuses(&envoy, 4, "/orders", &values), [200, 200, 429, 429]);
    assert_eq!(envoy.failed_checks(), 0);
}

#[test]
fn a_spelling_of_the_path_is_no_way_past_the_limits() {
    let server = server();
    let envoy = Envoy::start(&server);
    let key = ("x-api-key", "k1");
    assert_eq!(envoy.statuses(3, "/orders", &[key]), [200, 200, 429]);
    for path in ["/%6frders", "//orders", "/./orders", "/x/../orders", "/x/%2e%2e/orders", "/orders?x"] {
        assert_eq!(envoy.get(path, &[key]).status, 429, "{path}");
    }
    let redirected = envoy.get("/%2forders", &[key]);
    assert_eq!((redirected.status, redirected.header("location").map(|to| to.ends_with("/orders"))), (307, Some(true)));
    // The application does not distinguish them.
    let other = envoy.get("//other/%6frders", &[key]);
    assert_eq!((other.status, other.header("x-route")), (200, Some("GET /other/orders")));
}
