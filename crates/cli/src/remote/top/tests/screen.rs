//! The screen.

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::style::Color;

use super::*;
use crate::remote::top::draw::{Palette, draw};
use crate::remote::top::lines;

fn drawn(state: &TopState, width: u16, height: u16) -> Vec<String> {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(frame, state, Palette { is_coloured: false })).unwrap();
    lines(terminal.backend().buffer()).lines().map(str::to_owned).collect()
}

#[test]
fn everything_fits_into_eighty_columns_and_twenty_four_lines() {
    let mut state = state();
    let keys = [("user_7", 41_000, 39_500, 1.0), ("user_9", 12, 3, 0.8)];
    let keys: Vec<_> = (1..)
        .zip(keys)
        .map(|(rank, (key, decisions, refusals, used))| {
            json!({"rank": rank, "key": key, "rule": "login", "decisions": decisions, "refusals": refusals, "utilisation": used})
        })
        .collect();
    state.apply(ServerUpdate::TopKeys(QUERY, Ok(json!({"keys": keys}))));
    let screen = drawn(&state, 80, 24);
    let expected = [
        "tollgate top  host-1 · eu · 0.1.0 · up 3h 20m                               live",
        "1234 decisions/s  allowed 1000  refused 230  would refuse 4  in flight 3",
    ];
    assert_eq!(screen[..2], expected, "{}", screen.join("\n"));
    assert!(screen[2].starts_with("refused/s, up to 1 ") && screen[3].ends_with(" ██"), "{}", screen.join("\n"));
    assert_eq!(
        screen[4..7],
        [
            "decision p50 850ns p99 12µs p99.9 3.4ms   store p50 - p99 - p99.9 -",
            "store redis normal · circuits closed · 12 counters",
            "3 rules, generation 7",
        ]
    );
    let columns = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(columns(&screen[7]), ["RULE", "(3)", "MODE", "LIMIT", "USED", "ALLOWED/s", "REFUSED/s↓", "WOULD/s"]);
    assert_eq!(columns(&screen[8]), ["login", "enforce", "100/minute", "(+1)", "100%", "3", "229", "0"]);
    assert_eq!(columns(&screen[9]), ["per-user", "enforce", "100/minute", "(+1)", "93%", "900", "1.5", "0"]);
    assert_eq!(columns(&screen[10]), ["new-idea", "shadow", "100/minute", "(+1)", "40%", "97", "0", "12.3k"]);
    assert!(screen[17].starts_with("TOP KEYS by refusals, 5m"), "{}", screen.join("\n"));
    assert_eq!(columns(&screen[18]), ["1", "user_7", "login", "41.0k", "39.5k", "100%"]);
    assert_eq!(columns(&screen[19]), ["2", "user_9", "login", "12", "3", "80%"]);
    assert_eq!(screen[23], "sorted by refused   a r w u n sort  / filter  t m l keys  ? help  q quit");
}

#[test]
fn hot_keys_are_a_list_of_their_own() {
    let mut state = state();
    let columns = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    assert!(drawn(&state, 80, 40).join("\n").contains("HOT KEYS"), "a tall screen has room for both lists");
    let keys = json!([
        {"domain": "api", "rule": "per-user", "key": "user_7", "units_per_second": 812.5, "chunk": 4000, "units_held": 12_345, "local_share": 0.98},
        {"domain": "api", "rule": "everyone", "key": "", "units_per_second": 0.5, "chunk": 1, "units_held": 0, "local_share": 0.0},
    ]);
    let leases =
        |keys| json!({"available": true, "enabled": true, "leased_keys": 2, "units_held": 12_345, "keys": keys});
    state.apply(ServerUpdate::Leases(Ok(leases(keys))));
    assert!(!drawn(&state, 80, 24).join("\n").contains("HOT KEYS"));
    press(&mut state, "l");
    let screen = drawn(&state, 80, 24);
    assert!(!screen.join("\n").contains("TOP KEYS"));
    assert_eq!(
        columns(&screen[17]),
        ["HOT", "KEYS", "2", "leased,", "12.3k", "held", "RULE", "UNITS/s", "CHUNK", "HELD", "LOCAL"]
    );
    assert_eq!(columns(&screen[18]), ["user_7", "per-user", "812", "4000", "12.3k", "98%"]);
    assert_eq!(columns(&screen[19]), ["shared", "by", "all", "callers", "everyone", "0.5", "1", "0", "0%"]);
    for (leases, note) in [
        (Ok(leases(json!([]))), "no key is busy enough"),
        (Ok(json!({"available": false, "enabled": false})), "counters are in memory"),
        (Ok(json!({"available": true, "enabled": false})), "leases are off"),
        (Err("this server does not support leases".to_owned()), "does not support leases"),
    ] {
        state.apply(ServerUpdate::Leases(leases));
        assert!(drawn(&state, 80, 24)[18].contains(note), "{note}");
    }
    // The choice of top keys shows them.
    press(&mut state, "t");
    assert!(drawn(&state, 80, 24)[17].starts_with("TOP KEYS by utilisation"));
}

#[test]
fn problems_are_visible() {
    let mut state = state();
    let mut next = overview();
    next["store"] = json!({"kind": "redis", "level": "degraded", "since": "2026-11-16T14:30:00Z", "keys": 0,
        "circuits": [{"shard": "a:6379", "state": "open"}, {"shard": "b:6379", "state": "closed"}]});
    next["rules"]["last_error"] = json!("api.yaml:3: no such algorithm\u{1b}[31m");
    next["health"] = json!([{"part": "tls", "degraded": true, "why": "an old certificate"}]);
    state.apply(ServerUpdate::Event("overview".to_owned(), next));
    let screen = drawn(&state, 120, 24);
    assert_eq!(screen[5], "store redis degraded since 2026-11-16T14:30:00Z · a:6379 open");
    assert!(
        screen[6].starts_with("3 rules, generation 7 · rule files not in force: api.yaml:3: no such algorithm"),
        "{}",
        screen[6]
    );
    assert!(screen[6].contains("tls: an old") && !screen[6].contains('\u{1b}'), "{}", screen[6]);
    state.apply(ServerUpdate::Lost("http://127.0.0.1:8070 can't be reached".to_owned()));
    let screen = drawn(&state, 80, 24);
    assert!(screen[0].ends_with("connection lost, retrying…"), "{}", screen[0]);
    assert_eq!(screen[23], "http://127.0.0.1:8070 can't be reached");
}

#[test]
fn the_filter_is_visible_while_it_is_typed_and_after() {
    let mut state = state();
    press(&mut state, "/log");
    let screen = drawn(&state, 80, 24);
    assert!(screen[23].starts_with("/log_"), "{}", screen[23]);
    assert!(screen[7].starts_with("RULE (1 of 3)"), "{}", screen[7]);
    press(&mut state, "⏎n");
    let screen = drawn(&state, 80, 24);
    assert!(screen[23].starts_with("[log] sorted by name"), "{}", screen[23]);
    assert!(screen[7].starts_with("RULE (1 of 3)↓"), "{}", screen[7]);
}

#[test]
fn help_is_above_everything_and_any_size_can_be_drawn() {
    let mut state = state();
    press(&mut state, "?");
    let screen = drawn(&state, 80, 24).join("\n");
    assert!(
        screen.contains("keys (any key closes)") && screen.contains("t           top keys by decisions"),
        "{screen}"
    );
    for (width, height) in [(1, 1), (10, 3), (79, 5), (300, 100)] {
        drawn(&state, width, height);
        drawn(&TopState::new(QUERY), width, height);
    }
    let screen = drawn(&TopState::new(QUERY), 80, 24).join("\n");
    assert!(screen.contains("connecting…") && screen.contains("none yet"), "{screen}");
}

#[test]
fn without_colours_there_are_none() {
    let colours = |is_coloured| {
        let mut terminal = Terminal::new(TestBackend::new(80, 24)).unwrap();
        terminal.draw(|frame| draw(frame, &state(), Palette { is_coloured })).unwrap();
        terminal
            .backend()
            .buffer()
            .content
            .iter()
            .filter(|cell| cell.fg != Color::Reset || cell.bg != Color::Reset)
            .count()
    };
    assert_eq!(colours(false), 0);
    assert!(colours(true) > 10);
}

#[test]
fn rules_of_several_domains_show_them() {
    let mut state = state();
    let mut other = row("login", "enforce", 0.0, [0.0, 500.0, 0.0]);
    other["domain"] = json!("shop");
    state.apply(ServerUpdate::Event("rules".to_owned(), json!({"rows": [other]})));
    let screen = drawn(&state, 80, 24);
    assert!(screen[8].starts_with("shop/login") && screen[9].starts_with("api/login"), "{}", screen.join("\n"));
}
