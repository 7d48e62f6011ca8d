//! Requests that cost more than one, or nothing.

use super::{Envoy, server};

#[test]
fn a_route_may_cost_more() {
    let server = server();
    let envoy = Envoy::before(&server);
    let left = |_| envoy.get("/export", &[]).number("x-ratelimit-remaining");
    assert_eq!([0, 1].map(left), [6, 2]);
    let refused = envoy.get("/export", &[]);
    assert_eq!((refused.status, refused.header("x-ratelimit-remaining")), (429, Some("0")));
}

#[test]
fn a_header_may_say_the_cost() {
    let server = server();
    let envoy = Envoy::before(&server);
    let ask = |cost: &str| {
        let answer = envoy.get("/search", &[("x-cost", cost)]);
        (answer.status, answer.number("x-ratelimit-remaining"))
    };
    assert_eq!(ask("7"), (200, 3));
    // A refusal takes nothing, so what fits still does.
    assert_eq!(ask("4").0, 429);
    assert_eq!(ask("0"), (200, 3));
    assert_eq!(ask("3"), (200, 0));
    assert_eq!(ask("1").0, 429);
}

#[test]
fn the_request_as_a_whole_may_have_a_cost() {
    let server = server();
    let envoy = Envoy::before(&server);
    let ask = |cost: &str| {
        let answer = envoy.get("/batch", &[("x-cost", cost)]);
        (answer.status, answer.number("x-ratelimit-remaining"))
    };
    assert_eq!(ask("6"), (200, 4));
    assert_eq!(ask("5").0, 429);
    assert_eq!(ask("4"), (200, 0));
}
