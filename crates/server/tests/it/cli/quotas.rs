//! `tollgate quota`, `tier` and `usage` against a real server.

use std::fs;

use serde_json::{Value, json};

use crate::cli::running::Running;

#[test]
fn a_quota_is_set_shown_listed_and_deleted() {
    let server = Running::start();
    let ran = server.run(&["quota", "get", "abc123"]);
    assert_eq!((ran.code, &*ran.out, &*ran.err), (1, "", "error: there is no quota \"abc123\"\n"));
    assert_eq!(server.done(&["quota", "list"]), "no quotas; `tollgate quota set CALLER` creates one\n");

    let set = ["quota", "set", "abc123", "--tier", "pro", "--override", "endpoint:POST /orders=500/minute"];
    let told = server
        .done(&[&set[..], &["--override-rule", "per-key=2000/minute", "--for", "1h", "--reason", "ticket 7"]].concat());
    for line in [
        "caller      abc123\n",
        "tier        pro\n",
        "rule per-key           2000/minute  -     -",
        "endpoint:POST /orders  500/minute   -     -",
    ] {
        assert!(told.contains(line), "{line}: {told}");
    }
    let quota = server.json(&["quota", "get", "abc123"]);
    assert_eq!((&quota["tier"], &quota["reason"]), (&json!("pro"), &json!("ticket 7")));
    assert_eq!(quota["quotas"]["overrides"].as_array().unwrap().len(), 2);
    assert!(quota["expires_at"].is_string(), "{quota}");
    let told = server.done(&["quota", "get", "abc123"]);
    assert!(told.contains("by          loopback\n") && told.contains("\ngeneration  "), "{told}");

    let listed = server.done(&["quota", "list", "--tier", "pro"]);
    let mut lines = listed.lines();
    assert!(lines.next().unwrap().starts_with("CALLER  TIER  OVERRIDES  FROM  UNTIL"), "{listed}");
    assert!(lines.next().unwrap().starts_with("abc123  pro   2          -     20"), "{listed}");
    assert_eq!(server.lines(&["quota", "list", "--tier", "free"]).len(), 0);
    assert_eq!(server.done(&["quota", "delete", "abc123"]), "abc123 has no quota any more\n");
    assert_eq!(server.run(&["quota", "delete", "abc123"]).code, 1);
}

#[test]
fn every_fault_is_one_line() {
    let server = Running::start();
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
        let ran = server.run(args);
        assert_eq!((ran.code, &*ran.out), (1, ""), "{args:?}: {}", ran.err);
        let told: Vec<&str> = ran.err.lines().collect();
        let as_meant = told.len() == lines.len() && told.iter().zip(lines).all(|(told, line)| told.starts_with(line));
        assert!(as_meant, "{args:?}: {}", ran.err);
    }
    assert_eq!(server.lines(&["quota", "list"]).len(), 0);
}

#[test]
fn callers_are_called_what_they_are_called() {
    let server = Running::start();
    for caller in ["größe 1", "a/b", "x?y=z&#", "100%", "日本", "..", "."] {
        server.done(&["quota", "set", caller, "--tier", "pro"]);
        assert_eq!(server.json(&["quota", "get", caller])["api_key"], caller);
        assert_eq!(server.done(&["tier", "get", caller]), "pro\n");
        assert_eq!(server.json(&["usage", caller])["api_key"], caller);
    }
    assert_eq!(server.lines(&["quota", "list"]).len(), 7);
    // What would move the cursor is written out.
    server.done(&["quota", "set", "a\u{1b}[2Jb", "--tier", "pro"]);
    let listed = server.done(&["quota", "list"]);
    assert!(listed.contains("a\\u{1b}[2Jb") && !listed.contains('\u{1b}'), "{listed}");
}

#[test]
fn a_write_that_saw_another_generation_is_refused() {
    let server = Running::start();
    let set = ["quota", "set", "x", "--tier", "pro"];
    let ran = server.run(&[&set[..], &["--if-match", "7"]].concat());
    assert!(ran.code == 1 && ran.err.contains("it was changed meanwhile"), "{}", ran.err);
    server.done(&set);
    let told = server.done(&["quota", "get", "x"]);
    let generation = told.lines().find_map(|line| line.strip_prefix("generation")).unwrap().trim();
    server.done(&[&set[..], &["--if-match", generation]].concat());
    assert_eq!(server.run(&["quota", "delete", "x", "--if-match", generation]).code, 1);
}

#[test]
fn a_tier_is_set_and_all_else_stays() {
    let server = Running::start();
    assert_eq!(server.done(&["tier", "set", "new", "pro"]), "new has tier pro now\n");
    server.done(&["quota", "set", "x", "--tier", "pro", "--override-rule", "orders=7/minute", "--for", "1h"]);
    let before = server.json(&["quota", "get", "x"]);
    assert_eq!(server.done(&["tier", "set", "x", "enterprise", "--reason", "contract"]), "x has tier enterprise now\n");
    let after = server.json(&["quota", "get", "x"]);
    assert_eq!((&after["tier"], &after["reason"]), (&json!("enterprise"), &json!("contract")));
    assert_eq!(
        (&after["quotas"]["overrides"], &after["expires_at"]),
        (&before["quotas"]["overrides"], &before["expires_at"])
    );
    let ran = server.run(&["tier", "set", "x", "gold"]);
    assert!(ran.code == 1 && ran.err.starts_with("error: tier: there is no tier `gold`"), "{}", ran.err);
    // A change that is to come is not lost.
    server.done(&["quota", "set", "x", "--tier", "free", "--effective-at", "2099-01-01T00:00:00Z"]);
    assert!(server.done(&["quota", "get", "x"]).contains("\nFrom 2099-01-01 00:00:00Z on: tier free\n"));
    let ran = server.run(&["tier", "set", "x", "pro"]);
    assert!(ran.code == 1 && ran.err.contains("a change is scheduled for 2099-01-01T00:00:00Z"), "{}", ran.err);
    let domains = server.lines(&["tier", "list"]);
    assert_eq!(domains[0]["tiers"], json!(["free", "pro", "enterprise", "custom"]));
}

#[test]
fn many_who_change_one_callers_tier_lose_nothing() {
    let server = Running::start();
    server.done(&["quota", "set", "x", "--tier", "free", "--override-rule", "orders=7/minute"]);
    std::thread::scope(|scope| {
        for tier in ["pro", "enterprise", "custom", "free"] {
            scope.spawn(|| server.done(&["tier", "set", "x", tier]));
        }
    });
    assert_eq!(server.json(&["quota", "get", "x"])["quotas"]["overrides"][0]["rule"], "orders");
}

#[test]
fn usage_is_a_table() {
    let server = Running::start();
    server.done(&["tier", "set", "x", "pro"]);
    let told = server.done(&["usage", "x"]);
    assert!(told.starts_with("WHAT "), "{told}");
    let line = told.lines().find(|line| line.starts_with("default ")).unwrap();
    let words: Vec<&str> = line.split_whitespace().collect();
    assert_eq!(words[..5], ["default", "0", "1000", "1000", "per-key"], "{told}");
    assert_eq!(server.json(&["usage", "x"])["usage"]["default"]["limit"], 1000);
}

#[test]
fn many_quotas_go_in_and_come_out_the_same() {
    let server = Running::start();
    let lines: String =
        (0..2500).map(|n| format!("{}\n", json!({"api_key": format!("c{n:04}"), "tier": "pro"}))).collect();
    let ran = server.fed(&["quota", "import", "-", "--dry-run"], lines.as_bytes());
    assert_eq!((ran.code, &*ran.out, &*ran.err), (0, "2500 quotas would be written\n", ""));
    assert_eq!(server.lines(&["quota", "list"]).len(), 0);
    let file = server.home().join("quotas.jsonl");
    fs::write(&file, &lines).unwrap();
    assert_eq!(server.done(&["quota", "import", file.to_str().unwrap()]), "2500 quotas written\n");
    let all = server.lines(&["quota", "list"]);
    assert_eq!((all.len(), &all[2499]["api_key"]), (2500, &json!("c2499")));
    assert_eq!(server.lines(&["quota", "list", "--limit", "1200"]).len(), 1200);
    assert_eq!(server.lines(&["quota", "list", "--prefix", "c000"]).len(), 10);
    assert_eq!(server.done(&["quota", "list"]).lines().count(), 2501);

    let out = server.home().join("out.jsonl");
    let ran = server.run(&["quota", "export", out.to_str().unwrap()]);
    assert_eq!((ran.code, &*ran.out), (0, ""));
    assert!(ran.err.starts_with("2500 quotas in "), "{}", ran.err);
    let exported = fs::read_to_string(&out).unwrap();
    assert_eq!(exported, server.done(&["quota", "export"]));
    let other = Running::start();
    let ran = other.fed(&["quota", "import", "-", "--json"], exported.as_bytes());
    let last: Value = serde_json::from_str(ran.out.lines().last().unwrap()).unwrap();
    assert_eq!((&last["done"], &last["written"]), (&json!(true), &json!(2500)));
    assert_eq!(other.done(&["quota", "export"]), exported);

    let bad = "{\"api_key\": \"x\", \"tier\": \"gold\"}\n{\"tier\": \"pro\"}\n";
    let ran = server.fed(&["quota", "import", "-"], bad.as_bytes());
    assert_eq!((ran.code, &*ran.out), (1, ""));
    let told: Vec<&str> = ran.err.lines().collect();
    assert!(told[0].starts_with("error: nothing was written: 2 faults"), "{}", ran.err);
    assert!(told[1].starts_with("  line 1: tier: there is no tier `gold`"), "{}", ran.err);
    assert!(told[2].starts_with("  line 2: api_key: it is missing"), "{}", ran.err);
}

#[test]
fn a_reader_that_has_read_enough_is_no_failure() {
    let server = Running::start();
    let lines: String =
        (0..3000).map(|n| format!("{}\n", json!({"api_key": format!("c{n:04}"), "tier": "pro"}))).collect();
    server.fed(&["quota", "import", "-"], lines.as_bytes());
    let mut child = crate::cli::command(&["quota", "list", "--server", &server.url]).spawn().unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), String::from_utf8(output.stderr).unwrap()), (Some(0), String::new()));
}
