//! Traces with a few frequent and many rare callers, counted exactly for comparison.

use std::collections::HashMap;
use std::sync::Arc;

use smallvec::smallvec;
use tollgate::{Algorithm, Charge, Limit, Mode, Span};
use tollgate_core::key::{Home, Scope};
use tollgate_core::{OnFailure, Period, Shortcuts};

use super::super::*;

const KEYS: usize = 100_000;
const RULES: [&str; 3] = ["r0", "r1", "r2"];
/// A full hour, so that blocks begin where windows do not.
const BEGIN: u64 = 30_000_000;

/// What one key truly came to in a minute: decisions, refusals, thousandths.
type Truth = [u64; 3];

/// Draws keys by Zipf's law, the same ones each time.
struct Draw {
    state: u64,
    up_to: Vec<f64>,
}

/// Heavy hitters, and the exact counts.
struct Traced {
    heavy_hitters: HeavyHitters,
    scopes: Vec<Scope>,
    limit: Limit,
    names: Vec<String>,
    /// Of each minute.
    truth: HashMap<u64, HashMap<usize, Truth>>,
}

impl Draw {
    fn new(exponent: f64) -> Draw {
        let mut sum = 0.0;
        let up_to = (1..=KEYS).map(|rank| {
            sum += (rank as f64).powf(-exponent);
            sum
        });
        Draw { state: 0x5eed, up_to: up_to.collect() }
    }

    fn number(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.state ^ self.state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    fn key(&mut self) -> usize {
        let at = (self.number() >> 11) as f64 / (1u64 << 53) as f64 * self.up_to[KEYS - 1];
        self.up_to.partition_point(|up_to| *up_to <= at).min(KEYS - 1)
    }
}

impl Traced {
    fn new() -> Traced {
        let period = Period::fixed(Span::from_secs(60)).unwrap();
        let scope = |rule| Scope::new("api", rule, Algorithm::FixedWindow, &period, Home::Caller(0));
        Traced {
            heavy_hitters: HeavyHitters::new(Arc::default()),
            scopes: RULES.into_iter().map(scope).collect(),
            limit: Limit::new(100, period.clone(), Algorithm::FixedWindow).unwrap(),
            names: (0..KEYS).map(|key| format!("caller-{key}")).collect(),
            truth: HashMap::new(),
        }
    }

    /// A decision about a key, whose rule is one of three.
    fn decide(&mut self, key: usize, minute: u64, refused: bool, used: u32) {
        let scope = &self.scopes[key % RULES.len()];
        let charge = Charge {
            key: Key::new(scope, smallvec![Value::Text(&self.names[key])]),
            limit: &self.limit,
            ask: Ask::Exactly,
            units: 1,
            mode: Mode::Enforce,
            on_failure: OnFailure::Allow,
            shortcuts: Shortcuts::Refusals,
        };
        let hash = charge.key.hash(self.heavy_hitters.secret, charge.key.partition(self.heavy_hitters.secret));
        let over = u64::from(refused);
        let observation = Observation {
            charge: &charge,
            rule: charge.key.scope().rule(),
            refused,
            over,
            used: Some(used),
            tier: "free",
        };
        self.heavy_hitters.at(minute).count(hash, observation);
        let truth = self.truth.entry(minute).or_default().entry(key).or_default();
        (truth[0], truth[1], truth[2]) = (truth[0] + 1, truth[1] + over, truth[2].max(u64::from(used)));
    }

    /// Decisions, spread over these minutes.
    fn draw(&mut self, exponent: f64, draws: u64, minutes: std::ops::Range<u64>) {
        let mut draw = Draw::new(exponent);
        let length = minutes.end - minutes.start;
        for number in 0..draws {
            let (key, chance) = (draw.key(), draw.number());
            // Every seventh key is refused half of the time, a rare one in a hundred now and then.
            let refused = if key % 7 == 0 { chance & 1 == 0 } else { chance.is_multiple_of(100) };
            let used = (key as u64 * 7_919 % 1_009).min(999) * (chance >> 32 & 0xff) / 0xff;
            self.decide(key, minutes.start + number * length / draws, refused, used as u32);
        }
    }

    /// What a window must say, from these minutes on.
    #[track_caller]
    fn holds(&self, window: Window, from: u64, now: u64) {
        let now = Timestamp::from_micros(now * MINUTE);
        let mut truth: HashMap<usize, Truth> = HashMap::new();
        for (_, minute) in self.truth.iter().filter(|(minute, _)| **minute >= from) {
            for (key, [decisions, refusals, used]) in minute {
                let sum = truth.entry(*key).or_default();
                *sum = [sum[0] + decisions, sum[1] + refusals, sum[2].max(*used)];
            }
        }
        let key_of = |name: &KeyName| name.key().strip_prefix("caller-").unwrap().parse::<usize>().unwrap();
        for (measure, by) in [RankBy::Decisions, RankBy::Refusals].into_iter().enumerate() {
            let total: u64 = truth.values().map(|truth| truth[measure]).sum();
            for rule in [None, Some(0), Some(1), Some(2)] {
                let filter = KeyFilter { domain: Some("api"), rule: rule.map(|rule: usize| RULES[rule]), search: None };
                let top = self.heavy_hitters.top(by, window, filter, usize::MAX, now);
                assert_eq!(top.total, total);
                assert!(top.error <= total / ERROR_ONE_IN, "{} of {total}", top.error);
                let mut listed = HashMap::new();
                for key in &top.keys {
                    let (number, count) = (key_of(&key.name), [key.decisions, key.refusals][measure]);
                    let truth = truth[&number][measure];
                    assert!(truth <= count && count - key.error <= truth, "{truth} is {count} ± {}", key.error);
                    assert!(key.error <= top.error);
                    assert!(rule.is_none_or(|rule| number % RULES.len() == rule));
                    assert!(listed.insert(number, count).is_none(), "{number} is there twice");
                }
                for (key, truth) in &truth {
                    let is_selected = rule.is_none_or(|rule| key % RULES.len() == rule);
                    assert!(
                        !is_selected || truth[measure] <= top.error || listed.contains_key(key),
                        "{key}: {truth:?}"
                    );
                }
                let counts: Vec<_> = top.keys.iter().map(|key| [key.decisions, key.refusals][measure]).collect();
                assert!(counts.is_sorted_by(|one, next| one >= next));
            }
        }
        let mut fullest: Vec<_> = truth.values().map(|truth| truth[2]).collect();
        fullest.sort_unstable_by(|one, other| other.cmp(one));
        let top = self.heavy_hitters.top(RankBy::Utilisation, window, KeyFilter::default(), 200, now);
        let utilisations: Vec<_> = top.keys.iter().map(|key| u64::from(key.used_permille.unwrap())).collect();
        assert_eq!(utilisations, fullest[..200]);
        assert!(top.keys.iter().all(|key| truth[&key_of(&key.name)][2] == u64::from(key.used_permille.unwrap())));
    }
}

#[test]
fn a_minute_is_counted_within_the_bound() {
    for exponent in [0.0, 0.8, 1.1, 1.5] {
        let mut traced = Traced::new();
        traced.draw(exponent, 1_000_000, BEGIN..BEGIN + 1);
        traced.holds(Window::Minute, BEGIN, BEGIN);
        // The same once it is over.
        traced.holds(Window::Minute, BEGIN, BEGIN + 1);
        assert!(traced.heavy_hitters.bytes() < 8 << 20, "{}", traced.heavy_hitters.bytes());
    }
}

#[test]
fn windows_are_counted_within_the_bound() {
    let end = BEGIN + 73;
    for exponent in [0.8, 1.1] {
        let mut traced = Traced::new();
        traced.draw(exponent, 1_000_000, BEGIN..end);
        traced.holds(Window::Minute, end - 2, end - 1);
        traced.holds(Window::FiveMinutes, end - 6, end - 1);
        // An hour begins where a block does.
        traced.holds(Window::Hour, (end - 61) / 5 * 5, end - 1);
        assert!(traced.heavy_hitters.bytes() < 8 << 20, "{}", traced.heavy_hitters.bytes());
        // Later, with nothing new.
        traced.holds(Window::FiveMinutes, end - 2, end + 3);
        let gone = traced.heavy_hitters.top(RankBy::Decisions, Window::Hour, KeyFilter::default(), 9, at(end + 66));
        assert_eq!((gone.total, gone.keys), (0, vec![]));
    }
}

#[test]
fn callers_who_come_once_each_take_no_more_room() {
    let mut traced = Traced::new();
    let long = "x".repeat(300);
    traced.names = (0..KEYS).map(|key| format!("caller-{key:06}{long}")).collect();
    for minute in 0..75 {
        // Others in each minute, some more often than others; in the last one more than there is room for.
        for key in 0..if minute < 74 { 3_000 } else { 20_000 } {
            for _ in 0..1 + key % 3 {
                let number = (minute * 7_001 + key) % KEYS;
                traced.decide(number, BEGIN + minute as u64, key % 5 == 0, (key % 1_000) as u32);
            }
        }
    }
    traced.heavy_hitters.top(RankBy::Refusals, Window::Hour, KeyFilter::default(), 9, at(BEGIN + 74));
    let bytes = traced.heavy_hitters.bytes();
    // Without private values, half of the bound at most.
    assert!((MAX_BYTES / 10..MAX_BYTES / 2).contains(&bytes), "{bytes}");
}

#[test]
fn the_doorkeeper_withholds_callers_who_come_once() {
    let mut traced = Traced::new();
    // Each comes twice at most; counters that are not full tell nothing of them.
    (0..2 * KEYS).for_each(|number| traced.decide(number % KEYS, BEGIN, false, 0));
    let top = traced.heavy_hitters.top(RankBy::Decisions, Window::Minute, KeyFilter::default(), 9, at(BEGIN));
    // Were they all listed for a while, the floor would come near the bound.
    assert!(top.error <= top.total / (4 * ERROR_ONE_IN), "{} of {}", top.error, top.total);
    assert_eq!(top.total, 2 * KEYS as u64);
}

#[test]
fn threads_lose_nothing() {
    let traced = Traced::new();
    let heavy_hitters = &traced.heavy_hitters;
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for number in 0..60_000u64 {
                    let key = Key::new(&traced.scopes[0], smallvec![Value::Text(&traced.names[number as usize % 10])]);
                    let (ask, mode, on_failure) = (Ask::Exactly, Mode::Enforce, OnFailure::Allow);
                    let charge = Charge {
                        key,
                        limit: &traced.limit,
                        ask,
                        units: 1,
                        mode,
                        on_failure,
                        shortcuts: Shortcuts::Refusals,
                    };
                    let hash = charge.key.hash(heavy_hitters.secret, charge.key.partition(heavy_hitters.secret));
                    let observation = Observation {
                        charge: &charge,
                        rule: "rule",
                        refused: false,
                        over: 0,
                        used: None,
                        tier: "free",
                    };
                    heavy_hitters.at(BEGIN + number / 20_000).count(hash, observation);
                    if number.is_multiple_of(5_000) {
                        heavy_hitters.top(RankBy::Decisions, Window::FiveMinutes, KeyFilter::default(), 9, at(BEGIN));
                    }
                }
            });
        }
    });
    let top = heavy_hitters.top(RankBy::Decisions, Window::FiveMinutes, KeyFilter::default(), 20, at(BEGIN + 2));
    assert_eq!((top.total, top.error), (240_000, 0));
    assert!(top.keys.len() == 10 && top.keys.iter().all(|key| key.decisions == 24_000), "{:?}", top.keys);
}

#[test]
fn a_clock_that_is_set_back_begins_anew() {
    let mut traced = Traced::new();
    traced.decide(1, BEGIN + 3, false, 5);
    // A little behind is now.
    traced.decide(1, BEGIN + 2, false, 5);
    let top = |minute| traced.heavy_hitters.top(RankBy::Decisions, Window::Hour, KeyFilter::default(), 9, at(minute));
    assert_eq!(top(BEGIN + 3).keys[0].decisions, 2);
    traced.decide(1, BEGIN + 4, false, 5);
    traced.decide(1, BEGIN - 500, false, 5);
    let top = |minute| traced.heavy_hitters.top(RankBy::Decisions, Window::Hour, KeyFilter::default(), 9, at(minute));
    assert_eq!(top(BEGIN - 500).keys[0].decisions, 1);
}

fn at(minute: u64) -> Timestamp {
    Timestamp::from_micros(minute * MINUTE)
}
