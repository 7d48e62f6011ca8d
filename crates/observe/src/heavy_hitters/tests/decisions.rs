//! What decisions of a limiter add.

use std::sync::Arc;

use tollgate::{Descriptor, Limiter, ManualClock, MemoryConfig, MemoryStore, Request, Ruleset, Span, Tenants};
use tollgate_rules::tenants::{Block, BlockAction, BlockSubject, TimeRange};

use super::super::*;
use crate::{Observer, ObserverConfig};

const RULES: &str = "
domain: api
entity: user
rules:
  - {name: per-user, key: [user], limit: {free: 4/minute, pro: 100/minute}, algorithm: fixed_window}
  - {name: tried, key: [path, user], match: {path: present}, limit: 2/minute, algorithm: fixed_window, mode: shadow}
  - {name: all, key: [], match: {all: present}, limit: 10/minute, algorithm: fixed_window}
";

/// A limiter that is watched, at a full minute.
struct Watched {
    limiter: Limiter<MemoryStore<ManualClock>>,
    observer: Arc<Observer>,
    clock: ManualClock,
}

impl Watched {
    fn new(rules: &str, config: ObserverConfig) -> Watched {
        let clock = ManualClock::at(Timestamp::from_micros(30_000_000 * MINUTE));
        let store = MemoryConfig::default().build_with(clock.clone());
        let observer = Arc::new(Observer::new(config, Arc::default()));
        let rules = Ruleset::from_text(rules, 1).unwrap().0;
        let limiter = Limiter::new(rules, store).with_clock(clock.clone()).with_witness(observer.clone());
        Watched { limiter, observer, clock }
    }

    fn check(&self, entries: &[(&str, &str)]) -> bool {
        let request = Request { descriptors: &[Descriptor::new(entries)], ..Request::default() };
        tollgate::poll_once(self.limiter.check_request(&request)).unwrap().unwrap().allowed()
    }

    fn pass(&self, seconds: u64) {
        self.clock.set(self.now().after(Span::from_secs(seconds)));
    }

    fn now(&self) -> Timestamp {
        tollgate::Clock::now(&self.clock)
    }

    /// `rule key caller decisions refusals thousandths`.
    fn ranking(&self, by: RankBy, filter: KeyFilter<'_>) -> Vec<String> {
        let top = self.observer.heavy_hitters().top(by, Window::Minute, filter, 10, self.now());
        assert_eq!(top.error, 0);
        let keys = top.keys.iter().map(|key| {
            let (name, used) = (&key.name, key.used_permille.map_or(-1, i64::from));
            let caller = name.caller().unwrap_or("-");
            format!("{} {} {caller} {} {} {used}", name.rule(), name.key(), key.decisions, key.refusals)
        });
        keys.collect()
    }
}

#[test]
fn every_limit_that_had_a_say_counts_and_the_one_that_refused_refuses() {
    let watched = Watched::new(RULES, ObserverConfig::default());
    for _ in 0..6 {
        watched.check(&[("user", "ann"), ("path", "/")]);
    }
    watched.check(&[("user", "bob")]);
    watched.check(&[("all", "")]);
    let all = ["per-user ann ann 6 2 1000", "tried /, ann ann 6 0 1000", "all  - 1 0 100", "per-user bob bob 1 0 250"];
    assert_eq!(watched.ranking(RankBy::Decisions, KeyFilter::default()), all);
    assert_eq!(watched.ranking(RankBy::Refusals, KeyFilter::default()), all[..1]);
    assert_eq!(watched.ranking(RankBy::Utilisation, KeyFilter::default()), [all[0], all[1], all[3], all[2]]);
    let filter = KeyFilter { rule: Some("per-user"), ..KeyFilter::default() };
    assert_eq!(watched.ranking(RankBy::Decisions, filter), [all[0], all[3]]);
    let filter = KeyFilter { domain: Some("other"), ..KeyFilter::default() };
    assert!(watched.ranking(RankBy::Decisions, filter).is_empty());
    let top = |by| watched.observer.heavy_hitters().top(by, Window::Minute, KeyFilter::default(), 1, watched.now());
    assert_eq!((top(RankBy::Decisions).total, top(RankBy::Refusals).total), (14, 2));
    assert_eq!(top(RankBy::Decisions).keys.len(), 1);
}

#[test]
fn shadow_mode_has_no_refusals() {
    let watched = Watched::new(RULES, ObserverConfig { shadow: true, ..ObserverConfig::default() });
    for _ in 0..6 {
        watched.check(&[("user", "ann")]);
    }
    assert!(watched.ranking(RankBy::Refusals, KeyFilter::default()).is_empty());
}

#[test]
fn who_is_blocked_is_refused_by_the_block() {
    let watched = Watched::new(RULES, ObserverConfig::default());
    let tenants = Arc::new(Tenants::default());
    let block = Block { during: TimeRange::ALWAYS, action: BlockAction::Forbidden };
    tenants.set_block(&BlockSubject::Caller { domain: "api".to_owned(), caller: "eve".to_owned() }, Some(block));
    watched.limiter.install_tenants(tenants);
    assert!(!watched.check(&[("user", "eve")]));
    assert!(!watched.check(&[("user", "eve")]));
    assert_eq!(watched.ranking(RankBy::Refusals, KeyFilter::default()), ["block eve eve 2 2 -1"]);
}

#[test]
fn keys_without_a_caller_are_separate_from_those_of_callers() {
    let rules = "
domain: api
entity: user
rules:
  - {name: per-user, key: [user], limit: 10/minute}
  - {name: per-path, key: [path], limit: 10/minute}
  - {name: both, key: [path, user], limit: 10/minute}
";
    let watched = Watched::new(rules, ObserverConfig::default());
    for (user, path) in [("ann", "/"), ("bob", "/"), ("ann", "/a")] {
        watched.check(&[("user", user), ("path", path)]);
    }
    let ranking = watched.ranking(RankBy::Decisions, KeyFilter { rule: Some("per-path"), ..KeyFilter::default() });
    assert_eq!(ranking, ["per-path / - 2 0 200", "per-path /a - 1 0 100"]);
    assert_eq!(watched.ranking(RankBy::Decisions, KeyFilter { rule: Some("both"), ..KeyFilter::default() }).len(), 3);
}

#[test]
fn who_is_not_near_any_more_is_forgotten() {
    let watched = Watched::new(RULES, ObserverConfig::default());
    for minute in 0..20 {
        for user in 0..50 {
            for _ in 0..4 {
                watched.check(&[("user", &format!("{minute}-{user}"))]);
            }
        }
        watched.pass(60);
        watched.observer.heavy_hitters().sustained(watched.now());
        assert_eq!(lock(&watched.observer.heavy_hitters().streaks).len(), 50);
    }
}

#[test]
fn minutes_pass() {
    let watched = Watched::new(RULES, ObserverConfig::default());
    let count = |window| {
        let top =
            watched.observer.heavy_hitters().top(RankBy::Decisions, window, KeyFilter::default(), 1, watched.now());
        top.keys.first().map_or(0, |key| key.decisions)
    };
    for _ in 0..70 {
        watched.check(&[("user", "ann")]);
        watched.pass(60);
    }
    // The minute that has just begun has none.
    assert_eq!(Window::ALL.map(count), [1, 5, 60]);
    watched.pass(180);
    // An hour begins at a block of five minutes.
    assert_eq!(Window::ALL.map(count), [0, 2, 60]);
    watched.pass(120);
    assert_eq!(Window::ALL.map(count), [0, 0, 55]);
}
