//! Tollgate out of reach.

use super::{Config, Envoy, server};

#[test]
fn requests_pass_where_envoy_fails_open() {
    let mut server = server();
    let envoy = Envoy::before(&server);
    assert_eq!(envoy.statuses(4, "/public", &[]), [200, 200, 200, 429]);
    assert!(server.stop().success());
    let passed = envoy.get("/public", &[]);
    assert_eq!((passed.status, passed.header("x-ratelimit-limit")), (200, None));
    assert_eq!(envoy.statuses(5, "/public", &[]), [200; 5]);
}

#[test]
fn requests_are_refused_where_envoy_fails_closed() {
    let mut server = server();
    let envoy = Config::new(server.address("grpc")).fail_closed().start();
    assert_eq!(envoy.statuses(4, "/public", &[]), [200, 200, 200, 429]);
    assert!(server.stop().success());
    assert_eq!(envoy.statuses(3, "/public", &[]), [503; 3]);
    // What is not asked about does not depend on it.
    assert_eq!(envoy.get("/other", &[]).status, 200);
}
