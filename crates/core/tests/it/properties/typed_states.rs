//! A charge is settled on the state of its algorithm as on one of any algorithm.

use proptest::prelude::*;
use smallvec::smallvec;
use tollgate_core::algorithm::AlgorithmState;
use tollgate_core::key::Home;
use tollgate_core::{
    Algorithm, Ask, Charge, Claim, ClaimId, CounterState, Key, OnFailure, Scope, SettledState, Shortcuts, StateSlot,
    Timestamp, settle, settle_state,
};

use super::world::{Asks, START, World, asks, cases, later, limits, modes, steps};

const BY: ClaimId = ClaimId(7);

/// Settles a charge on a state of one algorithm; `None` if the state has no fixed size.
fn settled(charge: &Charge<'_>, state: &CounterState, now: Timestamp) -> Option<(SettledState, CounterState)> {
    fn on<S: AlgorithmState + Copy>(
        charge: &Charge<'_>,
        state: &S,
        now: Timestamp,
        wrap: impl Fn(S) -> CounterState,
    ) -> Option<(SettledState, CounterState)> {
        let mut state = *state;
        let settled = settle_state(BY, charge, &mut state, now);
        Some((settled, wrap(state)))
    }
    match state {
        CounterState::Bucket(it) => on(charge, it, now, CounterState::Bucket),
        CounterState::FixedWindow(it) => on(charge, it, now, CounterState::FixedWindow),
        CounterState::SlidingWindow(it) => on(charge, it, now, CounterState::SlidingWindow),
        _ => None,
    }
}

proptest! {
    #![proptest_config(cases(4_000))]

    #[test]
    fn a_typed_state_is_settled_like_any_other(
        limit in limits(),
        history in prop::collection::vec((steps(), asks()), 1..12),
        (step, units, mode) in (steps(), 0u64..16, modes()),
        is_set_back in prop::bool::weighted(0.1),
    ) {
        let (mut world, mut moments) = (World::default(), vec![START]);
        for (id, (step, (kind, units))) in (0..).zip(history) {
            moments.push(later(moments[moments.len() - 1], &limit, step));
            let asks = Asks { ask: kind.ask(&moments), ..Asks::exactly(0, units) };
            world.settle(id, std::slice::from_ref(&limit), &[asks], moments[moments.len() - 1]);
        }
        let period = limit.period().span();
        let now = if is_set_back { START.before(period) } else { later(moments[moments.len() - 1], &limit, step) };
        let scope = Scope::new("d", "r", Algorithm::FixedWindow, limit.period(), Home::Own);
        let key = Key::new(&scope, smallvec![]);
        let on_failure = OnFailure::Deny;
        let charge = Charge { key, limit: &limit, ask: Ask::Exactly, units, mode, on_failure, shortcuts: Shortcuts::Refusals };
        let state = world.states.get(&0).cloned().unwrap_or_default();
        if let Some((typed, after)) = settled(&charge, &state, now) {
            let mut slots = [StateSlot::new(state, Timestamp::default())];
            let claim = Claim { id: BY, charges: smallvec![charge], once: None, timeout: None };
            let settlement = settle(&claim, &mut slots, now);
            prop_assert_eq!(&settlement.readings[..], &[typed.reading]);
            prop_assert_eq!(slots[0].changed, typed.changed);
            if typed.changed {
                prop_assert_eq!(slots[0].stale_at, typed.stale_at);
            }
            prop_assert_eq!(&slots[0].state, &after);
        }
    }
}
