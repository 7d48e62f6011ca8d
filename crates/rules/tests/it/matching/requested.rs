//! Limits that come with the request.

use tollgate_core::{ClaimId, Descriptor, Limit, Request, Span};
use tollgate_rules::{AppliedTerms, RequestError};

const RULES: &str = "
domain: d
descriptors:
  - {key: a, rate_limit: {unit: minute, requests_per_unit: 5}}
";

fn seconds(limit: u64, length: u64) -> Limit {
    crate::matching::rules(RULES).domains()[0].requested(limit, Span::from_secs(length)).unwrap()
}

fn keys(descriptors: &[Descriptor<'_>]) -> Vec<(String, u64, Vec<String>)> {
    let rules = crate::matching::rules(RULES);
    let request = Request { domain: Some("d"), descriptors, cost: 1, ..Request::default() };
    let resolved = rules.resolve(&request, ClaimId(1)).unwrap();
    let charges = resolved.claim.charges.iter().enumerate();
    charges
        .map(|(at, charge)| {
            let name = resolved.rule(at).unwrap().name().to_owned();
            (name, charge.limit.amount(), charge.key.values().iter().map(ToString::to_string).collect())
        })
        .collect()
}

#[test]
fn it_takes_the_place_of_what_the_tree_says() {
    let limit = seconds(7, 60);
    let plain = Descriptor::new(&[("a", "1")]);
    let with = Descriptor { limit: Some(&limit), ..plain };
    assert_eq!(keys(&[plain]), [("a".to_owned(), 5, vec!["1".to_owned()])]);
    let own = |value: &str| ("request".to_owned(), 7, vec!["a".to_owned(), value.to_owned()]);
    assert_eq!(keys(&[with]), [own("1")]);
    // It needs no rule, and applies to its own descriptor only.
    let unknown = Descriptor { limit: Some(&limit), ..Descriptor::new(&[("z", "1")]) };
    let z = ("request".to_owned(), 7, vec!["z".to_owned(), "1".to_owned()]);
    assert_eq!(keys(&[plain, unknown]), [("a".to_owned(), 5, vec!["1".to_owned()]), z]);
}

#[test]
fn it_is_counted_by_unit_and_not_by_amount() {
    let scope = |limit: &Limit| {
        let rules = crate::matching::rules(RULES);
        let descriptors = [Descriptor { limit: Some(limit), ..Descriptor::new(&[("a", "1")]) }];
        let request = Request { domain: Some("d"), descriptors: &descriptors, cost: 1, ..Request::default() };
        let resolved = rules.resolve(&request, ClaimId(1)).unwrap();
        assert_eq!(resolved.applied[0].terms, AppliedTerms::Requested(0));
        assert_eq!(resolved.applied[0].touches, 1);
        resolved.claim.charges[0].key.scope().name().to_owned()
    };
    assert_eq!(scope(&seconds(7, 60)), scope(&seconds(8, 60)));
    assert_ne!(scope(&seconds(7, 60)), scope(&seconds(7, 3_600)));
}

#[test]
fn only_the_units_of_the_protocol_are_known() {
    let rules = crate::matching::rules(RULES);
    let limit = seconds(7, 30);
    let descriptors = [Descriptor { limit: Some(&limit), ..Descriptor::new(&[("a", "1")]) }];
    let request = Request { domain: Some("d"), descriptors: &descriptors, cost: 1, ..Request::default() };
    assert_eq!(rules.resolve(&request, ClaimId(1)).map(|_| ()), Err(RequestError::UnknownUnit));
    // A limit that cannot be counted exactly is rejected when it is created.
    assert!(rules.domains()[0].requested(u64::MAX, Span::from_secs(1)).is_err());
}
