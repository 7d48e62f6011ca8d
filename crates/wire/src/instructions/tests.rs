//! Parsing and applying instructions.

use tollgate::{Ask, Request, named_claim};

use super::{InstructionError, Instructions, is_instruction};

/// Takes all entries.
fn taken<'a>(entries: &[(&str, &'a str)]) -> Result<Instructions<'a>, String> {
    let mut instructions = Instructions::default();
    for (name, value) in entries {
        let is_taken = instructions.take(name, value).map_err(|InstructionError(reason)| reason)?;
        assert_eq!(is_taken, is_instruction(name), "{name}");
    }
    Ok(instructions)
}

#[test]
fn other_names_are_left_alone() {
    for name in ["", "t", "tollgate", "tollgate_ask", "Tollgate.ask", "x.tollgate.ask", "tollgat.ask", "ask"] {
        assert_eq!(taken(&[(name, "return")]), Ok(Instructions::default()), "{name}");
    }
}

#[test]
fn what_they_make_of_a_request() {
    let given = Request { cost: 7, ..Request::default() };
    let plain = Instructions::default().apply_to(given);
    assert_eq!((plain.ask, plain.claim, plain.once, plain.cost), (Ask::Exactly, None, None, 7));
    let all = [("tollgate.ask", "debit"), ("tollgate.claim", "c"), ("tollgate.once", "o"), ("tollgate.claim", "c")];
    let debit = taken(&all).unwrap().apply_to(given);
    assert_eq!((debit.ask, debit.claim, debit.once), (Ask::Regardless, Some(named_claim("c")), Some("o")));
    let back = taken(&[("tollgate.ask", "return")]).unwrap().apply_to(given);
    // By the system clock, which is past the year in which this was written.
    assert!(matches!(back.ask, Ask::Return { taken_at } if taken_at.as_micros() > 1_700_000_000_000_000));
    // The wire's own values stay if there is not an instruction.
    let known = Request { claim: Some(named_claim("x")), once: Some("y"), ..given };
    let unchanged = Instructions::default().apply_to(known);
    assert_eq!((unchanged.claim, unchanged.once), (Some(named_claim("x")), Some("y")));
}

#[test]
fn invalid_instructions_are_errors() {
    let rows: [(&[(&str, &str)], &str); 5] = [
        (&[("tollgate.", "x")], "`tollgate.` is not an instruction; use tollgate.ask, tollgate.claim or tollgate.once"),
        (&[("tollgate.asks", "debit")], "`tollgate.asks` is not an instruction"),
        (&[("tollgate.ask", "refund")], "tollgate.ask is `refund`; it must be `debit` or `return`"),
        (&[("tollgate.ask", "")], "tollgate.ask is ``"),
        (&[("tollgate.ask", "debit"), ("tollgate.ask", "return")], "tollgate.ask has two values"),
    ];
    for (entries, words) in rows {
        let reason = taken(entries).unwrap_err();
        assert!(reason.contains(words), "{entries:?}: {reason}");
    }
}

/// Entries, the claim and the key of a request with them, and how many were ignored.
type NameRow<'r> = (&'r [(&'r str, &'r str)], Option<&'r str>, Option<&'r str>, u32);

#[test]
fn names_that_clients_choose_are_no_errors() {
    let rows: [NameRow<'_>; 6] = [
        (&[("tollgate.claim", "a"), ("tollgate.claim", "b")], Some("a"), None, 1),
        (&[("tollgate.claim", "")], Some(""), None, 0),
        (&[("tollgate.once", "a"), ("tollgate.once", "a")], None, Some("a"), 0),
        (&[("tollgate.once", "a"), ("tollgate.once", "b"), ("tollgate.once", "a")], None, None, 2),
        (&[("tollgate.once", "")], None, None, 1),
        (&[("tollgate.once", ""), ("tollgate.once", "a")], None, Some("a"), 1),
    ];
    for (entries, claim, once, ignored) in rows {
        let instructions = taken(entries).unwrap();
        let request = instructions.apply_to(Request::default());
        assert_eq!((request.claim, request.once), (claim.map(named_claim), once), "{entries:?}");
        assert_eq!(instructions.ignored(), ignored, "{entries:?}");
    }
}

#[test]
fn what_can_t_be_followed_changes_nothing() {
    let mut instructions = taken(&[("tollgate.ask", "debit"), ("tollgate.claim", "a")]).unwrap();
    let before = instructions;
    for (name, value) in [("tollgate.ask", "return"), ("tollgate.x", "y")] {
        assert!(instructions.take(name, value).is_err());
        assert_eq!(instructions, before, "{name}={value}");
    }
    assert!(!instructions.request_return());
    assert_eq!(instructions, before);
}
