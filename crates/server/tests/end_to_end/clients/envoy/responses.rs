//! What clients receive: headers; and the metadata in Envoy's access log.

use tollgate_testing::eventually;

use super::{Envoy, EnvoyConfig, builder, server};
use crate::new_server;

#[test]
fn every_response_has_the_state_of_the_limit() {
    let server = server();
    let envoy = Envoy::start(&server);
    for remaining in [2, 1, 0, 0] {
        let response = envoy.get("/public", &[]);
        assert_eq!(response.header("x-ratelimit-limit"), Some("3"), "{response:?}");
        assert_eq!(response.number("x-ratelimit-remaining"), remaining);
        assert_eq!(response.header("x-ratelimit-policy"), Some("\"3;w=3600\""));
        assert_eq!(response.header("ratelimit-policy"), Some("\"public-route\";q=3;w=3600"));
        let limit = format!("\"public-route\";r={remaining};t=");
        assert!(response.header("ratelimit").is_some_and(|field| field.starts_with(&limit)), "{response:?}");
        // Envoy adds this header to refusals only.
        assert_eq!(response.header("x-limited-by").is_some(), response.status == 429);
        assert_eq!(response.header("retry-after").is_some(), response.status == 429);
    }
    let refused = envoy.get("/public", &[]);
    assert_eq!((refused.status, refused.header("x-ratelimit-denied-by")), (429, Some("public-route")));
    assert_eq!(refused.header("content-type"), Some("application/problem+json"));
    let body: serde_json::Value = serde_json::from_str(&refused.body).unwrap();
    assert_eq!((&body["title"], &body["allowed"]), (&"Rate limit exceeded".into(), &false.into()));
    assert_eq!(body["retry_after"].to_string(), refused.header("retry-after").unwrap());
    assert_eq!(envoy.get("/other", &[]).header("x-ratelimit-limit"), None);
}

#[test]
fn clients_get_nothing_but_the_status_if_that_is_set() {
    let server = builder().args(&["--grpc-responses", "status"]).start();
    let envoy = Envoy::start(&server);
    for status in [200, 200, 200, 429] {
        let response = envoy.get("/public", &[]);
        assert_eq!((response.status, response.body.is_empty()), (status, status == 429), "{response:?}");
        for name in ["x-ratelimit-limit", "ratelimit", "ratelimit-policy", "retry-after"] {
            assert_eq!(response.header(name), None, "{response:?}");
        }
    }
}

#[test]
fn tollgate_can_add_the_headers_of_envoyproxy_ratelimit() {
    let server = builder().args(&["--grpc-response-headers"]).start();
    let envoy = Envoy::start(&server);
    for remaining in [2, 1, 0, 0] {
        let response = envoy.get("/public", &[]);
        assert_eq!(response.header("ratelimit-limit"), Some("3"), "{response:?}");
        assert_eq!(response.number("ratelimit-remaining"), remaining);
        // A sliding window resets after two periods at most.
        assert!((1..=7200).contains(&response.number("ratelimit-reset")), "{response:?}");
    }
}

#[test]
fn envoy_logs_the_metadata_of_the_rules() {
    let with_metadata = builder().args(&["--grpc-dynamic-metadata"]).start();
    let envoy = Envoy::start(&with_metadata);
    assert_eq!(envoy.statuses(4, "/public", &[]), [200, 200, 200, 429]);
    let passed = r#"GET /public 200 via_upstream {"team":"storefront"}"#;
    let refused = "GET /public 429 request_rate_limited -";
    eventually(|| (envoy.process.output().contains(passed) && envoy.process.output().contains(refused)).then_some(()))
        .unwrap_or_else(|| panic!("{}", envoy.process.output()));

    let without_metadata = server();
    let envoy = EnvoyConfig::new(without_metadata.address("grpc")).start();
    envoy.get("/public", &[]);
    eventually(|| envoy.process.output().contains("GET /public 200 via_upstream -").then_some(()))
        .unwrap_or_else(|| panic!("{}", envoy.process.output()));
}

#[test]
fn envoy_logs_exceeded_soft_limits() {
    let rules = "domain: edge\nrules: [{name: gentle, key: [route], limit: 1/day, mode: soft}]\n";
    let args = ["--grpc-dynamic-metadata", "--grpc-response-headers"];
    let server = new_server().rules(rules).listen(&["grpc"]).args(&args).start();
    let envoy = Envoy::start(&server);
    let get = || {
        let response = envoy.get("/public", &[]);
        (response.status, response.header("x-ratelimit-signal").map(str::to_owned))
    };
    assert_eq!(get(), (200, None));
    assert_eq!(get(), (200, Some("gentle".to_owned())));
    let logged = r#"GET /public 200 via_upstream {"tollgate_signals":["gentle"]}"#;
    eventually(|| envoy.process.output().contains(logged).then_some(()))
        .unwrap_or_else(|| panic!("{}", envoy.process.output()));
}
