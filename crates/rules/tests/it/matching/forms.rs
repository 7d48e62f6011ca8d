//! Both forms in one domain, domains, and the bounds on requests.

use tollgate_core::{Claim, ClaimId, Descriptor, Request};
use tollgate_rules::RequestError;

use crate::matching::{check, met, rules};

#[test]
fn a_list_and_a_tree_side_by_side() {
    let file = "
domain: d
rules:
  - {name: per-key, key: [api_key], limit: 100/m}
  - {name: everyone, key: [], limit: 10/s}
descriptors:
  - key: api_key
    rate_limit: {unit: minute, requests_per_unit: 50}
    descriptors:
      - {key: path, rate_limit: {unit: minute, requests_per_unit: 5}}
  - {key: path, rate_limit: {unit: minute, requests_per_unit: 7}}
";
    check(
        file,
        &[
            ("api_key=k", &["per-key(k) 100/60s", "everyone() 10/1s", "api_key(k) 50/60s"]),
            ("api_key=k, path=/", &["per-key(k) 100/60s", "everyone() 10/1s", "api_key/path(k, /) 5/60s"]),
            // A rule of the list applies once for each request; the tree once for each descriptor.
            (
                "api_key=k | path=/ | api_key=l",
                &["per-key(k) 100/60s", "everyone() 10/1s", "api_key(k) 50/60s", "path(/) 7/60s", "api_key(l) 50/60s"],
            ),
            ("path=/, api_key=k", &["per-key(k) 100/60s", "everyone() 10/1s"]),
        ],
    );
}

/// A rule of the list and a limit of the tree with the same name have different counters.
#[test]
fn names_of_the_two_forms_do_not_meet() {
    let file = "
domain: d
rules:
  - {name: a, key: [a], limit: 1/s}
descriptors:
  - {key: a, rate_limit: {name: other, unit: second, requests_per_unit: 1}}
  - key: b
    descriptors:
      - {key: a, rate_limit: {unit: second, requests_per_unit: 1}}
";
    let rules = rules(file);
    let entries = [("a", "1")];
    let descriptors = [Descriptor::new(&entries)];
    let request = Request { domain: Some("d"), descriptors: &descriptors, cost: 1, ..Request::default() };
    let resolved = rules.resolve(&request, ClaimId(1)).unwrap();
    let names: Vec<&str> = resolved.claim.charges.iter().map(|charge| charge.key.scope().name()).collect();
    assert_eq!(names.len(), 2);
    assert_ne!(names[0], names[1]);
}

#[test]
fn a_request_names_its_domain_unless_there_is_one() {
    let one = rules("domain: d\nrules:\n  - {name: r, key: [], limit: 1/s}\n");
    let two = rules(
        "domain: d\nrules:\n  - {name: r, key: [], limit: 1/s}\n---\ndomain: e\nrules:\n  - {name: s, key: [], limit: 1/s}\n",
    );
    let ask = |rules: &tollgate_rules::Ruleset, domain: Option<&str>| {
        let request = Request { domain, descriptors: &[], cost: 1, ..Request::default() };
        rules.resolve(&request, ClaimId(1)).map(|resolved| resolved.rule(0).unwrap().name().to_owned())
    };
    assert_eq!(ask(&one, None).unwrap(), "r");
    assert_eq!(ask(&one, Some("d")).unwrap(), "r");
    assert_eq!(ask(&one, Some("e")).unwrap_err(), RequestError::UnknownDomain);
    assert_eq!(ask(&two, Some("e")).unwrap(), "s");
    assert_eq!(ask(&two, None).unwrap_err(), RequestError::NoDomain);
}

#[test]
fn requests_have_bounds() {
    let rules = rules("domain: d\nrules:\n  - {name: r, key: [a], limit: 1/s}\n");
    let ask = |descriptors: &[Descriptor<'_>]| {
        let request = Request { domain: None, descriptors, cost: 1, ..Request::default() };
        rules.resolve(&request, ClaimId(1)).map(|resolved| resolved.applied.len())
    };
    let one = Descriptor::new(&[("a", "1")]);
    assert_eq!(ask(&vec![one; Request::MAX_DESCRIPTORS]), Ok(1));
    let many = RequestError::TooMany { what: "descriptors", max: Request::MAX_DESCRIPTORS };
    assert_eq!(ask(&vec![one; Request::MAX_DESCRIPTORS + 1]), Err(many));

    let entries = vec![("a", "1"); Request::MAX_ENTRIES + 1];
    assert_eq!(ask(&[Descriptor::new(&entries[1..])]), Ok(1));
    let many = RequestError::TooMany { what: "entries in a descriptor", max: Request::MAX_ENTRIES };
    assert_eq!(ask(&[Descriptor::new(&entries)]), Err(many));

    let long = "x".repeat(Request::MAX_TEXT_BYTES + 1);
    for entry in [("a", &*long), (&*long, "1")] {
        assert_eq!(ask(&[Descriptor::new(&[entry])]), Err(RequestError::TooLong));
    }
    assert_eq!(ask(&[Descriptor::new(&[("a", &long[1..])])]), Ok(1));
}

#[test]
fn a_request_meets_a_bounded_number_of_limits() {
    let file = |count: usize, strict: usize| {
        let policy = |number| if number + strict >= count { "security" } else { "comfort" };
        let rule = |number| format!("  - {{name: r{number}, key: [], limit: 1/s, policy: {}}}\n", policy(number));
        format!("domain: d\nrules:\n{}", (0..count).map(rule).collect::<String>())
    };
    let met = |count, strict| met(&rules(&file(count, strict)), "");
    assert_eq!(met(Claim::MAX_CHARGES, 0).unwrap().len(), Claim::MAX_CHARGES);
    // Of more, those are left out that would pass if they could not be counted.
    let retained = met(Claim::MAX_CHARGES + 2, 3).unwrap();
    assert_eq!(
        (retained.len(), retained[0].as_str(), retained[3].as_str()),
        (Claim::MAX_CHARGES, "r511() 1/1s", "r0() 1/1s")
    );
    let many = RequestError::TooMany { what: "limits that apply", max: Claim::MAX_CHARGES };
    assert_eq!(met(Claim::MAX_CHARGES + 1, Claim::MAX_CHARGES + 1).unwrap_err(), many);
}

#[test]
fn a_request_that_cannot_be_decided_is_refused_where_a_limit_might_refuse_it() {
    let rules = rules(
        "
domain: open
rules:
  - {name: comfort, key: [a], limit: 1/s}
  - {name: shadow, key: [a], limit: 1/s, policy: security, mode: shadow}
---
domain: closed
rules:
  - {name: login, key: [a], match: {b: x}, limit: 1/s, policy: security}
---
domain: tree
descriptors:
  - {key: a, rate_limit: {unit: second, requests_per_unit: 1}}
",
    );
    let rows =
        [(Some("open"), false), (Some("closed"), true), (Some("tree"), false), (Some("none"), false), (None, true)];
    for (domain, refused) in rows {
        assert_eq!(rules.refuses_undecided(domain), refused, "{domain:?}");
    }
}
