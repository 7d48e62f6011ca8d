//! The values of a reading are exact: the wait to the tick, and the remaining units to the unit.

use proptest::prelude::*;
use tollgate_core::{Limit, Reading, Span, Timestamp, Wait};

use super::world::{Asks, START, World, asks, cases, later, limits, steps};
use tollgate_core::Mode;

/// A counter after a history, and the end of the history.
fn after(limit: &Limit, history: &[(u64, (super::world::Kind, u64))]) -> (World, Timestamp) {
    let mut world = World::default();
    let mut moments = Vec::new();
    let mut now = START;
    for (id, (step, (kind, units))) in (0..).zip(history) {
        now = later(now, limit, *step);
        moments.push(now);
        let asks = Asks { key: 0, ask: kind.ask(&moments), units: *units, mode: Mode::Enforce };
        world.settle(id, std::slice::from_ref(limit), &[asks], now);
    }
    (world, now)
}

/// The reading of a claim of these units at `now`, in a copy of the world.
fn would_read(world: &World, limit: &Limit, units: u64, now: Timestamp) -> Reading {
    world.clone().take(u128::MAX, limit, units, now)
}

proptest! {
    #![proptest_config(cases(4_000))]

    #[test]
    fn the_wait_is_exact(
        limit in limits(),
        history in prop::collection::vec((steps(), asks()), 0..25),
        step in steps(),
        units in 0u64..14,
    ) {
        let (world, now) = after(&limit, &history);
        let now = later(now, &limit, step);
        let reading = would_read(&world, &limit, units, now);
        match reading.wait {
            Wait::None => prop_assert!(reading.admits, "a refusal without a wait"),
            Wait::Forever => {
                prop_assert!(!reading.admits);
                let units = match limit.algorithm() {
                    tollgate_core::Algorithm::Concurrency => units.min(1),
                    _ => units,
                };
                prop_assert!(units > limit.quota(), "{units} of {} would fit some day", limit.quota());
            }
            Wait::For(span) => {
                prop_assert!(!reading.admits && span > Span::ZERO);
                let at = now.after(span);
                prop_assert!(would_read(&world, &limit, units, at).admits, "refused when its wait of {span:?} is over");
                let before = Timestamp::from_micros(at.as_micros() - 1);
                prop_assert!(!would_read(&world, &limit, units, before).admits, "admitted before its wait of {span:?}");
                let tick = limit.period().tick();
                prop_assert_eq!(tick.start(tick.at(at)), at, "a wait ends with a tick");
            }
        }
    }

    #[test]
    fn what_is_left_is_what_is_admitted(
        limit in limits(),
        history in prop::collection::vec((steps(), asks()), 0..25),
        step in steps(),
        units in 0u64..14,
    ) {
        let (world, now) = after(&limit, &history);
        let now = later(now, &limit, step);
        // Exact both with an admission and with a refusal.
        let mut settled = world.clone();
        let left = settled.take(u128::MAX, &limit, units, now).remaining;
        let fits = |units| settled.clone().take(1 << 100, &limit, units, now).admits;
        prop_assert!(left == 0 || fits(left), "{left} are left and refused");
        // A hold is one unit, whatever its cost.
        let is_hold = limit.algorithm() == tollgate_core::Algorithm::Concurrency;
        prop_assert!((is_hold && left > 0) || !fits(left + 1), "{left} are left and one more is admitted");
    }

    #[test]
    fn after_the_reset_all_is_left(
        limit in limits(),
        history in prop::collection::vec((steps(), asks()), 0..25),
    ) {
        use tollgate_core::Algorithm::{Bucket, Concurrency, FixedWindow, SlidingLog, SlidingWindow};
        let (world, now) = after(&limit, &history);
        let reset = would_read(&world, &limit, 0, now).reset_after;
        let left = |at| would_read(&world, &limit, 0, at).remaining;
        let at = now.after(reset);
        match limit.algorithm() {
            // The next window still weights this one.
            SlidingWindow { .. } => {}
            Bucket { .. } | FixedWindow | SlidingLog | Concurrency => prop_assert_eq!(left(at), limit.quota()),
        }
        if reset > Span::ZERO && limit.amount() > 0 && !matches!(limit.algorithm(), FixedWindow | SlidingWindow { .. } | Bucket { .. }) {
            prop_assert!(left(Timestamp::from_micros(at.as_micros() - 1)) < limit.quota());
        }
    }
}
