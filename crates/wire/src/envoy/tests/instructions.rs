//! Instructions in Envoy's messages.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use tollgate_proto::envoy::extensions::common::ratelimit::v3::rate_limit_descriptor::Entry;
use tollgate_proto::envoy::service::ratelimit::v3::RateLimitRequest;

use super::{
    Arc, Envoy, Gate, HeaderMap, Limiter, MemoryConfig, Metrics, RateLimitDescriptor, ResponseExtras, all, ask,
    descriptor, envoy_with, poll_once, refused, request, rules,
};

/// Windows of a year, which do not end during a test.
const RULES: &str = "
domain: d
rules:
  - {name: calls, key: [user], limit: 10/365d}
  - {name: tokens, key: [user], limit: 100/365d, cost: tokens}
  - {name: slots, key: [job], limit: 2 concurrent}
  - {name: login, key: [login], limit: 3/365d, policy: security}
descriptors:
  - {key: page, rate_limit: {unit: year, requests_per_unit: 5}}
  - {key: page, value: home, rate_limit: {unit: year, requests_per_unit: 9}}
  - key: page
    value: deep
    descriptors: [{key: user, rate_limit: {unit: year, requests_per_unit: 7}}]
";

fn server() -> Envoy {
    envoy_with(RULES, ResponseExtras::default())
}

#[track_caller]
fn check(envoy: &Envoy, descriptors: &[&str], expected: &[&str]) {
    assert_eq!(all(&ask(envoy, &request("d", descriptors))), expected, "{descriptors:?}");
}

#[test]
fn they_are_no_part_of_what_is_matched() {
    let envoy = server();
    check(&envoy, &["tollgate.claim=c,page=x"], &["OK", "OK 4/5 YEAR"]);
    check(&envoy, &["page=x,tollgate.claim=c"], &["OK", "OK 3/5 YEAR"]);
    check(&envoy, &["page=deep,tollgate.claim=c,user=u"], &["OK", "OK 6/7 YEAR"]);
    // A descriptor with only instructions keeps its place.
    check(&envoy, &["tollgate.claim=c", "page=x"], &["OK", "OK", "OK 2/5 YEAR"]);
    check(&envoy, &["page=x", "tollgate.claim=c", "page=home"], &["OK", "OK 1/5 YEAR", "OK", "OK 8/9 YEAR"]);
    check(&envoy, &["tollgate.claim=c"], &["OK", "OK"]);
}

#[test]
fn a_descriptor_of_instructions_costs_nothing() {
    let envoy = server();
    // Rules of the list take the largest cost of a request.
    check(&envoy, &["user=u×0", "tollgate.claim=c"], &["OK", "OK 10/10 YEAR calls", "OK"]);
    check(&envoy, &["user=u", "tollgate.claim=c×4"], &["OK", "OK 6/10 YEAR calls", "OK"]);
    let mut seven = request("d", &["user=u×0", "tollgate.claim=c"]);
    seven.hits_addend = 7;
    assert_eq!(all(&ask(&envoy, &seven)), ["OK", "OK 6/10 YEAR calls", "OK"]);
}

#[test]
fn a_debit_goes_past_the_limit() {
    let envoy = server();
    check(&envoy, &["page=x,tollgate.ask=debit×4"], &["OK", "OK 1/5 YEAR"]);
    check(&envoy, &["page=x,tollgate.ask=debit×4"], &["OK", "OK 0/5 YEAR"]);
    check(&envoy, &["page=x×0"], &["OVER_LIMIT", "OVER_LIMIT 0/5 YEAR"]);
    check(&envoy, &["page=x,tollgate.ask=debit×0"], &["OK", "OK 0/5 YEAR"]);
}

#[test]
fn a_return_gives_units_back() {
    let envoy = server();
    check(&envoy, &["page=x×5"], &["OK", "OK 0/5 YEAR"]);
    check(&envoy, &["page=x"], &["OVER_LIMIT", "OVER_LIMIT 0/5 YEAR"]);
    check(&envoy, &["page=x×2", "tollgate.ask=return"], &["OK", "OK 2/5 YEAR", "OK"]);
    check(&envoy, &["page=x×2"], &["OK", "OK 0/5 YEAR"]);
    // No more than was taken.
    check(&envoy, &["page=x,tollgate.ask=return×99"], &["OK", "OK 5/5 YEAR"]);
}

#[test]
fn negative_hits_are_a_return() {
    let envoy = server();
    let negative = |descriptors: &[&str], which: &[bool]| {
        let mut request = request("d", descriptors);
        request.descriptors.iter_mut().zip(which).for_each(|(one, negative)| one.is_negative_hits = *negative);
        request
    };
    check(&envoy, &["page=x×5", "page=home×5"], &["OK", "OK 0/5 YEAR", "OK 4/9 YEAR"]);
    let both = negative(&["page=x×2", "page=home"], &[true, true]);
    assert_eq!(all(&ask(&envoy, &both)), ["OK", "OK 2/5 YEAR", "OK 5/9 YEAR"]);
    // A descriptor with only instructions has no hits of its own.
    let instructed = negative(&["page=x×2", "tollgate.once=o"], &[true, false]);
    assert_eq!(all(&ask(&envoy, &instructed)), ["OK", "OK 4/5 YEAR", "OK"]);
    let actual = negative(&["page=x,tollgate.ask=return"], &[true]);
    assert_eq!(all(&ask(&envoy, &actual)), ["OK", "OK 5/5 YEAR"]);
    assert!(refused(&envoy, &negative(&["page=x", "page=home"], &[true, false])).contains("on all of them or on none"));
    assert!(refused(&envoy, &negative(&["page=x,tollgate.ask=debit"], &[true])).contains("send only one of the two"));
}

#[test]
fn requests_in_flight_are_counted_by_name() {
    let envoy = server();
    let status = |left: u32| format!("OK {left}/2 UNKNOWN slots");
    check(&envoy, &["job=j,tollgate.claim=1"], &["OK", &status(1)]);
    check(&envoy, &["job=j,tollgate.claim=2"], &["OK", &status(0)]);
    // The same claim again holds its slot.
    check(&envoy, &["job=j,tollgate.claim=2"], &["OK", &status(0)]);
    check(&envoy, &["job=j", "tollgate.claim=3"], &["OVER_LIMIT", "OVER_LIMIT 0/2 UNKNOWN slots", "OK"]);
    // An unnamed claim could not be released: the limit does not apply to it.
    for _ in 0..5 {
        check(&envoy, &["job=j"], &["OK", "OK"]);
    }
    check(&envoy, &["job=j,tollgate.ask=return"], &["OK", "OK"]);
    check(&envoy, &["job=j,tollgate.ask=debit"], &["OK", "OK"]);
    check(&envoy, &["job=j,tollgate.ask=return,tollgate.claim=3"], &["OK", &status(0)]);
    check(&envoy, &["job=j,tollgate.ask=return,tollgate.claim=2"], &["OK", &status(1)]);
    check(&envoy, &["job=j,tollgate.ask=return,tollgate.claim=2"], &["OK", &status(1)]);
    check(&envoy, &["job=j,tollgate.claim=3"], &["OK", &status(0)]);
    check(&envoy, &["job=j×0", "tollgate.ask=return", "tollgate.claim=3"], &["OK", &status(1), "OK", "OK"]);
}

#[test]
fn the_end_of_a_request_is_one_call() {
    let envoy = server();
    let tight = |left: u32, slots: u32| {
        let look = all(&ask(&envoy, &request("d", &["user=u,tokens=0×0", "job=j,tollgate.claim=look×0"])));
        assert_eq!(look[1..], [format!("OK {left}/100 YEAR tokens"), format!("OK {slots}/2 UNKNOWN slots")]);
    };
    check(&envoy, &["tokens=0,job=j,tollgate.claim=1"], &["OK", "OK 1/2 UNKNOWN slots"]);
    // A release by name returns only a slot.
    let back = "user=u,tokens=90,job=j,tollgate.ask=return,tollgate.claim=0";
    check(&envoy, &[back], &["OK", "OK 1/2 UNKNOWN slots"]);
    let ended = "tokens=97,user=u,job=j,tollgate.ask=debit,tollgate.claim=1";
    ask(&envoy, &request("d", &[ended]));
    tight(3, 2);
}

#[test]
fn a_request_is_decided_once_under_its_name() {
    let envoy = server();
    for _ in 0..3 {
        check(&envoy, &["page=x,tollgate.once=o×2"], &["OK", "OK 3/5 YEAR"]);
    }
    // A debit with the same name is another request.
    for _ in 0..2 {
        check(&envoy, &["page=x,tollgate.once=o,tollgate.ask=debit"], &["OK", "OK 2/5 YEAR"]);
    }
    // Another request with the same key is decided without it.
    check(&envoy, &["page=x,tollgate.once=o×3"], &["OVER_LIMIT", "OVER_LIMIT 0/5 YEAR"]);
    check(&envoy, &["page=x,tollgate.once=o"], &["OK", "OK 1/5 YEAR"]);
    check(&envoy, &["page=x×0"], &["OK", "OK 1/5 YEAR"]);
}

#[test]
fn what_can_t_be_followed_is_refused() {
    let envoy = server();
    let rows = [
        (&["page=x,tollgate.ask=refund"][..], "it must be `debit` or `return`"),
        (&["page=x,tollgate.nope=1"], "`tollgate.nope` is not an instruction"),
        (&["page=x,tollgate.ask=debit", "page=home,tollgate.ask=return"], "tollgate.ask has two values"),
    ];
    for (descriptors, words) in rows {
        let reason = refused(&envoy, &request("d", descriptors));
        assert!(reason.contains(words), "{descriptors:?}: {reason}");
        let mut elsewhere = request("d", descriptors);
        elsewhere.domain = "elsewhere".to_owned();
        assert_eq!(refused(&envoy, &elsewhere), reason);
    }
    check(&envoy, &["page=x×0"], &["OK", "OK 5/5 YEAR"]);
}

/// A rule that denies what it can't count does not apply to recorded facts.
#[test]
fn facts_are_not_refused() {
    let limiter = Arc::new(Limiter::new(rules(RULES), MemoryConfig::default().build().into()));
    let busy = Gate::new(limiter, false, 0, Metrics::new().wire("grpc"));
    let busy = Envoy::new(Arc::new(busy), ResponseExtras::default());
    check(&busy, &["login=x"], &["OVER_LIMIT", "OVER_LIMIT 0/3 YEAR login"]);
    for what in ["debit", "return"] {
        check(&busy, &[&format!("login=x,tollgate.ask={what}")], &["OK", "OK 0/3 YEAR login"]);
    }
}

/// A request, and the same with instructions that have no effect here.
fn pair() -> impl Strategy<Value = (RateLimitRequest, RateLimitRequest, Vec<bool>)> {
    let entry = (
        prop_oneof![Just("page"), Just("user"), Just("tokens"), Just("other"), Just("tollgate"), Just("tollgate_ask")],
        prop_oneof![Just("home"), Just("deep"), Just("1"), Just("2")],
    );
    let hits = prop_oneof![3 => Just(String::new()), 1 => (0u64..4).prop_map(|hits| format!("×{hits}"))];
    let plain = (vec(entry, 0..4), hits).prop_map(|(entries, hits)| {
        let entries: Vec<_> = entries.iter().map(|(name, value)| format!("{name}={value}")).collect();
        descriptor(&format!("{}{hits}", entries.join(",")))
    });
    let plain = vec(plain, 1..4);
    let said = vec((any::<Index>(), any::<Index>(), any::<bool>()), 0..4);
    (plain, 0u32..3, said, any::<u64>()).prop_map(|(descriptors, hits_addend, said, name)| {
        let plain = RateLimitRequest { domain: "d".to_owned(), descriptors, hits_addend };
        let mut instructed = plain.clone();
        let mut added = vec![false; plain.descriptors.len()];
        // A request of only instructions has no attributes.
        let has_entries = plain.descriptors.iter().any(|one| !one.entries.is_empty());
        for (at, place, is_own) in said {
            let [key, value] = match at.index(2) {
                0 => ["tollgate.claim".to_owned(), format!("c{name}")],
                _ => ["tollgate.once".to_owned(), format!("o{name}")],
            };
            let entry = Entry { key, value: value.into() };
            if is_own && has_entries {
                let at = at.index(added.len() + 1);
                instructed.descriptors.insert(at, RateLimitDescriptor { entries: vec![entry], ..Default::default() });
                added.insert(at, true);
                continue;
            }
            let descriptors = &mut instructed.descriptors;
            let at = at.index(descriptors.len());
            // An empty descriptor would become one of only instructions, which costs nothing.
            let entries = &mut descriptors[at].entries;
            if !entries.is_empty() {
                entries.insert(place.index(entries.len() + 1), entry);
            }
        }
        (plain, instructed, added)
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever surrounds them, the rest is matched and counted as if they were absent.
    #[test]
    fn the_rest_is_as_if_they_were_not_there(pairs in vec(pair(), 1..8)) {
        let (without, with) = (server(), server());
        for (plain, instructed, added) in pairs {
            let expected = poll_once(without.should_rate_limit(&plain, &HeaderMap::new(), None)).unwrap();
            let expected = expected.map(|response| response.message);
            let actual = poll_once(with.should_rate_limit(&instructed, &HeaderMap::new(), None)).unwrap();
            let actual = actual.map(|response| response.message);
            match (expected, actual) {
                (Ok(expected), Ok(mut actual)) => {
                    let mut own = added.iter();
                    actual.statuses.retain(|_| !own.next().unwrap());
                    prop_assert_eq!(all(&actual), all(&expected), "{:?}", instructed);
                }
                (expected, actual) => prop_assert_eq!(actual.is_err(), expected.is_err(), "{:?}", instructed),
            }
        }
    }
}
