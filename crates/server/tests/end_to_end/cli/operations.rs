//! `tollgate rule`, `switch`, `block`, `emergency`, `counters`, `audit` and `token` with a real server.

use std::io::{BufRead as _, BufReader};

use serde_json::{Value, json};

use crate::cli::server::CliServer;
use crate::cli::{directory, tollgate_with};
use tollgate_testing::eventually;

#[test]
fn a_rule_is_validated_written_compared_and_rolled_back() {
    let server = CliServer::start();
    let rule = b"key: [api_key]\nlimit: 5/minute\n";
    assert!(server.run_ok(&["rule", "list", "--by-api"]).starts_with("no rules were written by API"));
    let output = server.run_with_input(&["rule", "set", "extra", "-", "--dry-run"], rule);
    assert_eq!((output.code, &*output.err), (0, ""));
    assert!(output.out.starts_with("The rule is valid; nothing was written.\nWHAT "), "{}", output.out);
    assert_eq!(server.lines(&["rule", "list", "--by-api"]).len(), 0);
    assert_eq!(server.lines(&["rule", "list"]).len(), 2);
    let output = server.run_with_input(&["rule", "set", "extra", "-", "--state", "shadow", "--reason", "trial"], rule);
    assert_eq!((output.code, &*output.out), (0, "extra is shadow, version 1\n"), "{}", output.err);
    let output =
        server.run_with_input(&["rule", "set", "extra", "-"], b"{\"key\": [\"api_key\"], \"limit\": \"7/minute\"}");
    assert_eq!((output.code, &*output.out), (0, "extra is active, version 2\n"), "{}", output.err);
    let in_force = eventually(|| {
        let listed = server.run_ok(&["rule", "list"]);
        listed.lines().any(|line| line.starts_with("extra") && line.ends_with("API")).then_some(())
    });
    assert!(in_force.is_some(), "{}", server.run_ok(&["rule", "list"]));
    let output = server.run_ok(&["rule", "diff", "extra"]);
    assert!(output.starts_with("From version 1 to 2:\n") && output.contains("7/minute"), "{output}");
    assert_eq!(server.run_ok(&["rule", "rollback", "extra", "1", "--reason", "no"]), "extra is active, version 3\n");
    assert_eq!(server.run_ok(&["rule", "state", "extra", "off"]), "extra is off, version 4\n");
    assert_eq!(server.json(&["rule", "get", "extra"])["rule"]["limit"], "5/minute");
    assert!(server.run_ok(&["rule", "get", "extra", "--version", "2"]).contains("\"limit\": \"7/minute\""));
    assert_eq!(server.lines(&["rule", "versions", "extra"]).len(), 4);
    assert!(server.run_ok(&["rule", "list", "--state", "off"]).contains("extra  shop    off    4"));
    assert_eq!(server.run_ok(&["rule", "delete", "extra"]), "extra is deleted; its versions are retained\n");
    let output = server.run_with_input(&["rule", "set", "extra", "-"], b"key: [api_key]\nlimit: many\nburts: 2\n");
    assert_eq!((output.code, &*output.out), (1, ""));
    assert!(output.err.lines().count() >= 3, "{}", output.err);
}

#[test]
fn switches_are_set_listed_and_cleared() {
    let server = CliServer::start();
    assert!(server.run_ok(&["switch", "list"]).starts_with("no switch is set"));
    let output = server.run_ok(&["switch", "set", "shop/orders", "off", "--reason", "wrong"]);
    assert_eq!(output, "shop/orders is off; `tollgate switch clear shop/orders` clears it\n");
    assert!(server.run_ok(&["switch", "set", "everything", "shadow", "--for", "30m"]).contains("it ends 20"));
    let all = server.lines(&["switch", "list"]);
    assert_eq!(all.len(), 2, "{all:?}");
    assert!(server.run_ok(&["switch", "list", "--domain", "shop"]).contains("shop/orders  off   yes       never"));
    assert_eq!(server.run_ok(&["switch", "clear", "shop/orders"]), "shop/orders follows the rule files again\n");
    let output = server.run(&["switch", "set", "shop/none", "off"]);
    assert!(output.code == 1 && output.err.starts_with("error: "), "{}", output.err);
}

#[test]
fn blocks_and_emergencies_begin_and_end() {
    let server = CliServer::start();
    assert_eq!(server.run_ok(&["block", "list"]), "nobody is blocked\n");
    server.run_ok(&["block", "add", "größe 1", "--reason", "leaked", "--for", "1h"]);
    server.run_ok(&["block", "add", "192.0.2.0/24", "--reason", "scraping", "--status", "429"]);
    assert_eq!(server.lines(&["block", "list"]).len(), 2);
    assert_eq!(server.json(&["block", "show", "192.0.2.0/24"])["status"], 429);
    assert_eq!(server.run_ok(&["block", "remove", "größe 1"]), "größe 1 is no longer blocked\n");
    assert_eq!(server.run(&["block", "show", "größe 1"]).code, 1);

    assert_eq!(server.run_ok(&["emergency", "list"]), "no emergencies\n");
    let output = server.run_ok(&["emergency", "set", "halve", "--percent", "50", "--reason", "overload"]);
    assert!(output.starts_with("halve is in force until 20"), "{output}");
    server.run_ok(&["emergency", "renew", "halve", "--for", "2h"]);
    assert!(server.run_ok(&["emergency", "list"]).contains("every rule  50% of what applies  yes"));
    let output = server.run(&["emergency", "set", "x", "--limit", "5/minute", "--rule", "none", "--reason", "y"]);
    assert!(output.code == 1 && output.err.starts_with("error: rule: "), "{}", output.err);
    assert_eq!(server.run_ok(&["emergency", "end", "halve"]), "halve has ended\n");
}

#[test]
fn counters_are_debited_credited_and_reset() {
    let server = CliServer::start();
    let output = server.run_ok(&["counters", "debit", "x", "--rule", "per-key", "--units", "30", "--reason", "test"]);
    assert!(output.starts_with("RULE     KEY  MOVED  USED  LEFT\nper-key  x    30     30    70"), "{output}");
    server.run_ok(&["counters", "credit", "x", "--rule", "per-key", "--units", "10"]);
    // The window slides: if a minute begins meanwhile, one or two units of the last one no longer count.
    let used = server.json(&["counters", "show", "x", "--rule", "per-key"])["counters"][0]["used"].as_u64().unwrap();
    assert!((18..=20).contains(&used), "{used}");
    let shown = server.run_ok(&["counters", "show", "x", "--attribute", "endpoint=POST /orders"]);
    assert!(shown.contains("\norders "), "{shown}");
    server.run_ok(&["counters", "reset", "x"]);
    assert_eq!(server.json(&["counters", "show", "x", "--rule", "per-key"])["counters"][0]["used"], 0);
    assert_eq!(server.run(&["counters", "reset", "x", "--rule", "none"]).code, 1);
}

#[test]
fn the_audit_log_is_printed_and_followed() {
    let server = CliServer::start();
    server.run_ok(&["tier", "set", "one", "pro", "--reason", "first"]);
    server.run_ok(&["tier", "set", "two", "pro", "--reason", "second"]);
    let output = server.run_ok(&["audit"]);
    assert!(output.starts_with("ID ") && output.find("first").unwrap() < output.find("second").unwrap(), "{output}");
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
    server.run_ok(&["tier", "set", "three", "pro"]);
    assert_eq!(next()["name"], "three");
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn following_continues_after_a_restart_of_the_server() {
    let home = directory("operations-follow");
    let address = format!("unix:{}", home.join("admin.sock").to_str().unwrap());
    let server = CliServer::with_flags(&["--admin", &address], "");
    server.run_ok(&["tier", "set", "one", "pro"]);
    let args = ["audit", "--follow", "--since", "2020-01-01T00:00:00Z", "--server", &address];
    let mut child = crate::cli::command(&args).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let mut next = || serde_json::from_str::<Value>(&lines.next().unwrap().unwrap()).unwrap();
    assert_eq!(next()["name"], "one");
    let server = server.restart(&["--admin", &address]);
    server.run_ok(&["tier", "set", "two", "pro"]);
    server.run_ok(&["tier", "set", "three", "pro"]);
    // Each entry once, in order.
    assert_eq!([next(), next()].map(|entry| entry["name"].clone()), ["two", "three"]);
    child.kill().unwrap();
    let stderr = String::from_utf8(child.wait_with_output().unwrap().stderr).unwrap();
    assert!(stderr.starts_with("the log ended at entry 1; reconnecting\n"), "{stderr}");
}

#[test]
fn standard_output_has_only_the_secret_of_a_token() {
    let server = CliServer::start();
    let scopes = ["read", "quota", "rules", "emergency", "audit"].map(|scope| ["--scope", scope]).concat();
    let output = server.run(&[&["token", "create", "root"], &scopes[..]].concat());
    assert_eq!((output.code, output.out.lines().count()), (0, 1), "{}", output.err);
    let secret = output.out.trim();
    assert!(secret.starts_with("tg_") && !output.err.contains(secret), "{}", output.err);
    let output = server.run(&["usage", "x"]);
    assert!(output.code == 1 && output.err.contains("set a token with --token-file"), "{}", output.err);
    let known = |args: &[&str], token: &str| {
        tollgate_with(args, b"", &[("TOLLGATE_SERVER", &server.url), ("TOLLGATE_TOKEN", token)])
    };
    let wrong = known(&["usage", "x"], "tg_wrong");
    assert!(wrong.code == 1 && !wrong.err.contains("tg_wrong"), "{}", wrong.err);
    let made = known(&["token", "create", "reader", "--scope", "read", "--for", "30d", "--json"], secret);
    let made: Value = serde_json::from_str(&made.out).unwrap();
    let reader = made["token"].as_str().unwrap();
    assert_eq!(made["scopes"], json!(["read"]));
    let output = known(&["tier", "set", "x", "pro"], reader);
    assert!(output.code == 1 && output.err.contains("use a token with this scope"), "{}", output.err);
    let rotated = known(&["token", "rotate", "reader", "--grace", "1h"], secret);
    assert_eq!((rotated.code, known(&["usage", "x"], reader).code), (0, 0));
    assert_eq!(known(&["usage", "x"], rotated.out.trim()).code, 0);
    let listed = known(&["token", "list"], secret);
    assert!(listed.out.contains("\nreader  read ") && !listed.out.contains(reader), "{}", listed.out);
    assert_eq!(known(&["token", "revoke", "reader"], secret).code, 0);
    assert_eq!(known(&["usage", "x"], reader).code, 1);
}
