//! The refusing charge and its wait.

use smallvec::smallvec;
use tollgate_core::key::Home;
use tollgate_core::{
    Algorithm, Ask, Charge, Claim, ClaimId, Key, Limit, Mode, OnFailure, Period, Reading, Replay, Scope, Settlement,
    Shortcuts, Source, Span, Timestamp, Verdict, Wait,
};

const ROOM: Wait = Wait::None;

fn after(secs: u64) -> Wait {
    Wait::For(Span::from_secs(secs))
}

/// A reading with this wait.
fn waits(wait: Wait, delay: u64) -> Reading {
    Reading {
        admits: wait == ROOM,
        taken: 0,
        remaining: 1,
        wait,
        reset_after: Span::ZERO,
        delay: Span::from_secs(delay),
        source: Source::Store,
    }
}

#[test]
fn a_verdict_by_terms_that_are_not_known_is_the_first_one() {
    let recalled = |passed, waiting: &[Wait]| {
        let readings = waiting.iter().zip(1..).map(|(wait, delay)| waits(*wait, delay)).collect();
        let verdict = Verdict::from_replay(
            passed,
            &Settlement { readings, at: Timestamp::default(), replay: Replay::First, ..Settlement::default() },
        );
        assert_eq!((verdict.allowed, verdict.denied_by, verdict.tightest), (passed, None, None));
        (verdict.wait, verdict.delay)
    };
    let none = Span::ZERO;
    assert_eq!(recalled(true, &[ROOM, after(3), Wait::Forever]), (ROOM, Span::from_secs(3)));
    assert_eq!(recalled(true, &[]), (ROOM, none));
    assert_eq!(recalled(false, &[after(3), ROOM, after(5), after(4)]), (after(5), none));
    assert_eq!(recalled(false, &[after(3), Wait::Forever]), (after(3), none), "one that ends first");
    assert_eq!(recalled(false, &[ROOM, Wait::Forever]), (Wait::Forever, none));
    // The readings are unknown, but a refusal always has a wait.
    assert_eq!(recalled(false, &[]), (Wait::For(Reading::RETRY_AFTER), none));
    assert_eq!(recalled(false, &[ROOM]), (Wait::For(Reading::RETRY_AFTER), none));
}

/// The verdict on charges with these readings: ask, mode, wait, remaining units.
fn reach(votes: &[(Ask, Mode, Wait, u64)]) -> Verdict {
    let limit = Limit::new(10, Period::fixed(Span::from_secs(1)).unwrap(), Algorithm::FixedWindow).unwrap();
    let scope = Scope::new("d", "r", limit.algorithm(), limit.period(), Home::Own);
    let charge = |&(ask, mode, ..): &(Ask, Mode, Wait, u64)| Charge {
        key: Key::new(&scope, smallvec![]),
        limit: &limit,
        ask,
        units: 1,
        mode,
        on_failure: OnFailure::Deny,
        shortcuts: Shortcuts::Refusals,
    };
    let reading = |&(_, _, wait, remaining): &(Ask, Mode, Wait, u64)| Reading {
        admits: wait == ROOM,
        taken: 0,
        remaining,
        wait,
        reset_after: Span::ZERO,
        delay: Span::from_secs(remaining),
        source: Source::Store,
    };
    let claim = Claim { id: ClaimId(0), charges: votes.iter().map(charge).collect(), once: None, timeout: None };
    let readings = votes.iter().map(reading).collect();
    Verdict::reach(
        &claim,
        &Settlement { readings, at: Timestamp::default(), replay: Replay::First, ..Settlement::default() },
    )
}

#[test]
fn the_longest_wait_denies() {
    use Mode::Enforce;
    let verdict = reach(&[
        (Ask::Exactly, Enforce, after(1), 3),
        (Ask::Exactly, Enforce, Wait::Forever, 2),
        (Ask::Exactly, Enforce, after(9), 1),
        (Ask::Exactly, Enforce, ROOM, 0),
    ]);
    assert!(!verdict.allowed);
    assert_eq!((verdict.denied_by, verdict.wait, verdict.tightest), (Some(1), Wait::Forever, Some(3)));
}

#[test]
fn any_of_charges_refuse_together_and_count_as_the_shortest() {
    use Mode::{AnyOf, Enforce};
    let refused = reach(&[(Ask::Exactly, AnyOf, after(5), 0), (Ask::Exactly, AnyOf, after(2), 0)]);
    assert_eq!((refused.allowed, refused.denied_by, refused.wait), (false, Some(1), after(2)));
    let longer = reach(&[(Ask::Exactly, Enforce, after(3), 0), (Ask::Exactly, AnyOf, after(2), 0)]);
    assert_eq!(longer.denied_by, Some(0));
    let shorter = reach(&[(Ask::Exactly, Enforce, after(1), 0), (Ask::Exactly, AnyOf, after(2), 0)]);
    assert_eq!(shorter.denied_by, Some(1));
    let one = reach(&[(Ask::Exactly, AnyOf, after(5), 0), (Ask::Exactly, AnyOf, ROOM, 4)]);
    assert_eq!((one.allowed, one.denied_by, one.wait), (true, None, Wait::None));
    let enforced = reach(&[
        (Ask::Exactly, AnyOf, after(5), 0),
        (Ask::Exactly, AnyOf, ROOM, 4),
        (Ask::Exactly, Enforce, after(1), 0),
    ]);
    assert_eq!((enforced.allowed, enforced.denied_by), (false, Some(2)), "an any-of with room refuses nothing");
}

#[test]
fn shadow_soft_and_other_asks_have_no_vote() {
    let verdict = reach(&[
        (Ask::Exactly, Mode::Shadow, Wait::Forever, 0),
        (Ask::Exactly, Mode::Soft, after(1), 0),
        (Ask::UpTo, Mode::Enforce, after(1), 0),
        (Ask::Regardless, Mode::Enforce, after(1), 0),
        (Ask::Exactly, Mode::Enforce, ROOM, 7),
    ]);
    assert_eq!((verdict.allowed, verdict.denied_by, verdict.tightest), (true, None, Some(4)));
    assert_eq!(verdict.delay, Span::from_secs(7));
    assert!(reach(&[]).allowed, "nothing refuses a claim on nothing");
}
