//! The guarantee of each algorithm: at the time of an admission, the units that were admitted or debited and not
//! returned are within the quota, over every window of the algorithm.

use proptest::prelude::*;
use tollgate_core::{Algorithm, Ask, Limit, Mode, Period, Span, Timestamp};

use super::world::{Asks, START, World, algorithms, cases, later, limit, steps};

/// Outstanding units: when they were taken, in ticks, and by which claim.
#[derive(Clone, Copy, Debug)]
struct Out {
    id: u128,
    at: u64,
    taken_at: Timestamp,
    units: u64,
}

#[derive(Clone, Copy, Debug)]
enum Event {
    Take(u64),
    Lease(u64),
    Debit(u64),
    /// Gives back all units of an outstanding entry.
    Return(prop::sample::Index),
}

fn events() -> impl Strategy<Value = Event> {
    prop_oneof![
        8 => (1u64..6).prop_map(Event::Take),
        2 => (1u64..6).prop_map(Event::Lease),
        1 => (1u64..6).prop_map(Event::Debit),
        4 => any::<prop::sample::Index>().prop_map(Event::Return),
    ]
}

/// Checks that the outstanding units are within the limit's guarantee at `now`.
fn check_guarantee(limit: &Limit, out: &[Out], now: u64) -> Result<(), String> {
    let period = limit.period().ticks();
    let since = |from: u64| out.iter().filter(|out| out.at >= from).map(|out| out.units).sum::<u64>();
    let within = |from: u64| match since(from) {
        units if units <= limit.amount() => Ok(()),
        units => Err(format!("{units} of {} since {from} at {now}", limit.amount())),
    };
    match limit.algorithm() {
        Algorithm::FixedWindow => within(now - now % period),
        Algorithm::SlidingLog => within((now + 1).saturating_sub(period)),
        Algorithm::SlidingWindow { sub_windows } => {
            let part = period / u64::from(sub_windows);
            within(now - now % part - part * u64::from(sub_windows - 1))
        }
        Algorithm::Bucket { burst, .. } => out.iter().try_for_each(|first| {
            let most = burst * period + (now - first.at) * limit.amount();
            match since(first.at) * period {
                units if units <= most => Ok(()),
                units => Err(format!("{units} of {most} unit·ticks since {}", first.at)),
            }
        }),
        Algorithm::Concurrency => {
            let mut held: Vec<u128> = out.iter().filter(|out| out.at + period > now).map(|out| out.id).collect();
            held.sort_unstable();
            held.dedup();
            match held.len() as u64 {
                held if held <= limit.amount() => Ok(()),
                held => Err(format!("{held} of {} slots", limit.amount())),
            }
        }
    }
}

proptest! {
    #![proptest_config(cases(4_000))]

    #[test]
    fn never_more_than_the_quota_is_out(
        algorithm in algorithms(),
        length in prop::sample::select(vec![Span::from_micros(1_000), Span::from_secs(90), Span::from_secs(7_200)]),
        (amount, burst) in (1u64..12, 1u64..20),
        history in prop::collection::vec((steps(), events()), 1..60),
    ) {
        let limit = limit(amount, burst, &Period::fixed(length).unwrap(), algorithm);
        let tick = limit.period().tick();
        let mut world = World::default();
        let mut out: Vec<Out> = Vec::new();
        let mut now = START;
        for (id, (step, event)) in (0u128..).zip(history) {
            now = later(now, &limit, step);
            let mut settle = |id, ask, units| {
                let asks = Asks { key: 0, ask, units, mode: Mode::Enforce };
                world.settle(id, std::slice::from_ref(&limit), &[asks], now).readings[0].taken
            };
            let taken = match event {
                Event::Take(units) => settle(id, Ask::Exactly, units),
                Event::Lease(units) => settle(id, Ask::UpTo, units),
                Event::Debit(units) => settle(id, Ask::Regardless, units),
                Event::Return(which) => {
                    if !out.is_empty() {
                        let back = out.remove(which.index(out.len()));
                        settle(back.id, Ask::Return { taken_at: back.taken_at }, back.units);
                    }
                    0
                }
            };
            if taken > 0 {
                out.push(Out { id, at: tick.at(now), taken_at: now, units: taken });
                if !matches!(event, Event::Debit(_)) {
                    prop_assert_eq!(check_guarantee(&limit, &out, tick.at(now)), Ok(()));
                }
            }
        }
    }
}
