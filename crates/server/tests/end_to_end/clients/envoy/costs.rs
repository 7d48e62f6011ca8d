//! Requests with a cost other than one unit.

use super::{Envoy, server};

#[test]
fn a_route_can_have_a_higher_cost() {
    let server = server();
    let envoy = Envoy::start(&server);
    let remaining = |_| envoy.get("/export", &[]).number("x-ratelimit-remaining");
    assert_eq!([0, 1].map(remaining), [6, 2]);
    let refused = envoy.get("/export", &[]);
    assert_eq!((refused.status, refused.header("x-ratelimit-remaining")), (429, Some("2")));
}

#[test]
fn a_header_can_set_the_cost() {
    let server = server();
    let envoy = Envoy::start(&server);
    let get = |cost: &str| {
        let response = envoy.get("/search", &[("x-cost", cost)]);
        (response.status, response.number("x-ratelimit-remaining"))
    };
    assert_eq!(get("7"), (200, 3));
    // A refusal takes nothing, so smaller costs still fit.
    assert_eq!(get("4").0, 429);
    assert_eq!(get("0"), (200, 3));
    assert_eq!(get("3"), (200, 0));
    assert_eq!(get("1").0, 429);
}

#[test]
fn the_request_as_a_whole_can_have_a_cost() {
    let server = server();
    let envoy = Envoy::start(&server);
    let get = |cost: &str| {
        let response = envoy.get("/batch", &[("x-cost", cost)]);
        (response.status, response.number("x-ratelimit-remaining"))
    };
    assert_eq!(get("6"), (200, 4));
    assert_eq!(get("5").0, 429);
    assert_eq!(get("4"), (200, 0));
}
