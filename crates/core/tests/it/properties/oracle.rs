//! Compares the core with a second implementation, on random histories of every ask, mode and algorithm, with
//! changing quotas and a clock that sometimes steps back.

use proptest::prelude::*;
use tollgate_core::{Algorithm, Ask, ClaimId, Limit, Mode, Period, Span, Timestamp, Wait};

use super::naive::{At, Naive};
use super::world::{Asks, Kind, World, algorithms, asks, cases, limit, modes};

const KEYS: usize = 3;
/// Short, so that every tick can be tried.
const PERIOD: Span = Span::from_micros(1_000);
const START: Timestamp = Timestamp::from_micros(1_767_225_600_000_377);

/// The answer of both implementations to one charge.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Said {
    admits: bool,
    taken: u64,
    left: u64,
    wait: Wait,
    reset: Span,
    delay: Span,
}

#[derive(Clone, Debug)]
struct Step {
    moves: i64,
    new_quota: Option<(usize, u64, u64)>,
    id: u128,
    charges: Vec<(usize, (Kind, u64), Mode)>,
}

fn a_step() -> impl Strategy<Value = Step> {
    let moves = prop_oneof![4 => Just(0i64), 8 => 0i64..400, 2 => 400i64..2_500, 1 => -900i64..0, 1 => -2_600i64..-900];
    let new_quota = prop::option::weighted(0.1, (0..KEYS, 0u64..10, 0u64..14));
    let charges = prop::collection::vec((0..KEYS, asks(), modes()), 1..5);
    (moves, new_quota, 0u128..6, charges).prop_map(|(moves, new_quota, id, charges)| Step {
        moves,
        new_quota,
        id,
        charges,
    })
}

/// Settles a claim step by step, as the design specifies it.
fn settle(states: &mut [Naive], limits: &[Limit], id: ClaimId, asks: &[Asks], now: u64) -> Vec<Said> {
    let mut work = states.to_vec();
    let mut stood: Vec<(u64, bool)> =
        work.iter_mut().zip(limits).map(|(naive, limit)| naive.stand(limit, now)).collect();
    let is_hold = |key: usize| limits[key].algorithm() == Algorithm::Concurrency;
    let units = |asks: &Asks| if is_hold(asks.key) { asks.units.min(1) } else { asks.units };
    let same = |one: &Asks, other: &Asks| one.key == other.key && one.ask == other.ask && one.mode == other.mode;
    let mut taken = vec![0; asks.len()];
    let mut admits = vec![true; asks.len()];
    let mut needs: Vec<u64> = asks.iter().map(units).collect();
    let mut delays = vec![0; asks.len()];
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for index in 0..asks.len() {
        match groups.iter_mut().find(|group| same(&asks[group[0]], &asks[index])) {
            Some(group) => group.push(index),
            None => groups.push(vec![index]),
        }
    }

    for (index, asks) in asks.iter().enumerate().filter(|(_, asks)| asks.ask == Ask::Reset) {
        taken[index] = work[asks.key].counted(At { limit: &limits[asks.key], now: stood[asks.key].0 });
        (work[asks.key], stood[asks.key]) = (Naive::default(), (now, true));
    }
    let at = |key: usize| At { limit: &limits[key], now: stood[key].0 };
    for group in &groups {
        let first = &asks[group[0]];
        if let Ask::Return { taken_at } = first.ask {
            let sum = group.iter().map(|index| units(&asks[*index])).sum();
            let mut back = work[first.key].give_back(at(first.key), id, sum, taken_at.as_micros());
            for index in group {
                taken[*index] = back.min(units(&asks[*index]));
                back -= taken[*index];
            }
        }
    }
    for (index, asks) in asks.iter().enumerate().filter(|(_, asks)| asks.ask == Ask::Credit) {
        taken[index] = work[asks.key].credit(at(asks.key), units(asks));
    }
    for (index, asks) in asks.iter().enumerate().filter(|(_, asks)| asks.ask == Ask::Regardless) {
        taken[index] = work[asks.key].spend(at(asks.key), id, units(asks));
    }
    for (number, group) in groups.iter().enumerate() {
        let first = &asks[group[0]];
        if first.ask != Ask::Exactly {
            continue;
        }
        let mut sum: u64 = group.iter().map(|index| units(&asks[*index])).sum();
        for earlier in &groups[..number] {
            let other = &asks[earlier[0]];
            let pays = admits[earlier[0]] || other.mode == Mode::Soft;
            if other.key == first.key && other.ask == Ask::Exactly && pays && !is_hold(first.key) {
                sum += earlier.iter().map(|index| units(&asks[*index])).sum::<u64>();
            }
        }
        if is_hold(first.key) {
            sum = sum.min(1);
        }
        let naive = &work[first.key];
        let room = naive.fits(at(first.key), sum) || (is_hold(first.key) && naive.has_hold(at(first.key), id));
        for index in group {
            (needs[*index], admits[*index]) = (sum, room);
        }
    }
    let of = |mode: Mode| asks.iter().zip(&admits).filter(move |(it, _)| it.ask == Ask::Exactly && it.mode == mode);
    let enforced = of(Mode::Enforce).all(|(_, admits)| *admits);
    let any = of(Mode::AnyOf).count() == 0 || of(Mode::AnyOf).any(|(_, admits)| *admits);
    if enforced && any {
        for (index, asks) in asks.iter().enumerate().filter(|(_, asks)| asks.ask == Ask::Exactly) {
            if admits[index] || asks.mode == Mode::Soft {
                delays[index] = work[asks.key].delay(at(asks.key));
                taken[index] = work[asks.key].spend(at(asks.key), id, units(asks));
            }
        }
        for (index, asks) in asks.iter().enumerate().filter(|(_, asks)| asks.ask == Ask::UpTo) {
            let lease = units(asks).min(work[asks.key].left(at(asks.key)));
            taken[index] = work[asks.key].spend(at(asks.key), id, lease);
        }
    }
    let said = (0..asks.len()).map(|index| {
        let (key, naive) = (asks[index].key, &work[asks[index].key]);
        Said {
            admits: admits[index],
            taken: taken[index],
            left: naive.left(at(key)),
            wait: match naive.fits_at(at(key), needs[index]) {
                _ if admits[index] => Wait::None,
                Some(tick) => Wait::For(Span::from_micros(tick - now)),
                None => Wait::Forever,
            },
            reset: Span::from_micros(naive.reset_at(at(key)).saturating_sub(now)),
            delay: Span::from_micros(delays[index]),
        }
    });
    let said = said.collect();
    for (key, mut naive) in work.into_iter().enumerate() {
        let used = (0..asks.len()).any(|index| asks[index].key == key && taken[index] > 0);
        let touched = asks.iter().any(|asks| asks.key == key);
        if used || (touched && stood[key].1) {
            naive.forget(at(key));
            states[key] = naive;
        }
    }
    said
}

proptest! {
    #![proptest_config(cases(3_000))]

    #[test]
    fn both_say_the_same(
        kinds in prop::collection::vec(algorithms(), KEYS),
        quotas in prop::collection::vec((0u64..10, 0u64..14), KEYS),
        history in prop::collection::vec(a_step(), 1..40),
    ) {
        let period = Period::fixed(PERIOD).unwrap();
        let mut limits: Vec<Limit> =
            kinds.iter().zip(&quotas).map(|(kind, (amount, burst))| limit(*amount, *burst, &period, *kind)).collect();
        let mut world = World::default();
        let mut states = vec![Naive::default(); KEYS];
        let mut now = START;
        let mut moments = Vec::new();
        for (number, step) in history.iter().enumerate() {
            now = Timestamp::from_micros(now.as_micros().saturating_add_signed(step.moves));
            moments.push(now);
            if let Some((key, amount, burst)) = step.new_quota {
                limits[key] = limit(amount, burst, &period, kinds[key]);
            }
            let charge = |&(key, (kind, units), mode): &(usize, (Kind, u64), Mode)| {
                Asks { key, ask: kind.ask(&moments), units, mode }
            };
            let asks: Vec<Asks> = step.charges.iter().map(charge).collect();
            let expected = settle(&mut states, &limits, ClaimId(step.id), &asks, now.as_micros());
            let settlement = world.settle(step.id, &limits, &asks, now);
            let actual: Vec<Said> = settlement.readings.iter().map(|reading| Said {
                admits: reading.admits,
                taken: reading.taken,
                left: reading.remaining,
                wait: reading.wait,
                reset: reading.reset_after,
                delay: reading.delay,
            }).collect();
            prop_assert_eq!(actual, expected, "step {} at {:?}: {:?} of {:?}", number, now, asks, limits);
        }
    }
}
