//! `tollgate quota`, `tier` and `usage` with a real server.

use std::fs;

use serde_json::{Value, json};

use crate::cli::server::CliServer;

#[test]
fn a_quota_is_set_shown_listed_and_deleted() {
    let server = CliServer::start();
    let output = server.run(&["quota", "get", "abc123"]);
    assert_eq!((output.code, &*output.out, &*output.err), (1, "", "error: there is no quota \"abc123\"\n"));
    assert_eq!(server.run_ok(&["quota", "list"]), "no quotas; `tollgate quota set CALLER` creates one\n");

    let set = ["quota", "set", "abc123", "--tier", "pro", "--override", "endpoint:POST /orders=500/minute"];
    let output = server.run_ok(
        &[&set[..], &["--override-rule", "per-key=2000/minute", "--for", "1h", "--reason", "ticket 7"]].concat(),
    );
    for line in [
        "caller      abc123\n",
        "tier        pro\n",
        "rule per-key           2000/minute  -     -",
        "endpoint:POST /orders  500/minute   -     -",
    ] {
        assert!(output.contains(line), "{line}: {output}");
    }
    let quota = server.json(&["quota", "get", "abc123"]);
    assert_eq!((&quota["tier"], &quota["reason"]), (&json!("pro"), &json!("ticket 7")));
    assert_eq!(quota["quotas"]["overrides"].as_array().unwrap().len(), 2);
    assert!(quota["expires_at"].is_string(), "{quota}");
    let output = server.run_ok(&["quota", "get", "abc123"]);
    assert!(output.contains("by          loopback\n") && output.contains("\ngeneration  "), "{output}");

    let listed = server.run_ok(&["quota", "list", "--tier", "pro"]);
    let mut lines = listed.lines();
    assert!(lines.next().unwrap().starts_with("CALLER  TIER  OVERRIDES  FROM  UNTIL"), "{listed}");
    assert!(lines.next().unwrap().starts_with("abc123  pro   2          -     20"), "{listed}");
    assert_eq!(server.lines(&["quota", "list", "--tier", "free"]).len(), 0);
    assert_eq!(server.run_ok(&["quota", "delete", "abc123"]), "abc123 has no quota any more\n");
    assert_eq!(server.run(&["quota", "delete", "abc123"]).code, 1);
}

#[test]
fn every_error_is_one_line() {
    let server = CliServer::start();
    let rows: [(&[&str], &[&str]); 4] = [
        (
            &["quota", "set", "x", "--tier", "gold", "--override", "nothing:here=5/minute"],
            &[
                "error: the request has 2 faults",
                "  tier: there is no tier `gold`; the tiers are free, pro",
                "  overrides[0].descriptor: no rule has `nothing:here`",
            ],
        ),
        (&["quota", "set", "x", "--override-rule", "per-key=many"], &["error: overrides[0].limit: "]),
        (
            &["quota", "set", "x", "--tier", "pro", "--expires-at", "2001-01-01T00:00:00Z"],
            &["error: expires_at: it is in the past"],
        ),
        (&["usage", "x", "--domain", "other"], &["error: there is no domain `other`; the rules have `shop`"]),
    ];
    for (args, lines) in rows {
        let output = server.run(args);
        assert_eq!((output.code, &*output.out), (1, ""), "{args:?}: {}", output.err);
        let errors: Vec<&str> = output.err.lines().collect();
        let as_expected =
            errors.len() == lines.len() && errors.iter().zip(lines).all(|(error, line)| error.starts_with(line));
        assert!(as_expected, "{args:?}: {}", output.err);
    }
    assert_eq!(server.lines(&["quota", "list"]).len(), 0);
}

#[test]
fn names_of_callers_are_preserved_and_escaped_for_display() {
    let server = CliServer::start();
    for caller in ["größe 1", "a/b", "x?y=z&#", "100%", "日本", "..", "."] {
        server.run_ok(&["quota", "set", caller, "--tier", "pro"]);
        assert_eq!(server.json(&["quota", "get", caller])["api_key"], caller);
        assert_eq!(server.run_ok(&["tier", "get", caller]), "pro\n");
        assert_eq!(server.json(&["usage", caller])["api_key"], caller);
    }
    assert_eq!(server.lines(&["quota", "list"]).len(), 7);
    // Control characters are escaped.
    server.run_ok(&["quota", "set", "a\u{1b}[2Jb", "--tier", "pro"]);
    let listed = server.run_ok(&["quota", "list"]);
    assert!(listed.contains("a\\u{1b}[2Jb") && !listed.contains('\u{1b}'), "{listed}");
}

#[test]
fn a_write_with_an_old_generation_is_refused() {
    let server = CliServer::start();
    let set = ["quota", "set", "x", "--tier", "pro"];
    let output = server.run(&[&set[..], &["--if-match", "7"]].concat());
    assert!(output.code == 1 && output.err.contains("it was changed meanwhile"), "{}", output.err);
    server.run_ok(&set);
    let output = server.run_ok(&["quota", "get", "x"]);
    let generation = output.lines().find_map(|line| line.strip_prefix("generation")).unwrap().trim();
    server.run_ok(&[&set[..], &["--if-match", generation]].concat());
    assert_eq!(server.run(&["quota", "delete", "x", "--if-match", generation]).code, 1);
}

#[test]
fn setting_a_tier_changes_nothing_else() {
    let server = CliServer::start();
    assert_eq!(server.run_ok(&["tier", "set", "new", "pro"]), "new has tier pro now\n");
    server.run_ok(&["quota", "set", "x", "--tier", "pro", "--override-rule", "orders=7/minute", "--for", "1h"]);
    let before = server.json(&["quota", "get", "x"]);
    assert_eq!(
        server.run_ok(&["tier", "set", "x", "enterprise", "--reason", "contract"]),
        "x has tier enterprise now\n"
    );
    let after = server.json(&["quota", "get", "x"]);
    assert_eq!((&after["tier"], &after["reason"]), (&json!("enterprise"), &json!("contract")));
    assert_eq!(
        (&after["quotas"]["overrides"], &after["expires_at"]),
        (&before["quotas"]["overrides"], &before["expires_at"])
    );
    let output = server.run(&["tier", "set", "x", "gold"]);
    assert!(output.code == 1 && output.err.starts_with("error: tier: there is no tier `gold`"), "{}", output.err);
    // A scheduled change is preserved.
    server.run_ok(&["quota", "set", "x", "--tier", "free", "--effective-at", "2099-01-01T00:00:00Z"]);
    assert!(server.run_ok(&["quota", "get", "x"]).contains("\nFrom 2099-01-01 00:00:00Z on: tier free\n"));
    let output = server.run(&["tier", "set", "x", "pro"]);
    assert!(
        output.code == 1 && output.err.contains("a change is scheduled for 2099-01-01T00:00:00Z"),
        "{}",
        output.err
    );
    let domains = server.lines(&["tier", "list"]);
    assert_eq!(domains[0]["tiers"], json!(["free", "pro", "enterprise", "custom"]));
}

#[test]
fn concurrent_changes_of_a_tier_lose_nothing() {
    let server = CliServer::start();
    server.run_ok(&["quota", "set", "x", "--tier", "free", "--override-rule", "orders=7/minute"]);
    std::thread::scope(|scope| {
        for tier in ["pro", "enterprise", "custom", "free"] {
            scope.spawn(|| server.run_ok(&["tier", "set", "x", tier]));
        }
    });
    assert_eq!(server.json(&["quota", "get", "x"])["quotas"]["overrides"][0]["rule"], "orders");
}

#[test]
fn usage_is_a_table() {
    let server = CliServer::start();
    server.run_ok(&["tier", "set", "x", "pro"]);
    let output = server.run_ok(&["usage", "x"]);
    assert!(output.starts_with("WHAT "), "{output}");
    let line = output.lines().find(|line| line.starts_with("default ")).unwrap();
    let words: Vec<&str> = line.split_whitespace().collect();
    assert_eq!(words[..5], ["default", "0", "1000", "1000", "per-key"], "{output}");
    assert_eq!(server.json(&["usage", "x"])["usage"]["default"]["limit"], 1000);
}

#[test]
fn imported_quotas_are_exported_unchanged() {
    let server = CliServer::start();
    let lines: String =
        (0..2500).map(|n| format!("{}\n", json!({"api_key": format!("c{n:04}"), "tier": "pro"}))).collect();
    let output = server.run_with_input(&["quota", "import", "-", "--dry-run"], lines.as_bytes());
    assert_eq!((output.code, &*output.out, &*output.err), (0, "2500 quotas would be written\n", ""));
    assert_eq!(server.lines(&["quota", "list"]).len(), 0);
    let file = server.home().join("quotas.jsonl");
    fs::write(&file, &lines).unwrap();
    assert_eq!(server.run_ok(&["quota", "import", file.to_str().unwrap()]), "2500 quotas written\n");
    let all = server.lines(&["quota", "list"]);
    assert_eq!((all.len(), &all[2499]["api_key"]), (2500, &json!("c2499")));
    assert_eq!(server.lines(&["quota", "list", "--limit", "1200"]).len(), 1200);
    assert_eq!(server.lines(&["quota", "list", "--prefix", "c000"]).len(), 10);
    assert_eq!(server.run_ok(&["quota", "list"]).lines().count(), 2501);

    let out = server.home().join("out.jsonl");
    let output = server.run(&["quota", "export", out.to_str().unwrap()]);
    assert_eq!((output.code, &*output.out), (0, ""));
    assert!(output.err.starts_with("2500 quotas in "), "{}", output.err);
    let exported = fs::read_to_string(&out).unwrap();
    assert_eq!(exported, server.run_ok(&["quota", "export"]));
    let other = CliServer::start();
    let output = other.run_with_input(&["quota", "import", "-", "--json"], exported.as_bytes());
    let last: Value = serde_json::from_str(output.out.lines().last().unwrap()).unwrap();
    assert_eq!((&last["done"], &last["written"]), (&json!(true), &json!(2500)));
    assert_eq!(other.run_ok(&["quota", "export"]), exported);

    let bad = "{\"api_key\": \"x\", \"tier\": \"gold\"}\n{\"tier\": \"pro\"}\n";
    let output = server.run_with_input(&["quota", "import", "-"], bad.as_bytes());
    assert_eq!((output.code, &*output.out), (1, ""));
    let errors: Vec<&str> = output.err.lines().collect();
    assert!(errors[0].starts_with("error: nothing was written: 2 faults"), "{}", output.err);
    assert!(errors[1].starts_with("  line 1: tier: there is no tier `gold`"), "{}", output.err);
    assert!(errors[2].starts_with("  line 2: api_key: it is missing"), "{}", output.err);
}

#[test]
fn a_closed_output_pipe_is_not_a_failure() {
    let server = CliServer::start();
    let lines: String =
        (0..3000).map(|n| format!("{}\n", json!({"api_key": format!("c{n:04}"), "tier": "pro"}))).collect();
    server.run_with_input(&["quota", "import", "-"], lines.as_bytes());
    let mut child = crate::cli::command(&["quota", "list", "--server", &server.url]).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), String::from_utf8(output.stderr).unwrap()), (Some(0), String::new()));
}

#[test]
fn a_tier_that_requests_name_is_never_guessed() {
    let server = CliServer::with_rules(
        "domain: shop\nentity: api_key\ntiers: {free: {}, pro: {}}\ntier_from: plan\n\
         rules: [{name: per-key, key: [api_key], limit: {free: 10/hour, pro: 100/hour}}]\n",
    );
    let tier = |caller: &str| server.run_ok(&["tier", "get", caller]);
    assert_eq!(
        tier("ada"),
        "not known: each request names its tier in `plan`, and this server remembers none of ada\n"
    );
    assert_eq!(server.json(&["tier", "get", "ada"])["tier"], Value::Null);
    server.check(&json!({"api_key": "ada", "plan": "pro"}));
    // A minute may end in between.
    assert!(tier("ada").starts_with("pro (named by its last request, "), "{}", tier("ada"));
    let written = server.json(&["tier", "get", "ada"]);
    assert_eq!(
        (&written["tier"], &written["by"], &written["tier_from"]),
        (&json!("pro"), &json!("request"), &json!("plan"))
    );
    assert!(written["seen_seconds_ago"].as_u64().unwrap() <= 60, "{written}");
    server.run_ok(&["tier", "set", "ada", "free"]);
    assert_eq!(tier("ada"), "free\n");
    assert_eq!(server.json(&["tier", "get", "ada"])["by"], "quota");
}
