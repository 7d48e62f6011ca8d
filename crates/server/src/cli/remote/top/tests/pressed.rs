//! What keys do.

use super::*;

#[test]
fn rules_are_sorted_by_key_and_again_the_other_way_round() {
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
fn a_filter_is_typed_kept_and_dropped() {
    let mut state = state();
    press(&mut state, "/Qx⌫⌫ER");
    assert!(state.typing);
    assert_eq!((names(&state), &*state.filter), (vec!["per-user"], "ER"));
    // While it is typed, letters are letters.
    assert_eq!(press(&mut state, "⏎n"), Then::Nothing);
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
fn one_scrolls_to_the_last_rule_and_no_further() {
    let mut state = state();
    press(&mut state, "↓↓↓↓↓");
    assert_eq!(state.scroll, 2);
    press(&mut state, "↑");
    assert_eq!(state.scroll, 1);
    press(&mut state, "a");
    assert_eq!(state.scroll, 0);
}

#[test]
fn top_keys_go_round() {
    let mut state = state();
    let mut told = Vec::new();
    for key in ["t", "t", "t", "m", "m", "m"] {
        assert_eq!(press(&mut state, key), Then::AskKeys);
        told.push((state.wanted.by.name(), state.wanted.window.name()));
    }
    assert_eq!(
        told,
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
fn one_quits_by_q_and_by_control_c() {
    let mut state = state();
    assert_eq!(press(&mut state, "q"), Then::Quit);
    let control = |letter| KeyEvent::new(KeyCode::Char(letter), KeyModifiers::CONTROL);
    assert_eq!(state.press(control('c')), Then::Quit);
    assert_eq!(state.press(control('q')), Then::Nothing);
    press(&mut state, "/");
    assert_eq!((press(&mut state, "q"), state.press(control('c'))), (Then::Nothing, Then::Quit));
    press(&mut state, "⎋?");
    assert!(state.help);
    assert_eq!((press(&mut state, "d"), state.help), (Then::Nothing, false));
    assert_eq!(press(&mut state, "?q"), Then::Quit);
}
