//! Claims on several counters: all or nothing, refusals change nothing, and independent charges commute.

use proptest::prelude::*;
use tollgate_core::settle::Vote;
use tollgate_core::{Ask, Limit, Mode, Timestamp};

use super::world::{Asks, Kind, START, World, asks, cases, later, limits, modes, steps};

const KEYS: usize = 4;
type Drawn = (usize, (Kind, u64), Mode);

fn charges(keys: std::ops::Range<usize>) -> impl Strategy<Value = Vec<Drawn>> {
    prop::collection::vec((keys, asks(), modes()), 1..6)
}

fn history() -> impl Strategy<Value = Vec<(u64, Vec<Drawn>)>> {
    prop::collection::vec((steps(), charges(0..KEYS)), 0..20)
}

fn written(drawn: &[Drawn], moments: &[Timestamp]) -> Vec<Asks> {
    drawn.iter().map(|&(key, (kind, units), mode)| Asks { key, ask: kind.ask(moments), units, mode }).collect()
}

fn after(limits: &[Limit], history: &[(u64, Vec<Drawn>)]) -> (World, Vec<Timestamp>) {
    let mut world = World::default();
    let mut moments = vec![START];
    for (id, (step, drawn)) in (0..).zip(history) {
        moments.push(later(moments[moments.len() - 1], &limits[0], *step));
        world.settle(id, limits, &written(drawn, &moments), moments[moments.len() - 1]);
    }
    (world, moments)
}

proptest! {
    #![proptest_config(cases(2_000))]

    #[test]
    fn a_refusal_changes_nothing_but_facts(
        limits in prop::collection::vec(limits(), KEYS),
        history in history(),
        drawn in charges(0..KEYS),
    ) {
        let (mut world, moments) = after(&limits, &history);
        let now = moments[moments.len() - 1];
        let asks = written(&drawn, &moments);
        let is_fact = |asks: &Asks| matches!(asks.ask, Ask::Regardless | Ask::Return { .. } | Ask::Credit | Ask::Reset);
        let mut only_facts = world.clone();
        let facts: Vec<Asks> = asks.iter().copied().filter(is_fact).collect();
        if !facts.is_empty() {
            only_facts.settle(999, &limits, &facts, now);
        }
        let settlement = world.settle(999, &limits, &asks, now);
        let votes = asks.iter().zip(&settlement.readings).map(|(asks, reading)| (asks.ask, asks.mode, reading.admits));
        let mut vote = Vote::default();
        votes.for_each(|(ask, mode, admits)| vote.count(ask, mode, admits));
        if !vote.passes() {
            prop_assert_eq!(world, only_facts);
            for (asks, reading) in asks.iter().zip(&settlement.readings) {
                prop_assert!(is_fact(asks) || reading.taken == 0, "a refused claim took {:?}", reading);
            }
        }
    }

    #[test]
    fn enforced_charges_are_paid_all_or_none(
        limits in prop::collection::vec(limits(), KEYS),
        history in history(),
        units in prop::collection::vec(1u64..8, KEYS),
    ) {
        let (mut world, moments) = after(&limits, &history);
        let asks: Vec<Asks> = units.iter().enumerate().map(|(key, units)| Asks::exactly(key, *units)).collect();
        let before = world.clone();
        let settlement = world.settle(999, &limits, &asks, moments[moments.len() - 1]);
        if settlement.readings.iter().all(|reading| reading.admits) {
            for (at, reading) in settlement.readings.iter().enumerate() {
                let is_hold = limits[at].algorithm() == tollgate_core::Algorithm::Concurrency;
                prop_assert_eq!(reading.taken, if is_hold { 1 } else { units[at] });
            }
        } else {
            prop_assert!(settlement.readings.iter().all(|reading| reading.taken == 0));
            prop_assert_eq!(world, before);
        }
    }

    #[test]
    fn claims_that_share_nothing_commute(
        limits in prop::collection::vec(limits(), KEYS),
        history in history(),
        one in charges(0..KEYS / 2),
        other in charges(KEYS / 2..KEYS),
        step in steps(),
    ) {
        let (world, moments) = after(&limits, &history);
        let first = moments[moments.len() - 1];
        let second = later(first, &limits[0], step);
        let (one, other) = (written(&one, &moments), written(&other, &moments));
        let (mut ahead, mut behind) = (world.clone(), world);
        let one_ahead = ahead.settle(7, &limits, &one, first);
        let other_behind = ahead.settle(8, &limits, &other, second);
        let other_ahead = behind.settle(8, &limits, &other, second);
        let one_behind = behind.settle(7, &limits, &one, first);
        prop_assert_eq!((one_ahead, other_behind), (one_behind, other_ahead));
        prop_assert_eq!(ahead, behind);
    }
}
