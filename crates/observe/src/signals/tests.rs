//! Signals of a limiter's requests, on one server and on several; and tables at their bounds.

use std::sync::Arc;

use tollgate::{Descriptor, Limiter, ManualClock, MemoryConfig, MemoryStore, Request, Ruleset, Span, Timestamp};
use tollgate_core::key::HashSecret;

use super::table::{SignalTable, SignalValue, TableBounds};
use super::*;
use crate::heavy_hitters::KeyName;
use crate::{Observer, ObserverConfig};

const RULES: &str = "
domain: shop
rules:
  - {name: logins, key: [remote_address], match: {endpoint: POST /login}, limit: 1000/minute}
signals:
  - {name: accounts-per-address, distinct: account, per: [remote_address], match: {endpoint: POST /login}, threshold: 40, window: 1h}
  - {name: addresses-per-key, distinct: remote_address, per: [api_key], threshold: 3, window: 1m}
";

/// A server that is watched.
struct Watched {
    limiter: Limiter<MemoryStore<ManualClock>>,
    observer: Arc<Observer>,
    clock: ManualClock,
}

impl Watched {
    fn new(rules: &str) -> Watched {
        let clock = ManualClock::at(Timestamp::from_secs(1_800_000_000));
        let store = MemoryConfig::default().build_with(clock.clone());
        let observer = Arc::new(Observer::new(ObserverConfig::default(), Arc::default()));
        observer.signals().use_secret(HashSecret(1, 2));
        let rules = Ruleset::from_text(rules, 1).unwrap().0;
        let limiter = Limiter::new(rules, store).with_clock(clock.clone()).with_witness(observer.clone());
        Watched { limiter, observer, clock }
    }

    fn check(&self, entries: &[(&str, &str)]) {
        let request = Request { descriptors: &[Descriptor::new(entries)], ..Request::default() };
        tollgate::poll_once(self.limiter.check_request(&request)).unwrap().unwrap();
    }

    fn log_in(&self, address: &str, account: &str) {
        self.check(&[("endpoint", "POST /login"), ("remote_address", address), ("account", account)]);
    }

    fn pass(&self, seconds: u64) {
        self.clock.set(self.now().after(Span::from_secs(seconds)));
    }

    fn now(&self) -> Timestamp {
        tollgate::Clock::now(&self.clock)
    }

    /// `raised NAME KEY COUNT` or `ended NAME KEY`.
    fn evaluate(&self, reports: &[SignalReport]) -> Vec<String> {
        let changes = self.observer.signals().evaluate(&self.limiter.rules(), reports, self.now());
        let text = |change: &SignalChange| match change {
            SignalChange::Raised(one) => format!("raised {} {} {}", one.name.rule(), one.name.key(), one.count),
            SignalChange::Ended(one) => format!("ended {} {}", one.name.rule(), one.name.key()),
        };
        changes.iter().map(text).collect()
    }

    fn report(&self, servers: usize, others: &[SignalReport]) -> Vec<SignalReport> {
        self.observer.signals().report(&self.limiter.rules(), servers, others)
    }
}

#[test]
fn forty_accounts_of_one_address_raise_a_signal_once() {
    let watched = Watched::new(RULES);
    for number in 0..39 {
        watched.log_in("203.0.113.7", &format!("a{number}"));
        watched.log_in("203.0.113.7", &format!("a{number}"));
        watched.log_in(&format!("198.51.100.{number}"), "ann");
    }
    assert!(watched.evaluate(&[]).is_empty());
    // Another endpoint, and a login without an account, do not count.
    watched.check(&[("endpoint", "GET /"), ("remote_address", "203.0.113.7"), ("account", "b")]);
    watched.check(&[("endpoint", "POST /login"), ("remote_address", "203.0.113.7")]);
    assert!(watched.evaluate(&[]).is_empty());
    watched.log_in("203.0.113.7", "a39");
    assert_eq!(watched.evaluate(&[]), ["raised accounts-per-address 203.0.113.7 40"]);
    let raised = watched.observer.signals().raised();
    assert_eq!((raised.len(), raised[0].threshold, raised[0].since), (1, 40, watched.now()));
    assert_eq!(raised[0].examples.len(), MAX_EXAMPLES);
    assert!(raised[0].examples.contains(&"a39".to_owned()), "{:?}", raised[0].examples);
    let since = watched.now();
    watched.pass(60);
    watched.log_in("203.0.113.7", "a40");
    assert!(watched.evaluate(&[]).is_empty(), "it is raised already");
    assert_eq!(
        (watched.observer.signals().raised()[0].count, watched.observer.signals().raised()[0].since),
        (41, since)
    );
    watched.pass(3_600);
    assert_eq!(watched.evaluate(&[]), ["ended accounts-per-address 203.0.113.7"]);
    assert!(watched.observer.signals().raised().is_empty());
}

#[test]
fn values_leave_the_window_by_quarters() {
    let watched = Watched::new(RULES);
    watched.clock.set(Timestamp::from_secs(1_800_000_000 / 3_600 * 3_600));
    for quarter in 0..4 {
        (0..10).for_each(|number| watched.log_in("203.0.113.7", &format!("q{quarter}-{number}")));
        watched.pass(900);
    }
    // The first ten have left.
    (0..9).for_each(|number| watched.log_in("203.0.113.7", &format!("new-{number}")));
    assert!(watched.evaluate(&[]).is_empty());
    watched.log_in("203.0.113.7", "last");
    assert_eq!(watched.evaluate(&[]).len(), 1);
}

#[test]
fn addresses_are_networks_and_private_values_are_masked() {
    let watched = Watched::new(RULES);
    let check = |address: &str| watched.check(&[("api_key", "secret-of-a-customer"), ("remote_address", address)]);
    // The first evaluation tells the time: no limit applies to these requests.
    assert!(watched.evaluate(&[]).is_empty());
    ["2001:db8:0:1::1", "2001:db8:0:1::2", "2001:db8:0:ff::3", "203.0.113.7"].iter().for_each(|one| check(one));
    assert!(watched.evaluate(&[]).is_empty(), "three of the four are in one /56");
    check("203.0.113.8:443");
    let changes = watched.evaluate(&[]);
    assert!(changes.len() == 1 && changes[0].starts_with("raised addresses-per-key "), "{changes:?}");
    assert!(!changes[0].contains("secret-of"), "{changes:?}");
    assert!(watched.observer.signals().raised()[0].examples.contains(&"203.0.113.8".to_owned()));
}

/// Thirteen or fourteen accounts on each of three servers are forty together, and those that several saw count once.
#[test]
fn servers_count_together() {
    let servers = [Watched::new(RULES), Watched::new(RULES), Watched::new(RULES)];
    for number in 0..40 {
        servers[number % 3].log_in("203.0.113.7", &format!("a{number}"));
        servers[(number + 1) % 3].log_in("198.51.100.1", &format!("a{}", number % 30));
    }
    let report = |others: &[SignalReport]| servers.iter().map(|server| server.report(3, others)).collect::<Vec<_>>();
    // Only one has a third of the accounts of 203.0.113.7. The others follow.
    let first: Vec<_> = report(&[]).into_iter().flatten().collect();
    assert_eq!(first.iter().filter(|report| report.key_text == "203.0.113.7").count(), 1);
    let reports = report(&first);
    for (number, server) in servers.iter().enumerate() {
        let others = reports.iter().enumerate().filter(|(other, _)| *other != number);
        let others: Vec<_> = others.flat_map(|(_, reports)| reports.clone()).collect();
        assert_eq!(server.evaluate(&others), ["raised accounts-per-address 203.0.113.7 40"]);
    }
    // A server that has seen nothing lists what the others report.
    let idle = Watched::new(RULES);
    let all: Vec<_> = reports.into_iter().flatten().collect();
    assert_eq!(idle.evaluate(&all), ["raised accounts-per-address 203.0.113.7 40"]);
    assert_eq!(idle.evaluate(&[]), ["ended accounts-per-address 203.0.113.7"]);
}

#[test]
fn keys_that_cannot_matter_are_not_reported() {
    let watched = Watched::new(RULES);
    (0..13).for_each(|number| watched.log_in("203.0.113.7", &format!("a{number}")));
    assert_eq!(watched.report(3, &[]).len(), 0);
    assert_eq!(watched.report(4, &[]).len(), 1);
    for address in 0..200 {
        (0..20).for_each(|number| watched.log_in(&format!("198.51.100.{address}"), &format!("a{number}")));
    }
    let report = watched.report(4, &[]);
    assert_eq!(report.len(), MAX_REPORTED);
    assert!(report.iter().all(|report| report.sketch.estimate() == 20));
}

#[test]
fn counts_survive_a_reload_and_a_changed_threshold_but_not_another_window() {
    let watched = Watched::new(RULES);
    (0..20).for_each(|number| watched.log_in("203.0.113.7", &format!("a{number}")));
    let reload = |text: &str| watched.limiter.install(Ruleset::from_text(text, 2).unwrap().0);
    reload(&RULES.replace("threshold: 40", "threshold: 21"));
    assert!(watched.evaluate(&[]).is_empty());
    watched.log_in("203.0.113.7", "b");
    assert_eq!(watched.evaluate(&[]), ["raised accounts-per-address 203.0.113.7 21"]);
    reload(&RULES.replace("threshold: 40, window: 1h", "threshold: 21, window: 2h"));
    assert_eq!(watched.evaluate(&[]), ["ended accounts-per-address 203.0.113.7"]);
    assert_eq!(watched.observer.signals().status().0.iter().map(|one| one.keys).sum::<u64>(), 0);
    reload("{domain: shop, rules: [{name: r, key: [], limit: 1/s}]}");
    assert!(watched.evaluate(&[]).is_empty());
    assert!(watched.observer.signals().status().0.is_empty());
}

#[test]
fn another_secret_starts_anew() {
    let watched = Watched::new(RULES);
    (0..39).for_each(|number| watched.log_in("203.0.113.7", &format!("a{number}")));
    watched.observer.signals().use_secret(HashSecret(1, 2));
    watched.observer.signals().use_secret(HashSecret(3, 4));
    (0..39).for_each(|number| watched.log_in("203.0.113.7", &format!("a{number}")));
    assert!(watched.evaluate(&[]).is_empty());
    watched.log_in("203.0.113.7", "a39");
    assert_eq!(watched.evaluate(&[]).len(), 1);
}

#[test]
fn too_many_signals_are_refused() {
    let signal = |number| format!("  - {{name: s{number}, distinct: a, per: [b], threshold: 2}}\n");
    let rules = |number: usize| format!("domain: d\nsignals:\n{}", (0..number).map(signal).collect::<String>());
    assert!(Ruleset::from_text(&rules(Ruleset::MAX_SIGNALS), 1).is_ok());
    let problems = Ruleset::from_text(&rules(Ruleset::MAX_SIGNALS + 1), 1).unwrap_err();
    assert!(problems[0].message.contains("more than 16 signals"), "{problems:?}");
}

// === tables ===

fn count(table: &mut SignalTable, key: u128, value: u64, at: u64) {
    let value = SignalValue { key, value, at: Timestamp::from_secs(at), examples_from: u64::MAX };
    table.count(value, || KeyName::new("d", "s", &key.to_string(), None), String::new);
}

#[test]
fn a_flood_of_keys_displaces_itself() {
    let bounds = TableBounds { keys: 100, bytes: usize::MAX };
    let mut table = SignalTable::new(Span::from_secs(40), bounds);
    for key in 0..10 {
        (0..30).for_each(|value| count(&mut table, key, value, 1_000));
    }
    (1_000..200_000).for_each(|key| count(&mut table, key, 1, 1_001));
    assert_eq!(table.keys().len(), 100);
    assert_eq!(table.displaced(), 199_000 - 90);
    // Eight are drawn, so one with many values is displaced only if all eight have as many.
    let full = (0..10).filter(|key| table.key(*key).is_some_and(|key| key.count() == 30)).count();
    assert_eq!(full, 10);
}

#[test]
fn a_table_is_bounded_by_bytes() {
    let bounds = TableBounds { keys: 10_000, bytes: 256 << 10 };
    let mut table = SignalTable::new(Span::from_secs(40), bounds);
    for key in 0..200 {
        (0..1_000).for_each(|value: u64| {
            count(&mut table, key, value << 40 ^ value.wrapping_mul(0x9e37_79b9_7f4a_7c15), 1_000)
        });
        assert!(table.bytes() <= bounds.bytes);
    }
    assert!(table.keys().len() > 10);
    let counted: usize = table.keys().iter().map(|key| key.sketch().bytes()).sum();
    assert!(counted <= table.bytes(), "{counted} of {}", table.bytes());
    table.expire(Timestamp::from_secs(1_041));
    assert_eq!((table.keys().len(), table.bytes()), (0, 0));
}

#[test]
fn a_clock_that_is_set_back_stops_nothing() {
    let mut table = SignalTable::new(Span::from_secs(40), TableBounds { keys: 10, bytes: usize::MAX });
    (0..5).for_each(|value| count(&mut table, 1, value, 1_000));
    (5..9).for_each(|value| count(&mut table, 1, value, 985));
    assert_eq!(table.key(1).map(|key| key.count()), Some(9));
    // By more than the window: what was counted is in the future, and is dropped.
    (0..3).for_each(|value| count(&mut table, 1, value, 100));
    assert_eq!(table.key(1).map(|key| key.count()), Some(3));
    table.expire(Timestamp::from_secs(90));
    assert_eq!(table.keys().len(), 1);
}
