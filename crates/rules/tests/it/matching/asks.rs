//! The asks for each limit, in checks, debits and refunds.

use tollgate_core::{Ask, ClaimId, Descriptor, ReceiptWish, Request, Timestamp};
use tollgate_rules::MatchedRules;

use crate::matching::rules;

const FILE: &str = "
domain: d
rules:
  - {name: calls, key: [k], limit: 9/s}
  - {name: tokens, key: [k], limit: 9/s, cost: tokens}
  - {name: slots, key: [k], limit: 9 concurrent}
";

const AT: Timestamp = Timestamp::from_secs(7);

/// The charges as `slots +1`, `tokens -5`, `calls !1` for a take, a return and a debit; and the number of concurrency
/// limits that did not apply.
fn charges_of(request: Request<'_>) -> (String, u32) {
    let rules = rules(FILE);
    let descriptors = [Descriptor::new(&[("k", "a"), ("tokens", "5")])];
    let request = Request { descriptors: &descriptors, ..request };
    let mut claim = rules.resolve(&request, ClaimId(1)).unwrap().claim;
    claim.charges.clear();
    let mut matched = MatchedRules::default();
    rules.resolve_into(&request, None, &mut claim, &mut matched).unwrap();
    let charges = claim.charges.iter().zip(&matched.applied).map(|(charge, applied)| {
        let sign = match charge.ask {
            Ask::Exactly => '+',
            Ask::UpTo => '?',
            Ask::Regardless => '!',
            Ask::Return { .. } => '-',
            Ask::Credit => '*',
            Ask::Reset => '#',
        };
        let rule = rules.domains()[0].rules()[applied.rule.unwrap() as usize].name();
        format!("{rule} {sign}{}", charge.units)
    });
    (charges.collect::<Vec<_>>().join(", "), matched.not_held)
}

#[test]
fn who_can_release_a_hold_may_have_one() {
    let (named, unnamed) = (Some(ClaimId(7)), None);
    let (never, accepted) = (ReceiptWish::Never, ReceiptWish::IfNeeded);
    let back = Ask::Return { taken_at: AT };
    let rows = [
        (Ask::Exactly, unnamed, accepted, 1, "calls +1, tokens +5, slots +1", 0),
        (Ask::Exactly, named, never, 1, "calls +1, tokens +5, slots +1", 0),
        (Ask::Exactly, named, never, 0, "calls +0, tokens +0, slots +0", 0),
        (Ask::Exactly, unnamed, never, 1, "calls +1, tokens +5", 1),
        // Units, or the claim's holds: whatever the cost, and nothing else.
        (back, unnamed, never, 1, "calls -1, tokens -5", 0),
        (back, named, never, 1, "slots -1", 0),
        (back, named, never, 0, "slots -1", 0),
        // The cost; with a claim id also the end of the request.
        (Ask::Regardless, unnamed, accepted, 1, "calls !1, tokens !5", 0),
        (Ask::Regardless, named, never, 1, "calls !1, tokens !5, slots -1", 0),
        (Ask::Regardless, named, never, 0, "calls !0, tokens !0, slots -1", 0),
        // Holds cannot be credited; a reset releases them.
        (Ask::Credit, unnamed, never, 2, "calls *2, tokens *5", 0),
        (Ask::Credit, named, never, 2, "calls *2, tokens *5", 0),
        (Ask::Reset, unnamed, never, 1, "calls #1, tokens #5, slots #1", 0),
    ];
    for (ask, claim, receipt, cost, charges, not_held) in rows {
        let request = Request { ask, claim, receipt, cost, ..Request::default() };
        assert_eq!(charges_of(request), (charges.to_owned(), not_held), "{ask:?} {claim:?} {receipt:?} {cost}");
    }
}
