//! Two servers on one PostgreSQL: each tells what both have seen.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use serde_json::{Value, json};
use tempfile::TempDir;
use tollgate_testing::{Postgres, Server, eventually};

use crate::control::world::{TOKEN, server_on};

/// Asks as the one with this token.
fn ask(server: &Server, path: &str, token: &str, body: Option<&Value>) -> Value {
    let (url, token) = (server.url("admin", path), format!("Bearer {token}"));
    let answer = match body {
        None => ureq::get(&url).header("Authorization", &token).call(),
        Some(body) => {
            ureq::post(&url).header("Authorization", &token).content_type("application/json").send(body.to_string())
        }
    };
    let text = answer.unwrap().body_mut().read_to_string().unwrap();
    serde_json::from_str(&text).unwrap()
}

/// A caller asks so often.
fn check(server: &Server, caller: &str, times: u64) {
    let body = json!({"attributes": {"api_key": caller}, "cost": 60}).to_string();
    for _ in 0..times {
        let config = ureq::post(&server.url("http", "/v1/ratelimit/check")).config().http_status_as_error(false);
        config.build().send(&body).unwrap();
    }
}

/// Servers tell each other every 10 s: what one saw is known to the other within twice that.
#[track_caller]
fn until(server: &Server, what: impl Fn(&Value) -> bool) -> Value {
    let look = || Some(ask(server, "/admin/v1/top?window=1h", TOKEN, None)).filter(&what);
    let found = eventually(look).or_else(|| eventually(look));
    found.unwrap_or_else(|| panic!("{}\n{}", ask(server, "/admin/v1/top?window=1h", TOKEN, None), server.log()))
}

fn told(top: &Value) -> Vec<(&str, u64, u64)> {
    let key = |key: &'static str| move |row: &'_ Value| row[key].as_u64().unwrap();
    let rows = top["keys"].as_array().unwrap().iter();
    rows.map(|row| (row["key"].as_str().unwrap(), key("decisions")(row), key("refusals")(row))).collect()
}

#[test]
fn the_heaviest_keys_are_those_of_all_servers() {
    let (mut postgres, home) = (Postgres::start(), TempDir::new().unwrap());
    let file = home.path().join("token");
    fs::write(&file, TOKEN).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    let args = ["--admin-token-file", &*file.display().to_string()];
    let (one, mut other) = (server_on(&postgres.url(), &args), server_on(&postgres.url(), &args));
    check(&one, "ann", 5);
    check(&other, "ann", 3);
    check(&other, "bob", 2);
    let all = [("ann", 8, 6), ("bob", 2, 1)];
    for server in [&one, &other] {
        let top = until(server, |top| told(top) == all);
        assert_eq!((&top["servers"], &top["total"], &top["error"]), (&json!(2), &json!(10), &json!(0)));
    }

    // Who may not see callers sees the same hashes wherever it looks.
    let made = ask(&one, "/admin/v1/tokens", TOKEN, Some(&json!({"name": "reader", "scopes": ["read"]})));
    let reader = made["token"].as_str().unwrap();
    let hidden = |server: &Server| {
        let url = server.url("admin", "/admin/v1/top?window=1h");
        let answer = eventually(|| ureq::get(&url).header("Authorization", format!("Bearer {reader}")).call().ok());
        serde_json::from_str::<Value>(&answer.unwrap().body_mut().read_to_string().unwrap()).unwrap()
    };
    let (here, there) = (hidden(&one), hidden(&other));
    assert_eq!((&here["keys_shown"], told(&here)), (&json!(false), told(&there)));
    assert!(told(&here)[0].0.starts_with('#'), "{here}");

    // One that stops says so.
    other.stop();
    until(&one, |top| top["servers"] == 1 && told(top) == [("ann", 5, 4)]);

    // Without the database it is this server and nobody waits.
    postgres.kill();
    assert_eq!(told(&ask(&one, "/admin/v1/top?window=1h", TOKEN, None)), [("ann", 5, 4)]);
}
