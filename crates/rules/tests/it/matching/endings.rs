//! The settlement of a request that has ended, and the keys of records.

use tollgate_core::{Ask, ClaimId, Descriptor, ReceiptWish, Request, Shortcuts, Span, Timestamp};
use tollgate_rules::{CallerDigest, MatchedRules, RequestError, Ruleset, claim_id};

use crate::matching::{check, rules};

const FILE: &str = "
domain: d
entity: caller
rules:
  - {name: rate, key: [caller], limit: 10/s}
  - {name: in-flight, key: [caller], limit: 2 concurrent}
  - {name: tokens, key: [caller], match: {kind: llm}, limit: 1000/h, settle: true}
  - {name: orders, key: [caller], match: {kind: order}, limit: 5/h, refund: on_failure}
";

const LATER: Ask = Ask::Return { taken_at: Timestamp::from_secs(1) };

/// The charges of a request, and the other results.
fn claimed(rules: &Ruleset, request: Request<'_>, entries: &[(&str, &str)]) -> (Vec<String>, MatchedRules) {
    let descriptors = [Descriptor::new(entries)];
    let request = Request { descriptors: &descriptors, ..request };
    let mut claim = tollgate_core::Claim { id: ClaimId(1), charges: Default::default(), once: None, timeout: None };
    let mut matched = MatchedRules::default();
    rules.resolve_into(&request, None, &mut claim, &mut matched).unwrap();
    let charges = claim.charges.iter().map(|charge| {
        assert_eq!(charge.ask, request.ask);
        format!(
            "{} ×{}{}",
            charge.key.scope().rule(),
            charge.units,
            if charge.shortcuts == Shortcuts::None { " strict" } else { "" }
        )
    });
    (charges.collect(), matched)
}

#[test]
fn what_is_to_be_settled_is_known_and_strict() {
    let rules = rules(FILE);
    type Row<'r> = (&'r [(&'r str, &'r str)], &'r [&'r str], bool);
    let rows: [Row<'_>; 4] = [
        (&[("other", "o")], &[], false),
        (&[("caller", "c")], &["rate ×1", "in-flight ×1"], true),
        (&[("caller", "c"), ("kind", "llm")], &["rate ×1", "in-flight ×1", "tokens ×1 strict"], true),
        (&[("caller", "c"), ("kind", "order")], &["rate ×1", "in-flight ×1", "orders ×1 strict"], true),
    ];
    for (entries, expected, needs) in rows {
        let (charges, matched) = claimed(&rules, Request::default(), entries);
        assert_eq!((charges, matched.needs_receipt), (expected.iter().map(|one| (*one).to_owned()).collect(), needs));
    }
    let (_, matched) =
        claimed(&rules, Request { receipt: ReceiptWish::Never, ..Request::default() }, &[("caller", "c")]);
    assert!(!matched.needs_receipt, "what is not held need not be released");
}

#[test]
fn one_request_reserves_no_more_than_its_share() {
    check(
        "
domain: d
rules:
  - {name: half, key: [], limit: 1001/h, settle: true, reserve_max: 50%}
  - {name: burst, key: [], limit: 10/h, algorithm: token_bucket, burst: 40, settle: true, reserve_max: 25%}
  - {name: least, key: [], limit: 10/h, settle: true, reserve_max: 0%}
  - {name: all, key: [], limit: 1000/h, settle: true}
",
        &[
            (
                "cost 5000 |",
                &[
                    "half() 1001/3600s ×500",
                    "burst() 10/3600s burst 40 ×10",
                    "least() 10/3600s",
                    "all() 1000/3600s ×5000",
                ],
            ),
            (
                "cost 7 |",
                &["half() 1001/3600s ×7", "burst() 10/3600s burst 40 ×7", "least() 10/3600s", "all() 1000/3600s ×7"],
            ),
            (
                "cost 0 |",
                &["half() 1001/3600s ×0", "burst() 10/3600s burst 40 ×0", "least() 10/3600s ×0", "all() 1000/3600s ×0"],
            ),
        ],
    );
    // Units that were spent are debited completely.
    let rules = rules("domain: d\nrules: [{name: half, key: [], limit: 1000/h, settle: true, reserve_max: 50%}]");
    let (charges, _) = claimed(&rules, Request { ask: Ask::Regardless, cost: 5_000, ..Request::default() }, &[]);
    assert_eq!(charges, ["half ×5000 strict"]);
}

/// The key of a request's record, and the digest of the request.
fn record(rules: &Ruleset, request: Request<'_>, name: &str, lists: &[&[(&str, &str)]]) -> (ClaimId, u64) {
    let descriptors: Vec<_> = lists.iter().map(|entries| Descriptor::new(entries)).collect();
    let request = Request { descriptors: &descriptors, once: Some(name), ..request };
    let caller_digest = CallerDigest::from_request(&request);
    let resolved = rules.resolve(&request, ClaimId(1)).unwrap();
    let once = resolved.domain.once_of_check(&request, name, &caller_digest, &resolved.claim, Span::from_secs(1));
    (claim_id(&once), once.body)
}

#[test]
fn a_record_is_the_callers_and_tells_bodies_apart() {
    let rules = rules(FILE);
    let plain = Request::default();
    let of = |request, name, lists: &[&[(&str, &str)]]| record(&rules, request, name, lists);
    let first = of(plain, "n", &[&[("caller", "c"), ("x", "1")]]);
    assert_eq!(of(plain, "n", &[&[("caller", "c"), ("x", "1")]]), first);
    let others = [
        of(plain, "n", &[&[("caller", "c"), ("x", "2")]]),
        of(plain, "n", &[&[("caller", "c")], &[("x", "1")]]),
        of(plain, "n", &[&[("x", "1"), ("caller", "c")]]),
        of(Request { cost: 2, ..plain }, "n", &[&[("caller", "c"), ("x", "1")]]),
    ];
    for (at, (id, body)) in others.into_iter().enumerate() {
        assert!(id == first.0 && body != first.1, "{at}: the same record, and another body");
    }
    let elsewhere = [
        of(plain, "m", &[&[("caller", "c"), ("x", "1")]]),
        of(plain, "n", &[&[("caller", "d"), ("x", "1")]]),
        of(Request { ask: Ask::Regardless, ..plain }, "n", &[&[("caller", "c"), ("x", "1")]]),
        of(Request { ask: LATER, ..plain }, "n", &[&[("caller", "c"), ("x", "1")]]),
    ];
    for (at, (id, _)) in elsewhere.into_iter().enumerate() {
        assert_ne!(id, first.0, "{at}: another record");
    }
}

/// Other rules find the same record: it belongs to the caller whom the request names, whichever counters it meets.
#[test]
fn a_record_does_not_depend_on_the_rules_that_apply() {
    for (entity, value) in [("caller", "c"), ("remote_address", "2001:db8::7"), ("remote_address", "192.0.2.1")] {
        let of = |keys: &str| {
            let text = format!("domain: d\nentity: {entity}\nrules: [{{name: all, key: [{keys}], limit: 10/s}}]");
            record(&rules(&text), Request::default(), "n", &[&[("x", "1")], &[(entity, value)]])
        };
        assert!(of("") == of(entity) && of(entity) == of("x"), "{entity} {value}");
    }
}

/// If the request does not name the caller, the whole request does: strangers with the same idempotency key do not
/// collide.
#[test]
fn without_a_caller_the_request_is_the_caller() {
    let rules = rules("domain: d\nrules: [{name: all, key: [], limit: 10/s}]");
    let of = |lists: &[&[(&str, &str)]], cost| record(&rules, Request { cost, ..Request::default() }, "n", lists);
    assert_ne!(of(&[&[("a", "1")]], 1).0, of(&[&[("a", "2")]], 1).0);
    assert_ne!(of(&[&[("a", "bc")]], 1).0, of(&[&[("ab", "c")]], 1).0);
    let (one, two) = (of(&[&[("a", "1")]], 1), of(&[&[("a", "1")]], 2));
    assert!(one.0 == two.0 && one.1 != two.1);
}

#[test]
fn names_of_records_are_bounded() {
    let rules = rules(FILE);
    let of = |name: &str| rules.resolve(&Request { once: Some(name), ..Request::default() }, ClaimId(1)).map(|_| ());
    let longest = "n".repeat(Request::MAX_ONCE_BYTES);
    assert_eq!(of(&longest), Ok(()));
    assert_eq!(of(&format!("{longest}n")), Err(RequestError::BadOnce));
    assert_eq!(of(""), Err(RequestError::BadOnce));
}

/// A receipt's short digest leads to its counter and to the limit of the tier.
#[test]
fn counters_are_found_again_by_their_scopes() {
    let file = "
domain: d
rules:
  - {name: a, key: [k], limit: {free: 10/h, pro: 20/h, enterprise: 30/m, custom: unlimited}, settle: true}
";
    let first = rules(file);
    let descriptors = [Descriptor::new(&[("k", "v")])];
    let request = Request { descriptors: &descriptors, ..Request::default() };
    let resolved = first.resolve(&request, ClaimId(1)).unwrap();
    let scope = resolved.claim.charges[0].key.scope().short();
    let found = |rules: &Ruleset, amount| {
        rules.counters(scope, amount).map(|found| (found.rule.name().to_owned(), found.limit.amount()))
    };
    assert_eq!(found(&first, 10), Some(("a".to_owned(), 10)));
    assert_eq!(found(&first, 20), Some(("a".to_owned(), 20)));
    assert_eq!(found(&first, 30), Some(("a".to_owned(), 30)), "an override had that amount");
    let changed = rules(&file.replace("10/h", "11/h"));
    assert_eq!(found(&changed, 10), Some(("a".to_owned(), 10)), "a changed amount keeps the counter");
    assert_eq!(found(&rules(&file.replace("/h", "/day")), 10), None, "another period is another counter");
    assert_eq!(found(&rules(&file.replace("name: a", "name: b")), 10), None);
}
