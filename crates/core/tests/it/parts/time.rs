//! Ticks by period, and arithmetic that saturates.

use tollgate_core::{EXACT, Span, Tick, Timestamp, Wait};

#[test]
fn the_tick_is_chosen_by_the_period_alone() {
    for (micros, tick) in [
        (1_000, Tick::Micro),
        (60_000_000, Tick::Micro),
        (60_000_001, Tick::Milli),
        (3_600_000_000, Tick::Milli),
        (3_600_000_001, Tick::Second),
        (u64::MAX, Tick::Second),
    ] {
        assert_eq!(Tick::for_period(Span::from_micros(micros)), tick, "{micros} µs");
    }
}

#[test]
fn a_moment_lies_in_the_tick_that_began_last() {
    let moment = Timestamp::from_micros(1_999_999);
    assert_eq!((Tick::Micro.at(moment), Tick::Milli.at(moment), Tick::Second.at(moment)), (1_999_999, 1_999, 1));
    assert_eq!(Tick::Milli.start(1_999), Timestamp::from_micros(1_999_000));
    assert_eq!(Tick::Second.until(moment, 3), Span::from_micros(1_000_001));
    assert_eq!(Tick::Second.until(moment, 1), Span::ZERO, "a tick that is over");
}

#[test]
fn moments_stay_exact() {
    assert_eq!(Timestamp::from_micros(u64::MAX), Timestamp::MAX);
    assert_eq!(Timestamp::from_secs(u64::MAX), Timestamp::MAX);
    assert_eq!(Timestamp::MAX.as_micros(), EXACT - 1);
    assert_eq!(Timestamp::MAX.after(Span::from_micros(1)), Timestamp::MAX);
    assert_eq!(Timestamp::from_secs(1).since(Timestamp::from_secs(2)), Span::ZERO);
    assert!(Tick::Second.until(Timestamp::MAX, u64::MAX) > Span::ZERO, "a wait past the last moment is still a wait");
}

#[test]
fn waits_are_ordered_by_time() {
    let short = Wait::For(Span::from_micros(1));
    let long = Wait::For(Span::from_secs(1));
    assert!(Wait::None < short && short < long && long < Wait::Forever);
}

#[test]
fn seconds_are_whole_and_rounded_up() {
    for (micros, secs) in [(0, 0), (1, 1), (1_000_000, 1), (1_000_001, 2)] {
        assert_eq!(Span::from_micros(micros).as_secs_ceil(), secs);
    }
}
