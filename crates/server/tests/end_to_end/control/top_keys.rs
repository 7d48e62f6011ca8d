//! The heaviest keys of two servers on one PostgreSQL: each server reports those of both.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use serde_json::{Value, json};
use tempfile::TempDir;
use tollgate_testing::{Postgres, Server, eventually};

use crate::control::support::{TOKEN, server_on};

/// Sends a request with this token.
fn request(server: &Server, path: &str, token: &str, body: Option<&Value>) -> Value {
    let (url, token) = (server.url("admin", path), format!("Bearer {token}"));
    let response = match body {
        None => ureq::get(&url).header("Authorization", &token).call(),
        Some(body) => {
            ureq::post(&url).header("Authorization", &token).content_type("application/json").send(body.to_string())
        }
    };
    let text = response.unwrap().body_mut().read_to_string().unwrap();
    serde_json::from_str(&text).unwrap()
}

/// Sends this many checks for a caller.
fn check(server: &Server, caller: &str, times: u64) {
    let body = json!({"attributes": {"api_key": caller}, "cost": 60}).to_string();
    for _ in 0..times {
        let config = ureq::post(&server.url("http", "/v1/ratelimit/check")).config().http_status_as_error(false);
        config.build().send(&body).unwrap();
    }
}

/// Waits until the heaviest keys match. Servers exchange them every 10 s, so that may take twice as long.
#[track_caller]
fn wait_for_top(server: &Server, is_expected: impl Fn(&Value) -> bool) -> Value {
    let top = || Some(request(server, "/admin/v1/top?window=1h", TOKEN, None)).filter(&is_expected);
    let found = eventually(top).or_else(|| eventually(top));
    found.unwrap_or_else(|| panic!("{}\n{}", request(server, "/admin/v1/top?window=1h", TOKEN, None), server.log()))
}

/// Key, decisions and refusals of each row.
fn rows(top: &Value) -> Vec<(&str, u64, u64)> {
    let key = |key: &'static str| move |row: &'_ Value| row[key].as_u64().unwrap();
    let keys = top["keys"].as_array().unwrap().iter();
    keys.map(|row| (row["key"].as_str().unwrap(), key("decisions")(row), key("refusals")(row))).collect()
}

#[test]
fn the_heaviest_keys_include_those_of_all_servers() {
    let (mut postgres, home) = (Postgres::start(), TempDir::new().unwrap());
    let file = home.path().join("token");
    fs::write(&file, TOKEN).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    let args = ["--admin-token-file", &*file.display().to_string()];
    let (one, mut other) = (server_on(&postgres.url(), &args), server_on(&postgres.url(), &args));
    check(&one, "ann", 5);
    check(&other, "ann", 3);
    check(&other, "bob", 2);
    // A private key is known in clear where it was seen, and masked elsewhere. Its name is one for all.
    for (server, has_bob) in [(&one, false), (&other, true)] {
        let top = wait_for_top(server, |top| match rows(top)[..] {
            [("ann", 8, 6), (bob, 2, 1)] => {
                if has_bob {
                    bob == "bob"
                } else {
                    bob.len() == 33 && bob.starts_with('#')
                }
            }
            _ => false,
        });
        assert_eq!((&top["servers"], &top["total"], &top["error"]), (&json!(2), &json!(10), &json!(0)));
    }

    // A token without the right to see callers gets the same hashes from every server.
    let created = request(&one, "/admin/v1/tokens", TOKEN, Some(&json!({"name": "reader", "scopes": ["read"]})));
    let reader = created["token"].as_str().unwrap();
    let hidden = |server: &Server| {
        let url = server.url("admin", "/admin/v1/top?window=1h");
        let response = eventually(|| ureq::get(&url).header("Authorization", format!("Bearer {reader}")).call().ok());
        serde_json::from_str::<Value>(&response.unwrap().body_mut().read_to_string().unwrap()).unwrap()
    };
    let (top, other_top) = (hidden(&one), hidden(&other));
    assert_eq!((&top["keys_shown"], rows(&top)), (&json!(false), rows(&other_top)));
    assert!(rows(&top)[0].0.starts_with('#'), "{top}");

    // A server that stops withdraws its keys.
    other.stop();
    wait_for_top(&one, |top| top["servers"] == 1 && rows(top) == [("ann", 5, 4)]);

    // Without the database the server reports its own keys at once.
    postgres.kill();
    assert_eq!(rows(&request(&one, "/admin/v1/top?window=1h", TOKEN, None)), [("ann", 5, 4)]);
}
