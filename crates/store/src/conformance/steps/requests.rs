//! Requests that begin, continue and end: checks that take units and holds, and receipts that settle them.

use std::collections::BTreeMap;

use proptest::prelude::*;
use smallvec::{SmallVec, smallvec};
use tollgate_core::key::Home;
use tollgate_core::{
    Algorithm, Ask, Charge, Claim, ClaimId, Key, Limit, Mode, OnFailure, Once, Period, Replay, Scope, Settlement,
    Shortcuts, Source, Span, Timestamp, Value, Verdict,
};

use super::START;
use crate::Store;
use crate::conformance::block_on;

/// How long a hold lasts and a receipt may be settled.
const HOLD: Span = Span::from_secs(10);
/// How long the answer to an idempotent check is stored.
const KEEP: Span = Span::from_secs(30);
/// The number of distinct requests. Every second one belongs to each caller.
const REQUESTS: usize = 6;
const CALLERS: [&str; 2] = ["x", "y"];
/// The concurrency rule that all callers share.
const SHARED_SLOTS: usize = 8;

/// An event, and by how much the clock moves before it.
#[derive(Clone, Debug)]
pub struct Event {
    /// Microseconds.
    pub moves: u64,
    request: usize,
    what: What,
}

#[derive(Clone, Debug)]
enum What {
    /// A check of these units at the rules whose bits are set, idempotent or not.
    Begins { rules: u16, units: u64, once: Option<u64> },
    /// The request continues.
    Runs,
    /// The request ends: for each counter it gives back units or debits more. The same number means the same
    /// settlement, except for the units taken.
    Ends { body: u64, back: u64, more: u64 },
}

/// The rules of one history, and the units that its requests have taken.
pub struct Play {
    rules: Vec<(Scope, Limit)>,
    checks: Scope,
    receipts: Scope,
    /// The idempotency keys of its requests.
    ids: [[u8; 16]; REQUESTS],
    taken: BTreeMap<usize, Receipt>,
    moments: Vec<Timestamp>,
    /// Whether claims may be settled in parts. Then a charge that is refused because of another part only peeks, so
    /// that readings and record lifetimes differ from those of a whole claim; a hold is released if another one is
    /// lost; and the same key with other charges finds some of their parts settled. Such histories are excluded.
    is_in_parts: bool,
}

/// The units that a request took by rule, and when.
struct Receipt {
    id: [u8; 16],
    at: Timestamp,
    taken: Vec<(usize, u64)>,
}

/// Any event.
pub fn events() -> impl Strategy<Value = Event> {
    let begins = (1u16..1 << 9, 0u64..5, prop::option::weighted(0.4, 0u64..2))
        .prop_map(|(rules, units, once)| What::Begins { rules, units, once });
    let ends = (0u64..3, 0u64..4, 0u64..4).prop_map(|(body, back, more)| What::Ends { body, back, more });
    let what = prop_oneof![4 => begins, 2 => Just(What::Runs), 4 => ends];
    let moves = prop_oneof![4 => Just(0u64), 5 => 0u64..3_000_000, 1 => 0u64..30_000_000];
    (moves, 0..REQUESTS, what).prop_map(|(moves, request, what)| Event { moves, request, what })
}

impl Play {
    /// A request whose counters are not shared with a request of another number.
    pub fn new(number: u64, amount: u64) -> Play {
        let domain = format!("play{number}");
        let burst = amount + 3;
        let algorithms = [
            Algorithm::Bucket { burst, paced: false },
            Algorithm::Bucket { burst, paced: true },
            Algorithm::FixedWindow,
            Algorithm::SlidingWindow { sub_windows: 1 },
            Algorithm::SlidingWindow { sub_windows: 5 },
            Algorithm::SlidingLog,
            Algorithm::FixedWindow,
            Algorithm::Concurrency,
            Algorithm::Concurrency,
        ];
        let rule = |(number, algorithm): (usize, Algorithm)| {
            let amount = if algorithm == Algorithm::Concurrency { amount.div_ceil(4) } else { amount };
            let limit = Limit::new(amount, Period::fixed(HOLD).unwrap(), algorithm).unwrap();
            // A window and holds that all callers share live elsewhere.
            let home = if matches!(number, 6 | SHARED_SLOTS) { Home::Own } else { Home::Caller(0) };
            (Scope::new(&domain, &number.to_string(), algorithm, limit.period(), home), limit)
        };
        Play {
            rules: algorithms.into_iter().enumerate().map(rule).collect(),
            checks: Scope::for_records(&domain, "checks", Home::Caller(0)),
            receipts: Scope::for_records(&domain, "receipts", Home::Caller(0)),
            ids: std::array::from_fn(|request| (request as u128 + 1).to_be_bytes()),
            taken: BTreeMap::new(),
            moments: vec![START],
            is_in_parts: false,
        }
    }

    /// The same for stores that settle some claims in parts.
    pub fn in_parts(number: u64, amount: u64) -> Play {
        Play { is_in_parts: true, ..Play::new(number, amount) }
    }

    /// The time of the next event.
    pub fn step(&mut self, event: &Event) -> Timestamp {
        let now = self.moments[self.moments.len() - 1].after(Span::from_micros(event.moves));
        self.moments.push(now);
        now
    }

    /// The claim of an event, if it is meaningful: a request that did not begin does not end.
    pub fn claim(&self, event: &Event) -> Option<Claim<'_>> {
        let (request, caller) = (event.request, CALLERS[event.request % 2]);
        let id = ClaimId(u128::from_be_bytes(self.id(event)?));
        let receipt = |id, body, keep| {
            let key = Key::new(&self.receipts, smallvec![Value::Text(caller), Value::bytes(id)]);
            Once { key, body, terms: 0, keep }
        };
        let (charges, once): (SmallVec<[Charge<'_>; 4]>, _) = match event.what {
            What::Begins { rules, units, once } => {
                let charges = self.met(rules).map(|rule| self.charge(rule, caller, Ask::Exactly, units)).collect();
                let once = once.filter(|_| !self.is_in_parts).map(|body| {
                    let key = Key::new(&self.checks, smallvec![Value::Text(caller), Value::bytes(&self.ids[request])]);
                    Once { key, body, terms: rules.into(), keep: KEEP }
                });
                (charges, once)
            }
            What::Runs => {
                let Receipt { id, taken, .. } = self.taken.get(&request)?;
                let held = taken.iter().filter(|(rule, _)| self.is_hold(*rule));
                let charges = held.map(|(rule, _)| self.charge(*rule, caller, Ask::Exactly, 1)).collect();
                (charges, Some(receipt(id, u64::MAX, Span::ZERO)))
            }
            What::Ends { body, back, more } => {
                let Receipt { id, at, taken } = self.taken.get(&request)?;
                let (back, more) = if self.is_in_parts { (2 * (body % 2), body) } else { (back, more) };
                let end = |(rule, units): &(usize, u64)| match (self.is_hold(*rule), back, more) {
                    (true, ..) => Some(self.charge(*rule, caller, Ask::Return { taken_at: *at }, 1)),
                    (false, 0, 0) => None,
                    (false, 0, more) => Some(self.charge(*rule, caller, Ask::Regardless, more)),
                    (false, back, _) => {
                        Some(self.charge(*rule, caller, Ask::Return { taken_at: *at }, back.min(*units)))
                    }
                };
                (taken.iter().filter_map(end).collect(), Some(receipt(id, body, HOLD)))
            }
        };
        Some(Claim { id, charges, once, timeout: None })
    }

    /// Records the units that a check took.
    pub fn note(&mut self, event: &Event, settlement: &Settlement) {
        let What::Begins { rules, .. } = event.what else { return };
        let passed = self.claim(event).is_some_and(|claim| Verdict::reach(&claim, settlement).allowed);
        if passed && settlement.replay == Replay::First {
            let taken = self.met(rules).zip(&settlement.readings).map(|(rule, reading)| (rule, reading.taken));
            let taken = taken.filter(|(_, units)| *units > 0).collect();
            let Some(id) = self.id(event) else { return };
            self.taken.insert(event.request, Receipt { id, at: settlement.at, taken });
        }
    }

    /// The claim id that a request began with, or begins with now. In parts always a new one.
    fn id(&self, event: &Event) -> Option<[u8; 16]> {
        match event.what {
            What::Begins { .. } if self.is_in_parts => Some((self.moments.len() as u128).to_be_bytes()),
            What::Begins { .. } => Some(self.ids[event.request]),
            What::Runs | What::Ends { .. } => self.taken.get(&event.request).map(|receipt| receipt.id),
        }
    }

    /// The readings of all counters in a store.
    pub fn counters(&self, store: &impl Store) -> Vec<Settlement> {
        let look = |(rule, caller): (usize, &'static str)| {
            let charges = smallvec![self.charge(rule, caller, Ask::Exactly, 0)];
            block_on(store.settle(&Claim { id: ClaimId(u128::MAX), charges, once: None, timeout: None }))
        };
        (0..self.rules.len()).flat_map(|rule| CALLERS.map(|caller| (rule, caller))).map(look).collect()
    }

    /// The rules whose bits are set.
    fn met(&self, bits: u16) -> impl Iterator<Item = usize> {
        let (count, is_in_parts) = (self.rules.len(), self.is_in_parts);
        (0..count).filter(move |rule| bits >> rule & 1 == 1 && !(is_in_parts && *rule == SHARED_SLOTS))
    }

    fn charge<'a>(&'a self, rule: usize, caller: &'a str, ask: Ask, units: u64) -> Charge<'a> {
        let (scope, limit) = &self.rules[rule];
        let values = if scope.home() == Home::Own { smallvec![] } else { smallvec![Value::Text(caller)] };
        let (key, mode, on_failure) = (Key::new(scope, values), Mode::Enforce, OnFailure::Deny);
        Charge { key, limit, ask, units, mode, on_failure, shortcuts: Shortcuts::None }
    }

    fn is_hold(&self, rule: usize) -> bool {
        self.rules[rule].1.algorithm() == Algorithm::Concurrency
    }
}

/// Whether two stores give the same answers, and have the same counters, after every event. `set_now` sets the clocks
/// of both.
pub fn compare(
    play: &mut Play,
    events: &[Event],
    (one, other): (&impl Store, &impl Store),
    set_now: impl Fn(Timestamp),
) -> Result<(), TestCaseError> {
    for (number, event) in events.iter().enumerate() {
        let now = play.step(event);
        set_now(now);
        let Some(claim) = play.claim(event) else { continue };
        let expected = block_on(one.settle(&claim));
        let actual = block_on(other.settle(&claim));
        let counters = play.counters(other);
        if !counters.iter().chain([&actual]).flat_map(|it| &it.readings).all(|reading| reading.source == Source::Store)
        {
            // The machine stood still for a second: the state of the store is unknown.
            return Err(TestCaseError::reject("the store did not answer"));
        }
        prop_assert_eq!(&actual, &expected, "event {} at {:?}: {:?}", number, now, event);
        prop_assert_eq!(counters, play.counters(one), "after event {}: {:?}", number, event);
        drop(claim);
        play.note(event, &expected);
    }
    Ok(())
}
