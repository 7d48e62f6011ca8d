//! Automatic bans of a fleet: a credential stuffer that is spread over all servers, with and without the store of record.

use serde_json::{Value, json};
use tollgate_testing::{Postgres, Redis, Server, eventually};

use crate::control::support::{get, post, send, try_get, with_control};
use crate::http::HttpResponse;
use crate::new_server;

/// Six refusals by all servers together are a ban.
pub(crate) const RULES: &str = r#"
domain: api
entity: user
never_ban: [10.0.0.0/8]
rules:
  - {name: login, key: [remote_address], match: {endpoint: POST /login}, limit: 2/year, algorithm: fixed_window, policy: security,
     ban: {after: 6 refusals, within: 10m, for: 1h, escalate: 2x}}
  - {name: brief, key: [user], match: {brief: present}, limit: 0/year, ban: {after: 2, within: 10m, for: 1s, escalate: 3x}}
"#;

/// Servers that share these counters. Without a store of record of all, each has its own.
pub(crate) fn servers(control: Option<&str>, redis: &Redis, count: usize) -> Vec<Server> {
    let store = redis.url();
    // A busy machine is not a fault: a check that the store answers late is no refusal that counts.
    let args = ["--store", &store, "--store-deadline", "1s"];
    let server = |_| {
        let builder = new_server().rules(RULES);
        match control {
            Some(control) => with_control(builder, control, &args).start(),
            None => builder.listen(&["http", "admin"]).args(&args).start(),
        }
    };
    (0..count).map(server).collect()
}

/// Checks a request from an address.
pub(crate) fn check(server: &Server, address: &str) -> HttpResponse {
    let body = json!({"attributes": {"remote_address": address, "endpoint": "POST /login"}});
    post(&server.url("http", "/v1/ratelimit/check"), &body)
}

/// Whether an address is banned, by a request that no rule limits: it is no refusal that counts.
fn is_banned(server: &Server, address: &str) -> bool {
    let body = json!({"attributes": {"remote_address": address, "endpoint": "GET /"}});
    post(&server.url("http", "/v1/ratelimit/check"), &body).status == 403
}

/// Requests that are spread over the servers: two are admitted, six refused.
#[track_caller]
pub(crate) fn attack(servers: &[Server], address: &str) {
    for (number, server) in (0..8).zip(servers.iter().cycle()) {
        let status = check(server, address).status;
        // The sixth refusal may be that of the ban already.
        let expected: &[u16] = if number < 2 { &[200] } else { &[429, 403] };
        assert!(expected.contains(&status), "request {number}: {status}\n{}", server.log());
    }
}

/// Waits until an address is banned on all servers, with 403, or is not, with 429.
#[track_caller]
pub(crate) fn wait_for(servers: &[Server], address: &str, status: u16) {
    for server in servers {
        let reached = eventually(|| (is_banned(server, address) == (status == 403)).then_some(()));
        assert!(reached.is_some(), "{address} gets {}\n{}", check(server, address).status, server.log());
    }
    for server in servers {
        assert_eq!(check(server, address).status, status, "{address}\n{}", server.log());
    }
}

fn bans(server: &Server) -> Vec<Value> {
    get(&server.url("admin", "/admin/v1/blocks?bans")).json()["items"].as_array().unwrap().clone()
}

fn lift(server: &Server, name: &str) -> u16 {
    let url = server.url("admin", &format!("/admin/v1/blocks/{name}?domain=api"));
    send("DELETE", &url, "application/json", String::new()).status
}

fn readyz(server: &Server) -> String {
    try_get(&server.url("admin", "/readyz")).map(|response| response.body).unwrap_or_default()
}

const BANS: &str = "SELECT count(*) FROM audit WHERE action = 'block.ban'";

#[test]
fn a_stuffer_that_is_spread_over_servers_is_banned_on_all_of_them_once() {
    let (database, redis) = (Postgres::database(), Redis::start());
    let servers = servers(Some(database.url()), &redis, 3);
    attack(&servers, "203.0.113.7");
    wait_for(&servers, "203.0.113.7", 403);
    let refused = check(&servers[1], "203.0.113.7");
    let body = refused.json();
    assert_eq!((&body["error"]["code"], &body["source"]), (&json!("BANNED"), &json!("ban")), "{body}");
    assert!(body["detail"].as_str().unwrap().contains("too many of them were refused"), "{body}");
    assert!(body["retry_after"].as_u64().unwrap() > 3_000, "{body}");
    for server in &servers {
        assert_eq!(bans(server)[0]["ban"]["rule"], "login");
    }
    assert_eq!(database.query(BANS).trim(), "1");

    // Never from these networks.
    attack(&servers, "10.1.2.3");
    attack(&servers, "198.51.100.1");
    wait_for(&servers, "198.51.100.1", 403);
    assert_eq!(check(&servers[0], "10.1.2.3").status, 429);

    // Lifted through any server. It does not come back at once.
    assert_eq!(lift(&servers[2], "203.0.113.7"), 200);
    wait_for(&servers, "203.0.113.7", 429);
    assert_eq!(database.query(BANS).trim(), "2");
    let metrics: String = servers.iter().map(|server| get(&server.url("admin", "/metrics")).body).collect();
    let begun = metrics.lines().filter_map(|line| {
        line.strip_prefix("tollgate_bans_total{domain=\"api\",rule=\"login\",result=\"begun\"} ")?.parse::<u64>().ok()
    });
    // On a busy machine several servers may begin one before the database has answered.
    let begun: u64 = begun.sum();
    assert!((2..=6).contains(&begun), "{begun}");
}

#[test]
fn bans_escalate_while_they_follow_each_other() {
    let (database, redis) = (Postgres::database(), Redis::start());
    let servers = servers(Some(database.url()), &redis, 2);
    let order = |server: &Server| {
        let body = json!({"attributes": {"user": "eve", "brief": "1"}});
        post(&server.url("http", "/v1/ratelimit/check"), &body).status
    };
    let number = || {
        for server in &servers {
            order(server);
        }
        bans(&servers[0]).first().map(|ban| ban["ban"]["number"].as_u64().unwrap())
    };
    for expected in 1..=2 {
        assert!(eventually(|| (number() == Some(expected)).then_some(())).is_some(), "{:?}", bans(&servers[0]));
    }
    let ban = bans(&servers[1]).pop().unwrap();
    let time = |text: &Value| text.as_str().unwrap().parse::<tollgate::control::Rfc3339>().unwrap().0;
    let lasts = time(&ban["expires_at"]).since(time(&ban["ban"]["began_at"]));
    assert_eq!(lasts.as_micros(), 3_000_000, "{ban}");
}

#[test]
fn a_ban_needs_no_database_and_is_written_once_when_it_is_back() {
    let (mut postgres, redis) = (Postgres::start(), Redis::start());
    let servers = servers(Some(&postgres.url()), &redis, 3);
    attack(&servers[..1], "198.51.100.1");
    wait_for(&servers, "198.51.100.1", 403);
    // In the middle of an attack.
    for server in &servers {
        check(server, "203.0.113.7");
    }
    postgres.kill();
    attack_on(&servers, "203.0.113.7");
    attack_on(&servers[1..2], "203.0.113.8");
    for address in ["198.51.100.1", "203.0.113.7", "203.0.113.8"] {
        wait_for(&servers, address, 403);
    }
    for server in &servers {
        assert!(eventually(|| readyz(server).contains("bans").then_some(())).is_some(), "{}", readyz(server));
    }
    postgres.restart();
    for server in &servers {
        let settled = eventually(|| (!readyz(server).contains("bans") && bans_of(server) == 3).then_some(()));
        assert!(settled.is_some(), "{}\n{}", readyz(server), server.log());
    }
    for address in ["198.51.100.1", "203.0.113.7", "203.0.113.8"] {
        wait_for(&servers, address, 403);
    }
    assert_eq!(postgres.query(BANS).trim(), "3", "{}", postgres.query("SELECT action, name, at FROM audit"));
}

/// Requests until the address is refused with 403.
#[track_caller]
fn attack_on(servers: &[Server], address: &str) {
    let banned = eventually(|| servers.iter().any(|server| check(server, address).status == 403).then_some(()));
    assert!(banned.is_some(), "{}", servers[0].log());
}

fn bans_of(server: &Server) -> usize {
    let list = try_get(&server.url("admin", "/admin/v1/blocks?bans"));
    list.filter(|list| list.status == 200)
        .and_then(|list| list.json()["items"].as_array().map(Vec::len))
        .unwrap_or_default()
}

#[test]
fn a_ban_reaches_servers_with_stores_of_record_of_their_own_and_so_does_its_end() {
    let redis = Redis::start();
    let servers = servers(None, &redis, 3);
    attack(&servers[..1], "203.0.113.7");
    wait_for(&servers, "203.0.113.7", 403);
    for server in &servers {
        assert!(eventually(|| (bans_of(server) == 1).then_some(())).is_some(), "{}", server.log());
    }
    assert_eq!(lift(&servers[1], "203.0.113.7"), 200);
    wait_for(&servers, "203.0.113.7", 429);
    for server in &servers {
        assert!(eventually(|| (bans_of(server) == 0).then_some(())).is_some(), "{}", server.log());
    }
}
