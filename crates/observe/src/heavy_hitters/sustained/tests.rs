//! Who is near for long, and what would fit, in rows.

use tollgate::ManualClock;
use tollgate::{Descriptor, Limiter, MemoryConfig, Request, Ruleset};
use tollgate_core::Period;

use super::*;
use crate::{Observer, ObserverConfig};

fn limit(text: &str) -> Limit {
    let (amount, per) = text.split_once('/').unwrap();
    let seconds = match per {
        "concurrent" => 60,
        "second" => 1,
        "minute" => 60,
        "hour" => 3_600,
        "day" => 86_400,
        _ => panic!("{per}"),
    };
    let algorithm = if per == "concurrent" { Algorithm::Concurrency } else { Algorithm::FixedWindow };
    Limit::new(amount.parse().unwrap(), Period::fixed(Span::from_secs(seconds)).unwrap(), algorithm).unwrap()
}

#[test]
fn demand_is_what_was_used_and_what_was_refused() {
    for (held_to, used, refused, expected) in [
        ("100/minute", 950, 0, 95),
        // A fifth of five minutes.
        ("100/minute", 1_000, 500, 200),
        ("10/second", 1_000, 3_000, 20),
        ("10/second", 1_000, 1, 11),
        // Longer than what was seen: all of it.
        ("1000/hour", 900, 70, 970),
        ("1000/day", 1_000, 70, 1_070),
        ("3/concurrent", 1_000, 900, 4),
        ("3/concurrent", 1_000, 0, 3),
        ("0/minute", 1_000, 50, 10),
    ] {
        assert_eq!(demand(&limit(held_to), used, refused), expected, "{held_to} {used} {refused}");
    }
}

#[test]
fn the_smallest_tier_that_leaves_a_fifth_fits() {
    let tiers = [("free", "100/minute"), ("pro", "1000/minute"), ("team", "500/minute"), ("huge", "2000/second")];
    for (demand, unlimited, expected) in [
        (95, false, Some("team")),
        (79, false, Some("free")),
        (80, false, Some("team")),
        (399, false, Some("team")),
        (400, false, Some("pro")),
        (800, false, Some("huge")),
        (95_999, false, Some("huge")),
        (96_000, false, None),
        (96_000, true, Some("any")),
        (95, true, Some("team")),
        (u64::MAX, true, Some("any")),
    ] {
        let limits: Vec<_> = tiers.iter().map(|(tier, text)| (*tier, limit(text))).collect();
        let best_fit = limits.iter().map(|(tier, limit)| TierFit { tier, limit: Some(limit) });
        let best_fit = best_fit.chain(unlimited.then_some(TierFit { tier: "any", limit: None }));
        let terms = KeyTerms { tier: "free".into(), limit: limit("100/minute") };
        let name = KeyName::new("api", "per-user", "ann", Some("ann"));
        let since = Timestamp::from_secs(0);
        let sustained = SustainedKey { name, terms, used_permille: 950, demand, since };
        assert_eq!(sustained.best_fit(best_fit).map(|fit| fit.tier), expected, "{demand}");
    }
}

#[test]
fn limits_on_requests_in_flight_are_compared_with_their_like() {
    let terms = KeyTerms { tier: "free".into(), limit: limit("3/concurrent") };
    let name = KeyName::new("api", "busy", "ann", Some("ann"));
    let sustained = SustainedKey { name, terms, used_permille: 1_000, demand: 4, since: Timestamp::from_secs(0) };
    let (rate, small, large) = (limit("1000/minute"), limit("5/concurrent"), limit("6/concurrent"));
    let tiers = [("rate", &rate), ("small", &small), ("large", &large)];
    let best_fit = sustained.best_fit(tiers.map(|(tier, limit)| TierFit { tier, limit: Some(limit) }));
    assert_eq!(best_fit.map(|fit| fit.tier), Some("large"));
}

#[test]
fn all_of_it_is_a_sentence() {
    let sustained = |held_to: &str| SustainedKey {
        name: KeyName::new("api", "per-user", "ann", Some("ann")),
        terms: KeyTerms { tier: "free".into(), limit: limit(held_to) },
        used_permille: 957,
        demand: 130,
        since: Timestamp::from_secs(0),
    };
    for (held_to, who, fit, expected) in [
        (
            "100/minute",
            "ann",
            Some(("pro", "1000/minute")),
            "ann has used 80 % or more of 100/minute (rule per-user, tier free) in every minute since 14:03, 95 % in the last one, and \
             requests about 130 in that time: tier pro (1000/minute) would fit",
        ),
        (
            "3/concurrent",
            "",
            None,
            "the counter that all callers share has used 80 % or more of 3/concurrent (rule per-user, tier free) in every minute since 14:03, 95 % in \
             the last one, and requests 130 at once: no tier of the rule would fit",
        ),
    ] {
        assert_eq!(sustained(held_to).describe(who, held_to, "14:03", fit), expected);
    }
}

/// One limiter, called minute by minute.
struct Day {
    clock: ManualClock,
    observer: std::sync::Arc<Observer>,
    limiter: Limiter<tollgate::MemoryStore<ManualClock>>,
}

const RULES: &str = "
domain: api
entity: user
rules:
  - {name: per-user, key: [user], limit: {free: 10/minute, pro: 100/minute}, algorithm: fixed_window}
";
const BEGIN: Timestamp = Timestamp::from_secs(30_000_000 * 60);

impl Day {
    fn new() -> Day {
        let clock = ManualClock::at(BEGIN);
        let observer = std::sync::Arc::new(Observer::new(ObserverConfig::default(), Default::default()));
        let store = MemoryConfig::default().build_with(clock.clone());
        let limiter = Limiter::new(Ruleset::from_text(RULES, 1).unwrap().0, store).with_clock(clock.clone());
        Day { limiter: limiter.with_witness(observer.clone()), clock, observer }
    }

    /// Asks so often in this minute, and goes on to the next.
    fn minute(&self, calls: &[(&str, u32)]) {
        for (user, times) in calls {
            let entries = [("user", *user)];
            let request = Request { descriptors: &[Descriptor::new(&entries)], ..Request::default() };
            (0..*times).for_each(|_| drop(tollgate::poll_once(self.limiter.check_request(&request))));
        }
        self.clock.set(self.now().after(MINUTE));
    }

    fn now(&self) -> Timestamp {
        tollgate::Clock::now(&self.clock)
    }

    /// `key thousandths demand minutes-since-the-begin`.
    fn lines(&self) -> Vec<String> {
        self.observer.heavy_hitters().sustained(self.now()).iter().map(line).collect()
    }
}

fn line(one: &SustainedKey) -> String {
    let since = one.since.since(BEGIN).as_micros() / MINUTE.as_micros();
    format!("{} {} {} {since}", one.name.key(), one.used_permille, one.demand)
}

#[test]
fn five_minutes_at_four_fifths_are_reported_while_they_last() {
    let day = Day::new();
    for _ in 0..4 {
        day.minute(&[("ann", 8), ("bob", 7), ("eve", 30)]);
    }
    assert!(day.lines().is_empty());
    assert_eq!(day.observer.heavy_hitters().sustained_since(0, day.now()), (0, vec![]));
    day.minute(&[("ann", 9), ("bob", 9), ("eve", 30)]);
    // Eve was refused 20 in each minute.
    assert_eq!(day.lines(), ["eve 1000 30 0", "ann 900 9 0"]);
    let (event, recent) = day.observer.heavy_hitters().sustained_since(0, day.now());
    let mut recent: Vec<_> = recent.iter().map(line).collect();
    recent.sort();
    assert_eq!((event, recent), (2, vec!["ann 900 9 0".to_owned(), "eve 1000 30 0".to_owned()]));
    day.minute(&[("ann", 9), ("eve", 7)]);
    assert_eq!(day.lines(), ["ann 900 9 0"]);
    // Nothing new has recent.
    assert_eq!(day.observer.heavy_hitters().sustained_since(event, day.now()), (2, vec![]));
    // A minute without it is the end.
    day.minute(&[]);
    assert!(day.lines().is_empty());
}

#[test]
fn a_minute_between_begins_anew() {
    let day = Day::new();
    for times in [9, 9, 9, 3, 9, 9, 9, 9] {
        day.minute(&[("ann", times)]);
    }
    assert!(day.lines().is_empty());
    day.minute(&[("ann", 10)]);
    assert_eq!(day.lines(), ["ann 1000 10 4"]);
    let first = &day.observer.heavy_hitters().sustained(day.now())[0];
    assert_eq!((&*first.terms.tier, first.terms.limit.amount(), first.name.caller()), ("free", 10, Some("ann")));
}

#[test]
fn who_looks_seldom_sees_the_same() {
    let day = Day::new();
    (0..7).for_each(|_| day.minute(&[("ann", 9)]));
    assert_eq!(day.lines().len(), 1, "{:?}", day.lines());
    // Nobody looked for so long that it is not known what was before.
    (0..20).for_each(|_| day.minute(&[("ann", 9)]));
    assert_eq!(day.lines(), ["ann 900 9 21"]);
}

#[test]
fn a_clock_that_is_set_back_begins_anew() {
    let day = Day::new();
    (0..5).for_each(|_| day.minute(&[("ann", 9)]));
    assert_eq!(day.lines().len(), 1);
    day.clock.set(BEGIN.before(Span::from_secs(3_600 * 60)));
    assert!(day.lines().is_empty());
    (0..5).for_each(|_| day.minute(&[("ann", 9)]));
    assert_eq!(day.lines().len(), 1);
}
