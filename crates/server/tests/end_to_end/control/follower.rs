//! Services that decide in process and follow the control plane of a server.

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

use crate::control::support::{RULES, get, put, quota, server_on, set_limit, with_control};
use crate::new_server;

/// The service's own rules, in force until the first snapshot.
const OWN_RULES: &str =
    "{domain: api, entity: api_key, rules: [{name: per-key, key: [api_key], limit: 3/m, algorithm: sliding_log}]}";

/// A service with a limiter and a follower.
struct Service {
    limiter: Arc<Limiter<MemoryStore>>,
    status: watch::Receiver<FollowerStatus>,
    task: JoinHandle<()>,
}

fn limiter() -> Arc<Limiter<MemoryStore>> {
    Arc::new(Limiter::new(Ruleset::from_text(OWN_RULES, 1).unwrap().0, MemoryConfig::default().build()))
}

impl Service {
    fn start(follower: Follower<MemoryStore>, limiter: &Arc<Limiter<MemoryStore>>) -> Service {
        let status = follower.status();
        Service { limiter: limiter.clone(), status, task: tokio::spawn(follower.run()) }
    }

    fn following(server: &Server) -> Service {
        let limiter = limiter();
        let follower = Follower::new(limiter.clone(), &server.url("admin", ""), None).unwrap();
        Service::start(follower, &limiter)
    }

    /// The limits of a caller: of each rule the name, the limit and how it was resolved.
    fn limits(&self, caller: &str) -> Vec<(String, u64, ResolvedBy)> {
        let entries = [("api_key", caller)];
        let descriptors = [Descriptor::new(&entries)];
        let request = Request { descriptors: &descriptors, domain: Some("api"), cost: 0, ..Request::default() };
        let decision = poll_once(self.limiter.check_request(&request)).unwrap().unwrap();
        decision.outcomes().map(|one| (one.rule.name().to_owned(), one.limit.amount(), one.resolved_by)).collect()
    }

    #[track_caller]
    fn wait_for_limit(&self, caller: &str, limit: u64) {
        let reached = eventually(|| (self.limits(caller).first()?.1 == limit).then_some(()));
        assert!(reached.is_some(), "{caller} has {:?}, not {limit}: {:?}", self.limits(caller), self.status());
    }

    fn status(&self) -> FollowerStatus {
        self.status.borrow().clone()
    }

    #[track_caller]
    fn wait_for_connection(&self, generation: u64) {
        let is_connected = || {
            let status = self.status();
            (status.connected_since.is_some() && status.generation == Some(generation)).then_some(())
        };
        assert!(eventually(is_connected).is_some(), "{:?}", self.status());
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A server with its own store of record, in its data directory.
fn server() -> Server {
    new_server().rules(RULES).listen(&["http", "admin"]).start()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_receives_all_changes_and_survives_an_outage() {
    let server = server();
    set_limit(&server, "a", 70);
    let service = Service::following(&server);
    service.wait_for_limit("a", 70);
    service.wait_for_limit("b", 100);
    assert_eq!(service.limits("b"), [("per-key".to_owned(), 100, ResolvedBy::Tier)], "the server's files");
    service.wait_for_connection(1);
    set_limit(&server, "b", 80);
    service.wait_for_limit("b", 80);
    service.wait_for_connection(2);
    // Changed rule files.
    server.write_rules(&RULES.replace("free: 100/m", "free: 101/m"));
    service.wait_for_limit("c", 101);
    // While the server is down, the last known state stays in force.
    let admin = server.address("admin").to_owned();
    let builder = server.restart().listen(&["http"]).args(&["--admin", &admin]);
    assert!(eventually(|| service.status().connected_since.is_none().then_some(())).is_some());
    assert_eq!(service.limits("b")[0].1, 80);
    let server = builder.start();
    set_limit(&server, "b", 81);
    service.wait_for_limit("b", 81);
    service.wait_for_connection(3);
    assert_eq!(get(&server.url("admin", "/v1/control/watch?after=9")).status, 410);
    assert_eq!(get(&server.url("admin", "/v1/control/watch?after=3&of=another")).status, 410);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_follower_that_missed_changes_takes_a_snapshot() {
    let database = Postgres::database();
    let server = server_on(database.url(), &[]);
    set_limit(&server, "a", 70);
    set_limit(&server, "gone", 71);
    let port = server.address("admin").rsplit_once(':').unwrap().1.parse().unwrap();
    let mut relay = Relay::to(port);
    let limiter = limiter();
    let follower = Follower::new(limiter.clone(), &format!("http://127.0.0.1:{}", relay.port()), None).unwrap();
    let service = Service::start(follower, &limiter);
    service.wait_for_limit("gone", 71);
    service.wait_for_connection(2);
    relay.refuse();
    relay.cut();
    assert!(eventually(|| service.status().connected_since.is_none().then_some(())).is_some());
    set_limit(&server, "a", 72);
    database.query("BEGIN; UPDATE control SET generation = 5; DELETE FROM records WHERE name = 'gone'; COMMIT");
    // A restarted server has no changes from before its start.
    let server = with_control(server.restart(), database.url(), &["--admin", &format!("127.0.0.1:{port}")]).start();
    relay.pass();
    service.wait_for_limit("a", 72);
    service.wait_for_limit("gone", 100);
    service.wait_for_connection(5);
    drop(server);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_starts_from_its_local_copy_without_the_server() {
    let (server, home) = (server(), TempDir::new().unwrap());
    let url = server.url("admin", "");
    let copy = home.path().join("copy");
    let start = || {
        let limiter = limiter();
        let follower = Follower::new(limiter.clone(), &url, None).unwrap().with_local_copy(&copy);
        Service::start(follower, &limiter)
    };
    set_limit(&server, "a", 70);
    let service = start();
    service.wait_for_limit("a", 70);
    service.wait_for_connection(1);
    set_limit(&server, "b", 80);
    service.wait_for_connection(2);
    let file = copy.join("control-snapshot.jsonl");
    assert!(eventually(|| crate::control::support::file_contains(&file, "{\"alive\":2}").then_some(())).is_some());
    drop(service);
    drop(server);
    // An incomplete line, as after a crash.
    let mut truncated = std::fs::OpenOptions::new().append(true).open(&file).unwrap();
    truncated.write_all(b"{\"generation\":3,\"kind\":\"quo").unwrap();
    let service = start();
    service.wait_for_limit("a", 70);
    service.wait_for_limit("b", 80);
    // The status follows what is in force.
    assert!(eventually(|| (service.status().generation == Some(2)).then_some(())).is_some());
    assert!(eventually(|| service.status().last_error.filter(|why| why.contains("can't be reached"))).is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_can_use_its_own_rules_under_the_control_plane() {
    let server = server();
    let limiter = limiter();
    let own = RuleFiles::from_files(vec![tollgate_rules::RuleFile {
        name: "own.yaml".to_owned(),
        text: OWN_RULES.to_owned(),
    }]);
    let follower = Follower::new(limiter.clone(), &server.url("admin", ""), None).unwrap();
    let follower = follower.with_files(own, LoadOptions::default()).with_own_counters();
    let service = Service::start(follower, &limiter);
    set_limit(&server, "a", 2);
    service.wait_for_limit("a", 2);
    assert_eq!(service.limits("b")[0].1, 3);
    // A quota that is written with a reset resets the service's own counters too.
    let descriptors = [Descriptor::new(&[("api_key", "a")])];
    let request = Request { descriptors: &descriptors, domain: Some("api"), ..Request::default() };
    let check = || poll_once(service.limiter.check_request(&request)).unwrap().unwrap().allowed();
    assert_eq!([check(), check(), check()], [true, true, false]);
    let mut reset = quota(2);
    reset["reset"] = json!(true);
    assert_eq!(put(&server, "a", None, &reset).status, 200);
    assert!(eventually(|| check().then_some(())).is_some());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_follows_a_directory() {
    let (database, shared) = (Postgres::database(), TempDir::new().unwrap());
    let snapshots = shared.path().display().to_string();
    let limiter = limiter();
    let service = Service::start(Follower::from_directory(limiter.clone(), shared.path()), &limiter);
    assert!(eventually(|| service.status().last_error).is_some());
    let server = server_on(database.url(), &[]);
    for (limit, name) in [(70, "a"), (80, "b")] {
        set_limit(&server, name, limit);
        // Each server writes a snapshot when it starts.
        let writer = server_on(database.url(), &["--control-snapshots", &snapshots]);
        service.wait_for_limit(name, limit);
        drop(writer);
    }
    assert_eq!(service.limits("c")[0].1, 100, "the server's files");
    assert_eq!(service.status().last_error, None);
    assert_eq!(std::fs::read_dir(shared.path()).unwrap().count(), 1);
    let error = Follower::new(limiter, "tollgate:8070", None).map(drop).unwrap_err();
    assert!(error.to_string().contains("http://tollgate:8070"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_follows_over_tls_and_rejects_other_certificates() {
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
    let service = Service::start(follower(0).with_tls(trusting(&own.cert)), &limiters[0]);
    service.wait_for_limit("a", 70);
    set_limit(&plain, "a", 71);
    service.wait_for_limit("a", 71);
    for (n, follower) in [(1, follower(1).with_tls(trusting(&stranger.cert))), (2, follower(2))] {
        let service = Service::start(follower, &limiters[n]);
        let error = eventually(|| service.status().last_error).unwrap();
        assert!(error.contains("can't be reached"), "{error}");
        assert_eq!(service.limits("a")[0].1, 3);
    }
}

/// The lines of a watch, as any program can read them.
#[test]
fn a_watch_sends_the_changes_that_come_into_force() {
    let server = server();
    set_limit(&server, "a", 70);
    let response = get(&server.url("admin", "/v1/control/snapshot"));
    let lines: Vec<Value> = response.body.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines[0]["as_of"], 1);
    assert!(lines[1]["files"][0]["text"].as_str().unwrap().contains("domain: api"));
    assert_eq!((&lines[2]["name"], &lines[3]), (&json!("a"), &json!({"records": 1})));
    let mut stream = TcpStream::connect(server.address("admin")).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let of = lines[0]["of"].as_str().unwrap();
    write!(stream, "GET /v1/control/watch?after=1&of={of}&files=false HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    // Without the lengths of the chunks.
    let mut lines = BufReader::new(stream).lines().map(Result::unwrap).filter(|line| line.starts_with('{'));
    assert_eq!(lines.next().unwrap(), r#"{"alive":1}"#);
    set_limit(&server, "b", 80);
    let line: Value = serde_json::from_str(&lines.next().unwrap()).unwrap();
    assert_eq!((&line["generation"], &line["name"]), (&json!(2), &json!("b")));
    assert_eq!(lines.next().unwrap(), r#"{"alive":2}"#);
    assert!(Path::new(server.home()).join("data/control.db").exists());
}
