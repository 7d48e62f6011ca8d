//! What clients are told: headers, and what Envoy's own log knows.

use tollgate_testing::eventually;

use super::{Config, Envoy, builder, server};
use crate::new_server;

#[test]
fn every_answer_says_how_the_limit_stands() {
    let server = server();
    let envoy = Envoy::before(&server);
    for remaining in [2, 1, 0, 0] {
        let answer = envoy.get("/public", &[]);
        assert_eq!(answer.header("x-ratelimit-limit"), Some("3, 3;w=3600;name=\"public-route\""), "{answer:?}");
        assert_eq!(answer.number("x-ratelimit-remaining"), remaining);
        // The sliding window forgets the last of it two periods later at most.
        assert!((1..=7200).contains(&answer.number("x-ratelimit-reset")), "{answer:?}");
        // Envoy adds this to refusals alone.
        assert_eq!(answer.header("x-limited-by").is_some(), answer.status == 429);
    }
    assert_eq!(envoy.get("/other", &[]).header("x-ratelimit-limit"), None);
}

#[test]
fn tollgate_may_add_headers_of_its_own() {
    let server = builder().args(&["--grpc-response-headers"]).start();
    let envoy = Envoy::before(&server);
    for remaining in [2, 1, 0, 0] {
        let answer = envoy.get("/public", &[]);
        assert_eq!(answer.header("ratelimit-limit"), Some("3"), "{answer:?}");
        assert_eq!(answer.number("ratelimit-remaining"), remaining);
        assert_eq!(answer.header("ratelimit-reset"), answer.header("x-ratelimit-reset"));
    }
}

#[test]
fn envoy_sees_the_metadata_of_the_rules() {
    let asked = builder().args(&["--grpc-dynamic-metadata"]).start();
    let envoy = Envoy::before(&asked);
    assert_eq!(envoy.statuses(4, "/public", &[]), [200, 200, 200, 429]);
    let passed = r#"GET /public 200 via_upstream {"team":"storefront"}"#;
    let refused = "GET /public 429 request_rate_limited -";
    eventually(|| (envoy.process.said().contains(passed) && envoy.process.said().contains(refused)).then_some(()))
        .unwrap_or_else(|| panic!("{}", envoy.process.said()));

    let not_asked = server();
    let envoy = Config::new(not_asked.address("grpc")).start();
    envoy.get("/public", &[]);
    eventually(|| envoy.process.said().contains("GET /public 200 via_upstream -").then_some(()))
        .unwrap_or_else(|| panic!("{}", envoy.process.said()));
}

#[test]
fn envoy_sees_the_soft_limits_that_were_passed() {
    let rules = "domain: edge\nrules: [{name: gentle, key: [route], limit: 1/day, mode: soft}]\n";
    let told = ["--grpc-dynamic-metadata", "--grpc-response-headers"];
    let server = new_server().rules(rules).listen(&["grpc"]).args(&told).start();
    let envoy = Envoy::before(&server);
    let ask = || {
        let answer = envoy.get("/public", &[]);
        (answer.status, answer.header("x-ratelimit-signal").map(str::to_owned))
    };
    assert_eq!(ask(), (200, None));
    assert_eq!(ask(), (200, Some("gentle".to_owned())));
    let logged = r#"GET /public 200 via_upstream {"tollgate_signals":["gentle"]}"#;
    eventually(|| envoy.process.said().contains(logged).then_some(()))
        .unwrap_or_else(|| panic!("{}", envoy.process.said()));
}
