//! `tollgate top` with a real server: once, and in a terminal.

use tollgate_testing::free_port;

use crate::cli::server::CliServer;
use crate::cli::terminal::Terminal;

#[test]
fn once_prints_one_json_object() {
    let server = CliServer::start();
    let output = server.json(&["top", "--once"]);
    assert_eq!(output["overview"]["totals"]["decisions"], 0, "{output}");
    assert_eq!(
        (&output["overview"]["store"]["kind"], &output["overview"]["servers"][0]["this"]),
        (&"memory".into(), &true.into())
    );
    let rules: Vec<_> = output["rules"].as_array().unwrap().iter().map(|row| row["rule"].as_str().unwrap()).collect();
    assert_eq!(rules, ["per-key", "orders"]);
    assert_eq!(output["rules"][1]["limits"][0]["limit"], "10/minute");
    assert!(output.get("top").is_some(), "{output}");
    assert_eq!(output["leases"]["available"], false, "{output}");
}

#[test]
fn once_without_json_prints_the_screen() {
    let server = CliServer::start();
    let text = server.run_ok(&["top", "--once", "--window", "1h"]);
    assert!(text.starts_with("tollgate top  ") && text.contains("0 decisions/s  allowed 0  refused 0"), "{text}");
    assert!(text.contains("per-key") && text.contains("TOP KEYS by refusals, 1h"), "{text}");
    assert!(text.contains("HOT KEYS") && text.contains("none: counters are in memory"), "{text}");
    assert!(!text.contains('\u{1b}') && !text.contains("\n\n\n"), "{text}");
}

#[test]
fn an_unavailable_server_is_reported_without_using_the_screen() {
    let output = crate::cli::tollgate(&["top", "--once", "--server", "http://127.0.0.1:1"], b"");
    assert_eq!((output.code, &*output.out), (2, ""));
    assert!(output.err.contains("can't be reached"), "{}", output.err);
}

#[test]
fn the_terminal_is_used_and_restored() {
    let server = CliServer::start();
    let mut terminal = Terminal::run("top", &[("TOLLGATE_SERVER", &server.url), ("NO_COLOR", "1")]);
    terminal.wait_for_text("0 decisions/s  allowed 0  refused 0");
    for text in ["live", "RULE (2)", "per-key", "q quit"] {
        terminal.wait_for_text(text);
    }
    assert!(!terminal.written().contains("\u{1b}[38;5;"), "without colours");
    terminal.press("/ord");
    terminal.wait_for_text("RULE (1 of 2)");
    terminal.wait_for_text("/ord_");
    terminal.press("\r?");
    terminal.wait_for_text("keys (any key closes)");
    terminal.press("xm");
    terminal.wait_for_text("TOP KEYS by refusals, 1h");
    terminal.press("q");
    assert_eq!(terminal.wait_for_exit(), "0");
}

#[test]
fn control_c_and_signals_restore_the_terminal() {
    let server = CliServer::start();
    let started = || {
        let terminal = Terminal::run("top", &[("TOLLGATE_SERVER", &server.url)]);
        // The screen is complete with its last line.
        terminal.wait_for_text("q quit");
        terminal
    };
    let mut terminal = started();
    assert!(terminal.written().contains("\u{1b}[38;5;"), "with colours");
    terminal.press("\u{3}");
    assert_eq!(terminal.wait_for_exit(), "0");
    let mut terminal = started();
    terminal.signal("-TERM");
    assert_eq!(terminal.wait_for_exit(), "0");
}

#[test]
fn top_waits_for_an_unavailable_server() {
    let admin = format!("127.0.0.1:{}", free_port());
    let server = CliServer::with_flags(&["--admin", &admin], "http://");
    let mut terminal = Terminal::run("top", &[("TOLLGATE_SERVER", &server.url)]);
    terminal.wait_for_text("live");
    let server = server.kill();
    terminal.wait_for_text("connection lost, retrying");
    terminal.wait_for_text("can't be reached");
    let _server = server.restart(&["--admin", &admin]);
    terminal.wait_for_text("live");
    terminal.wait_for_text("q quit");
    terminal.press("q");
    assert_eq!(terminal.wait_for_exit(), "0");
}

#[test]
fn a_terminal_has_colours_unless_they_are_off() {
    let home = crate::cli::directory("colours");
    std::fs::write(home.join("bad.yaml"), "domain: d\nrulez: []\n").unwrap();
    let lint = format!("lint {}/bad.yaml", home.display());
    let coloured = Terminal::run(&lint, &[]);
    coloured.wait_for_text("1 error, 0 warnings");
    assert!(coloured.written().contains("\u{1b}[1;31merror:\u{1b}[0m"), "{:?}", coloured.written());
    let plain = Terminal::run(&lint, &[("NO_COLOR", "1")]);
    plain.wait_for_text("1 error, 0 warnings");
    assert!(!plain.written().contains('\u{1b}'), "{:?}", plain.written());
    let rules =
        crate::cli::rule_file("terminal-replay", "domain: d\nrules: [{name: r, key: [k], limit: 100/minute}]\n");
    let mut replay = Terminal::run(&format!("replay {rules}"), &[]);
    replay.wait_for_text("reading requests from standard input");
    replay.press("\u{4}");
    replay.wait_for_text("requests 0: allowed 0");
}
