//! Requests while Tollgate is unavailable.

use super::{Envoy, EnvoyConfig, server};

#[test]
fn requests_pass_if_envoy_fails_open() {
    let mut server = server();
    let envoy = Envoy::start(&server);
    assert_eq!(envoy.statuses(4, "/public", &[]), [200, 200, 200, 429]);
    assert!(server.stop().success());
    let passed = envoy.get("/public", &[]);
    assert_eq!((passed.status, passed.header("x-ratelimit-limit")), (200, None));
    assert_eq!(envoy.statuses(5, "/public", &[]), [200; 5]);
}

#[test]
fn requests_are_refused_if_envoy_fails_closed() {
    let mut server = server();
    let envoy = EnvoyConfig::new(server.address("grpc")).fail_closed().start();
    assert_eq!(envoy.statuses(4, "/public", &[]), [200, 200, 200, 429]);
    assert!(server.stop().success());
    assert_eq!(envoy.statuses(3, "/public", &[]), [503; 3]);
    // Routes without rate limits do not depend on it.
    assert_eq!(envoy.get("/other", &[]).status, 200);
}
