//! A plan changes nothing but the time that it takes.

use proptest::prelude::*;
use tollgate_core::{ClaimId, Descriptor, Request};

use super::*;
use crate::{ResolvedRequest, Ruleset};

/// Rules that names alone decide, and rules that need values, in the conditions that there are.
const CONDITIONS: &[&str] = &[
    "key: [a]",
    "key: [a, b?]",
    "key: [b, c?]",
    "key: []",
    "key: [a], match: {b: x}",
    "key: [a], match: {b: 'x*'}",
    "key: [], match: {a: '*x'}",
    "key: [c?], match: {b: present}",
    "key: [c?], match: {b: absent}",
    "key: [a], match: {c: {not: x}}",
    "key: [ip]",
    "key: [a], match: {ip: {cidr: 10.0.0.0/8}}",
    "key: [b], cost: c",
    "key: [a], cost: {b: {x: 3}}",
    "key: [a], cost: {b: {x: 3, default: 2}}",
];

const NAMES: &[&str] = &["a", "b", "c", "ip", "tier", "unknown", "other"];
const VALUES: &[&str] = &["x", "xy", "yx", "7", "10.1.2.3", "pro", ""];

type Entries = Vec<(&'static str, &'static str)>;

fn ruleset(conditions: &[usize]) -> Ruleset {
    let rule = |(number, condition): (usize, &usize)| {
        format!("  - {{name: r{number}, {}, limit: {{free: 5/s, pro: 9/s}}}}\n", CONDITIONS[*condition])
    };
    let rules: String = conditions.iter().enumerate().map(rule).collect();
    let text = format!(
        "domain: d\nentity: a\ntier_from: tier\ntiers: {{free: {{}}, pro: {{}}}}\ndefault_tier: free\nrules:\n{rules}"
    );
    match Ruleset::from_text(&text, 1) {
        Ok((ruleset, _)) => ruleset,
        Err(problems) => panic!("{problems:#?}\n{text}"),
    }
}

fn resolved(rules: &Ruleset, entries: &[Entries]) -> String {
    let descriptors: Vec<Descriptor<'_>> = entries.iter().map(|entries| Descriptor::new(entries)).collect();
    let request = Request { descriptors: &descriptors, ..Request::default() };
    let ResolvedRequest { claim, applied, unlimited, .. } = rules.resolve(&request, ClaimId(1)).unwrap();
    format!("{claim:?} {applied:?} {unlimited:?}")
}

fn plans(rules: &Ruleset) -> usize {
    rules.domains()[0].plans.places.iter().filter(|place| place.get().is_some()).count()
}

fn entries() -> impl Strategy<Value = Vec<Entries>> {
    let entry = (prop::sample::select(NAMES), prop::sample::select(VALUES));
    prop::collection::vec(prop::collection::vec(entry, 0..5), 0..4)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn requests_with_a_plan_meet_the_rules_of_those_without(
        conditions in prop::collection::vec(0..CONDITIONS.len(), 0..20),
        requests in prop::collection::vec(entries(), 1..20),
        values in prop::collection::vec(prop::sample::select(VALUES), 20),
    ) {
        let planned = ruleset(&conditions);
        let mut plain = ruleset(&conditions);
        plain.without_plans();
        for mut entries in requests {
            prop_assert_eq!(resolved(&planned, &entries), resolved(&plain, &entries));
            // The same names with other values: the plan is there.
            let places = entries.iter_mut().flatten();
            places.zip(values.iter().cycle()).for_each(|(entry, value)| entry.1 = value);
            let before = plans(&planned);
            prop_assert_eq!(resolved(&planned, &entries), resolved(&plain, &entries));
            prop_assert_eq!(plans(&planned), before);
        }
        prop_assert!(plans(&planned) > 0);
        prop_assert_eq!(plans(&plain), 0);
    }
}

/// Names that nobody repeats fill the table and no more, and what has no plan is decided all the same.
#[test]
fn the_number_of_plans_is_bounded() {
    let rules = ruleset(&[0, 4]);
    let mut plain = ruleset(&[0, 4]);
    plain.without_plans();
    let names: Vec<String> = (0..20 * MAX_PLANS).map(|number| format!("n{number}")).collect();
    for name in &names {
        let entries = [("a", "7"), (name.as_str(), "y"), ("b", "x")];
        let descriptors = [Descriptor::new(&entries)];
        let request = Request { descriptors: &descriptors, ..Request::default() };
        let applied = |rules: &Ruleset| rules.resolve(&request, ClaimId(1)).unwrap().applied;
        assert_eq!(applied(&rules).len(), 2);
        assert_eq!(applied(&rules), applied(&plain));
    }
    assert!((MAX_PLANS / 2..=MAX_PLANS).contains(&plans(&rules)), "{}", plans(&rules));
}

/// A request with many or long names has no plan, so that the table stays small.
#[test]
fn large_requests_have_no_plan() {
    let rules = ruleset(&[0]);
    let long = "n".repeat(MAX_PLANNED_NAME_BYTES);
    let mut entries = vec![("a", "7"), (&long[1..], "y")];
    let check = |entries: &[(&str, &str)]| {
        let descriptors = [Descriptor::new(entries), Descriptor::new(&[("a", "8")])];
        let request = Request { descriptors: &descriptors, ..Request::default() };
        assert_eq!(rules.resolve(&request, ClaimId(1)).unwrap().applied.len(), 1);
        plans(&rules)
    };
    assert_eq!(check(&entries), 0, "a byte too long");
    entries[1].0 = &long[2..];
    assert_eq!(check(&entries), 1);
    let mut entries = vec![("n", "x"); MAX_PLANNED_ENTRIES];
    assert_eq!(check(&entries), 1, "an entry too many");
    entries.pop();
    assert_eq!(check(&entries), 2);
}

/// Neither has one to which more rules may apply than a claim has charges.
#[test]
fn plans_of_very_many_rules_are_not_stored() {
    for (count, expected) in [(Claim::MAX_CHARGES, 1), (Claim::MAX_CHARGES + 1, 0)] {
        let rules = ruleset(&vec![0; count]);
        let descriptors = [Descriptor::new(&[("a", "7")])];
        let request = Request { descriptors: &descriptors, ..Request::default() };
        assert_eq!(rules.resolve(&request, ClaimId(1)).unwrap().applied.len(), Claim::MAX_CHARGES);
        assert_eq!(plans(&rules), expected);
    }
}
