//! Shared by these tests: rules from text, and limiters with counters in memory and a manual clock.

use tollgate::{Limiter, ManualClock, MemoryConfig, MemoryStore, Ruleset, Timestamp};

/// The time at which manual clocks start: 1 January 2026, 0:00 UTC.
pub(crate) const START: Timestamp = Timestamp::from_secs(1_767_225_600);

/// A limiter whose time is that of a manual clock.
pub(crate) type ManualLimiter = Limiter<MemoryStore<ManualClock>>;

/// Compiles rules.
#[track_caller]
pub(crate) fn rules(text: &str, generation: u64) -> Ruleset {
    Ruleset::from_text(text, generation).unwrap().0
}

/// A limiter with these rules, and its clock, which is at [`START`].
#[track_caller]
pub(crate) fn manual_limiter(text: &str) -> (ManualLimiter, ManualClock) {
    let clock = ManualClock::at(START);
    let limiter = Limiter::new(rules(text, 1), MemoryConfig::default().build_with(clock.clone()));
    (limiter.with_clock(clock.clone()), clock)
}
