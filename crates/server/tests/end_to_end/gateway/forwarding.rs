//! What clients and upstreams see, and limits.

use super::upstream::Upstream;
use super::{Load, everything_to, with_gateway};
use crate::http::{get, new_agent, read};
use crate::new_server;

#[test]
fn requests_are_forwarded_and_limited() {
    let upstream = Upstream::start();
    let server = with_gateway(&everything_to(&[upstream.address()])).start();
    let url = server.url("gateway", "/v1/orders?q=1");
    let send = |key: &str| {
        let request = new_agent().get(&url).header("X-Api-Key", key).header("X-Forwarded-For", "203.0.113.9");
        read(request.header("X-Tollgate-Tier", "gold").call()).unwrap()
    };
    for remaining in ["1", "0"] {
        let response = send("ada");
        assert_eq!(response.status, 200, "{response:?}");
        let seen = response.body.to_ascii_lowercase();
        assert!(seen.starts_with("get /v1/orders?q=1 http/1.1\n"), "{seen}");
        // What the client says of itself is not passed on.
        assert!(seen.contains("x-forwarded-for: 127.0.0.1\n") && !seen.contains("gold"), "{seen}");
        assert!(seen.contains(&format!("host: {}\n", server.address("gateway"))) && seen.contains("x-request-id: "));
        assert!(response.headers["ratelimit"].to_str().unwrap().contains(&format!("r={remaining}")), "{response:?}");
    }
    let refused = send("ada");
    assert_eq!((refused.status, &refused.headers["content-type"]), (429, &"application/problem+json".parse().unwrap()));
    assert!(refused.headers.contains_key("retry-after") && refused.headers.contains_key("ratelimit"), "{refused:?}");
    assert_eq!(send("bob").status, 200);
    // Without a key no rule applies.
    assert_eq!(get(&url).status, 200);
}

#[test]
fn an_upstream_that_is_away_is_the_gateways_answer() {
    let away = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let server = with_gateway(&everything_to(&[&away])).start();
    let response = get(&server.url("gateway", "/"));
    assert_eq!((response.status, &response.json()["by"]), (502, &"gateway".into()), "{response:?}");
}

#[test]
fn no_get_fails_while_one_of_two_upstreams_is_killed() {
    const PATH: &str = "/v1/ratelimit/authorize";
    let start =
        || new_server().rules("domain: d\nrules: [{name: a, key: [nobody], limit: 1/s}]\n").listen(&["http"]).start();
    let (mut first, second) = (start(), start());
    let server = with_gateway(&everything_to(&[first.address("http"), second.address("http")])).start();
    let load = Load::start(&server.url("gateway", PATH));
    load.wait_for(300);
    first.kill();
    load.wait_for(600);
    let failures = load.stop();
    assert!(failures.is_empty(), "{} failures: {:?}", failures.len(), failures.first());
}
