//! Who is let in, on connections from here and from elsewhere.

mod place;
mod unconfirmed;

use std::net::Ipv4Addr;

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tollgate::{ManualClock, MemoryConfig, Span, Timestamp};
use tollgate_control::DbLocation;
use tollgate_events::Subscriptions;

use super::*;
use crate::rule_source::{LayerHandle, RuleSource};
use crate::store_of_record::{ControlPlaneParts, Loaded, Sources, load};
use crate::{Admin, AdminParts};
use tollgate_net::closing::Closer;
use tollgate_telemetry::Health;

/// An admin listener with a store of record of its own.
struct Served {
    admin: Arc<Admin>,
    auth: Arc<Auth>,
    metrics: Arc<Metrics>,
    control: Arc<ControlPlane>,
    clock: ManualClock,
    _folder: TempDir,
}

#[derive(Debug)]
struct Reply {
    status: u16,
    head: String,
    body: Value,
}

const ALL: [&str; 5] = ["read", "quota", "rules", "emergency", "audit"];

async fn served(setup: AuthConfig) -> Served {
    let folder = tempfile::tempdir().unwrap();
    let place = Some(DbLocation::File(folder.path().join("control.db")));
    let loaded = load(&Sources { place, copy: None, snapshots: None }).await.unwrap();
    served_from(setup, loaded, folder)
}

/// Another server with the same store of record. What others write it hears of when it looks.
async fn another_server(served: &Served) -> Served {
    let place = Some(DbLocation::File(served._folder.path().join("control.db")));
    let loaded = load(&Sources { place, copy: None, snapshots: None }).await.unwrap();
    served_from(AuthConfig::default(), loaded, tempfile::tempdir().unwrap())
}

/// A server that others can reach, and its first token, which was made while they could not.
async fn open_to_others() -> (Served, String) {
    let first = served(AuthConfig::default()).await;
    let ops = first.first().await;
    let place = Some(DbLocation::File(first._folder.path().join("control.db")));
    let loaded = load(&Sources { place, copy: None, snapshots: None }).await.unwrap();
    (served_from(AuthConfig { is_open: true, ..AuthConfig::default() }, loaded, first._folder), ops)
}

fn served_from(setup: AuthConfig, loaded: Loaded, folder: TempDir) -> Served {
    let file = tollgate_rules::RuleFile {
        name: "r.yaml".to_owned(),
        text: "domain: shop\nentity: api_key\nrules:\n- {name: per-key, key: [api_key], limit: 5/day}\n".to_owned(),
    };
    let rules = tollgate_rules::load_sources(&[file], &tollgate::LoadOptions::default()).unwrap();
    let rules = tollgate::Ruleset::compile(rules.domains, 1).unwrap();
    let limiter = Arc::new(tollgate::Limiter::new(rules, MemoryConfig::default().build().into()));
    let (metrics, health) = (Metrics::new(), Arc::new(Health::default()));
    let (layer, clock) = (LayerHandle::default(), ManualClock::default());
    clock.set(Timestamp::from_secs(1_000_000));
    let parts = ControlPlaneParts {
        limiter,
        rules: RuleSource::new(Vec::new(), tollgate::LoadOptions::default(), layer.clone()),
        layer,
        health: health.clone(),
        metrics: metrics.control().clone(),
        changes: metrics.changes().clone(),
        clock: Box::new(clock.clone()),
    };
    let control = ControlPlane::new(loaded, parts);
    let keys = Arc::new(TokenIndex::new(control.clone()));
    let auth = Arc::new(Auth::new(setup, keys, control.clone(), &metrics).unwrap());
    let observability = crate::observe::Observability::for_tests();
    let guardrails = crate::guardrails::Guardrails::for_tests(&control, &observability, &metrics);
    let admin = Admin::new(AdminParts {
        metrics: metrics.clone(),
        health,
        control: control.clone(),
        auth: auth.clone(),
        observability,
        gateway: None,
        sinks: Subscriptions::none(),
        guardrails,
    });
    Served { admin, auth, metrics, control, clock, _folder: folder }
}

/// A connection from an address to one of this machine.
fn peer(address: [u8; 4], local: [u8; 4]) -> ClientPeer {
    ClientPeer {
        address: PeerAddress::Ip(Ipv4Addr::from(address).into()),
        local: Some(Ipv4Addr::from(local).into()),
        names: None,
    }
}

fn here() -> ClientPeer {
    peer([127, 0, 0, 1], [127, 0, 0, 1])
}

fn elsewhere() -> ClientPeer {
    peer([192, 0, 2, 7], [192, 0, 2, 1])
}

fn on_unix() -> ClientPeer {
    ClientPeer { address: PeerAddress::Unix, local: None, names: None }
}

fn certified(names: &[&str]) -> ClientPeer {
    ClientPeer { names: Some(names.iter().map(|name| San::parse(name)).collect()), ..elsewhere() }
}

impl Served {
    async fn ask(&self, peer: ClientPeer, what: &str, headers: &[&str], body: &str) -> Reply {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let (_closer, closing) = Closer::new();
        let server = self.admin.clone().serve_peer(Stream::Unix(ours), closing, Arc::default(), peer);
        let host = if headers.iter().any(|header| header.starts_with("Host:")) { "" } else { "Host: localhost\r\n" };
        let headers: String = headers.iter().map(|header| format!("{header}\r\n")).collect();
        let request = format!(
            "{what} HTTP/1.1\r\n{host}{headers}Connection: close\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        let client = async {
            theirs.write_all(request.as_bytes()).await.unwrap();
            let mut answer = String::new();
            theirs.read_to_string(&mut answer).await.unwrap();
            answer
        };
        let ((), answer) = tokio::join!(server, client);
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Reply { status, head: head.to_owned(), body: serde_json::from_str(body).unwrap_or_default() }
    }

    async fn status(&self, peer: ClientPeer, what: &str, headers: &[&str]) -> u16 {
        self.ask(peer, what, headers, "").await.status
    }

    /// As a token's holder.
    async fn by(&self, token: &str, what: &str, body: &Value) -> Reply {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        self.ask(elsewhere(), what, &[&format!("Authorization: Bearer {token}")], &body).await
    }

    /// Makes the first token, from this machine.
    async fn first(&self) -> String {
        let body = json!({"name": "ops", "scopes": ALL}).to_string();
        let made = self.ask(here(), "POST /admin/v1/tokens", &[], &body).await;
        assert_eq!(made.status, 200, "{made:?}");
        made.secret()
    }

    /// Makes another.
    async fn make(&self, by: &str, body: Value) -> Reply {
        self.by(by, "POST /admin/v1/tokens", &body).await
    }

    fn later(&self, span: Span) {
        self.clock.set(self.control.now().after(span));
    }

    fn failures(&self) -> u64 {
        self.metrics.admin_logins_failed().get()
    }
}

impl Reply {
    #[track_caller]
    fn secret(&self) -> String {
        self.body["token"].as_str().unwrap_or_else(|| panic!("{self:?}")).to_owned()
    }

    fn code(&self) -> &str {
        self.body["code"].as_str().unwrap_or_default()
    }
}

const SWITCHES: &str = "GET /admin/v1/switches";

#[tokio::test]
async fn with_nothing_set_up_this_machine_alone_is_let_in() {
    let served = served(AuthConfig::default()).await;
    let rows: [(ClientPeer, &[&str], u16); 10] = [
        (here(), &[], 200),
        (here(), &["Host: 127.0.0.1:8070"], 200),
        (here(), &["Host: [::1]:8070"], 200),
        (here(), &["Host: evil.example"], 403),
        (here(), &["Sec-Fetch-Site: cross-site"], 403),
        (here(), &["Sec-Fetch-Site: same-site"], 403),
        (here(), &["Origin: http://evil.example"], 403),
        (here(), &["Origin: http://localhost", "Sec-Fetch-Site: same-origin"], 200),
        (elsewhere(), &[], 403),
        (on_unix(), &["Host: whatever"], 200),
    ];
    for (peer, headers, status) in rows {
        for what in [SWITCHES, "GET /rlconfig", "GET /admin/v1/rules", "GET /admin/v1/domains", "GET /admin/v1/tokens"]
        {
            assert_eq!(served.status(peer.clone(), what, headers).await, status, "{what} {peer:?} {headers:?}");
        }
        for what in ["GET /metrics", "GET /livez", "GET /"] {
            let status = if headers == ["Host: evil.example"] && what != "GET /" { 403 } else { 200 };
            assert_eq!(served.status(peer.clone(), what, headers).await, status, "{what} {peer:?} {headers:?}");
        }
    }
    let unknown = served.ask(here(), SWITCHES, &["Authorization: Bearer tg_none"], "").await;
    assert_eq!(unknown.status, 401, "{unknown:?}");
}

#[tokio::test]
async fn a_token_is_let_in_for_its_scopes_and_nobody_else_is() {
    let (served, ops) = open_to_others().await;
    for peer in [here(), elsewhere(), on_unix()] {
        let nobody = served.ask(peer, SWITCHES, &[], "").await;
        assert_eq!((nobody.status, nobody.code()), (401, "unauthorized"));
        assert!(nobody.head.to_ascii_lowercase().contains("www-authenticate: bearer realm=\"tollgate\""), "{nobody:?}");
    }
    let reader = served.make(&ops, json!({"name": "reader", "scopes": ["read"]})).await.secret();
    let biller = served.make(&ops, json!({"name": "biller", "scopes": ["quota", "check"]})).await.secret();
    let put = json!({"overrides": [{"rule": "per-key", "limit": "7/day"}]});
    let (list, write) = (SWITCHES, "PUT /admin/v1/quotas/k1");
    for (token, what, body, status) in [
        (&ops, list, &Value::Null, 200),
        (&reader, list, &Value::Null, 200),
        (&biller, list, &Value::Null, 403),
        (&reader, "GET /rlconfig", &Value::Null, 200),
        (&biller, "GET /rlconfig", &Value::Null, 403),
        (&reader, write, &put, 403),
        (&biller, write, &put, 200),
        (&reader, "GET /admin/v1/tokens", &Value::Null, 403),
        (&biller, "POST /admin/v1/tokens", &json!({"name": "x", "scopes": ["read"]}), 403),
        (&ops, "GET /admin/v1/tokens", &Value::Null, 200),
    ] {
        let reply = served.by(token, what, body).await;
        assert_eq!(reply.status, status, "{what} {reply:?}");
    }
    // A page of another site may not, even with a token.
    let authorization = format!("Authorization: Bearer {ops}");
    for header in ["Origin: http://evil.example", "Sec-Fetch-Site: cross-site"] {
        assert_eq!(served.status(here(), SWITCHES, &[&authorization, header]).await, 403, "{header}");
    }
    assert_eq!(served.status(elsewhere(), SWITCHES, &[&authorization, "Host: tollgate.internal"]).await, 200);
    assert_eq!(served.status(elsewhere(), "GET /metrics", &[]).await, 200);
}

#[tokio::test]
async fn tokens_end_are_rotated_and_revoked_from_one_request_to_the_next() {
    let (served, ops) = open_to_others().await;
    let status = async |token: &str| served.by(token, SWITCHES, &Value::Null).await.status;

    let short = served.make(&ops, json!({"name": "short", "scopes": ["read"], "for": "1h"})).await;
    assert_eq!(short.body["expires_at"], "1970-01-12T14:46:40Z");
    let short = short.secret();
    assert_eq!(status(&short).await, 200);
    served.later(Span::from_secs(3_599));
    assert_eq!(status(&short).await, 200);
    served.later(Span::from_secs(1));
    assert_eq!(status(&short).await, 401);

    let rotated = served.by(&ops, "POST /admin/v1/tokens/ops/rotate", &json!({"grace": "10m"})).await;
    let new = rotated.secret();
    assert_ne!(ops, new);
    assert_eq!((status(&ops).await, status(&new).await), (200, 200));
    served.later(Span::from_secs(600));
    assert_eq!((status(&ops).await, status(&new).await), (401, 200));
    let at_once = served.by(&new, "POST /admin/v1/tokens/ops/rotate", &json!({"grace": "0s"})).await.secret();
    assert_eq!((status(&new).await, status(&at_once).await), (401, 200));
    let ops = at_once;

    let gone = served.make(&ops, json!({"name": "gone", "scopes": ["read"]})).await.secret();
    assert_eq!(status(&gone).await, 200);
    assert_eq!(served.by(&ops, "DELETE /admin/v1/tokens/gone", &Value::Null).await.status, 200);
    assert_eq!(status(&gone).await, 401);
    assert_eq!(served.by(&ops, "DELETE /admin/v1/tokens/gone", &Value::Null).await.status, 404);
    assert_eq!(served.by(&ops, "POST /admin/v1/tokens/gone/rotate", &json!({})).await.status, 404);
}

#[tokio::test]
async fn what_is_shown_of_tokens_is_never_a_secret_or_its_hash() {
    let served = served(AuthConfig::default()).await;
    let ops = served.first().await;
    let key = ["Idempotency-Key: once", &format!("Authorization: Bearer {ops}")].map(str::to_owned);
    let headers = [&*key[0], &*key[1]];
    let body = json!({"name": "reader", "scopes": ["read"], "reason": "a dashboard"}).to_string();
    let made = served.ask(here(), "POST /admin/v1/tokens", &headers, &body).await;
    let secret = made.secret();
    let again = served.ask(here(), "POST /admin/v1/tokens", &headers, &body).await;
    assert_eq!((again.status, &again.body["token"]), (200, &Value::Null), "{again:?}");
    assert!(again.head.contains("idempotent-replayed: true"), "{again:?}");
    let twice = served.make(&ops, json!({"name": "reader", "scopes": ["read"]})).await;
    assert_eq!((twice.status, twice.code()), (409, "exists"));
    served.by(&ops, "POST /admin/v1/tokens/reader/rotate", &json!({})).await.secret();

    let listed = served.by(&ops, "GET /admin/v1/tokens", &Value::Null).await.body;
    assert_eq!(listed["items"].as_array().unwrap().len(), 2);
    let reader = &listed["items"][1];
    assert_eq!((&reader["name"], &reader["scopes"]), (&json!("reader"), &json!(["read"])));
    assert_eq!((&reader["created_by"], &reader["expired"]), (&json!("token ops"), &json!(false)));
    assert_eq!(served.by(&ops, "GET /admin/v1/tokens/reader", &Value::Null).await.body, *reader);
    let page = served.by(&ops, "GET /admin/v1/tokens?limit=1&after=ops", &Value::Null).await.body;
    assert_eq!(page["items"][0]["name"], "reader");

    let db = served.control.db().unwrap();
    let log = db.audit(&tollgate_control::AuditFilter::default(), 0, 100).await.unwrap();
    let reply = format!("{listed}{log:?}");
    let digest = crate::tokens::to_hex(&crate::tokens::hash(secret.as_bytes()));
    assert!(reply.contains("token.rotate") && reply.contains("a dashboard"), "{reply}");
    assert!(!reply.contains(&secret) && !reply.contains(&digest) && !reply.contains("hash"), "{reply}");
}

#[tokio::test]
async fn somebody_can_always_manage_tokens() {
    let served = served(AuthConfig::default()).await;
    let from_here = async |what: &str, body: Value| served.ask(here(), what, &[], &body.to_string()).await;
    let create = "POST /admin/v1/tokens";
    for body in [json!({"name": "a", "scopes": ["read"]}), json!({"name": "a", "scopes": ALL, "for": "1h"})] {
        let reply = from_here(create, body).await;
        assert_eq!(reply.status, 422, "{reply:?}");
        assert!(reply.body["detail"].as_str().unwrap().contains("the first token must have every scope"), "{reply:?}");
    }
    let ops = served.first().await;
    served.make(&ops, json!({"name": "reader", "scopes": ["read"]})).await.secret();
    let reply = served.by(&ops, "DELETE /admin/v1/tokens/ops", &Value::Null).await;
    assert_eq!((reply.status, reply.code()), (409, "last_token"));
    let second = served.make(&ops, json!({"name": "second", "scopes": ALL})).await.secret();
    assert_eq!(served.by(&ops, "DELETE /admin/v1/tokens/ops", &Value::Null).await.status, 200);
    for (name, status) in [("second", 409), ("reader", 200), ("second", 200)] {
        let reply = served.by(&second, &format!("DELETE /admin/v1/tokens/{name}"), &Value::Null).await;
        assert_eq!(reply.status, status, "{name} {reply:?}");
    }
    // The last one is gone, and this machine is let in again.
    assert_eq!(served.status(here(), SWITCHES, &[]).await, 200);
}

#[tokio::test]
async fn somebody_can_always_manage_tokens_whatever_happens_on_two_servers() {
    let one = served(AuthConfig::default()).await;
    let (ops, delete) = (one.first().await, "DELETE /admin/v1/tokens");
    let second = one.make(&ops, json!({"name": "second", "scopes": ALL})).await.secret();
    one.make(&ops, json!({"name": "reader", "scopes": ["read"]})).await.secret();
    // Each deletes what the other one counts on.
    let other = another_server(&one).await;
    assert_eq!(one.by(&second, &format!("{delete}/ops"), &Value::Null).await.status, 200);
    let reply = other.by(&ops, &format!("{delete}/second"), &Value::Null).await;
    assert_eq!((reply.status, reply.code()), (409, "last_token"), "{reply:?}");
    // One makes a token while the other deletes the last one that could manage it.
    let other = another_server(&one).await;
    for name in ["reader", "second"] {
        assert_eq!(one.by(&second, &format!("{delete}/{name}"), &Value::Null).await.status, 200);
    }
    let reply = other.make(&second, json!({"name": "orphan", "scopes": ["read"]})).await;
    assert_eq!((reply.status, reply.code()), (409, "last_token"), "{reply:?}");
    // The other way round.
    assert_eq!(one.status(here(), SWITCHES, &[]).await, 200);
    let ops = one.first().await;
    let other = another_server(&one).await;
    one.make(&ops, json!({"name": "reader", "scopes": ["read"]})).await.secret();
    let reply = other.by(&ops, &format!("{delete}/ops"), &Value::Null).await;
    assert_eq!((reply.status, reply.code()), (409, "last_token"), "{reply:?}");
}

#[tokio::test]
async fn a_listener_that_others_reach_keeps_its_last_token() {
    let (served, ops) = open_to_others().await;
    let reply = served.by(&ops, "DELETE /admin/v1/tokens/ops", &Value::Null).await;
    assert_eq!((reply.status, reply.code()), (409, "last_token"), "{reply:?}");
}

#[tokio::test]
async fn all_that_is_wrong_with_a_token_is_reported() {
    let served = served(AuthConfig::default()).await;
    let ops = served.first().await;
    let bad = json!({
        "name": "a b", "scopes": ["read", "root", "read"], "for": "1h", "expires_at": "1970-01-01T00:00:01Z",
    });
    let reply = served.make(&ops, bad).await;
    let places: Vec<_> = reply.body["faults"].as_array().unwrap().iter().map(|fault| fault["at"].clone()).collect();
    assert_eq!(
        (reply.status, places),
        (422, vec![json!("name"), json!("scopes[1]"), json!("scopes[2]"), json!("for")])
    );
    for (body, status) in [
        (json!({"name": "x", "scopes": []}), 422),
        (json!({"name": "x", "scopes": ["read"], "for": "20000d"}), 422),
        (json!({"name": "x", "scopes": ["read"], "expires_at": "1970-01-01T00:00:01Z"}), 422),
        (json!({"name": "x", "scopes": ["read"], "secret": "mine"}), 422),
        (json!({"name": "x".repeat(65), "scopes": ["read"]}), 422),
        (json!({"name": "x".repeat(64), "scopes": ["read"]}), 200),
    ] {
        let reply = served.make(&ops, body).await;
        assert_eq!(reply.status, status, "{reply:?}");
    }
    for grace in ["31d", "soon", "1"] {
        let reply = served.by(&ops, "POST /admin/v1/tokens/ops/rotate", &json!({"grace": grace})).await;
        assert_eq!(reply.status, 422, "{reply:?}");
    }
}

#[tokio::test]
async fn certificates_are_let_in_for_the_scopes_of_their_names() {
    let identities =
        [("spiffe://corp/ops", AccessScopes::all()), ("billing.internal", [AccessScope::Read].into_iter().collect())];
    let identities =
        identities.map(|(name, scopes)| Identity { name: name.to_owned(), scopes }).into_iter().collect::<Vec<_>>();
    let served = served(AuthConfig { identities, is_open: true, ..AuthConfig::default() }).await;
    let write = ("PUT /admin/v1/quotas/k1", r#"{"overrides": [{"rule": "per-key", "limit": "7/day"}]}"#);
    for (peer, read, written) in [
        (certified(&["spiffe://corp/ops"]), 200, 200),
        (certified(&["other", "BILLING.internal"]), 200, 403),
        (certified(&["billing.internal", "spiffe://corp/ops"]), 200, 200),
        (certified(&["ops"]), 403, 403),
        (certified(&[]), 403, 403),
        (elsewhere(), 401, 401),
        (here(), 401, 401),
    ] {
        assert_eq!(served.status(peer.clone(), SWITCHES, &[]).await, read, "{peer:?}");
        assert_eq!(served.ask(peer.clone(), write.0, &[], write.1).await.status, written, "{peer:?}");
    }
    let shown = served.ask(certified(&["spiffe://corp/ops"]), "GET /admin/v1/quotas/k1", &[], "").await;
    assert_eq!(shown.body["updated_by"], "certificate spiffe://corp/ops");
    // A name that may do everything is enough to manage tokens; a token that is shown counts before the certificate.
    let made = r#"{"name": "reader", "scopes": ["read"]}"#;
    let made = served.ask(certified(&["spiffe://corp/ops"]), "POST /admin/v1/tokens", &[], made).await.secret();
    let authorization = format!("Authorization: Bearer {made}");
    assert_eq!(served.status(certified(&["spiffe://corp/ops"]), "GET /admin/v1/tokens", &[&authorization]).await, 403);
}

#[tokio::test]
async fn a_token_file_may_do_everything() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("token");
    std::fs::write(&path, "a-token-of-the-file\n").unwrap();
    let file = Arc::new(TokenFile::load(&path).unwrap());
    let served = served(AuthConfig { file: Some(file.clone()), is_open: true, ..AuthConfig::default() }).await;
    assert_eq!(served.status(here(), SWITCHES, &[]).await, 401);
    let made = served.make("a-token-of-the-file", json!({"name": "reader", "scopes": ["read"]})).await;
    assert_eq!(served.by(&made.secret(), SWITCHES, &Value::Null).await.status, 200);
    std::fs::write(&path, "another-token-of-the-file").unwrap();
    assert_eq!(file.reload(), Some(Ok(())));
    assert_eq!(served.by("a-token-of-the-file", SWITCHES, &Value::Null).await.status, 401);
    assert_eq!(served.by("another-token-of-the-file", SWITCHES, &Value::Null).await.status, 200);
    let listed = served.by("another-token-of-the-file", "GET /admin/v1/tokens", &Value::Null).await;
    assert_eq!(listed.body["items"][0]["created_by"], "admin_token_file");
}

#[tokio::test]
async fn who_fails_too_often_has_to_wait_and_locks_nobody_out() {
    let (served, ops) = open_to_others().await;
    for number in 1..=10 {
        assert_eq!(served.by("tg_wrong", SWITCHES, &Value::Null).await.status, 401);
        assert_eq!(served.failures(), number);
    }
    for number in 11..=30 {
        let reply = served.by("tg_wrong", SWITCHES, &Value::Null).await;
        assert_eq!((reply.status, reply.code()), (429, "too_many_logins"));
        assert!(reply.head.contains("retry-after: 6"), "{reply:?}");
        assert_eq!(served.failures(), number);
        // A valid token is accepted from the same address.
        assert_eq!(served.by(&ops, SWITCHES, &Value::Null).await.status, 200);
    }
    served.later(Span::from_secs(6));
    assert_eq!(served.by("tg_wrong", SWITCHES, &Value::Null).await.status, 401);
    assert_eq!(served.by("tg_wrong", SWITCHES, &Value::Null).await.status, 429);
    assert_eq!(served.by(&ops, SWITCHES, &Value::Null).await.status, 200);
    // What was no token at all is no guess.
    let other = peer([192, 0, 2, 8], [192, 0, 2, 1]);
    assert_eq!(served.status(other, SWITCHES, &["Authorization: Basic b3Bz"]).await, 401);
    assert_eq!(served.failures(), 32);
}

#[tokio::test]
async fn a_listener_that_others_reach_needs_somebody_set_up() {
    let served = served(AuthConfig::default()).await;
    let auth = |setup: AuthConfig| {
        let keys = Arc::new(TokenIndex::new(served.control.clone()));
        Auth::new(setup, keys, served.control.clone(), &served.metrics).unwrap()
    };
    let address: Address = "0.0.0.0:8070".parse().unwrap();
    let open = || AuthConfig { is_open: true, ..AuthConfig::default() };
    let why = auth(open()).refusal(&address).unwrap();
    assert!(why.starts_with("admin: 0.0.0.0:8070 can be reached") && why.contains("--admin-token-file"), "{why}");
    assert_eq!(auth(AuthConfig::default()).refusal(&address), None);
    let identities = vec![Identity { name: "a".to_owned(), scopes: AccessScopes::all() }];
    assert_eq!(auth(AuthConfig { identities, ..open() }).refusal(&address), None);
    served.first().await;
    assert_eq!(auth(open()).refusal(&address), None);
}

#[tokio::test]
async fn while_nobody_knows_the_tokens_no_place_is_let_in() {
    let folder = tempfile::tempdir().unwrap();
    let snapshot = "{\"format\":1,\"of\":\"a\",\"as_of\":7}\n{\"records\":0}\n";
    std::fs::write(folder.path().join("control-snapshot.jsonl"), snapshot).unwrap();
    for (snapshots, generation) in [(None, 0), (Some(folder.path().to_owned()), 7)] {
        let place = Some(DbLocation::Postgres("postgres://nobody@127.0.0.1:1/none".to_owned()));
        let loaded = load(&Sources { place, copy: None, snapshots }).await.unwrap();
        assert!(!loaded.knows_tokens && loaded.trouble.is_some());
        assert_eq!(loaded.at.generation, generation);
        let served = served_from(AuthConfig::default(), loaded, tempfile::tempdir().unwrap());
        assert_eq!(served.status(here(), SWITCHES, &[]).await, 401);
    }
}

#[tokio::test]
async fn tokens_from_before_a_snapshot_without_them_are_learnt() {
    let first = served(AuthConfig::default()).await;
    let ops = first.first().await;
    let place = Some(DbLocation::File(first._folder.path().join("control.db")));
    let loaded = load(&Sources { place, copy: None, snapshots: None }).await.unwrap();
    assert!(loaded.knows_tokens && loaded.tokens.len() == 1);
    // As if the database had been away, and a snapshot for other servers there.
    let loaded = Loaded { tokens: crate::store_of_record::TokenRecords::new(), knows_tokens: false, ..loaded };
    let served = served_from(AuthConfig::default(), loaded, tempfile::tempdir().unwrap());
    assert_eq!(served.by(&ops, SWITCHES, &Value::Null).await.status, 401);
    assert_eq!(served.status(here(), SWITCHES, &[]).await, 401);
    served.control.catch_up(None).await.unwrap();
    assert_eq!(served.by(&ops, SWITCHES, &Value::Null).await.status, 200);
    assert_eq!(served.status(here(), SWITCHES, &[]).await, 401);
}
