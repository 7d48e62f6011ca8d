//! A session decides as its limiter does, and follows the rules.

use tollgate::{
    Descriptor, Limiter, LoadOptions, ManualClock, MemoryConfig, MemoryStore, Request, RequestError, Ruleset, Session,
    Timestamp, poll_once,
};
use tollgate_rules::{RuleFile, load_sources};

const TWO: &str = "
domain: d
rules:
  - {name: per-key, key: [k], limit: 3/m, algorithm: fixed_window}
  - {name: everyone, key: [], match: {k: present}, limit: 5/m, algorithm: fixed_window}
";

fn rules(text: &str, generation: u64) -> Ruleset {
    let file = RuleFile { name: "rules.yaml".to_owned(), text: text.to_owned() };
    Ruleset::compile(load_sources(&[file], &LoadOptions::default()).unwrap().domains, generation).unwrap()
}

fn limiter(text: &str) -> Limiter<MemoryStore<ManualClock>> {
    let clock = ManualClock::at(Timestamp::from_secs(1_767_225_600));
    Limiter::new(rules(text, 1), MemoryConfig::default().build_with(clock))
}

/// The summary of a decision: whether it is allowed, which rule refused it, what is left, how many limits applied.
type Summary = (bool, Option<String>, Option<u64>, usize);

fn summary(decision: &tollgate::Decision) -> Summary {
    let denied_by = decision.denied_by().map(|outcome| outcome.rule.name().to_owned());
    let left = decision.tightest().map(|outcome| outcome.reading.remaining);
    (decision.allowed(), denied_by, left, decision.outcomes().count())
}

fn ask<R>(entries: &[(&str, &str)], how: impl FnOnce(&Request<'_>) -> R) -> R {
    let descriptors = [Descriptor::new(entries)];
    how(&Request { domain: None, descriptors: &descriptors, cost: 1, ..Request::default() })
}

fn in_session(session: &mut Session<'_, MemoryStore<ManualClock>>, entries: &[(&str, &str)]) -> Summary {
    ask(entries, |request| summary(poll_once(session.check_request(request)).unwrap().unwrap()))
}

#[test]
fn it_decides_as_the_limiter_does() {
    let (plain, reused) = (limiter(TWO), limiter(TWO));
    let mut session = reused.session();
    for key in ["a", "a", "b", "a", "a", "b", "", "b"] {
        let entries: &[(&str, &str)] = if key.is_empty() { &[] } else { &[("k", key)] };
        let expected = ask(entries, |request| summary(&poll_once(plain.check_request(request)).unwrap().unwrap()));
        assert_eq!(in_session(&mut session, entries), expected, "{key}");
    }
}

#[test]
fn awaiting_and_not_awaiting_are_the_same() {
    let limiter = limiter(TWO);
    let mut session = limiter.session();
    let first = in_session(&mut session, &[("k", "a")]);
    let second = ask(&[("k", "a")], |request| summary(poll_once(session.check_request(request)).unwrap().unwrap()));
    assert_eq!(first, (true, None, Some(2), 2));
    assert_eq!(second, (true, None, Some(1), 2));
}

#[test]
fn it_follows_the_rules_and_keeps_the_counters() {
    let limiter = limiter(TWO);
    let mut session = limiter.session();
    assert_eq!(in_session(&mut session, &[("k", "a")]), (true, None, Some(2), 2));
    limiter.install(rules(&TWO.replace("3/m", "10/m"), 2));
    assert_eq!(in_session(&mut session, &[("k", "a")]), (true, None, Some(3), 2), "of everyone's five");
    let generation =
        ask(&[("k", "a")], |request| poll_once(session.check_request(request)).unwrap().unwrap().generation());
    assert_eq!(generation, 2);
}

#[test]
fn nothing_of_a_decision_is_left_for_the_next() {
    let limiter = limiter(TWO);
    let mut session = limiter.session();
    for _ in 0..4 {
        in_session(&mut session, &[("k", "a")]);
    }
    assert_eq!(in_session(&mut session, &[("k", "a")]).1.as_deref(), Some("per-key"));
    assert_eq!(in_session(&mut session, &[("other", "a")]), (true, None, None, 0));
    let unknown = Request { domain: Some("nobody"), descriptors: &[], cost: 1, ..Request::default() };
    assert_eq!(poll_once(session.check_request(&unknown)).unwrap().err(), Some(RequestError::UnknownDomain));
    assert_eq!(in_session(&mut session, &[("k", "b")]), (true, None, Some(1), 2));
}
