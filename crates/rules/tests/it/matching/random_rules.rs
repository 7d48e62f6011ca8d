//! The compiled lookup finds exactly the rules that an iteration over all of them finds.

use std::net::IpAddr;
use std::sync::Arc;

use proptest::prelude::*;
use tollgate_core::{Algorithm, ClaimId, Limit, OnFailure, Period, Span};
use tollgate_rules::model::{
    Cap, Clause, Cost, Counting, Domain, EndTerms, Headers, HoldCounting, KeyPart, Lease, Network, NeverBan, Policy,
    Rule, RuleMode, RuleOrigin, SourceLocation, Terms, Test, Tier,
};
use tollgate_rules::pattern::Pattern;
use tollgate_rules::{KnownRegions, RegionMode, Ruleset};

use crate::matching::TestRequest;

const ATTRIBUTES: [&str; 4] = ["a", "b", "c", "ip"];

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_lookup_finds_what_a_walk_finds(
        shapes in prop::collection::vec(shape(), 1..40),
        requests in prop::collection::vec(request(), 1..20),
    ) {
        let rules: Vec<Rule> = shapes.into_iter().enumerate().map(|(number, shape)| shape.rule(number)).collect();
        let compiled = Ruleset::compile(vec![domain(rules.clone())], 1).unwrap();
        for entries in requests {
            compare(&rules, &compiled, &entries)?;
        }
    }

    /// Few values and many rules: groups behind one condition, distinguished by others.
    #[test]
    fn the_lookup_finds_what_a_walk_finds_in_crowds(
        shapes in prop::collection::vec(crowded(), 100..200),
        requests in prop::collection::vec(prop::collection::vec(prop::option::of("[xy]{1,2}"), 4), 1..10),
    ) {
        let rules: Vec<Rule> = shapes.into_iter().enumerate().map(|(number, shape)| shape.rule(number)).collect();
        let compiled = Ruleset::compile(vec![domain(rules.clone())], 1).unwrap();
        for values in requests {
            let given = ATTRIBUTES.iter().zip(values).filter_map(|(name, value)| Some(((*name).to_owned(), value?)));
            let entries: Vec<(String, String)> = given.collect();
            compare(&rules, &compiled, &entries)?;
        }
    }

    /// Checks the globs of the iteration, which might be wrong in the same way.
    #[test]
    fn a_pattern_matches_what_a_search_finds(pattern in pattern_text(), value in value()) {
        prop_assert_eq!(Pattern::new(&pattern).matches(&value), fits(&pattern, &value), "{} {}", pattern, value);
    }
}

fn compare(rules: &[Rule], compiled: &Ruleset, entries: &[(String, String)]) -> Result<(), TestCaseError> {
    let expected: Vec<&str> =
        rules.iter().filter(|rule| applies(rule, entries)).map(|rule| rule.name.as_str()).collect();
    let found = TestRequest::from_entries(vec![entries.to_vec()]).with(|request| {
        let resolved = compiled.resolve(request, ClaimId(1)).unwrap();
        (0..resolved.applied.len()).map(|at| resolved.rule(at).unwrap().name().to_owned()).collect::<Vec<_>>()
    });
    prop_assert_eq!(found, expected, "{:?}", entries);
    Ok(())
}

// === the walk ===

fn applies(rule: &Rule, entries: &[(String, String)]) -> bool {
    let get = |attribute: &str| entries.iter().find(|(name, _)| name == attribute).map(|(_, value)| value.as_str());
    rule.terms.mode != RuleMode::Off
        && rule.key.iter().all(|part| part.optional || get(&part.attribute).is_some())
        && rule.clauses.iter().all(|clause| holds(&clause.test, get(&clause.attribute)))
}

fn holds(test: &Test, value: Option<&str>) -> bool {
    match test {
        Test::Present => value.is_some(),
        Test::Absent => value.is_none(),
        Test::AnyOf(patterns) => {
            value.is_some_and(|value| patterns.iter().any(|pattern| fits(&pattern.to_string(), value)))
        }
        Test::Within(networks) => value.is_some_and(|value| networks.iter().any(|network| within(network, value))),
        Test::Not(test) => !holds(test, value),
    }
}

/// Tries everything that a `*` may match.
fn fits(pattern: &str, value: &str) -> bool {
    match pattern.chars().next() {
        None => value.is_empty(),
        Some('*') => {
            value.char_indices().map(|(at, _)| at).chain([value.len()]).any(|at| fits(&pattern[1..], &value[at..]))
        }
        Some(first) => value.strip_prefix(first).is_some_and(|rest| fits(&pattern[first.len_utf8()..], rest)),
    }
}

/// Compares the first bits as texts.
fn within(network: &Network, value: &str) -> bool {
    let bits = |address: IpAddr| match address.to_canonical() {
        IpAddr::V4(address) => format!("4:{:032b}", address.to_bits()),
        IpAddr::V6(address) => format!("6:{:0128b}", address.to_bits()),
    };
    let Ok(address) = value.parse() else { return false };
    let same = 2 + usize::from(network.prefix);
    bits(address).starts_with(&bits(network.address)[..same])
}

// === what is tried ===

#[derive(Clone, Debug)]
struct Shape {
    key: Vec<(usize, bool)>,
    clauses: Vec<(usize, Test)>,
    off: bool,
}

impl Shape {
    fn rule(self, number: usize) -> Rule {
        let attribute = |at: usize| ATTRIBUTES[at].to_owned();
        let mut key: Vec<KeyPart> = Vec::new();
        for (at, optional) in self.key {
            if !key.iter().any(|part| part.attribute == ATTRIBUTES[at]) {
                key.push(KeyPart { attribute: attribute(at), optional });
            }
        }
        let clauses = self.clauses.into_iter().map(|(at, test)| Clause { attribute: attribute(at), test }).collect();
        let mode = if self.off { RuleMode::Off } else { RuleMode::Enforce };
        Rule {
            name: format!("r{number}"),
            key,
            clauses,
            cost: Cost::Request,
            terms: terms(mode),
            at: place(),
            ban: None,
            version: None,
        }
    }
}

pub(crate) fn terms(mode: RuleMode) -> Terms {
    let limit = Limit::new(5, Period::fixed(Span::from_secs(1)).unwrap(), Algorithm::FixedWindow).unwrap();
    Terms {
        caps: vec![Some(Cap::Limit(limit))],
        by_value: None,
        shed: false,
        mode,
        on_failure: vec![OnFailure::Local],
        policy: Policy::Comfort,
        ipv6_prefix: 56,
        ipv6_prefix_given: false,
        headers: Headers::Full,
        denied_by_label: None,
        ending: EndTerms::default(),
        count: HoldCounting::Exact,
        lease: Lease::Auto,
        ahead: None,
        region: RegionMode::Each,
    }
}

pub(crate) fn place() -> SourceLocation {
    SourceLocation { file: Arc::new(RuleOrigin::File("f".to_owned())), line: 1 }
}

pub(crate) fn domain(rules: Vec<Rule>) -> Domain {
    Domain {
        private: Default::default(),
        name: "d".to_owned(),
        entity: None,
        tiers: vec![Tier { name: "free".to_owned(), paid: false, priority: 0 }],
        default_tier: 0,
        tier_from: None,
        default_rule: None,
        rules,
        tree: Vec::new(),
        match_parents: false,
        default_algorithm: Counting::SlidingWindow,
        signals: Vec::new(),
        never_ban: NeverBan::default(),
        default_lease: Lease::Auto,
        regions: KnownRegions::None,
        at: place(),
    }
}

fn shape() -> impl Strategy<Value = Shape> {
    let key = prop::collection::vec((0..ATTRIBUTES.len(), any::<bool>()), 0..3);
    let clauses = prop::collection::vec((0..ATTRIBUTES.len(), test()), 0..4);
    (key, clauses, prop::bool::weighted(0.05)).prop_map(|(key, clauses, off)| Shape { key, clauses, off })
}

/// Two or three conditions on few values, sometimes one that cannot be indexed.
fn crowded() -> impl Strategy<Value = Shape> {
    let patterns = prop::collection::vec("[xy]{1,2}\\*?".prop_map(|text| Pattern::new(&text)), 1..3);
    let test = prop_oneof![6 => patterns.prop_map(Test::AnyOf), 1 => test()];
    let key = prop::collection::vec((0..ATTRIBUTES.len(), any::<bool>()), 0..3);
    let clauses = prop::collection::vec((0..ATTRIBUTES.len(), test), 2..4);
    (key, clauses).prop_map(|(key, clauses)| Shape { key, clauses, off: false })
}

fn test() -> impl Strategy<Value = Test> {
    prop_oneof![
        1 => Just(Test::Present),
        1 => Just(Test::Absent),
        8 => plain(),
        2 => plain().prop_map(|test| Test::Not(Box::new(test))),
    ]
}

fn plain() -> impl Strategy<Value = Test> {
    let network = (address(), 0..=128u8).prop_map(|(address, prefix)| {
        let address: IpAddr = address.parse::<IpAddr>().unwrap().to_canonical();
        Network { address, prefix: prefix.min(if address.is_ipv4() { 32 } else { 128 }) }
    });
    prop_oneof![
        4 => prop::collection::vec(pattern_text().prop_map(|text| Pattern::new(&text)), 1..4).prop_map(Test::AnyOf),
        1 => prop::collection::vec(network, 1..3).prop_map(Test::Within),
    ]
}

pub(crate) fn pattern_text() -> impl Strategy<Value = String> {
    prop_oneof!["[xyé]{0,3}", "[xyé]{0,2}\\*", "[xyé*]{0,5}"]
}

pub(crate) fn value() -> impl Strategy<Value = String> {
    prop_oneof![4 => "[xyé]{0,4}".prop_map(|text| text), 1 => address()]
}

fn address() -> impl Strategy<Value = String> {
    prop::sample::select(&[
        "10.0.0.1",
        "10.0.0.2",
        "10.128.0.1",
        "::ffff:10.0.0.1",
        "2001:db8::1",
        "2001:db8::2",
        "::1",
    ])
    .prop_map(str::to_owned)
}

fn request() -> impl Strategy<Value = Vec<(String, String)>> {
    prop::collection::vec((prop::sample::select(&ATTRIBUTES), value()), 0..6)
        .prop_map(|entries| entries.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
}
