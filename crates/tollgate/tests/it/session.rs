//! Sessions: they decide like their limiter, and use the rules in force.

use tollgate::{Descriptor, ManualClock, MemoryStore, Request, RequestError, Session, poll_once};

use crate::support::{ManualLimiter, manual_limiter, rules};

const TWO: &str = "
domain: d
rules:
  - {name: per-key, key: [k], limit: 3/m, algorithm: fixed_window}
  - {name: everyone, key: [], match: {k: present}, limit: 5/m, algorithm: fixed_window}
";

fn limiter(text: &str) -> ManualLimiter {
    manual_limiter(text).0
}

/// The summary of a decision: whether it is allowed, which rule refused it, remaining units, how many limits applied.
type Summary = (bool, Option<String>, Option<u64>, usize);

fn summary(decision: &tollgate::Decision) -> Summary {
    let denied_by = decision.denied_by().map(|outcome| outcome.rule.name().to_owned());
    let left = decision.tightest().map(|outcome| outcome.reading.remaining);
    (decision.allowed(), denied_by, left, decision.outcomes().count())
}

fn with_request<R>(entries: &[(&str, &str)], check: impl FnOnce(&Request<'_>) -> R) -> R {
    let descriptors = [Descriptor::new(entries)];
    check(&Request { domain: None, descriptors: &descriptors, cost: 1, ..Request::default() })
}

fn check_in_session(session: &mut Session<'_, MemoryStore<ManualClock>>, entries: &[(&str, &str)]) -> Summary {
    with_request(entries, |request| summary(poll_once(session.check_request(request)).unwrap().unwrap()))
}

#[test]
fn a_session_decides_like_its_limiter() {
    let (plain, reused) = (limiter(TWO), limiter(TWO));
    let mut session = reused.session();
    for key in ["a", "a", "b", "a", "a", "b", "", "b"] {
        let entries: &[(&str, &str)] = if key.is_empty() { &[] } else { &[("k", key)] };
        let expected =
            with_request(entries, |request| summary(&poll_once(plain.check_request(request)).unwrap().unwrap()));
        assert_eq!(check_in_session(&mut session, entries), expected, "{key}");
    }
}

#[test]
fn repeated_checks_use_the_same_counters() {
    let limiter = limiter(TWO);
    let mut session = limiter.session();
    let first = check_in_session(&mut session, &[("k", "a")]);
    let second =
        with_request(&[("k", "a")], |request| summary(poll_once(session.check_request(request)).unwrap().unwrap()));
    assert_eq!(first, (true, None, Some(2), 2));
    assert_eq!(second, (true, None, Some(1), 2));
}

#[test]
fn a_session_uses_new_rules_with_the_same_counters() {
    let limiter = limiter(TWO);
    let mut session = limiter.session();
    assert_eq!(check_in_session(&mut session, &[("k", "a")]), (true, None, Some(2), 2));
    limiter.install(rules(&TWO.replace("3/m", "10/m"), 2));
    assert_eq!(check_in_session(&mut session, &[("k", "a")]), (true, None, Some(3), 2), "of everyone's five");
    let generation =
        with_request(&[("k", "a")], |request| poll_once(session.check_request(request)).unwrap().unwrap().generation());
    assert_eq!(generation, 2);
}

#[test]
fn a_decision_does_not_affect_the_next_one() {
    let limiter = limiter(TWO);
    let mut session = limiter.session();
    for _ in 0..4 {
        check_in_session(&mut session, &[("k", "a")]);
    }
    assert_eq!(check_in_session(&mut session, &[("k", "a")]).1.as_deref(), Some("per-key"));
    assert_eq!(check_in_session(&mut session, &[("other", "a")]), (true, None, None, 0));
    let unknown = Request { domain: Some("unknown"), descriptors: &[], cost: 1, ..Request::default() };
    assert_eq!(poll_once(session.check_request(&unknown)).unwrap().err(), Some(RequestError::UnknownDomain));
    assert_eq!(check_in_session(&mut session, &[("k", "b")]), (true, None, Some(1), 2));
}
