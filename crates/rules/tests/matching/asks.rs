//! What is asked of which limits, by those who check, debit and give back.

use tollgate_core::{Ask, ClaimId, Descriptor, ReceiptWish, Request, Timestamp};
use tollgate_rules::Matched;

use crate::rules;

const FILE: &str = "
domain: d
rules:
  - {name: calls, key: [k], limit: 9/s}
  - {name: tokens, key: [k], limit: 9/s, cost: tokens}
  - {name: slots, key: [k], limit: 9 concurrent}
";

const AT: Timestamp = Timestamp::from_secs(7);

/// The charges as `slots +1`, `tokens -5`, `calls !1` for what is asked, given back and debited; and how many limits on requests in
/// flight did not apply.
fn asked(request: Request<'_>) -> (String, u32) {
    let rules = rules(FILE);
    let descriptors = [Descriptor::new(&[("k", "a"), ("tokens", "5")])];
    let request = Request { descriptors: &descriptors, ..request };
    let mut claim = rules.resolve(&request, ClaimId(1)).unwrap().claim;
    claim.charges.clear();
    let mut matched = Matched::default();
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
        let rule = rules.domains()[0].rules()[applied.rule as usize].name();
        format!("{rule} {sign}{}", charge.units)
    });
    (charges.collect::<Vec<_>>().join(", "), matched.not_held)
}

#[test]
fn who_can_release_a_hold_may_have_one() {
    let (named, unnamed) = (Some(ClaimId(7)), None);
    let (never, wanted) = (ReceiptWish::Never, ReceiptWish::IfNeeded);
    let back = Ask::Return { taken_at: AT };
    let rows = [
        (Ask::Exactly, unnamed, wanted, 1, "calls +1, tokens +5, slots +1", 0),
        (Ask::Exactly, named, never, 1, "calls +1, tokens +5, slots +1", 0),
        (Ask::Exactly, named, never, 0, "calls +0, tokens +0, slots +0", 0),
        (Ask::Exactly, unnamed, never, 1, "calls +1, tokens +5", 1),
        // Units, or what the claim holds: whatever it costs, and nothing beside that.
        (back, unnamed, never, 1, "calls -1, tokens -5", 0),
        (back, named, never, 1, "slots -1", 0),
        (back, named, never, 0, "slots -1", 0),
        // What it cost; under the claim's name also that it has ended.
        (Ask::Regardless, unnamed, wanted, 1, "calls !1, tokens !5", 0),
        (Ask::Regardless, named, never, 1, "calls !1, tokens !5, slots -1", 0),
        (Ask::Regardless, named, never, 0, "calls !0, tokens !0, slots -1", 0),
        // Slots can't be credited; a fresh start frees them.
        (Ask::Credit, unnamed, never, 2, "calls *2, tokens *5", 0),
        (Ask::Credit, named, never, 2, "calls *2, tokens *5", 0),
        (Ask::Reset, unnamed, never, 1, "calls #1, tokens #5, slots #1", 0),
    ];
    for (ask, claim, receipt, cost, charges, not_held) in rows {
        let request = Request { ask, claim, receipt, cost, ..Request::default() };
        assert_eq!(asked(request), (charges.to_owned(), not_held), "{ask:?} {claim:?} {receipt:?} {cost}");
    }
}
