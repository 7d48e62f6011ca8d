//! A service that decides by itself, by what operators tell a server.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tollgate::control::{Follower, FollowerStatus};
use tollgate::{
    Descriptor, Limiter, LoadOptions, MemoryConfig, MemoryStore, Request, ResolvedBy, RuleFiles, Ruleset, poll_once,
};
use tollgate_testing::{Postgres, Relay, Server, eventually};

use crate::control::world::{RULES, get, limited, on, put, server_on, set_limit};
use crate::new_server;

/// The service's own rules, before it has heard of others.
const FIRST: &str = "{domain: api, entity: api_key, rules: [{name: per-key, key: [api_key], limit: 3/m}]}";

/// A service.
struct Service {
    limiter: Arc<Limiter<MemoryStore>>,
    status: watch::Receiver<FollowerStatus>,
    running: JoinHandle<()>,
}

fn limiter() -> Arc<Limiter<MemoryStore>> {
    Arc::new(Limiter::new(Ruleset::from_text(FIRST, 1).unwrap().0, MemoryConfig::default().build()))
}

impl Service {
    fn following(follower: Follower<MemoryStore>, limiter: &Arc<Limiter<MemoryStore>>) -> Service {
        let status = follower.status();
        Service { limiter: limiter.clone(), status, running: tokio::spawn(follower.run()) }
    }

    fn of(server: &Server) -> Service {
        let limiter = limiter();
        let follower = Follower::new(limiter.clone(), &server.url("admin", ""), None).unwrap();
        Service::following(follower, &limiter)
    }

    /// What it decides a caller by: of each rule the name, the limit and why.
    fn decided(&self, caller: &str) -> Vec<(String, u64, ResolvedBy)> {
        let entries = [("api_key", caller)];
        let descriptors = [Descriptor::new(&entries)];
        let request = Request { descriptors: &descriptors, domain: Some("api"), cost: 0, ..Request::default() };
        let decision = poll_once(self.limiter.check_request(&request)).unwrap().unwrap();
        decision.outcomes().map(|one| (one.rule.name().to_owned(), one.limit.amount(), one.resolved_by)).collect()
    }

    #[track_caller]
    fn until(&self, caller: &str, limit: u64) {
        let there = eventually(|| (self.decided(caller).first()?.1 == limit).then_some(()));
        assert!(there.is_some(), "{caller} has {:?}, not {limit}: {:?}", self.decided(caller), self.status());
    }

    fn status(&self) -> FollowerStatus {
        self.status.borrow().clone()
    }

    #[track_caller]
    fn until_connected(&self, generation: u64) {
        let there = || {
            let status = self.status();
            (status.connected_since.is_some() && status.generation == Some(generation)).then_some(())
        };
        assert!(eventually(there).is_some(), "{:?}", self.status());
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.running.abort();
    }
}

/// A server with its own store of record, in its data directory.
fn server() -> Server {
    new_server().rules(RULES).listen(&["http", "admin"]).start()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_hears_of_everything_and_survives_its_server() {
    let server = server();
    set_limit(&server, "a", 70);
    let service = Service::of(&server);
    // Until then it decides by what it has.
    service.until("a", 70);
    service.until("b", 100);
    assert_eq!(service.decided("b"), [("per-key".to_owned(), 100, ResolvedBy::Tier)], "the server's files");
    service.until_connected(1);
    set_limit(&server, "b", 80);
    service.until("b", 80);
    service.until_connected(2);
    // Other files.
    server.write_rules(&RULES.replace("free: 100/m", "free: 101/m"));
    service.until("c", 101);
    // The server is gone: what it said last holds. It comes back elsewhere.
    let admin = server.address("admin").to_owned();
    let builder = server.restart().listen(&["http"]).args(&["--admin", &admin]);
    assert!(eventually(|| service.status().connected_since.is_none().then_some(())).is_some());
    assert_eq!(service.decided("b")[0].1, 80);
    let server = builder.start();
    set_limit(&server, "b", 81);
    service.until("b", 81);
    service.until_connected(3);
    assert_eq!(get(&server.url("admin", "/v1/control/watch?after=9")).status, 410);
    assert_eq!(get(&server.url("admin", "/v1/control/watch?after=3&of=another")).status, 410);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_missed_too_much_takes_a_snapshot() {
    let database = Postgres::database();
    let server = server_on(database.url(), &[]);
    set_limit(&server, "a", 70);
    set_limit(&server, "gone", 71);
    let port = server.address("admin").rsplit_once(':').unwrap().1.parse().unwrap();
    let mut relay = Relay::to(port);
    let limiter = limiter();
    let follower = Follower::new(limiter.clone(), &format!("http://127.0.0.1:{}", relay.port()), None).unwrap();
    let service = Service::following(follower, &limiter);
    service.until("gone", 71);
    service.until_connected(2);
    relay.refuse();
    relay.cut();
    assert!(eventually(|| service.status().connected_since.is_none().then_some(())).is_some());
    set_limit(&server, "a", 72);
    database.query("BEGIN; UPDATE control SET generation = 5; DELETE FROM records WHERE name = 'gone'; COMMIT");
    // A server that starts afresh has nothing to tell of the time before.
    let server = on(server.restart(), database.url(), &["--admin", &format!("127.0.0.1:{port}")]).start();
    relay.pass();
    service.until("a", 72);
    service.until("gone", 100);
    service.until_connected(5);
    drop(server);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_starts_without_the_server_from_what_it_kept() {
    let (server, home) = (server(), TempDir::new().unwrap());
    let url = server.url("admin", "");
    let kept = home.path().join("kept");
    let start = || {
        let limiter = limiter();
        let follower = Follower::new(limiter.clone(), &url, None).unwrap().with_local_copy(&kept);
        Service::following(follower, &limiter)
    };
    set_limit(&server, "a", 70);
    let service = start();
    service.until("a", 70);
    service.until_connected(1);
    set_limit(&server, "b", 80);
    service.until_connected(2);
    let file = kept.join("control-snapshot.jsonl");
    assert!(eventually(|| crate::control::world::contains(&file, "{\"alive\":2}").then_some(())).is_some());
    drop(service);
    drop(server);
    // Cut in the middle of a line, as by a crash.
    let mut torn = std::fs::OpenOptions::new().append(true).open(&file).unwrap();
    torn.write_all(b"{\"generation\":3,\"kind\":\"quo").unwrap();
    let service = start();
    service.until("a", 70);
    service.until("b", 80);
    assert_eq!(service.status().generation, Some(2));
    assert!(eventually(|| service.status().last_error.filter(|why| why.contains("can't be reached"))).is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_has_rules_of_its_own_under_what_operators_decide() {
    let server = server();
    let limiter = limiter();
    let own =
        RuleFiles::from_files(vec![tollgate_rules::RuleFile { name: "own.yaml".to_owned(), text: FIRST.to_owned() }]);
    let follower = Follower::new(limiter.clone(), &server.url("admin", ""), None).unwrap();
    let follower = follower.with_files(own, LoadOptions::default()).with_own_counters();
    let service = Service::following(follower, &limiter);
    set_limit(&server, "a", 2);
    service.until("a", 2);
    assert_eq!(service.decided("b")[0].1, 3);
    // A quota that is written with a reset starts the caller afresh here too.
    let descriptors = [Descriptor::new(&[("api_key", "a")])];
    let request = Request { descriptors: &descriptors, domain: Some("api"), ..Request::default() };
    let ask = || poll_once(service.limiter.check_request(&request)).unwrap().unwrap().allowed();
    assert_eq!([ask(), ask(), ask()], [true, true, false]);
    let mut reset = limited(2);
    reset["reset"] = json!(true);
    assert_eq!(put(&server, "a", None, &reset).status, 200);
    assert!(eventually(|| ask().then_some(())).is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_follows_a_directory() {
    let (database, shared) = (Postgres::database(), TempDir::new().unwrap());
    let snapshots = shared.path().display().to_string();
    let limiter = limiter();
    let service = Service::following(Follower::from_directory(limiter.clone(), shared.path()), &limiter);
    assert!(eventually(|| service.status().last_error).is_some());
    let server = server_on(database.url(), &[]);
    for (limit, name) in [(70, "a"), (80, "b")] {
        set_limit(&server, name, limit);
        // Each writes when it starts what there is by then.
        let writer = server_on(database.url(), &["--control-snapshots", &snapshots]);
        service.until(name, limit);
        drop(writer);
    }
    assert_eq!(service.decided("c")[0].1, 100, "the server's files");
    assert_eq!(service.status().last_error, None);
    assert_eq!(std::fs::read_dir(shared.path()).unwrap().count(), 1);
    let url = Follower::new(limiter, "tollgate:8070", None).map(drop).unwrap_err();
    assert!(url.to_string().contains("http://tollgate:8070"), "{url}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_follows_over_tls_and_trusts_nobody_else() {
    let (database, home) = (Postgres::database(), TempDir::new().unwrap());
    let own = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
    let stranger = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).unwrap();
    let (cert, key) = (home.path().join("cert.pem"), home.path().join("key.pem"));
    std::fs::write(&cert, own.cert.pem()).unwrap();
    std::fs::write(&key, own.signing_key.serialize_pem()).unwrap();
    let paths = [cert.display().to_string(), key.display().to_string()];
    let secured = server_on(database.url(), &["--admin-tls-cert", &paths[0], "--admin-tls-key", &paths[1]]);
    let url = format!("https://{}", secured.address("admin"));
    let plain = server_on(database.url(), &[]);
    set_limit(&plain, "a", 70);
    let trusting = |certificate: &rcgen::Certificate| {
        let mut roots = rustls::RootCertStore::empty();
        roots.add(certificate.der().clone()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        Arc::new(config.unwrap().with_root_certificates(roots).with_no_client_auth())
    };
    let limiters = [limiter(), limiter(), limiter()];
    let follower = |n: usize| Follower::new(limiters[n].clone(), &url, None).unwrap();
    let service = Service::following(follower(0).with_tls(trusting(&own.cert)), &limiters[0]);
    service.until("a", 70);
    set_limit(&plain, "a", 71);
    service.until("a", 71);
    for (n, follower) in [(1, follower(1).with_tls(trusting(&stranger.cert))), (2, follower(2))] {
        let service = Service::following(follower, &limiters[n]);
        let told = eventually(|| service.status().last_error).unwrap();
        assert!(told.contains("can't be reached"), "{told}");
        assert_eq!(service.decided("a")[0].1, 3);
    }
}

/// What a watch says, line by line, as anybody may read it.
#[test]
fn a_watch_tells_what_comes_into_force() {
    let server = server();
    set_limit(&server, "a", 70);
    let told = get(&server.url("admin", "/v1/control/snapshot"));
    let lines: Vec<Value> = told.body.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines[0]["as_of"], 1);
    assert!(lines[1]["files"][0]["text"].as_str().unwrap().contains("domain: api"));
    assert_eq!((&lines[2]["name"], &lines[3]), (&json!("a"), &json!({"records": 1})));
    let mut stream = TcpStream::connect(server.address("admin")).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let of = lines[0]["of"].as_str().unwrap();
    write!(stream, "GET /v1/control/watch?after=1&of={of}&files=false HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    // Lengths of chunks stand between them.
    let mut lines = BufReader::new(stream).lines().map(Result::unwrap).filter(|line| line.starts_with('{'));
    assert_eq!(lines.next().unwrap(), r#"{"alive":1}"#);
    set_limit(&server, "b", 80);
    let line: Value = serde_json::from_str(&lines.next().unwrap()).unwrap();
    assert_eq!((&line["generation"], &line["name"]), (&json!(2), &json!("b")));
    assert_eq!(lines.next().unwrap(), r#"{"alive":2}"#);
    assert!(Path::new(server.home()).join("data/control.db").exists());
}
