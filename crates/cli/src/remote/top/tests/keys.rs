//! Key presses.

use super::*;

#[test]
fn rules_are_sorted_and_reversed() {
    let mut state = state();
    for (keys, order) in [
        ("", ["login", "per-user", "new-idea"]),
        ("a", ["per-user", "new-idea", "login"]),
        ("a", ["login", "new-idea", "per-user"]),
        ("a", ["per-user", "new-idea", "login"]),
        ("w", ["new-idea", "login", "per-user"]),
        ("u", ["login", "per-user", "new-idea"]),
        ("n", ["login", "new-idea", "per-user"]),
        ("n", ["per-user", "new-idea", "login"]),
        ("d", ["login", "per-user", "new-idea"]),
    ] {
        press(&mut state, keys);
        assert_eq!(names(&state), order, "after {keys:?}");
    }
}

#[test]
fn a_filter_is_typed_applied_and_cleared() {
    let mut state = state();
    press(&mut state, "/Qx⌫⌫ER");
    assert!(state.typing);
    assert_eq!((names(&state), &*state.filter), (vec!["per-user"], "ER"));
    // While the filter is typed, letters are not commands.
    assert_eq!(press(&mut state, "⏎n"), KeyAction::Nothing);
    assert_eq!((state.sort.name(), state.typing), ("name", false));
    press(&mut state, "/⌫⌫login⎋");
    assert_eq!((names(&state).len(), state.typing), (3, false));
    press(&mut state, "/new⏎");
    assert_eq!(names(&state), ["new-idea"]);
    press(&mut state, "⎋");
    assert_eq!(names(&state).len(), 3);
    press(&mut state, &format!("/{}", "x".repeat(1_000)));
    assert_eq!(state.filter.len(), 64);
}

#[test]
fn scrolling_stops_at_the_last_rule() {
    let mut state = state();
    press(&mut state, "↓↓↓↓↓");
    assert_eq!(state.scroll, 2);
    press(&mut state, "↑");
    assert_eq!(state.scroll, 1);
    press(&mut state, "a");
    assert_eq!(state.scroll, 0);
}

#[test]
fn top_keys_cycle() {
    let mut state = state();
    let mut queries = Vec::new();
    for key in ["t", "t", "t", "m", "m", "m"] {
        assert_eq!(press(&mut state, key), KeyAction::FetchKeys);
        queries.push((state.query.by.name(), state.query.window.name()));
    }
    assert_eq!(
        queries,
        [
            ("utilisation", "5m"),
            ("decisions", "5m"),
            ("refusals", "5m"),
            ("refusals", "1h"),
            ("refusals", "1m"),
            ("refusals", "5m")
        ]
    );
}

#[test]
fn q_and_control_c_quit() {
    let mut state = state();
    assert_eq!(press(&mut state, "q"), KeyAction::Quit);
    let control = |letter| KeyEvent::new(KeyCode::Char(letter), KeyModifiers::CONTROL);
    assert_eq!(state.handle_key(control('c')), KeyAction::Quit);
    assert_eq!(state.handle_key(control('q')), KeyAction::Nothing);
    press(&mut state, "/");
    assert_eq!((press(&mut state, "q"), state.handle_key(control('c'))), (KeyAction::Nothing, KeyAction::Quit));
    press(&mut state, "⎋?");
    assert!(state.help);
    assert_eq!((press(&mut state, "d"), state.help), (KeyAction::Nothing, false));
    assert_eq!(press(&mut state, "?q"), KeyAction::Quit);
}
