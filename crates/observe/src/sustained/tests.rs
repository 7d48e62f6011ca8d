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
fn what_is_asked_for_is_what_was_used_and_what_was_refused() {
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
        assert_eq!(asked(&limit(held_to), used, refused), expected, "{held_to} {used} {refused}");
    }
}

#[test]
fn the_smallest_tier_that_leaves_a_fifth_fits() {
    let tiers = [("free", "100/minute"), ("pro", "1000/minute"), ("team", "500/minute"), ("huge", "2000/second")];
    for (asked, unlimited, expected) in [
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
        let fits = limits.iter().map(|(tier, limit)| Fit { tier, limit: Some(limit) });
        let fits = fits.chain(unlimited.then_some(Fit { tier: "any", limit: None }));
        let terms = Terms { tier: "free".into(), limit: limit("100/minute") };
        let name = Name::new("api", "per-user", "ann", Some("ann"));
        let since = Timestamp::from_secs(0);
        let sustained = Sustained { name, terms, used_of_1_000: 950, asked, since };
        assert_eq!(sustained.fits(fits).map(|fit| fit.tier), expected, "{asked}");
    }
}

#[test]
fn limits_on_requests_in_flight_are_compared_with_their_like() {
    let terms = Terms { tier: "free".into(), limit: limit("3/concurrent") };
    let name = Name::new("api", "busy", "ann", Some("ann"));
    let sustained = Sustained { name, terms, used_of_1_000: 1_000, asked: 4, since: Timestamp::from_secs(0) };
    let (rate, small, large) = (limit("1000/minute"), limit("5/concurrent"), limit("6/concurrent"));
    let tiers = [("rate", &rate), ("small", &small), ("large", &large)];
    let fits = sustained.fits(tiers.map(|(tier, limit)| Fit { tier, limit: Some(limit) }));
    assert_eq!(fits.map(|fit| fit.tier), Some("large"));
}

#[test]
fn all_of_it_is_a_sentence() {
    let sustained = |held_to: &str| Sustained {
        name: Name::new("api", "per-user", "ann", Some("ann")),
        terms: Terms { tier: "free".into(), limit: limit(held_to) },
        used_of_1_000: 957,
        asked: 130,
        since: Timestamp::from_secs(0),
    };
    for (held_to, who, fit, expected) in [
        (
            "100/minute",
            "ann",
            Some(("pro", "1000/minute")),
            "ann has used 80 % or more of 100/minute (rule per-user, tier free) in every minute since 14:03, 95 % in the last one, and \
             asks for about 130 in that time: the tier pro (1000/minute) would fit",
        ),
        (
            "3/concurrent",
            "",
            None,
            "one counter for all has used 80 % or more of 3/concurrent (rule per-user, tier free) in every minute since 14:03, 95 % in \
             the last one, and asks for 130 at once: no tier of the rule would fit",
        ),
    ] {
        assert_eq!(sustained(held_to).says(who, held_to, "14:03", fit), expected);
    }
}

/// One limiter, asked minute by minute.
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
        let observer = std::sync::Arc::new(Observer::new(ObserverConfig::default()));
        let store = MemoryConfig::default().build_with(clock.clone());
        let limiter = Limiter::new(Ruleset::from_text(RULES, 1).unwrap().0, store).with_clock(clock.clone());
        Day { limiter: limiter.with_witness(observer.clone()), clock, observer }
    }

    /// Asks so often in this minute, and goes on to the next.
    fn minute(&self, asked: &[(&str, u32)]) {
        for (user, times) in asked {
            let entries = [("user", *user)];
            let request = Request { descriptors: &[Descriptor::new(&entries)], ..Request::default() };
            (0..*times).for_each(|_| drop(tollgate::now(self.limiter.check(&request))));
        }
        self.clock.set(self.now().after(MINUTE));
    }

    fn now(&self) -> Timestamp {
        tollgate::Clock::now(&self.clock)
    }

    /// `key thousandths asked minutes-since-the-begin`.
    fn told(&self) -> Vec<String> {
        self.observer.hitters().sustained(self.now()).iter().map(told).collect()
    }
}

fn told(one: &Sustained) -> String {
    let since = one.since.since(BEGIN).as_micros() / MINUTE.as_micros();
    format!("{} {} {} {since}", one.name.key(), one.used_of_1_000, one.asked)
}

#[test]
fn five_minutes_at_four_fifths_are_told_while_they_last() {
    let day = Day::new();
    for _ in 0..4 {
        day.minute(&[("ann", 8), ("bob", 7), ("eve", 30)]);
    }
    assert!(day.told().is_empty());
    assert_eq!(day.observer.hitters().sustained_since(0, day.now()), (0, vec![]));
    day.minute(&[("ann", 9), ("bob", 9), ("eve", 30)]);
    // Eve was refused 20 in each minute.
    assert_eq!(day.told(), ["eve 1000 30 0", "ann 900 9 0"]);
    let (event, begun) = day.observer.hitters().sustained_since(0, day.now());
    let mut begun: Vec<_> = begun.iter().map(told).collect();
    begun.sort();
    assert_eq!((event, begun), (2, vec!["ann 900 9 0".to_owned(), "eve 1000 30 0".to_owned()]));
    day.minute(&[("ann", 9), ("eve", 7)]);
    assert_eq!(day.told(), ["ann 900 9 0"]);
    // Nothing new has begun.
    assert_eq!(day.observer.hitters().sustained_since(event, day.now()), (2, vec![]));
    // A minute without it is the end.
    day.minute(&[]);
    assert!(day.told().is_empty());
}

#[test]
fn a_minute_between_begins_anew() {
    let day = Day::new();
    for times in [9, 9, 9, 3, 9, 9, 9, 9] {
        day.minute(&[("ann", times)]);
    }
    assert!(day.told().is_empty());
    day.minute(&[("ann", 10)]);
    assert_eq!(day.told(), ["ann 1000 10 4"]);
    let first = &day.observer.hitters().sustained(day.now())[0];
    assert_eq!((&*first.terms.tier, first.terms.limit.amount(), first.name.caller()), ("free", 10, Some("ann")));
}

#[test]
fn who_looks_seldom_sees_the_same() {
    let day = Day::new();
    (0..7).for_each(|_| day.minute(&[("ann", 9)]));
    assert_eq!(day.told().len(), 1, "{:?}", day.told());
    // Nobody looked for so long that it is not known what was before.
    (0..20).for_each(|_| day.minute(&[("ann", 9)]));
    assert_eq!(day.told(), ["ann 900 9 21"]);
}

#[test]
fn a_clock_that_is_set_back_begins_anew() {
    let day = Day::new();
    (0..5).for_each(|_| day.minute(&[("ann", 9)]));
    assert_eq!(day.told().len(), 1);
    day.clock.set(BEGIN.before(Span::from_secs(3_600 * 60)));
    assert!(day.told().is_empty());
    (0..5).for_each(|_| day.minute(&[("ann", 9)]));
    assert_eq!(day.told().len(), 1);
}
