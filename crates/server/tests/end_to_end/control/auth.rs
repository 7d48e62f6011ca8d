//! Access control of real servers: tokens, loopback, certificates.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, SanType};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde_json::{Value, json};
use tollgate_proto::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use tollgate_proto::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::Entry;
use tollgate_proto::envoy::service::ratelimit::v3::RateLimitRequest;
use tollgate_proto::envoy::service::ratelimit::v3::rate_limit_service_client::RateLimitServiceClient;
use tollgate_testing::{Server, TIMEOUT, eventually};
use tonic::transport::Endpoint;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;

use crate::new_server;

const RULES: &str = "
domain: shop
entity: api_key
rules:
  - {name: per-key, key: [api_key], limit: 1000/day}
";

const ALL: [&str; 5] = ["read", "quota", "rules", "emergency", "audit"];
const SWITCHES: &str = "GET /admin/v1/switches";

struct RawResponse {
    status: u16,
    head: String,
    body: String,
}

impl RawResponse {
    #[track_caller]
    fn secret(&self) -> String {
        let body: Value = serde_json::from_str(&self.body).unwrap_or_else(|_| panic!("{} {}", self.head, self.body));
        body["token"].as_str().unwrap_or_else(|| panic!("{body}")).to_owned()
    }
}

/// Sends a request on this connection, which is closed after the response.
fn send_on(mut stream: impl Read + Write, target: &str, headers: &[&str], body: &Value) -> RawResponse {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let host = if headers.iter().any(|header| header.starts_with("Host:")) { "" } else { "Host: localhost\r\n" };
    let headers: String = headers.iter().map(|header| format!("{header}\r\n")).collect();
    let kind = "Content-Type: application/json";
    let request = format!(
        "{target} HTTP/1.1\r\n{host}{headers}{kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).unwrap();
    let mut response = Vec::new();
    // A TLS connection may end without a close notification.
    let _ = stream.read_to_end(&mut response);
    let response = String::from_utf8(response).unwrap();
    let (head, body) = response.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{response:?}"));
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    RawResponse { status, head: head.to_owned(), body: body.to_owned() }
}

fn connect(server: &Server, listener: &str) -> TcpStream {
    let stream = TcpStream::connect(server.address(listener)).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    stream
}

fn send(server: &Server, target: &str, headers: &[&str], body: &Value) -> RawResponse {
    send_on(connect(server, "admin"), target, headers, body)
}

fn send_with_token(server: &Server, token: &str, target: &str, body: &Value) -> RawResponse {
    send(server, target, &[&format!("Authorization: Bearer {token}")], body)
}

fn create_token(server: &Server, token: Option<&str>, body: &Value) -> RawResponse {
    match token {
        Some(token) => send_with_token(server, token, "POST /admin/v1/tokens", body),
        None => send(server, "POST /admin/v1/tokens", &[], body),
    }
}

fn create_first_token(server: &Server) -> String {
    create_token(server, None, &json!({"name": "ops", "scopes": ALL})).secret()
}

#[test]
fn without_a_token_only_loopback_has_access() {
    let server = new_server().rules(RULES).listen(&["admin"]).start();
    server.wait_for_log("admin API: loopback only (no token configured)");
    let rows: [(&str, u16); 7] = [
        ("Accept: */*", 200),
        ("Host: rebound.example", 403),
        ("Host: rebound.example:8070", 403),
        ("Origin: http://evil.example", 403),
        ("Origin: null", 403),
        ("Sec-Fetch-Site: cross-site", 403),
        ("Sec-Fetch-Site: same-site", 403),
    ];
    for (header, status) in rows {
        let response = send(&server, SWITCHES, &[header], &Value::Null);
        assert_eq!(response.status, status, "{header}");
        assert!(response.head.contains("\r\ncache-control: no-store"), "{}", response.head);
        assert!(response.head.contains("\r\nx-content-type-options: nosniff"), "{}", response.head);
        let open_page = if header.starts_with("Host: rebound") { 403 } else { 200 };
        for page in ["GET /metrics", "GET /readyz"] {
            assert_eq!(send(&server, page, &[header], &Value::Null).status, open_page, "{page} {header}");
        }
    }
    // A form of a web page can't send JSON.
    let form = "POST /admin/v1/tokens HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\
                Connection: close\r\n\r\n{}";
    let mut stream = connect(&server, "admin");
    stream.write_all(form.as_bytes()).unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).unwrap();
    assert!(response.starts_with("HTTP/1.1 415 "), "{response}");
}

#[test]
fn a_unix_socket_has_the_access_of_loopback() {
    let builder = new_server().rules(RULES);
    let path = builder.home().join("admin.sock");
    let _server = builder.args(&["--admin", &format!("unix:{}", path.display())]).start();
    let stream = UnixStream::connect(&path).unwrap();
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    assert_eq!(send_on(stream, SWITCHES, &["Host: whatever"], &Value::Null).status, 200);
}

#[test]
fn a_listener_beyond_loopback_requires_a_token() {
    let open = ["--admin", "0.0.0.0:0"];
    let (code, log) = new_server().rules(RULES).args(&open).run_to_exit();
    assert_eq!(code, Some(1));
    assert!(
        log.contains("0.0.0.0:0 can be reached from other machines") && log.contains("--admin-token-file"),
        "{log}"
    );

    // A token that was created on loopback suffices, also without the database.
    let server = new_server().rules(RULES).listen(&["admin"]).start();
    let ops = create_first_token(&server);
    let server = server.restart().args(&open).start();
    let port = server.address("admin").rsplit(':').next().unwrap().to_owned();
    let to = || TcpStream::connect(format!("127.0.0.1:{port}")).unwrap();
    assert_eq!(send_on(to(), SWITCHES, &[], &Value::Null).status, 401);
    let authorization = format!("Authorization: Bearer {ops}");
    assert_eq!(send_on(to(), SWITCHES, &["Host: tollgate.internal", &authorization], &Value::Null).status, 200);
    assert_eq!(send_on(to(), "DELETE /admin/v1/tokens/ops", &[&authorization], &Value::Null).status, 409);
}

#[test]
fn a_public_listener_from_envoys_environment_starts_with_a_warning() {
    let builder = new_server().rules(RULES);
    // The listener's port comes from the environment, so it can't be a flag too.
    let port = tollgate_testing::free_port().to_string();
    let builder =
        builder.args(&["--envoy-env", "--admin-max-connections", "9"]).env("DEBUG_PORT", &port).without_flag("admin");
    let server = builder.start();
    server.wait_for_log("like that of envoyproxy/ratelimit, and there is no access control");
    let to = || TcpStream::connect(format!("127.0.0.1:{port}")).unwrap();
    // A sidecar connects from loopback too, on behalf of others.
    for target in [SWITCHES, "GET /admin/v1/me", "GET /rlconfig"] {
        assert_eq!(send_on(to(), target, &[], &Value::Null).status, 403, "{target}");
    }
    assert_eq!(create_token_on(to()).status, 403);
    assert_eq!(send_on(to(), "GET /metrics", &["Host: tollgate.internal"], &Value::Null).status, 200);
    assert_eq!(send_on(to(), "GET /readyz", &[], &Value::Null).status, 200);
}

fn create_token_on(stream: TcpStream) -> RawResponse {
    send_on(stream, "POST /admin/v1/tokens", &[], &json!({"name": "ops", "scopes": ALL}))
}

#[test]
fn tokens_survive_a_restart_and_revocation_is_immediate() {
    let server = new_server().rules(RULES).listen(&["admin"]).start();
    let ops = create_first_token(&server);
    assert_eq!(send(&server, SWITCHES, &[], &Value::Null).status, 401);
    let reader = create_token(&server, Some(&ops), &json!({"name": "reader", "scopes": ["read"]})).secret();
    let server = server.restart().listen(&["admin"]).start();
    assert!(!server.log().contains("no token configured"));
    let status = |token: &str| send_with_token(&server, token, SWITCHES, &Value::Null).status;
    assert_eq!((status(&ops), status(&reader)), (200, 200));
    let put = json!({"overrides": [{"rule": "per-key", "limit": "7/day"}]});
    assert_eq!(send_with_token(&server, &reader, "PUT /admin/v1/quotas/k1", &put).status, 403);
    assert_eq!(send_with_token(&server, &ops, "PUT /admin/v1/quotas/k1", &put).status, 200);
    let quota: Value =
        serde_json::from_str(&send_with_token(&server, &ops, "GET /admin/v1/quotas/k1", &Value::Null).body).unwrap();
    assert_eq!(quota["updated_by"], "token ops");

    let fresh = send_with_token(&server, &ops, "POST /admin/v1/tokens/reader/rotate", &json!({"grace": "1h"})).secret();
    assert_eq!((status(&reader), status(&fresh)), (200, 200));
    let fresher =
        send_with_token(&server, &ops, "POST /admin/v1/tokens/reader/rotate", &json!({"grace": "0s"})).secret();
    assert_eq!((status(&reader), status(&fresh), status(&fresher)), (401, 401, 200));
    assert_eq!(send_with_token(&server, &ops, "DELETE /admin/v1/tokens/reader", &Value::Null).status, 200);
    assert_eq!(status(&fresher), 401);
    let brief = create_token(&server, Some(&ops), &json!({"name": "brief", "scopes": ["read"], "for": "1s"})).secret();
    assert!(eventually(|| (status(&brief) == 401).then_some(())).is_some());
    for secret in [&ops, &reader, &fresh, &fresher, &brief] {
        assert!(!server.log().contains(&secret[3..]));
    }
}

#[test]
fn failed_logins_are_throttled_logged_and_audited_and_lock_nobody_out() {
    let server = new_server().rules(RULES).listen(&["admin"]).start();
    let ops = create_first_token(&server);
    let guess = || send_with_token(&server, "tg_guessed", SWITCHES, &Value::Null);
    let statuses: Vec<u16> = (0..10).map(|_| guess().status).collect();
    assert_eq!(statuses, [401; 10]);
    // One response is replenished every 6 s, and the machine may be slow.
    let mut throttled = None;
    for _ in 0..10 {
        let response = guess();
        if response.status == 429 {
            throttled = Some(response);
        }
        // From the same address.
        assert_eq!(send_with_token(&server, &ops, SWITCHES, &Value::Null).status, 200);
    }
    let throttled = throttled.expect("guesses are throttled");
    assert!(throttled.head.contains("retry-after: 6"), "{}", throttled.head);
    let metrics = send(&server, "GET /metrics", &[], &Value::Null).body;
    let failed = metrics.lines().find_map(|line| line.strip_prefix("tollgate_admin_logins_failed_total "));
    assert_eq!(failed, Some("20"));
    server.wait_for_log("access to the admin API was refused");
    let is_audited = || {
        let log = send_with_token(&server, &ops, "GET /admin/v1/audit?kind=access&name=unknown_token", &Value::Null);
        let log: Value = serde_json::from_str(&log.body).unwrap();
        let entry = &log["items"][0];
        (entry["from"] == "127.0.0.1" && entry["after"]["count"].as_u64()? > 0).then_some(())
    };
    assert!(eventually(is_audited).is_some(), "{}", server.log());
    let warnings = server.log().lines().filter(|line| line.contains("access to the admin API was refused")).count();
    assert!(warnings < 5, "{}", server.log());
    assert!(!server.log().contains("tg_guessed"));
}

#[test]
fn changes_of_a_token_file_take_effect() {
    let builder = new_server().rules(RULES).listen(&["admin"]);
    let path = builder.home().join("token");
    let name = path.display().to_string();
    fs::write(&path, "short\n").unwrap();
    let (code, log) = builder.args(&["--admin-token-file", &name]).run_to_exit();
    assert_eq!(code, Some(1));
    assert!(log.contains("has fewer than 16 bytes"), "{log}");

    let builder = new_server().rules(RULES).args(&["--admin", "0.0.0.0:0"]);
    let path = builder.home().join("token");
    fs::write(&path, "the-first-token-of-the-file\n").unwrap();
    let server = builder.args(&["--admin-token-file", &path.display().to_string()]).start();
    server.wait_for_log("can be read by others than its owner");
    let port = server.address("admin").rsplit(':').next().unwrap().to_owned();
    let status = |token: &str| {
        let stream = TcpStream::connect(format!("127.0.0.1:{port}")).unwrap();
        send_on(stream, SWITCHES, &[&format!("Authorization: Bearer {token}")], &Value::Null).status
    };
    assert_eq!(status("the-first-token-of-the-file"), 200);
    replace(&path, "the-second-token-of-the-file\n");
    server.wait_for_log("the token was replaced");
    assert_eq!((status("the-first-token-of-the-file"), status("the-second-token-of-the-file")), (401, 200));
    replace(&path, "short");
    server.wait_for_log("the previous token stays in force");
    assert_eq!(status("the-second-token-of-the-file"), 200);
    let ready = TcpStream::connect(format!("127.0.0.1:{port}")).unwrap();
    assert!(send_on(ready, "GET /readyz", &[], &Value::Null).body.contains("admin_token_file"));
}

fn replace(path: &Path, text: &str) {
    let new = path.with_extension("new");
    fs::write(&new, text).unwrap();
    fs::rename(&new, path).unwrap();
}

/// A certificate authority.
struct Ca {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl Ca {
    fn new() -> Ca {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, "ca");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).unwrap().pem();
        Ca { issuer: Issuer::new(params, key), pem }
    }

    fn sign(&self, sans: Vec<SanType>) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.subject_alt_names = sans;
        (params.signed_by(&key, &self.issuer).unwrap().pem(), key.serialize_pem())
    }

    /// Connects with a certificate for this name.
    fn connect(&self, server: &Server, san: SanType) -> StreamOwned<ClientConnection, TcpStream> {
        let (cert, key) = self.sign(vec![san]);
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(self.pem.as_bytes()).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots)
            .with_client_auth_cert(
                vec![CertificateDer::from_pem_slice(cert.as_bytes()).unwrap()],
                PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap(),
            )
            .unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        StreamOwned::new(ClientConnection::new(Arc::new(config), name).unwrap(), connect(server, "admin"))
    }
}

#[test]
fn certificates_have_the_scopes_of_their_names() {
    let ca = Ca::new();
    let builder = new_server().rules(RULES).listen(&["admin"]);
    let file = |name: &str, text: &str| {
        let path = builder.home().join(name);
        fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let (cert, key) = ca.sign(vec![SanType::DnsName("localhost".try_into().unwrap())]);
    let (cert, key, authority) = (file("cert.pem", &cert), file("key.pem", &key), file("ca.pem", &ca.pem));
    let identities = "spiffe://corp/ops=all,billing.internal=read";
    let (code, log) =
        new_server().rules(RULES).listen(&["admin"]).args(&["--admin-identities", identities]).run_to_exit();
    assert!(code == Some(2) && log.contains("`admin_identities` needs `admin_tls_client_ca`"), "{code:?} {log}");
    let tls = ["--admin-tls-cert", &cert, "--admin-tls-key", &key, "--admin-tls-client-ca", &authority];
    let server = builder.args(&tls).args(&["--admin-identities", identities]).start();

    let uri = |name: &str| SanType::URI(name.try_into().unwrap());
    let dns = |name: &str| SanType::DnsName(name.try_into().unwrap());
    let put = json!({"overrides": [{"rule": "per-key", "limit": "7/day"}]});
    for (san, read, written) in [
        (uri("spiffe://corp/ops"), 200, 200),
        (dns("billing.internal"), 200, 403),
        (uri("spiffe://corp/other"), 403, 403),
        (dns("localhost"), 403, 403),
    ] {
        let status = |target, body: &Value| send_on(ca.connect(&server, san.clone()), target, &[], body).status;
        assert_eq!(
            (status(SWITCHES, &Value::Null), status("PUT /admin/v1/quotas/k1", &put)),
            (read, written),
            "{san:?}"
        );
    }
    let ops = || ca.connect(&server, uri("spiffe://corp/ops"));
    let quota = send_on(ops(), "GET /admin/v1/quotas/k1", &[], &Value::Null);
    assert!(quota.body.contains(r#""updated_by":"certificate spiffe://corp/ops""#), "{}", quota.body);
    assert_eq!(send_on(ops(), SWITCHES, &["Origin: https://evil.example"], &Value::Null).status, 403);
}

#[tokio::test]
async fn with_token_authentication_checks_require_a_token() {
    let builder = new_server().rules(RULES).listen(&["admin", "http", "grpc"]);
    let server = builder.args(&["--http-auth", "token", "--grpc-auth", "token"]).start();
    server.wait_for_log("checks need a token, but there is none");
    let ops = create_first_token(&server);
    let gate = create_token(&server, Some(&ops), &json!({"name": "gate", "scopes": ["check"]})).secret();
    let body = json!({"api_key": "k1"});
    let (bearer, own) =
        (|token: &str| format!("Authorization: Bearer {token}"), |token: &str| format!("X-Tollgate-Token: {token}"));
    let check = "POST /v1/ratelimit/check";
    let rows = [
        (check, "Accept: */*".to_owned(), 401),
        (check, bearer("tg_unknown"), 401),
        (check, bearer(&ops), 401),
        (check, bearer(&gate), 200),
        (check, own(&gate), 200),
        ("POST /v1/ratelimit/explain", bearer(&gate), 200),
        ("POST /v1/ratelimit/explain", "Accept: */*".to_owned(), 401),
        ("POST /v1/ratelimit/settle", "Accept: */*".to_owned(), 401),
        ("POST /json", "Accept: */*".to_owned(), 401),
        ("GET /v1/ratelimit/status/k1", "Accept: */*".to_owned(), 401),
        ("GET /v1/ratelimit/status/k1", bearer(&gate), 200),
        // A forwarded Authorization header belongs to the client of the proxy.
        ("GET /v1/ratelimit/authorize", bearer(&gate), 401),
        ("GET /v1/ratelimit/authorize", own(&gate), 200),
        ("GET /livez", "Accept: */*".to_owned(), 200),
        ("GET /readyz", "Accept: */*".to_owned(), 200),
        ("GET /healthcheck", "Accept: */*".to_owned(), 200),
        ("GET /openapi.json", "Accept: */*".to_owned(), 200),
    ];
    for (target, header, status) in &rows {
        let body = if target.starts_with("POST") { &body } else { &Value::Null };
        let response = send_on(connect(&server, "http"), target, &[header], body);
        assert_eq!(response.status, *status, "{target} {header} {}", response.body);
        let challenge = "www-authenticate: Bearer realm=\"tollgate\"";
        assert_eq!(response.head.contains(challenge), *status == 401, "{}", response.head);
    }

    let channel = Endpoint::from_shared(format!("http://{}", server.address("grpc"))).unwrap().connect().await.unwrap();
    let mut client = RateLimitServiceClient::new(channel.clone());
    let entry = Entry { key: "api_key".to_owned(), value: "k1".into() };
    let descriptors = vec![RateLimitDescriptor { entries: vec![entry], ..RateLimitDescriptor::default() }];
    let message = RateLimitRequest { domain: "shop".to_owned(), descriptors, hits_addend: 0 };
    for (token, passes) in [(None, false), (Some(&ops), false), (Some(&gate), true)] {
        let mut request = tonic::Request::new(message.clone());
        if let Some(token) = token {
            request.metadata_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
        }
        let response = client.should_rate_limit(request).await;
        assert_eq!(
            response.as_ref().map(|_| ()).map_err(tonic::Status::code),
            if passes { Ok(()) } else { Err(tonic::Code::Unauthenticated) }
        );
    }
    let health = HealthClient::new(channel).check(HealthCheckRequest::default()).await;
    assert!(health.is_ok(), "{health:?}");
    // A revoked token gives no access.
    assert_eq!(send_with_token(&server, &ops, "DELETE /admin/v1/tokens/gate", &Value::Null).status, 200);
    assert_eq!(send_on(connect(&server, "http"), check, &[&bearer(&gate)], &body).status, 401);
}
