//! Histories of decisions whose numbers and times are known.

use std::sync::Arc;

use tollgate::{Descriptor, Limiter, ManualClock, MemoryConfig, MemoryStore, Request, Ruleset};

use super::rules::MAX_POINTS;
use super::*;
use crate::ObserverConfig;
use crate::tally::{RowName, TallyLimits};

const RULES: &str = "
domain: api
entity: user
tiers: {free: {paid: false}, pro: {}}
default_tier: free
tier_from: plan
rules:
  - {name: per-user, key: [user], limit: {free: 3/hour, pro: 100/hour}, algorithm: fixed_window}
  - {name: tried, key: [user], limit: 2/hour, algorithm: fixed_window, mode: shadow}
";

/// The beginning of an hour.
const BEGIN: Timestamp = Timestamp::from_secs(1_800_000_000);

struct Bench {
    limiter: Limiter<MemoryStore<ManualClock>>,
    observer: Arc<Observer>,
    clock: ManualClock,
    now: Timestamp,
    history: History,
}

impl Bench {
    fn new(config: ObserverConfig) -> Bench {
        let clock = ManualClock::at(BEGIN);
        let store = MemoryConfig::default().build_with(clock.clone());
        let observer = Arc::new(Observer::new(config, Arc::default()));
        let rules = Ruleset::from_text(RULES, 1).unwrap().0;
        let limiter = Limiter::new(rules, store).with_clock(clock.clone()).with_witness(observer.clone());
        Bench { limiter, observer, clock, now: BEGIN, history: History::new(BEGIN) }
    }

    fn check(&self, plan: &str, times: usize) {
        for _ in 0..times {
            let entries = [("user", plan), ("plan", plan)];
            let request = Request { descriptors: &[Descriptor::new(&entries)], ..Request::default() };
            tollgate::poll_once(self.limiter.check_request(&request)).unwrap().unwrap();
        }
    }

    /// So much time passes, and then is looked.
    fn pass(&mut self, millis: u64) {
        self.now = self.now.after(Span::from_micros(millis * 1_000));
        self.clock.set(self.now);
        self.history.sample(&self.observer, self.now);
    }

    fn seconds(&self) -> Vec<Option<HistoryPoint>> {
        self.history.line(HistoryRange::TenMinutes).points
    }

    /// Allowed decisions per second; `None` in a gap.
    fn allowed(&self, range: HistoryRange) -> Vec<Option<f64>> {
        let points = self.history.line(range).points.into_iter();
        points.map(|point| point.map(|point| point.rates[DecisionOutcome::Allow as usize])).collect()
    }
}

fn bench() -> Bench {
    Bench::new(ObserverConfig::default())
}

#[test]
fn each_second_has_its_own_rates_and_the_last_ten_have_theirs() {
    let mut bench = bench();
    for number in 1..=12 {
        bench.check("pro", number);
        bench.pass(1_000);
    }
    let rates: Vec<f64> = bench.seconds().iter().flatten().map(|second| second.rates.iter().sum()).collect();
    assert_eq!(rates, (1..=12).map(f64::from).collect::<Vec<_>>());
    // 3 + 4 + … + 12, of which two passed the rule that is tried long ago.
    assert_eq!(bench.history.rates(), [0.0, 0.0, 7.5, 0.0, 0.0, 0.0, 0.0]);
    assert_eq!(bench.history.totals(), [2, 0, 76, 0, 0, 0, 0]);
    assert_eq!(bench.history.at(), bench.now);
}

#[test]
fn nothing_is_known_before_the_first_look() {
    let history = History::new(BEGIN);
    assert_eq!((history.at(), history.totals(), history.rates()), (BEGIN, [0; 7], [0.0; 7]));
    assert_eq!((history.decision_latency(), history.second()), (None, None));
    assert_eq!(history.rule("api", "per-user"), Activity::default());
    assert_eq!(history.sparkline("api", "per-user"), Sparkline::default());
}

#[test]
fn every_range_is_bounded() {
    let mut bench = bench();
    bench.check("free", 1);
    let hours = 25 * 3_600;
    (0..hours).for_each(|_| bench.pass(1_000));
    for range in HistoryRange::ALL {
        let line = bench.history.line(range);
        assert_eq!(line.points.len(), range.points(), "{range:?}");
        assert_eq!(line.from, bench.now.before(Span::from_micros(range.step().as_micros() * range.points() as u64)));
        assert_eq!(bench.allowed(range), vec![Some(0.0); range.points()]);
    }
    assert_eq!(bench.history.samples.len(), MAX_SAMPLES);
}

#[test]
fn coarser_points_are_averages_of_finer_ones() {
    let mut bench = bench();
    for second in 0..70 {
        if second < 10 || second == 65 {
            bench.check("pro", 1);
        }
        bench.observer.decision_latency().record(if second == 3 { 1_000_000 } else { 5_000 }, 1);
        bench.pass(1_000);
    }
    // The first two of each rule in shadow mode are allowed.
    let ten = bench.allowed(HistoryRange::TwoHours);
    assert_eq!((ten.len(), ten[0], ten[1]), (7, Some(0.2), Some(0.0)));
    let minutes = bench.history.line(HistoryRange::Day);
    assert_eq!((minutes.from, minutes.points.len()), (BEGIN, 2));
    let first = minutes.points[0].unwrap();
    assert_eq!(first.rates.iter().sum::<f64>(), 10.0 / 60.0);
    let took = first.took.unwrap();
    assert!(took.p50 < 6_000 && took.p999 >= 1_000_000 && took.count >= 60, "{took:?}");
    // The minute that has begun covers ten seconds so far.
    assert_eq!(minutes.points[1].unwrap().rates.iter().sum::<f64>(), 0.1);
}

#[test]
fn one_who_looks_late_sees_what_several_seconds_came_to() {
    let mut bench = bench();
    bench.check("pro", 2);
    bench.pass(3_000);
    assert_eq!(bench.allowed(HistoryRange::TenMinutes), [Some(2.0 / 3.0); 3]);
    // A little early and a little late is neither a gap nor a spike.
    for millis in [1_400, 1_000, 700, 900, 1_000] {
        bench.pass(millis);
    }
    assert_eq!(bench.allowed(HistoryRange::TenMinutes).len(), 8);
    assert!(bench.seconds().iter().all(Option::is_some));
    // A clock that is set forward by an hour: a minute of it is believed.
    bench.pass(3_600_000);
    let line = bench.allowed(HistoryRange::TenMinutes);
    assert_eq!((line.len(), line.iter().flatten().count()), (600, 60));
    // A clock that is set back: what has not been yet is dropped.
    bench.now = BEGIN;
    bench.pass(1_000);
    assert_eq!(bench.allowed(HistoryRange::TenMinutes).len(), 1);
    assert_eq!(bench.history.second().unwrap().0, BEGIN);
}

#[test]
fn a_restart_is_a_gap() {
    let mut before = bench();
    before.check("pro", 2);
    (0..20).for_each(|_| before.pass(1_000));
    let saved = HistoryRange::ALL.map(|range| before.history.line(range));
    let mut after = bench();
    after.now = BEGIN.after(Span::from_secs(30));
    after.history = History::new(after.now);
    after.history.restore(saved.clone());
    after.pass(1_000);
    let seconds = after.seconds();
    assert_eq!((seconds.len(), seconds[0].is_some()), (31, true));
    assert_eq!(seconds.iter().filter(|second| second.is_none()).count(), 10);
    assert_eq!(after.history.line(HistoryRange::TenMinutes).from, BEGIN);
    assert_eq!(after.history.line(HistoryRange::Day).points.len(), 1);
    // A day later nothing of the first range is left, and an earlier clock believes nothing.
    for (now, len) in [(BEGIN.after(Span::from_secs(86_400)), 1), (BEGIN.before(Span::from_secs(60)), 1)] {
        let mut other = bench();
        other.now = now;
        other.history = History::new(now);
        other.history.restore(saved.clone());
        other.pass(1_000);
        assert_eq!(other.seconds().len(), len);
    }
}

#[test]
fn times_are_those_of_the_last_minute() {
    let mut bench = bench();
    assert_eq!(bench.history.store_latency(), None);
    bench.observer.decision_latency().record(1_000_000, 8);
    bench.pass(1_000);
    assert_eq!(bench.history.store_latency(), None);
    bench.observer.decision_latency().record(5_000, 8);
    bench.pass(1_000);
    let seconds: Vec<_> = bench.seconds().iter().map(|second| second.unwrap().took.unwrap()).collect();
    assert!(seconds[0].p50 >= 1_000_000 && (5_000..6_000).contains(&seconds[1].p999), "{seconds:?}");
    let minute = bench.history.decision_latency().unwrap();
    assert_eq!(minute.count, 16);
    assert!(minute.p50 < 6_000 && minute.p99 >= 1_000_000, "{minute:?}");
    (0..59).for_each(|_| bench.pass(1_000));
    assert_eq!(bench.history.decision_latency().unwrap().count, 8, "the first second is over a minute ago");
    bench.pass(1_000);
    assert_eq!(bench.history.decision_latency(), None);
    assert_eq!(bench.history.second().unwrap().1.took, None);
}

#[test]
fn a_rule_is_the_sum_of_its_tiers() {
    let mut bench = bench();
    bench.check("free", 5);
    bench.check("pro", 10);
    bench.pass(1_000);
    let rule = bench.history.rule("api", "per-user");
    assert_eq!(rule.rates, LimitResults { allow: 13.0, deny: 2.0, would_deny: 0.0 });
    assert_eq!(rule.totals, LimitResults { allow: 13, deny: 2, would_deny: 0 });
    assert_eq!(rule.peak, Some(Peak { used_permille: 1_000, left: 0 }));
    let tiers: Vec<_> =
        rule.tiers.iter().map(|tier| (&*tier.tier, tier.activity.totals.deny, tier.activity.utilisation())).collect();
    assert_eq!(tiers, [("free", 2, 1.0), ("pro", 0, 0.1)]);
    // The one that is tried had room twice for each of them: of what the other refused as well.
    let tried = bench.history.rule("api", "tried");
    assert_eq!(tried.totals, LimitResults { allow: 4, deny: 0, would_deny: 11 });
    assert_eq!(tried.tiers[0].tier, RowName::DEFAULT);
    let mut tiers = bench.history.tiers("api");
    tiers.sort_by(|one, other| one.tier.cmp(&other.tier));
    let tiers: Vec<_> = tiers.iter().map(|tier| (&*tier.tier, tier.activity.totals.allow)).collect();
    assert_eq!(tiers, [("default", 4), ("free", 3), ("pro", 10)]);
    // Ten seconds later that is past.
    (0..10).for_each(|_| bench.pass(1_000));
    assert_eq!(bench.history.rule("api", "per-user").rates, LimitResults::default());
}

#[test]
fn a_line_has_a_point_every_five_seconds() {
    let mut bench = bench();
    bench.check("pro", 10);
    bench.pass(1_000);
    assert_eq!(bench.history.sparkline("api", "per-user").allow, [10.0], "the newest point is an average so far");
    (0..4).for_each(|_| bench.pass(1_000));
    bench.check("free", 5);
    (0..5).for_each(|_| bench.pass(1_000));
    let line = bench.history.sparkline("api", "per-user");
    assert_eq!((&line.allow[..], &line.deny[..]), (&[2.0, f64::from(0.6f32)][..], &[0.0, f64::from(0.4f32)][..]));
    assert_eq!(line.would_deny, [0.0; 2]);
    assert_eq!(bench.history.sparkline("api", "nobody").allow, [0.0; 2], "as long as the others");
    (0..5 * MAX_POINTS).for_each(|_| bench.pass(1_000));
    assert_eq!(bench.history.sparkline("api", "per-user").allow, [0.0; MAX_POINTS]);
}

#[test]
fn a_rule_has_a_line_of_each_range() {
    let mut bench = bench();
    bench.check("free", 5);
    (0..90).for_each(|_| bench.pass(1_000));
    let line = |range| bench.history.rule_line("api", "per-user", range).unwrap();
    let minutes = line(HistoryRange::TwoHours);
    assert_eq!((minutes.from, minutes.step, minutes.points.len()), (BEGIN, Span::from_secs(60), 2));
    assert_eq!(minutes.points[0].unwrap().deny, f64::from(2.0f32 / 60.0));
    assert_eq!(line(HistoryRange::Day).points.len(), 1);
    assert_eq!(
        bench.history.rule_line("api", "nobody", HistoryRange::Day).unwrap().points,
        [Some(LimitResults::default())]
    );
}

#[test]
fn rules_are_ranked_by_their_refusals_of_the_last_minute() {
    let mut bench = bench();
    bench.check("free", 15);
    bench.pass(1_000);
    (0..59).for_each(|_| bench.pass(1_000));
    let refusing = bench.history.refusing(5);
    let names: Vec<_> = refusing.iter().map(|rule| (&*rule.rule, rule.rates.deny > 0.0)).collect();
    assert_eq!(names, [("per-user", true), ("tried", false)]);
    assert!((refusing[0].rates.deny - 12.0 / 60.0).abs() < 1e-6, "{refusing:?}");
    assert_eq!(bench.history.refusing(1).len(), 1);
    (0..60).for_each(|_| bench.pass(1_000));
    assert_eq!(bench.history.refusing(5), []);
}

#[test]
fn what_is_gone_is_forgotten() {
    let config = ObserverConfig { tally: TallyLimits { max_rows: 6 }, ..ObserverConfig::default() };
    let mut bench = Bench::new(config);
    bench.check("free", 1);
    bench.pass(1_000);
    assert_eq!(bench.history.rule("api", "tried").totals.allow, 1);
    let (head, _) = RULES.split_once("  - ").unwrap();
    let rules = format!("{head}  - {{name: a, key: [user], limit: {{free: 1/hour, pro: 2/hour}}}}");
    bench.limiter.install(Ruleset::from_text(&rules, 2).unwrap().0);
    bench.check("free", 1);
    bench.pass(1_000);
    assert_eq!(bench.history.rule("api", "tried"), Activity::default());
    assert_eq!(bench.history.rule("api", "a").totals.allow, 1);
}

#[test]
fn lines_of_rules_go_on_after_a_restart() {
    let mut first = bench();
    first.check("free", 5);
    (0..90).for_each(|_| first.pass(1_000));
    let saved = first.history.saved_rules();
    assert_eq!(saved.rules.iter().map(|rule| &*rule.rule).collect::<Vec<_>>(), ["per-user", "tried"]);

    // Half a minute later the first bucket of ten minutes goes on, and there is a gap in the finer ones.
    let mut next = bench();
    next.now = first.now.after(Span::from_secs(30));
    next.history = History::new(next.now);
    next.history.restore_rules(saved.clone());
    next.pass(1_000);
    let deny = |bench: &Bench, range| -> Vec<Option<f64>> {
        let line = bench.history.rule_line("api", "per-user", range).unwrap();
        line.points.iter().map(|point| point.map(|point| point.deny)).collect()
    };
    let tens = deny(&next, HistoryRange::TenMinutes);
    assert_eq!(tens.iter().filter(|point| point.is_none()).count(), 6, "{tens:?}");
    assert_eq!((tens[0], tens.len()), (Some(f64::from(0.4f32)), 25));
    assert_eq!(deny(&next, HistoryRange::TwoHours), [Some(f64::from(2.0f32 / 60.0)), Some(0.0), Some(0.0)]);
    let day = deny(&next, HistoryRange::Day)[0].unwrap();
    // The newest bucket goes on at its rate: 2 in 90 seconds, and then none in one.
    assert!((day - 2.0 / 90.0 * 120.0 / 121.0).abs() < 1e-4, "{day}");
    // A rule without traffic keeps its lines until nothing is left in them.
    (0..24 * 360).for_each(|_| next.pass(10_000));
    assert_eq!(next.history.saved_rules().rules, []);

    // What is too old, or later than now, is not restored.
    for now in [first.now.before(Span::from_secs(3_600)), first.now.after(Span::from_secs(25 * 3_600))] {
        let mut other = History::new(now);
        other.restore_rules(saved.clone());
        assert_eq!(other.saved_rules().rules, [], "{now:?}");
    }
    // Nor is there room for more than the bound.
    let many =
        (0..2 * rules::MAX_SAVED_RULES).map(|number| SavedRule { rule: number.to_string(), ..saved.rules[0].clone() });
    let mut other = History::new(first.now);
    other.restore_rules(SavedRules { axes: saved.axes.clone(), rules: many.collect() });
    assert_eq!(other.saved_rules().rules.len(), rules::MAX_SAVED_RULES);
}
