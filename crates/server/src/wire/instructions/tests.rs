//! What instructions are, and what they come to.

use tollgate::{Ask, Request, named_claim};

use super::{Instructions, Misread, is_instruction};

/// Takes them all.
fn taken<'a>(entries: &[(&str, &'a str)]) -> Result<Instructions<'a>, String> {
    let mut instructions = Instructions::default();
    for (name, value) in entries {
        let is_taken = instructions.take(name, value).map_err(|Misread(reason)| reason)?;
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
    let plain = Instructions::default().applied_to(given);
    assert_eq!((plain.ask, plain.claim, plain.once, plain.cost), (Ask::Exactly, None, None, 7));
    let all = [("tollgate.ask", "debit"), ("tollgate.claim", "c"), ("tollgate.once", "o"), ("tollgate.claim", "c")];
    let debit = taken(&all).unwrap().applied_to(given);
    assert_eq!((debit.ask, debit.claim, debit.once), (Ask::Regardless, Some(named_claim("c")), Some("o")));
    let back = taken(&[("tollgate.ask", "return")]).unwrap().applied_to(given);
    // By the clock of this machine, which is past the year in which this was written.
    assert!(matches!(back.ask, Ask::Return { taken_at } if taken_at.as_micros() > 1_700_000_000_000_000));
    // What the wire knows by itself stays where nothing is said.
    let known = Request { claim: Some(named_claim("x")), once: Some("y"), ..given };
    let kept = Instructions::default().applied_to(known);
    assert_eq!((kept.claim, kept.once), (Some(named_claim("x")), Some("y")));
}

#[test]
fn what_can_t_be_followed_is_told_what_there_is() {
    let long = "x".repeat(256);
    let rows: [(&[(&str, &str)], &str); 9] = [
        (
            &[("tollgate.", "x")],
            "`tollgate.` is no instruction; there are tollgate.ask, tollgate.claim and tollgate.once",
        ),
        (&[("tollgate.asks", "debit")], "`tollgate.asks` is no instruction"),
        (&[("tollgate.ask", "refund")], "tollgate.ask is `refund`; it is `debit` or `return`"),
        (&[("tollgate.ask", "")], "tollgate.ask is ``"),
        (&[("tollgate.ask", "debit"), ("tollgate.ask", "return")], "tollgate.ask is there twice"),
        (&[("tollgate.claim", "a"), ("tollgate.claim", "b")], "tollgate.claim is there twice"),
        (&[("tollgate.once", "a"), ("tollgate.once", "b")], "tollgate.once is there twice"),
        (&[("tollgate.claim", "")], "tollgate.claim has 0 bytes; it must have 1 to 255"),
        (&[("tollgate.once", &long)], "tollgate.once has 256 bytes; it must have 1 to 255"),
    ];
    for (entries, words) in rows {
        let reason = taken(entries).unwrap_err();
        assert!(reason.contains(words), "{entries:?}: {reason}");
    }
    assert!(taken(&[("tollgate.once", &long[..255]), ("tollgate.claim", &long[..255])]).is_ok());
}

#[test]
fn what_can_t_be_followed_changes_nothing() {
    let mut instructions = taken(&[("tollgate.ask", "debit"), ("tollgate.claim", "a")]).unwrap();
    let before = instructions;
    for (name, value) in
        [("tollgate.ask", "return"), ("tollgate.claim", "b"), ("tollgate.claim", ""), ("tollgate.x", "y")]
    {
        assert!(instructions.take(name, value).is_err());
        assert_eq!(instructions, before, "{name}={value}");
    }
    assert!(!instructions.give_back());
    assert_eq!(instructions, before);
}
