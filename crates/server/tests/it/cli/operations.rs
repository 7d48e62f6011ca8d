//! `tollgate rule`, `switch`, `block`, `emergency`, `counters`, `audit` and `token` against a real server.

use std::io::{BufRead as _, BufReader};

use serde_json::{Value, json};

use crate::cli::running::Running;
use crate::cli::{directory, tollgate_with};

#[test]
fn a_rule_is_tried_written_compared_and_rolled_back() {
    let server = Running::start();
    let rule = b"key: [api_key]\nlimit: 5/minute\n";
    assert!(server.done(&["rule", "list"]).starts_with("no rules were written by API"));
    let ran = server.fed(&["rule", "set", "extra", "-", "--dry-run"], rule);
    assert_eq!((ran.code, &*ran.err), (0, ""));
    assert!(ran.out.starts_with("The rule is valid; nothing was written.\nWHAT "), "{}", ran.out);
    assert_eq!(server.lines(&["rule", "list"]).len(), 0);
    let ran = server.fed(&["rule", "set", "extra", "-", "--state", "shadow", "--reason", "trial"], rule);
    assert_eq!((ran.code, &*ran.out), (0, "extra is shadow, version 1\n"), "{}", ran.err);
    let ran = server.fed(&["rule", "set", "extra", "-"], b"{\"key\": [\"api_key\"], \"limit\": \"7/minute\"}");
    assert_eq!((ran.code, &*ran.out), (0, "extra is active, version 2\n"), "{}", ran.err);
    let told = server.done(&["rule", "diff", "extra"]);
    assert!(told.starts_with("From version 1 to 2:\n") && told.contains("7/minute"), "{told}");
    assert_eq!(server.done(&["rule", "rollback", "extra", "1", "--reason", "no"]), "extra is active, version 3\n");
    assert_eq!(server.done(&["rule", "state", "extra", "off"]), "extra is off, version 4\n");
    assert_eq!(server.json(&["rule", "get", "extra"])["rule"]["limit"], "5/minute");
    assert!(server.done(&["rule", "get", "extra", "--version", "2"]).contains("\"limit\": \"7/minute\""));
    assert_eq!(server.lines(&["rule", "versions", "extra"]).len(), 4);
    assert!(server.done(&["rule", "list", "--state", "off"]).contains("extra  shop    off    4"));
    assert_eq!(server.done(&["rule", "delete", "extra"]), "extra is deleted; its versions are retained\n");
    let ran = server.fed(&["rule", "set", "extra", "-"], b"key: [api_key]\nlimit: many\nburts: 2\n");
    assert_eq!((ran.code, &*ran.out), (1, ""));
    assert!(ran.err.lines().count() >= 3, "{}", ran.err);
}

#[test]
fn switches_are_set_listed_and_cleared() {
    let server = Running::start();
    assert!(server.done(&["switch", "list"]).starts_with("no switch is set"));
    let told = server.done(&["switch", "set", "shop/orders", "off", "--reason", "wrong"]);
    assert_eq!(told, "shop/orders is off; `tollgate switch clear shop/orders` clears it\n");
    assert!(server.done(&["switch", "set", "everything", "shadow", "--for", "30m"]).contains("it ends 20"));
    let all = server.lines(&["switch", "list"]);
    assert_eq!(all.len(), 2, "{all:?}");
    assert!(server.done(&["switch", "list", "--domain", "shop"]).contains("shop/orders  off   yes       never"));
    assert_eq!(server.done(&["switch", "clear", "shop/orders"]), "shop/orders follows the rule files again\n");
    let ran = server.run(&["switch", "set", "shop/none", "off"]);
    assert!(ran.code == 1 && ran.err.starts_with("error: "), "{}", ran.err);
}

#[test]
fn blocks_and_emergencies_begin_and_end() {
    let server = Running::start();
    assert_eq!(server.done(&["block", "list"]), "nobody is blocked\n");
    server.done(&["block", "add", "größe 1", "--reason", "leaked", "--for", "1h"]);
    server.done(&["block", "add", "192.0.2.0/24", "--reason", "scraping", "--status", "429"]);
    assert_eq!(server.lines(&["block", "list"]).len(), 2);
    assert_eq!(server.json(&["block", "show", "192.0.2.0/24"])["status"], 429);
    assert_eq!(server.done(&["block", "remove", "größe 1"]), "größe 1 is no longer blocked\n");
    assert_eq!(server.run(&["block", "show", "größe 1"]).code, 1);

    assert_eq!(server.done(&["emergency", "list"]), "no emergencies\n");
    let told = server.done(&["emergency", "set", "halve", "--percent", "50", "--reason", "overload"]);
    assert!(told.starts_with("halve is in force until 20"), "{told}");
    server.done(&["emergency", "renew", "halve", "--for", "2h"]);
    assert!(server.done(&["emergency", "list"]).contains("every rule  50% of what applies  yes"));
    let ran = server.run(&["emergency", "set", "x", "--limit", "5/minute", "--rule", "none", "--reason", "y"]);
    assert!(ran.code == 1 && ran.err.starts_with("error: rule: "), "{}", ran.err);
    assert_eq!(server.done(&["emergency", "end", "halve"]), "halve has ended\n");
}

#[test]
fn counters_are_moved() {
    let server = Running::start();
    let told = server.done(&["counters", "debit", "x", "--rule", "per-key", "--units", "30", "--reason", "test"]);
    assert!(told.starts_with("RULE     KEY  MOVED  USED  LEFT\nper-key  x    30     30    70"), "{told}");
    server.done(&["counters", "credit", "x", "--rule", "per-key", "--units", "10"]);
    // The window slides: if a minute begins meanwhile, a unit or two of the last one no longer count.
    let used = server.json(&["counters", "show", "x", "--rule", "per-key"])["counters"][0]["used"].as_u64().unwrap();
    assert!((18..=20).contains(&used), "{used}");
    let shown = server.done(&["counters", "show", "x", "--attribute", "endpoint=POST /orders"]);
    assert!(shown.contains("\norders "), "{shown}");
    server.done(&["counters", "reset", "x"]);
    assert_eq!(server.json(&["counters", "show", "x", "--rule", "per-key"])["counters"][0]["used"], 0);
    assert_eq!(server.run(&["counters", "reset", "x", "--rule", "none"]).code, 1);
}

#[test]
fn the_audit_log_is_shown_and_followed() {
    let server = Running::start();
    server.done(&["tier", "set", "one", "pro", "--reason", "first"]);
    server.done(&["tier", "set", "two", "pro", "--reason", "second"]);
    let told = server.done(&["audit"]);
    assert!(told.starts_with("ID ") && told.find("first").unwrap() < told.find("second").unwrap(), "{told}");
    assert_eq!(server.lines(&["audit", "--last", "1"])[0]["name"], "two");
    assert_eq!(server.lines(&["audit", "--name", "one", "--kind", "quota"]).len(), 1);
    let all = server.lines(&["audit", "--since", "2020-01-01T00:00:00Z"]);
    assert_eq!(all.len(), 2);
    let after = all[0]["id"].to_string();
    assert_eq!(server.lines(&["audit", "--after", &after]).len(), 1);

    let mut child =
        crate::cli::command(&["audit", "--follow", "--after", &after, "--server", &server.url]).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut next = || serde_json::from_str::<Value>(&lines.next().unwrap().unwrap()).unwrap();
    assert_eq!(next()["name"], "two");
    server.done(&["tier", "set", "three", "pro"]);
    assert_eq!(next()["name"], "three");
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn a_server_that_comes_back_is_followed_on() {
    let home = directory("operations-follow");
    let address = format!("unix:{}", home.join("admin.sock").to_str().unwrap());
    let server = Running::with(&["--admin", &address], "");
    server.done(&["tier", "set", "one", "pro"]);
    let args = ["audit", "--follow", "--since", "2020-01-01T00:00:00Z", "--server", &address];
    let mut child = crate::cli::command(&args).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut next = || serde_json::from_str::<Value>(&lines.next().unwrap().unwrap()).unwrap();
    assert_eq!(next()["name"], "one");
    let server = server.restarted(&["--admin", &address]);
    server.done(&["tier", "set", "two", "pro"]);
    server.done(&["tier", "set", "three", "pro"]);
    // Each once, in their order.
    assert_eq!([next(), next()].map(|entry| entry["name"].clone()), ["two", "three"]);
    child.kill().unwrap();
    let told = String::from_utf8(child.wait_with_output().unwrap().stderr).unwrap();
    assert!(told.starts_with("the log ended at entry 1; reconnecting\n"), "{told}");
}

#[test]
fn a_tokens_secret_is_alone_on_standard_output() {
    let server = Running::start();
    let scopes = ["read", "quota", "rules", "emergency", "audit"].map(|scope| ["--scope", scope]).concat();
    let ran = server.run(&[&["token", "create", "root"], &scopes[..]].concat());
    assert_eq!((ran.code, ran.out.lines().count()), (0, 1), "{}", ran.err);
    let secret = ran.out.trim();
    assert!(secret.starts_with("tg_") && !ran.err.contains(secret), "{}", ran.err);
    let ran = server.run(&["usage", "x"]);
    assert!(ran.code == 1 && ran.err.contains("set a token with --token-file"), "{}", ran.err);
    let known = |args: &[&str], token: &str| {
        tollgate_with(args, b"", &[("TOLLGATE_SERVER", &server.url), ("TOLLGATE_TOKEN", token)])
    };
    let wrong = known(&["usage", "x"], "tg_wrong");
    assert!(wrong.code == 1 && !wrong.err.contains("tg_wrong"), "{}", wrong.err);
    let made = known(&["token", "create", "reader", "--scope", "read", "--for", "30d", "--json"], secret);
    let made: Value = serde_json::from_str(&made.out).unwrap();
    let reader = made["token"].as_str().unwrap();
    assert_eq!(made["scopes"], json!(["read"]));
    let ran = known(&["tier", "set", "x", "pro"], reader);
    assert!(ran.code == 1 && ran.err.contains("use a token with this scope"), "{}", ran.err);
    let rotated = known(&["token", "rotate", "reader", "--grace", "1h"], secret);
    assert_eq!((rotated.code, known(&["usage", "x"], reader).code), (0, 0));
    assert_eq!(known(&["usage", "x"], rotated.out.trim()).code, 0);
    let listed = known(&["token", "list"], secret);
    assert!(listed.out.contains("\nreader  read ") && !listed.out.contains(reader), "{}", listed.out);
    assert_eq!(known(&["token", "revoke", "reader"], secret).code, 0);
    assert_eq!(known(&["usage", "x"], reader).code, 1);
}
