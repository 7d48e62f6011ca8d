//! `tollgate top` against a real server: once, and in a terminal.

use tollgate_testing::free_port;

use crate::cli::running::Running;
use crate::cli::terminal::Terminal;

#[test]
fn once_is_one_object_for_scripts() {
    let server = Running::start();
    let told = server.json(&["top", "--once"]);
    assert_eq!(told["overview"]["totals"]["decisions"], 0, "{told}");
    assert_eq!(
        (&told["overview"]["store"]["kind"], &told["overview"]["servers"][0]["this"]),
        (&"memory".into(), &true.into())
    );
    let rules: Vec<_> = told["rules"].as_array().unwrap().iter().map(|row| row["rule"].as_str().unwrap()).collect();
    assert_eq!(rules, ["per-key", "orders"]);
    assert_eq!(told["rules"][1]["limits"][0]["limit"], "10/minute");
    assert!(told.get("top").is_some(), "{told}");
}

#[test]
fn once_without_json_is_what_the_screen_would_show() {
    let server = Running::start();
    let text = server.done(&["top", "--once", "--window", "1h"]);
    assert!(text.starts_with("tollgate top  ") && text.contains("0 decisions/s  allow 0  deny 0"), "{text}");
    assert!(text.contains("per-key") && text.contains("TOP KEYS by refusals, 1h"), "{text}");
    assert!(!text.contains('\u{1b}'), "{text}");
}

#[test]
fn a_server_that_is_not_there_is_told_without_taking_the_screen() {
    let ran = crate::cli::tollgate(&["top", "--once", "--server", "http://127.0.0.1:1"], b"");
    assert_eq!((ran.code, &*ran.out), (2, ""));
    assert!(ran.err.contains("can't be reached"), "{}", ran.err);
}

#[test]
fn a_terminal_is_drawn_on_and_given_back() {
    let server = Running::start();
    let mut terminal = Terminal::run("top", &[("TOLLGATE_SERVER", &server.url), ("NO_COLOR", "1")]);
    terminal.shows("0 decisions/s  allow 0  deny 0");
    for text in ["live", "RULE (2)", "per-key", "q quit"] {
        terminal.shows(text);
    }
    assert!(!terminal.written().contains("\u{1b}[38;5;"), "without colours");
    terminal.press("/ord");
    terminal.shows("RULE (1 of 2)");
    terminal.shows("/ord_");
    terminal.press("\r?");
    terminal.shows("keys (any key closes)");
    terminal.press("xm");
    terminal.shows("TOP KEYS by refusals, 1h");
    terminal.press("q");
    assert_eq!(terminal.ended(), "0");
}

#[test]
fn control_c_and_signals_give_the_terminal_back_too() {
    let server = Running::start();
    let started = || {
        let terminal = Terminal::run("top", &[("TOLLGATE_SERVER", &server.url)]);
        // All of it is there with its last line.
        terminal.shows("q quit");
        terminal
    };
    let mut terminal = started();
    assert!(terminal.written().contains("\u{1b}[38;5;"), "with colours");
    terminal.press("\u{3}");
    assert_eq!(terminal.ended(), "0");
    let mut terminal = started();
    terminal.signal("-TERM");
    assert_eq!(terminal.ended(), "0");
}

#[test]
fn a_server_that_goes_away_is_waited_for() {
    let admin = format!("127.0.0.1:{}", free_port());
    let server = Running::with(&["--admin", &admin], "http://");
    let mut terminal = Terminal::run("top", &[("TOLLGATE_SERVER", &server.url)]);
    terminal.shows("live");
    let server = server.stopped();
    terminal.shows("connection lost, retrying");
    terminal.shows("can't be reached");
    let _server = server.restarted(&["--admin", &admin]);
    terminal.shows("live");
    terminal.shows("q quit");
    terminal.press("q");
    assert_eq!(terminal.ended(), "0");
}
