//! The identity of counters, and their partitions.

use tollgate_core::ClaimId;
use tollgate_core::key::Home;

use crate::matching::{TestRequest, check, rules};

#[test]
fn parts_that_are_missing_and_parts_that_may_be() {
    let file = "
domain: d
rules:
  - {name: all, key: [], limit: 1/s}
  - {name: one, key: [a], limit: 1/s}
  - {name: two, key: [a, b], limit: 1/s}
  - {name: optional, key: [a, 'b?'], limit: 1/s}
  - {name: either, key: ['a?', 'b?'], limit: 1/s}
";
    check(
        file,
        &[
            ("", &["all() 1/1s", "either(-, -) 1/1s"]),
            ("a=1", &["all() 1/1s", "one(1) 1/1s", "optional(1, -) 1/1s", "either(1, -) 1/1s"]),
            ("b=2", &["all() 1/1s", "either(-, 2) 1/1s"]),
            ("b=2, a=1", &["all() 1/1s", "one(1) 1/1s", "two(1, 2) 1/1s", "optional(1, 2) 1/1s", "either(1, 2) 1/1s"]),
            // An empty value is a value.
            ("a=", &["all() 1/1s", "one() 1/1s", "optional(, -) 1/1s", "either(, -) 1/1s"]),
        ],
    );
}

#[test]
fn descriptors_are_one_set_of_attributes_and_the_first_value_wins() {
    let file = "
domain: d
rules:
  - {name: one, key: [a], limit: 1/s}
  - {name: two, key: [a, b], limit: 1/s}
  - {name: exact, key: [], match: {a: '2'}, limit: 1/s}
";
    check(
        file,
        &[
            ("a=1 | b=2", &["one(1) 1/1s", "two(1, 2) 1/1s"]),
            ("a=1 | a=2, b=2", &["one(1) 1/1s", "two(1, 2) 1/1s"]),
            ("a=1, a=2", &["one(1) 1/1s"]),
            ("a=2 | a=1", &["one(2) 1/1s", "exact() 1/1s"]),
            ("A=1", &[]),
        ],
    );
}

/// Counters whose key has the domain's entity live in the caller's partition.
#[test]
fn a_callers_counters_share_a_partition() {
    let file = "
domain: d
entity: customer
rules:
  - {name: first, key: [customer], limit: 1/s}
  - {name: second, key: [user, customer], limit: 1/s}
  - {name: optional, key: [user, 'customer?'], limit: 1/s}
  - {name: other, key: [user], limit: 1/s}
  - {name: everyone, key: [], limit: 1/s}
descriptors:
  - key: customer
    rate_limit: {unit: second, requests_per_unit: 1}
  - key: user
    descriptors:
      - key: customer
        rate_limit: {unit: second, requests_per_unit: 1}
  - key: user
    value: u
    rate_limit: {unit: second, requests_per_unit: 1}
";
    let rules = rules(file);
    let homes = TestRequest::new("customer=c | user=u | user=v, customer=c").with(|request| {
        let resolved = rules.resolve(request, ClaimId(1)).unwrap();
        let home =
            |at: usize| (resolved.rule(at).unwrap().name().to_owned(), resolved.claim.charges[at].key.scope().home());
        (0..resolved.applied.len()).map(home).collect::<Vec<_>>()
    });
    let expected = [
        ("first", Home::Caller(0)),
        ("second", Home::Caller(1)),
        // An optional attribute identifies no caller.
        ("optional", Home::Own),
        ("other", Home::Own),
        ("everyone", Home::Own),
        ("customer", Home::Caller(0)),
        ("user=u", Home::Own),
        ("user/customer", Home::Caller(1)),
    ];
    assert_eq!(homes, expected.map(|(name, home)| (name.to_owned(), home)));
}

#[test]
fn the_partition_is_the_callers_in_every_rule_and_nobody_elses() {
    let file = "
domain: d
entity: customer
rules:
  - {name: first, key: [customer], limit: 1/s}
  - {name: second, key: [user, customer], limit: 5/m, algorithm: token_bucket}
";
    let rules = rules(file);
    let partitions = |request: &str| {
        TestRequest::new(request).with(|request| {
            let resolved = rules.resolve(request, ClaimId(1)).unwrap();
            let secret = tollgate_core::key::HashSecret(1, 2);
            resolved.claim.charges.iter().map(|charge| charge.key.partition(secret)).collect::<Vec<_>>()
        })
    };
    let (one, other) = (partitions("customer=c, user=u"), partitions("customer=e, user=u"));
    assert_eq!(one.len(), 2);
    assert_eq!(one[0], one[1]);
    assert_eq!(one[1], partitions("customer=c, user=v")[1]);
    assert_ne!(one[0], other[0]);
}
