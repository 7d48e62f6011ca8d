//! More than a server can do.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use crate::http::{get, post};
use crate::server::{PATIENCE, Start, eventually};

const RULES: &str = "
domain: d
rules:
  - {name: comfort, key: [user], limit: 1/day}
  - {name: login, key: [address], limit: 1/day, policy: security}
";
const CHECK: &str = "/v1/ratelimit/check";

#[test]
fn past_the_bound_checks_follow_their_policies() {
    let server = Start::new().rules(RULES).listen(&["http", "admin"]).args(&["--http-max-in-flight", "0"]).ready();
    for _ in 0..3 {
        let comfort = post(&server.url("http", CHECK), r#"{"attributes":{"user":"u"}}"#);
        assert_eq!(comfort.status, 200);
        assert_eq!(comfort.json()["source"], "shed");
    }
    let login = post(&server.url("http", CHECK), r#"{"attributes":{"address":"a"}}"#);
    assert_eq!(login.status, 503);
    assert!(login.body.contains("temporary-reduced-capacity"), "{}", login.body);
    let metrics = get(&server.url("admin", "/metrics")).body;
    let expected = r#"tollgate_decisions_total{wire="http",outcome="allow",source="shed"} 3"#;
    assert!(metrics.contains(expected), "{metrics}");
}

#[test]
fn connections_are_bounded() {
    let server = Start::new().rules(RULES).listen(&["http", "admin"]).args(&["--http-max-connections", "2"]).ready();
    let open = || {
        let mut stream = TcpStream::connect(server.address("http")).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(b"GET /livez HTTP/1.1\r\nhost: t\r\n\r\n").unwrap();
        let mut first = [0; 15];
        stream.read_exact(&mut first).ok().map(|()| stream)
    };
    let (one, two) = (open().unwrap(), open().unwrap());
    assert!(open().is_none());
    let metrics = get(&server.url("admin", "/metrics")).body;
    assert!(metrics.contains(r#"tollgate_connections_refused_total{listener="http"} 1"#), "{metrics}");
    drop(one);
    assert!(eventually(open).is_some());
    drop(two);
}
