//! The table of last readings: what is found, and what is dropped.

use smallvec::smallvec;
use tollgate_core::key::Home;
use tollgate_core::{Key, OnFailure, Period, Scope, Shortcuts, Value};

use super::*;

const NOW: Timestamp = Timestamp::from_secs(1_000_000);
const MINUTE: Span = Span::from_secs(60);

fn limit(amount: u64) -> Limit {
    Limit::new(amount, Period::fixed(MINUTE).unwrap(), Algorithm::FixedWindow).unwrap()
}

fn scope() -> Scope {
    Scope::new("d", "r", Algorithm::FixedWindow, &Period::fixed(MINUTE).unwrap(), Home::Own)
}

fn charge<'a>(scope: &'a Scope, limit: &'a Limit, units: u64) -> Charge<'a> {
    Charge {
        key: Key::new(scope, smallvec![Value::Absent]),
        limit,
        ask: Ask::Exactly,
        units,
        mode: Mode::Enforce,
        on_failure: OnFailure::Local,
        shortcuts: Shortcuts::Refusals,
    }
}

fn admitted(remaining: u64) -> Reading {
    Reading { remaining, reset_after: MINUTE, ..Reading { admits: true, ..Reading::refusal(Wait::None) } }
}

fn refused(remaining: u64, wait: Span) -> Reading {
    Reading { remaining, reset_after: MINUTE, ..Reading::refusal(Wait::For(wait)) }
}

/// Keys that share their entries, without end.
fn neighbours() -> impl Iterator<Item = u128> {
    (1..).map(|number: u128| number << 65 | 7)
}

#[test]
fn the_latest_reading_counts_until_the_period_is_over() {
    let (table, scope, ten) = (LastReadings::new(), scope(), limit(10));
    let get = |now| table.get(7, &ten, now).map(|reading| reading.remaining);
    assert_eq!(get(NOW), None);
    for remaining in [9, 3, 5] {
        table.record(7, &charge(&scope, &ten, 1), &admitted(remaining), NOW);
        assert_eq!(get(NOW), Some(remaining));
    }
    assert_eq!(get(NOW.after(MINUTE)), None, "the window is over");
    assert_eq!(get(NOW.before(MINUTE)), None, "the clock was set back");
    table.record(7, &charge(&scope, &ten, 1), &admitted(10), NOW);
    assert_eq!(get(NOW), None, "a fresh counter needs no reading");
}

#[test]
fn a_refusal_holds_for_its_units_and_its_wait_only() {
    let (table, scope, ten) = (LastReadings::new(), scope(), limit(10));
    table.record(7, &charge(&scope, &ten, 3), &refused(2, MINUTE), NOW);
    let refusal = |units, limit: &Limit, now| table.get(7, limit, now)?.refusal(&charge(&scope, limit, units), now);
    let later = NOW.after(Span::from_secs(20));
    let known = refusal(3, &ten, later).unwrap();
    assert_eq!((known.admits, known.remaining, known.wait), (false, 2, Wait::For(Span::from_secs(40))));
    assert_eq!(known.source, Source::Local);
    assert!(refusal(4, &ten, later).is_some());
    assert_eq!(refusal(2, &ten, later), None, "two are left");
    assert_eq!(refusal(3, &ten, NOW.after(MINUTE)), None);
    assert_eq!(refusal(3, &limit(20), later), None, "the limit was raised");
    assert_eq!(table.get(7, &limit(20), later).unwrap().remaining, 12, "used units stay used");
    // A peek does not know the wait, an admission of as many units ends it.
    table.record(7, &charge(&scope, &ten, 0), &admitted(2), later);
    assert!(refusal(3, &ten, later).is_some());
    table.record(7, &charge(&scope, &ten, 1), &admitted(4), later);
    assert_eq!(refusal(3, &ten, later), None);
}

#[test]
fn a_flood_of_new_keys_does_not_displace_those_without_room() {
    let (table, scope, ten) = (LastReadings::new(), scope(), limit(10));
    let keys: Vec<u128> = neighbours().take(WAYS).collect();
    table.record(keys[0], &charge(&scope, &ten, 1), &refused(0, MINUTE), NOW);
    for (key, remaining) in keys.iter().zip([0, 0, 1, 2, 3, 4, 5, 6]).skip(1) {
        table.record(*key, &charge(&scope, &ten, 1), &admitted(remaining), NOW);
    }
    for key in neighbours().skip(WAYS).take(1_000) {
        table.record(key, &charge(&scope, &ten, 1), &admitted(9), NOW);
    }
    let known = |key: &u128| table.get(*key, &ten, NOW).is_some();
    assert!(keys.iter().all(known), "new keys have more room than all of these");
    let new = neighbours().nth(5_000).unwrap();
    table.record(new, &charge(&scope, &ten, 1), &admitted(2), NOW);
    assert!(known(&new) && !known(&keys[7]) && keys[..7].iter().all(known), "the one with the most room is dropped");
    // Those whose period is over are dropped before all others.
    let later = NOW.after(MINUTE);
    table.record(keys[7], &charge(&scope, &ten, 1), &admitted(9), later);
    assert!(table.get(keys[7], &ten, later).is_some());
}

#[test]
fn the_number_of_readings_is_bounded() {
    let (table, scope, ten) = (LastReadings::new(), scope(), limit(10));
    for number in 0..3 * MAX_READINGS as u128 {
        let key = number.wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
        table.record(key, &charge(&scope, &ten, 1), &admitted(5), NOW);
    }
    let used = |stripe: &Mutex<Box<[ReadingSet]>>| {
        let sets = stripe.lock().unwrap();
        sets.iter().map(|set| set.tags.iter().filter(|tag| **tag != 0).count()).sum::<usize>()
    };
    let readings: usize = table.stripes.iter().map(used).sum();
    assert!((MAX_READINGS / 2..=MAX_READINGS).contains(&readings), "{readings}");
}
