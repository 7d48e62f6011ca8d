//! Web pages in an operator's browser.

use super::{HostSettings, HttpConfig, RULES, Reply, Server, config};
use tokio::io::AsyncWriteExt;

const BODY: &str = r#"{"api_key": "k"}"#;

/// The status of a request with these headers, and no others.
async fn send(server: &Server, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> u16 {
    let mut connection = server.connect();
    let headers: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let request = format!("{method} {path} HTTP/1.1\r\n{headers}Content-Length: {}\r\n\r\n{body}", body.len());
    connection.write_all(request.as_bytes()).await.unwrap();
    Reply::read(&mut connection, false).await.status
}

const OWN: (&str, &str) = ("Host", "127.0.0.1:8080");
const EVIL: (&str, &str) = ("Origin", "http://evil.example");
const PLAIN: (&str, &str) = ("Content-Type", "text/plain");

#[tokio::test]
async fn a_page_spends_no_quota() {
    let server = Server::new(RULES);
    for path in ["/v1/ratelimit/check", "/v1/ratelimit/settle", "/v1/ratelimit/explain"] {
        assert_eq!(send(&server, "POST", path, &[OWN, EVIL, PLAIN], BODY).await, 403, "{path}");
        // By DNS rebinding it has the origin that it calls.
        let rebound = [("Host", "evil.example:8080"), ("Origin", "http://evil.example:8080")];
        let json = ("Content-Type", "application/json");
        assert_eq!(send(&server, "POST", path, &[&rebound[..], &[json]].concat(), BODY).await, 403, "{path}");
    }
    assert_eq!(server.check(BODY).await.json()["remaining"], 2);
}

#[tokio::test]
async fn a_page_reads_nothing() {
    let server = Server::new(RULES);
    let rows: [(&[(&str, &str)], u16); 6] = [
        (&[OWN], 200),
        (&[OWN, EVIL], 403),
        (&[OWN, ("Sec-Fetch-Site", "cross-site")], 403),
        (&[("Host", "evil.example:8080")], 403),
        (&[("Host", "tollgate.internal:8080")], 200),
        (&[("Host", "192.0.2.1:8080")], 200),
    ];
    for (headers, status) in rows {
        assert_eq!(send(&server, "GET", "/v1/ratelimit/status/k", headers, "").await, status, "{headers:?}");
        assert_eq!(send(&server, "POST", "/v1/ratelimit/explain", headers, BODY).await, status, "{headers:?}");
        assert_eq!(send(&server, "GET", "/livez", headers, "").await, 200, "{headers:?}");
    }
    // A listener that others reach has whatever names they give it.
    let hosts = HostSettings { is_loopback: false, allowed: Vec::new() };
    let public = Server::build(HttpConfig { hosts, ..config(RULES, false, 9) });
    let named = [("Host", "tollgate.example")];
    assert_eq!(send(&public, "POST", "/v1/ratelimit/explain", &named, BODY).await, 200);
    assert_eq!(send(&public, "POST", "/v1/ratelimit/explain", &[named[0], EVIL], BODY).await, 403);
}

/// Gateways choose `Host`, and forward what their clients send.
#[tokio::test]
async fn gateways_are_no_pages() {
    let server = Server::new("domain: d\nrules: [{name: r, key: [], limit: 100/day}]\n");
    let browser = [("Host", "shop.example"), EVIL, ("Sec-Fetch-Site", "cross-site"), ("X-Api-Key", "k")];
    assert_eq!(send(&server, "GET", "/v1/ratelimit/authorize", &browser, "").await, 200);
    assert_eq!(send(&server, "POST", "/v1/ratelimit/check", &[("Host", "tollgate")], BODY).await, 200);
    let json = [OWN, EVIL, ("Content-Type", "application/json; charset=utf-8")];
    assert_eq!(send(&server, "POST", "/v1/ratelimit/check", &json, BODY).await, 200);
    // A page gets no permission for such a request.
    let preflight = [OWN, EVIL, ("Access-Control-Request-Method", "POST")];
    assert_eq!(send(&server, "OPTIONS", "/v1/ratelimit/check", &preflight, "").await, 403);
}

#[tokio::test]
async fn responses_with_data_are_not_stored() {
    let server = Server::new(RULES);
    for reply in
        [server.get("/v1/ratelimit/status/k").await, server.ask("POST", "/v1/ratelimit/explain", &[], BODY).await]
    {
        assert_eq!(
            (reply.header("cache-control"), reply.header("x-content-type-options")),
            (Some("no-store"), Some("nosniff"))
        );
    }
}
