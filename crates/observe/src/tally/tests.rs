//! Counts of decisions whose numbers are known.

use std::sync::Arc;

use tollgate::{
    Algorithm, Descriptor, Limit, Limiter, ManualClock, MemoryConfig, MemoryStore, Request, Ruleset, Span, Timestamp,
};
use tollgate_core::Period;

use super::*;
use crate::{Observer, ObserverConfig};

const RULES: &str = "
domain: api
entity: user
rules:
  - {name: per-user, key: [user], limit: {free: 3/minute, pro: 10/minute}, algorithm: fixed_window}
  - {name: tried, key: [user], limit: 2/minute, algorithm: fixed_window, mode: shadow}
";

struct Bench {
    limiter: Limiter<MemoryStore<ManualClock>>,
    observer: Arc<Observer>,
    clock: ManualClock,
}

impl Bench {
    fn new(rules: &str, config: ObserverConfig) -> Bench {
        let clock = ManualClock::at(Timestamp::from_micros(1_800_000_000_000_000));
        let store = MemoryConfig::default().build_with(clock.clone());
        let observer = Arc::new(Observer::new(config, Arc::default()));
        let limiter = Limiter::new(ruleset(rules, 1), store).with_clock(clock.clone()).with_witness(observer.clone());
        Bench { limiter, observer, clock }
    }

    fn check(&self, user: &str) -> bool {
        let entries = [("user", user)];
        let request = Request { descriptors: &[Descriptor::new(&entries)], ..Request::default() };
        tollgate::poll_once(self.limiter.check_request(&request)).unwrap().unwrap().allowed()
    }

    fn check_all(&self, user: &str, times: usize) {
        (0..times).for_each(|_| {
            self.check(user);
        });
    }

    /// `rule/tier allow deny shadow met refused would`, without those of which nothing is counted.
    fn lines(&self) -> Vec<String> {
        let rows = self.observer.tally().rows();
        let lines = rows.iter().map(|row| (row.name().clone(), row.counts())).filter(|(_, counts)| {
            counts[CountKind::Evaluated] > 0
                || DecisionOutcome::ALL.into_iter().any(|outcome| counts[CountKind::Outcome(outcome)] > 0)
        });
        lines
            .map(|(name, counts)| {
                let numbers = [
                    CountKind::Outcome(DecisionOutcome::Allow),
                    CountKind::Outcome(DecisionOutcome::Deny),
                    CountKind::Outcome(DecisionOutcome::Shadow),
                    CountKind::Evaluated,
                    CountKind::Refused,
                    CountKind::WouldRefuse,
                ];
                let numbers: Vec<_> = numbers.into_iter().map(|count| counts[count].to_string()).collect();
                format!("{}/{} {}", name.rule(), name.tier(), numbers.join(" "))
            })
            .collect()
    }
}

fn ruleset(text: &str, generation: u64) -> Ruleset {
    Ruleset::from_text(text, generation).unwrap().0
}

#[test]
fn each_decision_is_counted_once_and_each_limit_as_it_stood() {
    let bench = Bench::new(RULES, ObserverConfig::default());
    let passed: Vec<_> = (0..5).map(|_| bench.check("ann")).collect();
    assert_eq!(passed, [true, true, true, false, false]);
    assert_eq!(bench.lines(), ["per-user/free 2 2 0 5 2 0", "tried/default 0 0 1 5 0 3"]);
    assert_eq!(bench.observer.tally().totals(), [2, 2, 1, 0, 0, 0, 0]);
}

#[test]
fn shadow_mode_refuses_nothing() {
    let bench = Bench::new(RULES, ObserverConfig { shadow: true, ..ObserverConfig::default() });
    bench.check_all("ann", 4);
    assert_eq!(bench.observer.tally().totals(), [2, 0, 2, 0, 0, 0, 0]);
}

#[test]
fn counts_go_on_when_other_rules_are_in_force() {
    let bench = Bench::new(RULES, ObserverConfig::default());
    bench.check("ann");
    bench.limiter.install(ruleset(&RULES.replace("tried", "tested").replace("3/minute", "5/minute"), 2));
    bench.check("ann");
    assert_eq!(bench.lines(), ["per-user/free 2 0 0 2 0 0", "tested/default 0 0 0 1 0 0", "tried/default 0 0 0 1 0 0"]);
}

#[test]
fn what_no_limit_applies_to_is_counted_too() {
    let bench = Bench::new(RULES, ObserverConfig::default());
    let request = Request { descriptors: &[Descriptor::new(&[("path", "/")])], ..Request::default() };
    tollgate::poll_once(bench.limiter.check_request(&request)).unwrap().unwrap();
    assert_eq!(bench.lines(), ["none/default 1 0 0 0 0 0"]);
}

#[test]
fn throttles_are_decisions_too() {
    use tollgate::Source;
    let bench = Bench::new(RULES, ObserverConfig::default());
    bench.observer.count_throttles(5, 2, Source::Store);
    bench.observer.count_throttles(3, 1, Source::Shed);
    bench.observer.count_throttles(4, 0, Source::Assumed);
    assert_eq!(bench.lines(), ["throttle/request 5 3 0 15 3 0"]);
    assert_eq!(bench.observer.tally().totals(), [5, 3, 0, 0, 3, 0, 4]);
    let rows = bench.observer.tally().rows();
    assert_eq!((rows[0].name().domain(), rows[0].name().is_rule()), ("resp", false));
    // In shadow mode throttles are not refused either.
    let bench = Bench::new(RULES, ObserverConfig { shadow: true, ..ObserverConfig::default() });
    bench.observer.count_throttles(5, 2, Source::Store);
    assert_eq!(bench.observer.tally().totals(), [5, 0, 2, 0, 0, 0, 0]);
}

#[test]
fn past_the_bound_rows_are_one() {
    let config = ObserverConfig { tally: TallyLimits { max_rows: 3 }, ..ObserverConfig::default() };
    let bench = Bench::new(RULES, config);
    bench.check_all("ann", 5);
    // `none` and `block` are two of the three.
    assert_eq!(bench.lines(), ["per-user/free 2 2 0 5 2 0", "other/other 0 0 1 5 0 3"]);
    // Rows of rules that are gone make room.
    bench.limiter.install(ruleset("domain: api\nrules:\n  - {name: new, key: [user], limit: 1/minute}", 2));
    bench.check("ann");
    assert!(bench.lines().contains(&"new/default 1 0 0 1 0 0".to_owned()), "{:?}", bench.lines());
}

#[test]
fn a_peak_is_that_of_the_last_minute() {
    let bench = Bench::new(RULES, ObserverConfig::default());
    let row = || bench.observer.tally().rows().into_iter().find(|row| row.name().tier() == "free").unwrap();
    let begin = Timestamp::from_micros(1_800_000_000_000_000);
    bench.observer.tally().prepare(&bench.limiter.rules());
    assert_eq!(row().peak(begin), None);
    bench.check("ann");
    bench.check("ann");
    bench.check("bob");
    assert_eq!(row().peak(begin), Some(Peak { used_permille: 666, left: 1 }));
    let later = |secs| begin.after(Span::from_secs(secs));
    assert_eq!(row().peak(later(59)), Some(Peak { used_permille: 666, left: 1 }));
    assert_eq!(row().peak(later(60)), None);
    bench.clock.set(later(60));
    bench.check("bob");
    assert_eq!(row().peak(later(60)), Some(Peak { used_permille: 333, left: 2 }));
}

#[test]
fn where_limits_differ_the_fullest_is_not_the_one_with_least_left() {
    let bench = Bench::new(RULES, ObserverConfig::default());
    for (amount, cost) in [(1_000, 100), (2_000, 1_000)] {
        let period = Period::fixed(Span::from_secs(60)).unwrap();
        let limit = Limit::new(amount, period, Algorithm::FixedWindow).unwrap();
        // A counter of its own for each.
        let entries = [("path", if amount == 1_000 { "/one" } else { "/two" })];
        let descriptor = Descriptor { limit: Some(&limit), ..Descriptor::new(&entries) };
        let request = Request { descriptors: &[descriptor], cost, ..Request::default() };
        tollgate::poll_once(bench.limiter.check_request(&request)).unwrap().unwrap();
    }
    let rows = bench.observer.tally().rows();
    let row = rows.iter().find(|row| row.name().tier() == RowName::REQUEST).unwrap();
    let now = Timestamp::from_micros(1_800_000_000_000_000);
    assert_eq!(row.peak(now), Some(Peak { used_permille: 500, left: 900 }));
}

#[test]
fn near_begins_past_four_fifths() {
    let bench = Bench::new(RULES, ObserverConfig::default());
    bench.check_all("ann", 4);
    let rows = bench.observer.tally().rows();
    let near = |rule: &str| {
        let row = rows.iter().find(|row| row.name().rule() == rule && row.counts()[CountKind::Evaluated] > 0).unwrap();
        let counts = row.counts();
        [counts[CountKind::Hits], counts[CountKind::Near], counts[CountKind::Over], counts[CountKind::OverInShadow]]
    };
    assert_eq!((near("per-user"), near("tried")), ([4, 1, 1, 0], [4, 1, 2, 2]));
}

#[test]
fn only_units_past_four_fifths_are_near() {
    use super::row::near;
    // A quota, what is left after, how many were taken: of 10, the ninth and the tenth are near.
    for (quota, left, units, expected) in [
        (10, 3, 1, 0),
        (10, 2, 1, 0),
        (10, 1, 1, 1),
        (10, 0, 1, 1),
        (10, 0, 10, 2),
        (10, 1, 5, 1),
        (4, 0, 1, 1),
        (0, 0, 1, 0),
    ] {
        assert_eq!(near(quota, left, units), expected, "{units} taken, {left} of {quota} left");
    }
}

#[test]
fn thousandths_of_any_quota() {
    use super::row::used;
    for (quota, left, expected) in
        [(10, 10, 0), (10, 0, 1_000), (3, 1, 666), (0, 0, 1_000), (5, 9, 0), (u64::MAX, 0, 1_000)]
    {
        assert_eq!(used(quota, left), expected, "{left} of {quota}");
    }
}
