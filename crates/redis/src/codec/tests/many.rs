//! A caller with many counters, and the lifetimes of values.

use smallvec::smallvec;
use tollgate_core::key::Home;
use tollgate_core::{
    Algorithm, Ask, Charge, Claim, ClaimId, Key, Limit, Mode, OnFailure, Period, Scope, Settlement, Shortcuts, Span,
    Timestamp, Value,
};
use tollgate_testing::{Redis, eventually};

use super::direct::{Answer, Direct};
use tollgate_store::conformance::Subject;

const START: Timestamp = Timestamp::from_secs(1_767_225_600);

/// Three in ten seconds for each endpoint of one customer.
struct Endpoints {
    scopes: Vec<Scope>,
    limit: Limit,
}

impl Endpoints {
    fn new(rules: usize, algorithm: Algorithm, seconds: u64) -> Endpoints {
        let limit = Limit::new(3, Period::fixed(Span::from_secs(seconds)).unwrap(), algorithm).unwrap();
        let scope = |rule: usize| Scope::new("d", &rule.to_string(), algorithm, limit.period(), Home::Caller(0));
        Endpoints { scopes: (0..rules).map(scope).collect(), limit }
    }

    fn claim<'a>(&'a self, endpoint: &'a str, units: u64) -> Claim<'a> {
        let charge = |scope| Charge {
            key: Key::new(scope, smallvec![Value::Text("acme"), Value::Text(endpoint)]),
            limit: &self.limit,
            ask: Ask::Exactly,
            units,
            mode: Mode::Enforce,
            on_failure: OnFailure::Deny,
            shortcuts: Shortcuts::Refusals,
        };
        let charges = self.scopes.iter().map(charge).collect();
        Claim { id: ClaimId(1), charges, once: None, timeout: None }
    }

    fn reset<'a>(&'a self, endpoint: &'a str) -> Claim<'a> {
        let mut claim = self.claim(endpoint, 0);
        claim.charges.iter_mut().for_each(|charge| charge.ask = Ask::Reset);
        claim
    }
}

fn number(answer: Answer) -> i64 {
    match answer {
        Answer::Number(number) => number,
        other => panic!("{other:?}"),
    }
}

fn one(direct: &Direct, claim: Claim<'_>) -> Settlement {
    direct.settle_all(&[claim]).remove(0).unwrap()
}

#[test]
fn a_caller_with_many_counters_has_them_exact_and_in_small_values() {
    const ENDPOINTS: usize = 300;
    let redis = Redis::start();
    for algorithm in [
        Algorithm::Bucket { burst: 3, paced: false },
        Algorithm::SlidingWindow { sub_windows: 1 },
        Algorithm::FixedWindow,
    ] {
        let direct = Direct::new(redis.port(), "m:");
        direct.command(&[b"FLUSHALL"]);
        let (few, names) = (Endpoints::new(2, algorithm, 10), (0..ENDPOINTS).map(|at| format!("/{at}")));
        let names: Vec<String> = names.collect();
        for round in 0..2 {
            // The second time all states of the first are stale.
            let now = START.after(Span::from_secs(5_000 * round));
            direct.set_now(now);
            for taken in 1..=3 {
                for name in &names {
                    let settlement = one(&direct, few.claim(name, 1));
                    for reading in &settlement.readings {
                        assert_eq!((reading.taken, reading.remaining), (1, 3 - taken), "{algorithm:?} {name} {round}");
                    }
                }
            }
            for name in &names {
                assert!(!one(&direct, few.claim(name, 1)).readings[0].admits, "{algorithm:?} {name} {round}");
            }
            let longest = direct.keys().iter().map(|key| number(direct.command(&[b"STRLEN", key]))).max();
            assert!(longest <= Some(1_100), "{algorithm:?} {longest:?}");
        }
        assert_eq!(direct.unsound(), 0);
    }
}

#[test]
fn values_live_as_long_as_they_matter() {
    let redis = Redis::start();
    let direct = Direct::new(redis.port(), "l:");
    let ttl = |claim: &Claim<'_>| {
        direct.settle_at(std::slice::from_ref(claim), None).remove(0).unwrap();
        let key = direct.keys().pop().unwrap();
        number(direct.command(&[b"TTL", &key]))
    };
    // A unit of a bucket drains in twenty seconds, three in a minute.
    let bucket = Endpoints::new(1, Algorithm::Bucket { burst: 3, paced: false }, 60);
    let (first, second) = (ttl(&bucket.claim("/", 1)), ttl(&bucket.claim("/", 2)));
    assert!((20..=28).contains(&first) && (60..=78).contains(&second), "{first} {second}");
    direct.command(&[b"FLUSHALL"]);
    // A shorter lifetime does not replace a longer one.
    let long = Endpoints::new(1, Algorithm::FixedWindow, 3_000);
    let (before, after) = (ttl(&long.claim("/", 1)), ttl(&bucket.claim("/", 1)));
    assert!(after > 30 || before <= 30, "{before} {after}");
    direct.command(&[b"FLUSHALL"]);
    for algorithm in [
        Algorithm::FixedWindow,
        Algorithm::SlidingWindow { sub_windows: 1 },
        Algorithm::SlidingWindow { sub_windows: 5 },
        Algorithm::SlidingLog,
        Algorithm::Concurrency,
    ] {
        for units in [1, 1] {
            let ttl = ttl(&Endpoints::new(1, algorithm, 10).claim("/", units));
            assert!((1..=28).contains(&ttl), "{algorithm:?} {ttl}");
        }
        direct.command(&[b"FLUSHALL"]);
    }
}

#[test]
fn a_reset_leaves_nothing_behind() {
    let redis = Redis::start();
    let direct = Direct::new(redis.port(), "r:");
    direct.set_now(START);
    let is_empty = || eventually(|| direct.keys().is_empty().then_some(())).is_some();
    let windows = Endpoints::new(1, Algorithm::SlidingWindow { sub_windows: 1 }, 60);
    for algorithm in [
        Algorithm::Bucket { burst: 3, paced: false },
        Algorithm::FixedWindow,
        Algorithm::SlidingWindow { sub_windows: 1 },
        Algorithm::SlidingWindow { sub_windows: 5 },
        Algorithm::SlidingLog,
        Algorithm::Concurrency,
    ] {
        let counters = Endpoints::new(2, algorithm, 10);
        // An absent counter stays absent, and the other charges of the claim are all that is stored.
        assert_eq!(one(&direct, counters.reset("/")).readings[0].taken, 0);
        assert!(direct.keys().is_empty(), "{algorithm:?}");
        let taken = one(&direct, counters.claim("/", 2)).readings[0].taken;
        // Counters in the same value do not change.
        one(&direct, windows.claim("/", 1));
        let settlement = one(&direct, counters.reset("/"));
        for reading in &settlement.readings {
            assert_eq!((reading.taken, reading.remaining), (taken, 3), "{algorithm:?}");
        }
        let left = one(&direct, windows.claim("/", 0)).readings[0].remaining;
        assert!(eventually(|| (direct.keys().len() == 1).then_some(())).is_some() && left == 2, "{algorithm:?} {left}");
        one(&direct, windows.reset("/"));
        assert!(is_empty(), "{algorithm:?}");
        // Taken, cleared and taken again in one call.
        let claims = [counters.claim("/", 3), counters.reset("/"), counters.claim("/", 1), counters.claim("/", 1)];
        let settled: Vec<Settlement> = direct.settle_all(&claims).into_iter().map(Result::unwrap).collect();
        let held = u64::from(algorithm != Algorithm::Concurrency);
        assert_eq!(settled[3].readings[1].remaining, 2 - held, "{algorithm:?}");
        one(&direct, counters.reset("/"));
        assert!(is_empty(), "{algorithm:?}");
    }
    assert_eq!(direct.unsound(), 0);
}

#[test]
fn of_many_counters_those_are_reset_that_are_meant() {
    let redis = Redis::start();
    let direct = Direct::new(redis.port(), "n:");
    direct.set_now(START);
    let (counters, names) = (Endpoints::new(1, Algorithm::FixedWindow, 60), (0..200).map(|at| format!("/{at}")));
    let names: Vec<String> = names.collect();
    names.iter().for_each(|name| drop(one(&direct, counters.claim(name, 3))));
    let before = direct.keys().len();
    assert!(before > 100, "most have values of their own: {before}");
    for name in names.iter().step_by(2) {
        assert_eq!(one(&direct, counters.reset(name)).readings[0].taken, 3);
    }
    for (at, name) in names.iter().enumerate() {
        let left = one(&direct, counters.claim(name, 0)).readings[0].remaining;
        assert_eq!(left, if at % 2 == 0 { 3 } else { 0 }, "{name}");
    }
    names.iter().for_each(|name| drop(one(&direct, counters.reset(name))));
    // The remaining value says that there may be further values, and expires when there can be none any more.
    assert!(eventually(|| (direct.keys().len() <= 1).then_some(())).is_some(), "{} of {before}", direct.keys().len());
}
