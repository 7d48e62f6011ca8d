//! API keys are stored nowhere in clear, found all the same, and counted once.

use std::fs;
use std::path::Path;

use serde_json::json;
use tollgate::{Descriptor, GuardConfig, Limiter, Request, Ruleset};
use tollgate_redis::{RedisConfig, RedisCounters};
use tollgate_testing::{Redis, Server, ServerBuilder, eventually};

use crate::http::{get, post};
use crate::new_server;

const RULES: &str = "
domain: api
entity: api_key
rules:
  - {name: per-key, key: [api_key], limit: 100/day, algorithm: fixed_window}
  - {name: log, key: [endpoint, api_key], limit: 500/day, algorithm: sliding_log}
  - {name: all, key: [], limit: 1000000/day}
";

const AGREED: &str = "tg:{agreed}:key-privacy";

/// A key that no other test and no word has.
fn api_key(number: u32) -> String {
    format!("sk_live_51H8mZqT{number:04}")
}

fn builder(redis: &Redis) -> ServerBuilder {
    on_redis(new_server().rules(RULES), redis)
}

/// With one connection: if one check reaches Redis, the next one does too.
fn on_redis(server: ServerBuilder, redis: &Redis) -> ServerBuilder {
    let store = ["--store", &redis.url(), "--store-pool", "1"];
    let times = ["--store-deadline", "500ms", "--store-cool-down", "100ms"];
    server.listen(&["http", "admin"]).args(&store).args(&times)
}

/// The remaining units of the key's counter after a check, if Redis decided it.
fn remaining(server: &Server, key: &str) -> Option<u64> {
    let body = json!({"attributes": {"api_key": key, "endpoint": "GET /"}}).to_string();
    let answer = post(&server.url("http", "/v1/ratelimit/check"), &body).json();
    answer["remaining"].as_u64().filter(|_| answer["source"] == "store" && answer["limit"] == 100)
}

/// A service that decides in process, with counters in the same Redis.
struct Embedded(Limiter<RedisCounters>);

impl Embedded {
    fn open(redis: &Redis) -> Embedded {
        let guard = GuardConfig {
            deadline: std::time::Duration::from_millis(500),
            cool_down: std::time::Duration::from_millis(100),
            ..GuardConfig::default()
        };
        let config = RedisConfig { pool: 1, ..RedisConfig::new(redis.url().parse().unwrap()) };
        let counters = RedisCounters::new(config, guard).unwrap();
        Embedded(Limiter::new(Ruleset::from_text(RULES, 1).unwrap().0, counters))
    }

    fn remaining(&self, key: &str) -> Option<u64> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let entries = [("api_key", key), ("endpoint", "GET /")];
        let request = Request { descriptors: &[Descriptor::new(&entries)], ..Request::default() };
        let decision = runtime.block_on(self.0.check_request(&request)).unwrap();
        let limit = decision.outcomes().find(|limit| limit.rule.name() == "per-key")?;
        Some(limit.reading.remaining).filter(|_| decision.source() == tollgate::Source::Store)
    }
}

/// The names of values with private parts in Redis.
fn private_names(redis: &Redis) -> Vec<String> {
    let names = redis.inline("KEYS *");
    names.lines().filter(|line| line.contains('~')).map(|line| line.trim().to_owned()).collect()
}

/// Whether a file of the directory contains a text.
fn is_on_disk(directory: &Path, text: &str) -> bool {
    fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).any(|path| match path.is_dir() {
        true => is_on_disk(&path, text),
        false => fs::read(&path).is_ok_and(|bytes| bytes.windows(text.len()).any(|part| part == text.as_bytes())),
    })
}

/// Counts a key once with each, and expects one counter.
#[track_caller]
fn assert_one_counter(servers: &[&Server], embedded: &Embedded, key: &str) {
    for server in servers {
        // They start without Redis.
        assert!(eventually(|| remaining(server, "warm-up")).is_some(), "{}", server.log());
    }
    assert!(eventually(|| embedded.remaining("warm-up")).is_some());
    let mut left = servers.iter().map(|server| remaining(server, key)).collect::<Vec<_>>();
    left.push(embedded.remaining(key));
    let expected: Vec<_> = (0..left.len() as u64).map(|used| Some(99 - used)).collect();
    let logs = || servers.iter().map(|server| server.log()).collect::<Vec<_>>().join("\n---\n");
    assert_eq!(left, expected, "{}", logs());
}

#[test]
fn servers_and_an_embedded_limiter_share_counters_whatever_redis_forgets() {
    let mut redis = Redis::start();
    let (one, mut two, embedded) = (builder(&redis).start(), builder(&redis).start(), Embedded::open(&redis));
    assert_one_counter(&[&one, &two], &embedded, &api_key(1));
    let agreed = redis.command(&["GET", AGREED]).text();
    assert!(agreed.starts_with("hashed shared:"), "{agreed}");
    let secret = agreed.rsplit_once(':').unwrap().1.to_owned();
    // Neither the names nor the values have a key, and the secret is saved.
    let names = private_names(&redis);
    assert!(names.len() >= 4 && !redis.inline("KEYS *").contains("sk_live"), "{names:?}");
    redis.inline("SAVE");
    assert!(!is_on_disk(redis.directory(), "sk_live"));
    let has_saved = |server: &Server| is_on_disk(&server.home().join("data"), &secret);
    assert!(eventually(|| (has_saved(&one) && has_saved(&two)).then_some(())).is_some());

    redis.inline("FLUSHALL");
    assert!(eventually(|| (redis.command(&["GET", AGREED]).text() == agreed).then_some(())).is_some());
    assert_one_counter(&[&one, &two], &embedded, &api_key(2));

    // One restarts without Redis, and another starts without Redis and without a secret.
    assert!(two.stop().success());
    redis.kill();
    let two = on_redis(two.restart(), &redis).start();
    let three = builder(&redis).start();
    assert_eq!(remaining(&three, &api_key(9)), None);
    redis.restart();
    assert_one_counter(&[&one, &two, &three], &embedded, &api_key(3));
    let digests = private_names(&redis).iter().filter(|name| name.starts_with("tg:{api/~")).count();
    assert!(digests > 0 && !redis.inline("KEYS *").contains("sk_live"));
    for server in [&one, &two, &three] {
        let pages = ["/readyz", "/metrics"].map(|page| get(&server.url("admin", page)).body).concat();
        assert!(!format!("{pages}{}", server.log()).contains("sk_live"), "{}", server.log());
    }
}

#[test]
fn keys_are_stored_nowhere_and_found_by_the_key() {
    let server = new_server().rules(RULES).listen(&["http", "admin"]).start();
    let (key, path) = (api_key(4), |key: &str| format!("/admin/v1/decisions?caller={key}"));
    let body = json!({"attributes": {"api_key": key, "endpoint": "GET /"}, "cost": 101}).to_string();
    assert_eq!(post(&server.url("http", "/v1/ratelimit/check"), &body).json()["allowed"], false);
    let data = server.home().join("data");
    // The masked key is written.
    let found = get(&server.url("admin", &path(&key))).json();
    let masked = found["decisions"][0]["caller"].as_str().unwrap().to_owned();
    assert!(masked.starts_with('#') && masked.ends_with("-0004"), "{masked}");
    assert!(eventually(|| is_on_disk(&data, &masked).then_some(())).is_some());
    assert!(!is_on_disk(&data, "sk_live"));
    // Counters and quotas are found by the key as well.
    let usage = get(&server.url("admin", &format!("/admin/v1/usage/{key}")));
    assert_eq!(usage.status, 200, "{usage:?}");
    // After a restart too.
    let server = server.restart().listen(&["http", "admin"]).start();
    let again = get(&server.url("admin", &path(&key))).json();
    assert_eq!(again["decisions"][0]["caller"], masked.as_str());
    let clear = server.restart().listen(&["http", "admin"]).args(&["--key-privacy", "clear"]).start();
    post(&clear.url("http", "/v1/ratelimit/check"), &body);
    let both = get(&clear.url("admin", &path(&key))).json();
    let callers: Vec<_> = both["decisions"].as_array().unwrap().iter().map(|one| one["caller"].clone()).collect();
    assert_eq!(callers, [json!(key), json!(masked)]);
}

#[test]
fn a_switch_is_announced_and_different_secrets_are_reported() {
    let redis = Redis::start();
    let one = builder(&redis).start();
    assert_eq!(remaining(&one, &api_key(5)), Some(99));
    let clear = builder(&redis).args(&["--key-privacy", "clear"]).start();
    assert_eq!(remaining(&clear, &api_key(5)), Some(99));
    const ANEW: &str = "counters with such values start anew";
    clear.wait_for_log(ANEW);
    one.wait_for_log(ANEW);
    assert_eq!(remaining(&one, &api_key(5)), Some(98));
    drop(clear);
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("secret");
    fs::write(&file, "a secret of the fleet\n").unwrap();
    let file = file.display().to_string();
    let given = builder(&redis).args(&["--key-privacy", "hashed", "--key-secret-file", &file]).start();
    assert_eq!(remaining(&given, &api_key(5)), Some(99));
    assert!(!redis.command(&["GET", AGREED]).text().contains("shared"));
    let degraded = || get(&one.url("admin", "/readyz")).body.contains("the same key_secret_file");
    assert!(eventually(|| degraded().then_some(())).is_some(), "{}", one.log());
    let short = home.path().join("short");
    fs::write(&short, "short\n").unwrap();
    let (code, output) = builder(&redis).args(&["--key-secret-file", &short.display().to_string()]).run_to_exit();
    assert!(code == Some(1) && output.contains("a secret needs at least 16 bytes"), "{output}");
}
