//! Sorting, filtering and drawing, with updates of a fake server.

mod keys;
mod screen;

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use serde_json::{Value, json};

use super::feed::EventParser;
use super::keys::{KeyOrder, KeyWindow, TopKeysQuery};
use super::state::{KeyAction, LinkState, ServerUpdate, TopState};

const QUERY: TopKeysQuery = TopKeysQuery { by: KeyOrder::Refusals, window: KeyWindow::FiveMinutes };

fn overview() -> Value {
    json!({
        "at": "2026-11-16T14:32:17Z",
        "server": {"name": "host-1", "version": "0.1.0", "region": "eu", "uptime_seconds": 12_000.0},
        "rates": {"decisions": 1234.5, "allow": 1000.0, "deny": 230.5, "shadow": 4.0, "soft": 0.0, "shed": 0.0, "blocked": 0.0, "assumed": 0.0},
        "latency": {
            "decision": {"p50": 850e-9, "p99": 12e-6, "p999": 3.4e-3, "count": 100},
            "store": {"p50": null, "p99": null, "p999": null, "count": 0},
        },
        "in_flight": 3,
        "store": {"kind": "redis", "level": "normal", "since": null, "keys": 12, "evicted": 0,
            "circuits": [{"shard": "a:6379", "state": "closed"}, {"shard": "b:6379", "state": "closed"}]},
        "rules": {"generation": 7, "rules": 3, "domains": 1, "valid": true, "last_error": null, "last_reload": null},
        "health": [{"part": "store", "degraded": false, "why": null}],
        "history": {"step_seconds": 1, "allow": [1.0, 2.0, 8.0], "deny": [0.0, 1.0, 0.4]},
    })
}

fn row(rule: &str, mode: &str, utilisation: f64, [allow, deny, would_deny]: [f64; 3]) -> Value {
    json!({
        "domain": "api", "rule": rule, "mode": mode, "utilisation": utilisation,
        "limits": [{"tier": "free", "limit": "100/minute"}, {"tier": "pro", "limit": "1000/minute"}],
        "rates": {"allow": allow, "deny": deny, "would_deny": would_deny},
    })
}

/// A server with three rules.
fn state() -> TopState {
    let mut state = TopState::new(QUERY);
    state.apply(ServerUpdate::Overview(overview()));
    state.apply(ServerUpdate::Rules(vec![
        row("per-user", "enforce", 0.93, [900.0, 1.5, 0.0]),
        row("login", "enforce", 1.0, [3.0, 229.0, 0.0]),
        row("new-idea", "shadow", 0.4, [97.0, 0.0, 12_345.0]),
    ]));
    state
}

fn press(state: &mut TopState, keys: &str) -> KeyAction {
    let code = |letter| match letter {
        '⏎' => KeyCode::Enter,
        '⎋' => KeyCode::Esc,
        '⌫' => KeyCode::Backspace,
        '↓' => KeyCode::Down,
        '↑' => KeyCode::Up,
        letter => KeyCode::Char(letter),
    };
    let mut action = KeyAction::Nothing;
    keys.chars().for_each(|letter| action = state.handle_key(KeyEvent::new(code(letter), KeyModifiers::NONE)));
    action
}

fn names(state: &TopState) -> Vec<&str> {
    state.rules().into_iter().map(|row| &*row.rule).collect()
}

#[test]
fn events_are_read_line_by_line() {
    let mut events = EventParser::default();
    let text = ": here\n\nevent: reload\r\ndata: {\"generation\": 2}\r\n\r\nevent: broken\ndata: {\n\ndata: 7\n\nevent: a\ndata:[1,\ndata: 2]\n\n";
    let parsed: Vec<_> = text.lines().filter_map(|line| events.line(line)).collect();
    assert_eq!(parsed, [("reload".to_owned(), json!({"generation": 2})), ("a".to_owned(), json!([1, 2]))]);
}

#[test]
fn updates_change_the_state() {
    let mut state = TopState::new(QUERY);
    assert!(state.is_empty() && state.link == LinkState::Connecting);
    state.apply(ServerUpdate::Overview(overview()));
    assert_eq!(state.refusals, [0, 1, 1]);
    let mut next = overview();
    next["rates"]["deny"] = json!(17.2);
    next["rates"]["blocked"] = json!(0.4);
    state.apply(ServerUpdate::Event("overview".to_owned(), next));
    assert_eq!((state.refusals.back(), &state.link), (Some(&18), &LinkState::Live));
    (0..400).for_each(|_| state.apply(ServerUpdate::Event("overview".to_owned(), overview())));
    assert_eq!(state.refusals.len(), 300);
    state.apply(ServerUpdate::Lost("gone".to_owned()));
    assert_eq!(state.link, LinkState::Lost("gone".to_owned()));
    state.apply(ServerUpdate::Event("overview".to_owned(), overview()));
    assert_eq!(state.link, LinkState::Live);
}

#[test]
fn rules_that_change_keep_their_limits() {
    let mut state = state();
    let mut changed = row("login", "off", 0.0, [0.0, 0.0, 0.0]);
    changed.as_object_mut().unwrap().remove("limits");
    let other = row("fourth", "enforce", 0.0, [1.0, 0.0, 0.0]);
    state.apply(ServerUpdate::Event("rules".to_owned(), json!({"rows": [changed, other]})));
    let login = state.rules().into_iter().find(|row| row.rule == "login").unwrap().clone();
    assert_eq!((&*login.mode, &*login.limit, login.deny), ("off", "100/minute (+1)", 0.0));
    assert_eq!(state.all_rules(), 4);
    // A list replaces all rules.
    state.apply(ServerUpdate::Rules(vec![row("only", "enforce", 0.0, [0.0; 3])]));
    assert_eq!(names(&state), ["only"]);
}

#[test]
fn keys_of_an_old_query_are_ignored() {
    let mut state = state();
    let top = |key: &str| Ok(json!({"keys": [{"rank": 1, "key": key}]}));
    state.apply(ServerUpdate::TopKeys(QUERY, top("ann")));
    assert_eq!(state.keys.rows[0]["key"], "ann");
    assert_eq!(press(&mut state, "m"), KeyAction::FetchKeys);
    state.apply(ServerUpdate::TopKeys(QUERY, top("bob")));
    assert_eq!(state.keys.rows[0]["key"], "ann");
    state.apply(ServerUpdate::TopKeys(state.query, Err("not supported".to_owned())));
    assert_eq!((state.keys.rows.len(), state.keys.note.as_deref()), (0, Some("not supported")));
}
