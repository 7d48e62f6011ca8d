//! The rate limit actions of each route.

use super::{Envoy, server};

#[test]
fn a_route_over_its_limit_gets_429() {
    let server = server();
    let envoy = Envoy::start(&server);
    let passed = envoy.get("/public/page", &[]);
    assert_eq!(passed.status, 200);
    assert!(passed.body.starts_with("GET /public/page"), "the application did not receive it: {passed:?}");
    assert_eq!(envoy.statuses(3, "/public", &[]), [200, 200, 429]);
    let refused = envoy.get("/public", &[]);
    assert_eq!((refused.status, refused.header("x-envoy-ratelimited")), (429, Some("true")));
    // Routes without rate limits are not limited.
    assert_eq!(envoy.statuses(5, "/other", &[]), [200; 5]);
}

#[test]
fn each_value_of_a_header_has_a_counter() {
    let server = server();
    let envoy = Envoy::start(&server);
    assert_eq!(envoy.statuses(4, "/api", &[("x-api-key", "one")]), [200, 200, 200, 429]);
    assert_eq!(envoy.statuses(4, "/api", &[("x-api-key", "two")]), [200, 200, 200, 429]);
    // Without the header Envoy sends no descriptor for it; the other action applies.
    assert_eq!(envoy.statuses(3, "/api", &[]), [200, 200, 429]);
    assert_eq!(envoy.get("/api", &[("x-api-key", "one")]).header("x-ratelimit-limit"), Some("3"));
}

#[test]
fn addresses_and_networks_have_counters() {
    let server = server();
    let envoy = Envoy::start(&server);
    let from = |address: &str, path: &str, count: usize| envoy.statuses(count, path, &[("x-forwarded-for", address)]);
    assert_eq!(from("198.51.100.1", "/by-address", 4), [200, 200, 200, 429]);
    assert_eq!(from("198.51.100.2", "/by-address", 1), [200]);

    assert_eq!(from("203.0.113.1", "/by-network", 2), [200, 200]);
    assert_eq!(from("203.0.113.2", "/by-network", 2), [200, 429]);
    assert_eq!(from("203.0.112.1", "/by-network", 1), [200]);
}

#[test]
fn several_descriptors_are_one_check() {
    let server = server();
    let envoy = Envoy::start(&server);
    let order = |key: &str, address: &str| envoy.get("/orders", &[("x-api-key", key), ("x-forwarded-for", address)]);
    assert_eq!([order("one", "192.0.2.1").status, order("one", "192.0.2.1").status], [200, 200]);
    // The key is over its limit of 2, so the address, with 1 of 3 left, is not charged.
    for _ in 0..3 {
        assert_eq!(order("one", "192.0.2.1").status, 429);
    }
    let last = order("two", "192.0.2.1");
    assert_eq!((last.status, last.header("x-ratelimit-remaining")), (200, Some("0")));
    // Now the address is over its limit, so the key is not charged.
    assert_eq!(order("two", "192.0.2.1").status, 429);
    assert_eq!(order("two", "192.0.2.2").header("x-ratelimit-remaining"), Some("0"));
}

#[test]
fn a_limit_in_the_request_replaces_the_rule() {
    let server = server();
    let envoy = Envoy::start(&server);
    let first = envoy.get("/plan", &[]);
    assert_eq!(first.header("x-ratelimit-limit"), Some("2"));
    assert_eq!(envoy.statuses(2, "/plan", &[]), [200, 429]);
}

#[test]
fn a_route_can_have_its_own_domain() {
    let server = server();
    let envoy = Envoy::start(&server);
    let first = envoy.get("/partner", &[]);
    assert_eq!(first.header("x-ratelimit-limit"), Some("1"));
    assert_eq!(envoy.statuses(1, "/partner", &[]), [429]);
    // The same descriptor in the other domain.
    assert_eq!(envoy.get("/public", &[]).header("x-ratelimit-remaining"), Some("2"));
}
