//! Guardrails of a fleet: a write is held by one server, approved on another and confirmed on a third.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::Barrier;

use serde_json::{Value, json};
use tempfile::TempDir;
use tollgate_testing::{Postgres, Redis, Server, eventually, until};

use crate::control::support::{RULES, TOKEN, limit, send, server_on};
use crate::http::{HttpResponse, get, new_agent, post, read};
use crate::new_server;

const ADA: &str = "/admin/v1/quotas/ada";

/// Three servers with the tokens of two operators. The first one has recent traffic.
struct Guarded {
    postgres: Postgres,
    _redis: Redis,
    servers: Vec<Server>,
    ann: String,
    bob: String,
}

impl Guarded {
    fn start() -> Guarded {
        let (postgres, redis, folder) = (Postgres::start(), Redis::start(), TempDir::new().unwrap());
        let token = folder.path().join("token");
        fs::write(&token, TOKEN).unwrap();
        fs::set_permissions(&token, fs::Permissions::from_mode(0o600)).unwrap();
        let (store, token) = (redis.url(), token.display().to_string());
        let args = ["--store", &*store, "--admin-token-file", &*token];
        let servers: Vec<Server> = (0..3).map(|_| server_on(&postgres.url(), &args)).collect();
        let operator = |name: &str| {
            let body = json!({"name": name, "scopes": ["read", "quota", "rules", "emergency", "audit"]});
            let made = ask(&servers[0], TOKEN, ("POST", "/admin/v1/tokens"), None, &body);
            made.json()["token"].as_str().unwrap_or_else(|| panic!("{made:?}")).to_owned()
        };
        let (ann, bob) = (operator("ann"), operator("bob"));
        for number in 0..40 {
            let caller = if number % 4 == 0 { "ada" } else { "eve" };
            let check = json!({"attributes": {"api_key": caller}}).to_string();
            assert_eq!(post(&servers[0].url("http", "/v1/ratelimit/check"), &check).status, 200);
        }
        for (server, token) in servers.iter().flat_map(|server| [(server, &ann), (server, &bob)]) {
            let plans =
                || (ask(server, token, ("GET", "/admin/v1/plans"), None, &Value::Null).status == 200).then_some(());
            assert!(eventually(plans).is_some(), "{}", server.log());
        }
        Guarded { postgres, _redis: redis, servers, ann, bob }
    }

    /// The rows of the audit log with this action.
    fn audited(&self, action: &str) -> usize {
        let sql = format!("SELECT count(*) FROM audit WHERE action = '{action}'");
        self.postgres.query(&sql).trim().parse().unwrap()
    }

    fn wait_for_limit(&self, caller: &str, expected: u64) {
        for server in &self.servers {
            let reached = eventually(|| (limit(server, caller).0 == expected).then_some(()));
            assert!(reached.is_some(), "{:?}\n{}", limit(server, caller), server.log());
        }
    }
}

/// A request with a token, confirmed by a plan or not.
fn ask(server: &Server, token: &str, (method, path): (&str, &str), plan: Option<&str>, body: &Value) -> HttpResponse {
    try_ask(server, token, (method, path), plan, body).unwrap()
}

fn try_ask(
    server: &Server,
    token: &str,
    (method, path): (&str, &str),
    plan: Option<&str>,
    body: &Value,
) -> Option<HttpResponse> {
    let mut request = http::Request::builder().method(method).uri(server.url("admin", path));
    request = request.header("Authorization", format!("Bearer {token}")).header("Content-Type", "application/json");
    if let Some(plan) = plan {
        request = request.header("Tollgate-Confirm", plan);
    }
    let body = if body.is_null() { String::new() } else { body.to_string() };
    read(new_agent().run(request.body(body).unwrap()))
}

/// A quota with this limit for each minute.
fn quota(limit: u64) -> Value {
    json!({"overrides": [{"rule": "per-key", "requests_per_unit": limit, "unit": "minute"}]})
}

#[track_caller]
fn held(response: &HttpResponse, code: &str) -> String {
    let body = response.json();
    assert_eq!((response.status, &body["code"]), (409, &json!(code)), "{response:?}");
    body["plan"]["id"].as_str().unwrap().to_owned()
}

#[test]
fn a_write_is_held_approved_and_confirmed_on_different_servers() {
    let fleet = Guarded::start();
    let [first, second, third] = &fleet.servers[..] else { panic!("three servers") };
    let (everybody, strict) = (("PUT", "/admin/v1/quotas/*"), quota(1));
    let plan = held(&ask(first, &fleet.ann, everybody, None, &strict), "needs_approval");
    let approve = format!("/admin/v1/plans/{plan}/approve");
    // The third server has no traffic of its own, and still needs the approval.
    assert_eq!(held(&ask(third, &fleet.ann, everybody, Some(&plan), &strict), "needs_approval"), plan);
    let own = ask(second, &fleet.ann, ("POST", &approve), None, &json!({}));
    assert_eq!((own.status, &own.json()["code"]), (403, &json!("same_identity")), "{own:?}");
    let approved = ask(second, &fleet.bob, ("POST", &approve), None, &json!({"reason": "as agreed"}));
    assert_eq!((approved.status, &approved.json()["approved"]), (200, &json!(true)), "{approved:?}");
    assert_eq!(limit(first, "ada").0, 100);
    let confirmed = ask(third, &fleet.ann, everybody, Some(&plan), &strict);
    assert_eq!(confirmed.status, 200, "{confirmed:?}");
    fleet.wait_for_limit("ada", 1);
    let again = ask(first, &fleet.ann, everybody, Some(&plan), &strict);
    assert_eq!((again.status, &again.json()["code"]), (409, &json!("no_plan")), "{again:?}");
    for action in ["plan.hold", "plan.approve", "plan.confirm", "quota.put"] {
        assert_eq!(fleet.audited(action), 1, "{action}");
    }
}

#[test]
fn a_plan_survives_the_database_and_two_confirmations_make_one_write() {
    let mut fleet = Guarded::start();
    let (target, strict) = (("PUT", ADA), quota(0));
    let plan = held(&ask(&fleet.servers[0], &fleet.ann, target, None, &strict), "needs_confirmation");
    fleet.postgres.kill();
    let away = ask(&fleet.servers[1], &fleet.ann, target, Some(&plan), &strict);
    assert_eq!((away.status, &away.json()["code"]), (503, &json!("control_away")), "{away:?}");
    assert_eq!(limit(&fleet.servers[1], "ada").0, 100);
    fleet.postgres.restart();
    let is_back = |server: &Server| {
        let plans = try_ask(server, &fleet.ann, ("GET", "/admin/v1/plans"), None, &Value::Null)?;
        (plans.status == 200 && plans.json()["items"][0]["id"] == json!(plan)).then_some(())
    };
    for server in &fleet.servers {
        assert!(eventually(|| is_back(server)).is_some(), "{}", server.log());
    }
    // Two operators confirm it on two servers at the same time.
    let begin = Barrier::new(2);
    let confirm = |server: &Server, token: &str| {
        begin.wait();
        ask(server, token, target, Some(&plan), &strict)
    };
    let (one, other) = std::thread::scope(|scope| {
        let one = scope.spawn(|| confirm(&fleet.servers[1], &fleet.ann));
        let other = scope.spawn(|| confirm(&fleet.servers[2], &fleet.bob));
        (one.join().unwrap(), other.join().unwrap())
    });
    let mut statuses = [one.status, other.status];
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 409], "{one:?} {other:?}");
    fleet.wait_for_limit("ada", 0);
    for action in ["plan.hold", "plan.confirm", "quota.put"] {
        assert_eq!(fleet.audited(action), 1, "{action}");
    }
}

#[test]
fn rule_files_that_would_refuse_much_are_held_until_they_are_released() {
    let args = ["--guardrail-files", "hold"];
    let server = new_server().rules(RULES).listen(&["http", "admin"]).args(&args).start();
    let check = json!({"attributes": {"api_key": "ada"}});
    for _ in 0..40 {
        assert_eq!(post(&server.url("http", "/v1/ratelimit/check"), &check.to_string()).status, 200);
    }
    server.write_rules(&RULES.replace("free: 100/m", "free: 0/m"));
    let held = |server: &Server| {
        let held = get(&server.url("admin", "/admin/v1/files")).json()["held"].clone();
        held["version"].as_str().map(str::to_owned)
    };
    let version = eventually(|| held(&server)).unwrap_or_else(|| panic!("{}", server.log()));
    until("it is degraded, and says why", || {
        let readyz = get(&server.url("admin", "/readyz")).body;
        readyz.contains("they would newly refuse 40 of 40 recent requests") && readyz.contains(&version)
    });
    assert_eq!(limit(&server, "ada").0, 100);

    let server = server.restart().listen(&["http", "admin"]).args(&args).start();
    assert_eq!((limit(&server, "ada").0, held(&server)), (100, Some(version.clone())));
    let path = format!("/admin/v1/files/{version}/release");
    let reason = json!({"reason": "as announced"}).to_string();
    assert_eq!(send("POST", &server.url("admin", &path), "application/json", reason).status, 200);
    let is_released = || (limit(&server, "ada").0 == 0 && held(&server).is_none()).then_some(());
    assert!(eventually(is_released).is_some(), "{}", server.log());
    until("it is not degraded any more", || !get(&server.url("admin", "/readyz")).body.contains("held"));
}
