//! Idempotent claims: a repetition with the same key gets the first answer and changes nothing.

use tollgate_core::{Ask, Claim, Mode, Once, Replay, Settlement, Span};

use super::Subject;
use super::concurrency::in_threads;
use super::world::{START, TestCounter, claim, one_of_each, peek, settle, settle_one};

const KEEP: Span = Span::from_secs(600);
const AMOUNT: u64 = 10;
/// The terms of the first claim.
const TERMS: u64 = 1 << 63 | 5;
const AGAIN: Replay = Replay::Again { terms: TERMS, passed: true };

/// Runs this part.
pub fn run<S: Subject>(make: impl Fn() -> S) {
    the_same_name_is_answered_alike(&make);
    another_body_is_a_conflict(&make);
    one_that_takes_nothing_is_decided_anew(&make);
    other_terms_get_the_first_answer(&make);
    one_that_leaves_no_record_is_settled_unless_another_was(&make);
    one_without_charges_is_recorded(&make);
    settlements_take_effect_once(&make);
    together_they_pay_once(&make);
    together_they_have_the_first_numbers(&make);
}

/// While the record lasts, a repetition gets the first answer and takes nothing. After that it is a new claim.
pub fn the_same_name_is_answered_alike<S: Subject>(make: impl Fn() -> S) {
    for counter in one_of_each(AMOUNT) {
        let subject = make();
        subject.set_now(START);
        let first = settle(&subject, &once(&counter, 1, "order-1", 7));
        assert_eq!((first.replay, first.readings[0].taken), (Replay::First, 1), "{}", counter.scope.rule());
        let last = START.after(Span::from_micros(KEEP.as_micros() - 1));
        for now in [START, START.after(Span::from_secs(5)), last] {
            subject.set_now(now);
            let before = settle_one(&subject, u128::MAX, counter.take("x", 0));
            // Another id, as after a crash: only the key matters.
            let again = settle(&subject, &once(&counter, 2, "order-1", 7));
            assert_eq!(again, Settlement { replay: AGAIN, ..first.clone() }, "{}", counter.scope.rule());
            let after = settle_one(&subject, u128::MAX, counter.take("x", 0));
            assert_eq!(before, after, "{}: a replay changed the counter", counter.scope.rule());
        }
        let other = settle(&subject, &once(&counter, 3, "order-2", 7));
        assert_eq!(other.replay, Replay::First, "{}: another name", counter.scope.rule());
        subject.set_now(START.after(KEEP));
        let anew = settle(&subject, &once(&counter, 4, "order-1", 7));
        assert_eq!((anew.replay, anew.readings[0].taken), (Replay::First, 1), "{}", counter.scope.rule());
    }
}

/// The same key with a different request is refused and takes nothing.
pub fn another_body_is_a_conflict<S: Subject>(make: impl Fn() -> S) {
    for counter in one_of_each(AMOUNT) {
        let subject = make();
        subject.set_now(START);
        let first = settle(&subject, &once(&counter, 1, "order-1", 7));
        let conflict = settle(&subject, &once(&counter, 2, "order-1", 8));
        assert_eq!(conflict.replay, Replay::Conflict, "{}", counter.scope.rule());
        assert_eq!(conflict.readings.len(), 1, "{}: a reading for each charge", counter.scope.rule());
        assert!(!conflict.readings[0].admits && conflict.readings[0].taken == 0, "{}", counter.scope.rule());
        let left = settle_one(&subject, u128::MAX, counter.take("x", 0)).remaining;
        assert_eq!(left, AMOUNT - 1, "{}: a conflict changed the counter", counter.scope.rule());
        let again = settle(&subject, &once(&counter, 1, "order-1", 7));
        assert_eq!(again, Settlement { replay: AGAIN, ..first }, "{}: it replaced the record", counter.scope.rule());
    }
}

/// A claim that took nothing leaves no record: a refusal or a peek is decided anew, and its key is still free.
pub fn one_that_takes_nothing_is_decided_anew<S: Subject>(make: impl Fn() -> S) {
    for counter in one_of_each(AMOUNT) {
        let (rule, subject) = (counter.scope.rule(), make());
        subject.set_now(START);
        let peek = Claim { once: once(&counter, 0, "order-1", 6).once, ..claim(99, [counter.take("x", 0)]) };
        for _ in 0..2 {
            assert_eq!(settle(&subject, &peek).replay, Replay::First, "{rule}: a peek");
        }
        for id in 0..u128::from(AMOUNT) {
            settle_one(&subject, id, counter.take("x", 1));
        }
        for id in 100..102 {
            let refused = settle(&subject, &once(&counter, id, "order-1", 7));
            assert!(refused.replay == Replay::First && !refused.readings[0].admits, "{rule}: {refused:?}");
        }
        // There is room before the wait is over, and for another request.
        settle_one(&subject, u128::MAX, counter.charge("x", Ask::Reset, 0, Mode::Enforce));
        let first = settle(&subject, &once(&counter, 103, "order-1", 8));
        assert_eq!((first.replay, first.readings[0].taken), (Replay::First, 1), "{rule}: the retry");
        let again = settle(&subject, &once(&counter, 104, "order-1", 8));
        assert_eq!(again, Settlement { replay: AGAIN, ..first }, "{rule}: the repetition");
    }
}

/// Rules may change while a record lasts. A repetition by other terms gets the first answer and its terms: as many
/// readings as the first claim had charges, in their order, whatever the charges are now.
pub fn other_terms_get_the_first_answer<S: Subject>(make: impl Fn() -> S) {
    let counters = one_of_each(AMOUNT);
    let names = &counters[0];
    let asking = |id: u128, name: &'static str, terms: u64, charged: &[usize]| {
        let charges = charged.iter().map(|at| counters[*at].take("x", 1 + *at as u64));
        Claim { once: Some(Once { key: names.key(name), body: 7, terms, keep: KEEP }), ..claim(id, charges) }
    };
    for (name, charged) in [("passes", &[0, 1, 2, 3, 4, 5][..]), ("none", &[])] {
        let subject = make();
        subject.set_now(START);
        let first = settle(&subject, &asking(1, name, TERMS, charged));
        assert_eq!((first.replay, first.readings.len()), (Replay::First, charged.len()), "{name}");
        subject.set_now(START.after(Span::from_secs(1)));
        let before = peek(&subject, &counters, &["x"]);
        for (terms, other) in [(TERMS, charged), (8, &[0][..]), (9, &[5, 4, 3, 2, 1, 0]), (10, &[6, 6, 6]), (11, &[])] {
            let again = settle(&subject, &asking(2, name, terms, other));
            assert_eq!(again, Settlement { replay: AGAIN, ..first.clone() }, "{name}: by terms {terms}");
        }
        assert_eq!(before, peek(&subject, &counters, &["x"]), "{name}: a replay changed a counter");
    }
}

/// A claim with a `keep` of zero is settled each time, unless another claim with its key has a record. It leaves no
/// record itself.
pub fn one_that_leaves_no_record_is_settled_unless_another_was<S: Subject>(make: impl Fn() -> S) {
    for counter in one_of_each(AMOUNT) {
        let rule = counter.scope.rule();
        let subject = make();
        let unrecorded = |id: u128, body: u64| {
            let mut claim = once(&counter, id, "order-1", body);
            claim.once.iter_mut().for_each(|once| once.keep = Span::ZERO);
            settle(&subject, &claim)
        };
        let left = || settle_one(&subject, u128::MAX, counter.take("x", 0)).remaining;
        subject.set_now(START);
        for taken in 1..=3 {
            let settled = unrecorded(u128::from(taken), 8);
            assert_eq!((settled.replay, settled.readings[0].taken), (Replay::First, 1), "{rule}");
            assert_eq!(left(), AMOUNT - taken, "{rule}: it takes each time");
        }
        let first = settle(&subject, &once(&counter, 4, "order-1", 7));
        assert_eq!(first.replay, Replay::First, "{rule}: it left a record");
        let before = left();
        let conflict = unrecorded(5, 8);
        assert_eq!((conflict.replay, conflict.readings.len()), (Replay::Conflict, 1), "{rule}");
        assert!(!conflict.readings[0].admits && conflict.readings[0].taken == 0, "{rule}");
        assert_eq!(unrecorded(6, 7), Settlement { replay: AGAIN, ..first }, "{rule}");
        assert_eq!(left(), before, "{rule}: another was settled, and yet it took");
        subject.set_now(START.after(KEEP));
        assert_eq!(unrecorded(7, 8).replay, Replay::First, "{rule}: the record is over");
    }
}

/// A claim without charges has a record as well: it says that the key is in use.
pub fn one_without_charges_is_recorded<S: Subject>(make: impl Fn() -> S) {
    let counter = &one_of_each(AMOUNT)[0];
    let subject = make();
    let empty = |body: u64, keep: Span| {
        let once = Once { key: counter.key("order-1"), body, terms: TERMS, keep };
        settle(&subject, &Claim { once: Some(once), ..claim(1, []) })
    };
    let summary = |settlement: Settlement| (settlement.replay, settlement.readings.len(), settlement.at);
    subject.set_now(START);
    assert_eq!(summary(empty(7, Span::ZERO)), (Replay::First, 0, START));
    assert_eq!(summary(empty(7, KEEP)), (Replay::First, 0, START), "one that leaves no record left one");
    let later = START.after(Span::from_secs(5));
    subject.set_now(later);
    for keep in [KEEP, Span::ZERO] {
        assert_eq!(summary(empty(7, keep)), (AGAIN, 0, START));
        assert_eq!(summary(empty(8, keep)), (Replay::Conflict, 0, later));
    }
    let charged = settle(&subject, &once(counter, 2, "order-1", 8));
    assert_eq!((charged.replay, charged.readings.len()), (Replay::Conflict, 1));
    assert_eq!(settle_one(&subject, u128::MAX, counter.take("x", 0)).remaining, AMOUNT);
    subject.set_now(START.after(KEEP));
    assert_eq!(summary(empty(8, KEEP)), (Replay::First, 0, START.after(KEEP)));
}

/// The returns and debits of a request that has ended are settled once, wherever its counters live: also if they are
/// repeated later or from several threads, and not if a different settlement was recorded before.
pub fn settlements_take_effect_once<S: Subject>(make: impl Fn() -> S) {
    for (back, more) in one_of_each(AMOUNT).into_iter().zip(one_of_each(AMOUNT).into_iter().rev()) {
        let case = format!("{} given back, {} used", back.scope.rule(), more.scope.rule());
        let subject = make();
        let peek = || ["x", "y"].map(|value| peek(&subject, &[back.clone(), more.clone()], &[value]));
        let taken = |id: u128, units: u64| settle(&subject, &claim(id, [back.take("x", units), more.take("y", units)]));
        let end = |body: u64| {
            let charges = [
                back.charge("x", Ask::Return { taken_at: START }, 2, Mode::Enforce),
                more.charge("y", Ask::Regardless, 3, Mode::Enforce),
            ];
            let once = Once { key: back.key("receipt"), body, terms: 0, keep: KEEP };
            settle(&subject, &Claim { once: Some(once), ..claim(1, charges) })
        };
        subject.set_now(START);
        let (first, second) = (taken(1, 4), taken(2, 1));
        assert!(first.readings.iter().chain(&second.readings).all(|reading| reading.admits), "{case}");
        let before = peek();
        let first = end(1);
        assert_eq!((first.replay, first.readings.len()), (Replay::First, 2), "{case}");
        assert!(first.readings.iter().all(|reading| reading.admits && reading.taken > 0), "{case}: {first:?}");
        let after = peek();
        assert_ne!(before, after, "{case}");
        let replay = Replay::Again { terms: 0, passed: true };
        let firsts = in_threads(|_| {
            let again = end(1);
            assert_eq!(again, Settlement { replay, ..first.clone() }, "{case}");
            let conflict = end(2);
            assert_eq!((conflict.replay, conflict.readings.len()), (Replay::Conflict, 2), "{case}");
            u64::from(again.replay == Replay::First)
        });
        assert_eq!((firsts, peek()), (0, after), "{case}: settled twice");
    }
}

/// The same key from several threads at once is charged once.
pub fn together_they_pay_once<S: Subject>(make: impl Fn() -> S) {
    for counter in one_of_each(AMOUNT) {
        let subject = make();
        subject.set_now(START);
        let first =
            in_threads(|id| u64::from(settle(&subject, &once(&counter, id, "order-1", 7)).replay == Replay::First));
        assert_eq!(first, 1, "{}: settled for the first time", counter.scope.rule());
        let left = settle_one(&subject, u128::MAX, counter.take("x", 0)).remaining;
        assert_eq!(left, AMOUNT - 1, "{}: paid more than once", counter.scope.rule());
    }
}

/// Claims that are repeated at the same time all have the numbers of the first.
pub fn together_they_have_the_first_numbers<S: Subject>(make: impl Fn() -> S) {
    for counter in one_of_each(AMOUNT) {
        let subject = make();
        subject.set_now(START);
        let others = in_threads(|id| {
            let settlement = settle(&subject, &once(&counter, id, "order-1", 7));
            u64::from(settlement.readings[0].remaining != AMOUNT - 1)
        });
        assert_eq!(others, 0, "{}: other numbers than the first", counter.scope.rule());
    }
}

fn once<'a>(counter: &'a TestCounter, id: u128, name: &'a str, body: u64) -> Claim<'a> {
    let once = Once { key: counter.key(name), body, terms: TERMS, keep: KEEP };
    Claim { once: Some(once), ..claim(id, [counter.take("x", 1)]) }
}
