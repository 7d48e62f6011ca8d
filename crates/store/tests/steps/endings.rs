//! Requests that begin, go on and end: checks that take units and slots, and receipts that settle them.

use std::collections::BTreeMap;

use proptest::prelude::*;
use smallvec::{SmallVec, smallvec};
use tollgate_core::key::Home;
use tollgate_core::{
    Algorithm, Ask, Charge, Claim, ClaimId, Key, Limit, Mode, OnFailure, Once, Period, Replay, Scope, Settlement,
    Source, Span, Timestamp, Value, Verdict,
};
use tollgate_store::Store;
use tollgate_store::conformance::block_on;

use super::START;

/// How long a slot is held and a receipt may be settled.
const HOLD: Span = Span::from_secs(10);
/// How long the answer to a check that is decided once is kept.
const KEEP: Span = Span::from_secs(30);
/// As many requests as are told apart; of every two, one is each caller's.
const REQUESTS: usize = 6;
const CALLERS: [&str; 2] = ["x", "y"];
/// The rule on slots that all callers share.
const SHARED_SLOTS: usize = 8;

/// What happens, and by how much the clock moves before it.
#[derive(Clone, Debug)]
pub(crate) struct Event {
    pub(crate) moves: u64,
    request: usize,
    what: What,
}

#[derive(Clone, Debug)]
enum What {
    /// A check of so many units at the rules whose bits are set, decided once or not.
    Begins { rules: u16, units: u64, once: Option<u64> },
    /// It goes on.
    Runs,
    /// It has ended: of each counter it gives so much back of what it took, or used so much more. The same number tells the same, but
    /// for what was taken.
    Ends { body: u64, back: u64, more: u64 },
}

/// The rules of one history, and what its requests have taken.
pub(crate) struct Play {
    rules: Vec<(Scope, Limit)>,
    checks: Scope,
    receipts: Scope,
    /// The names of its requests.
    ids: [[u8; 16]; REQUESTS],
    taken: BTreeMap<usize, Receipt>,
    moments: Vec<Timestamp>,
    /// Whether claims may be settled in parts. Then what is refused for the sake of a part is looked at elsewhere, so that readings and
    /// the length of a record differ from those of one piece; a slot that is held goes if another is lost; and the same name for other
    /// charges finds some of their parts settled. None of these is asked for.
    is_in_parts: bool,
}

/// What a request took of each rule, and when.
struct Receipt {
    id: [u8; 16],
    at: Timestamp,
    taken: Vec<(usize, u64)>,
}

/// Any event.
pub(crate) fn events() -> impl Strategy<Value = Event> {
    let begins = (1u16..1 << 9, 0u64..5, prop::option::weighted(0.4, 0u64..2))
        .prop_map(|(rules, units, once)| What::Begins { rules, units, once });
    let ends = (0u64..3, 0u64..4, 0u64..4).prop_map(|(body, back, more)| What::Ends { body, back, more });
    let what = prop_oneof![4 => begins, 2 => Just(What::Runs), 4 => ends];
    let moves = prop_oneof![4 => Just(0u64), 5 => 0u64..3_000_000, 1 => 0u64..30_000_000];
    (moves, 0..REQUESTS, what).prop_map(|(moves, request, what)| Event { moves, request, what })
}

impl Play {
    /// One whose counters no other has that has another number.
    pub(crate) fn new(number: u64, amount: u64) -> Play {
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
            // A window and slots that all callers share live elsewhere.
            let home = if matches!(number, 6 | SHARED_SLOTS) { Home::Own } else { Home::Caller(0) };
            (Scope::new(&domain, &number.to_string(), algorithm, limit.period(), home), limit)
        };
        Play {
            rules: algorithms.into_iter().enumerate().map(rule).collect(),
            checks: Scope::of_records(&domain, "checks", Home::Caller(0)),
            receipts: Scope::of_records(&domain, "receipts", Home::Caller(0)),
            ids: std::array::from_fn(|request| (request as u128 + 1).to_be_bytes()),
            taken: BTreeMap::new(),
            moments: vec![START],
            is_in_parts: false,
        }
    }

    /// The same for stores that settle some claims in parts.
    pub(crate) fn in_parts(number: u64, amount: u64) -> Play {
        Play { is_in_parts: true, ..Play::new(number, amount) }
    }

    /// When the next event happens.
    pub(crate) fn step(&mut self, event: &Event) -> Timestamp {
        let now = self.moments[self.moments.len() - 1].after(Span::from_micros(event.moves));
        self.moments.push(now);
        now
    }

    /// What an event asks of a store, if it makes sense: what did not begin does not end.
    pub(crate) fn claim(&self, event: &Event) -> Option<Claim<'_>> {
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
        Some(Claim { id, charges, once, patience: None })
    }

    /// Remembers what a check took.
    pub(crate) fn note(&mut self, event: &Event, settlement: &Settlement) {
        let What::Begins { rules, .. } = event.what else { return };
        let passed = self.claim(event).is_some_and(|claim| Verdict::reach(&claim, settlement).allowed);
        if passed && settlement.replay == Replay::First {
            let taken = self.met(rules).zip(&settlement.readings).map(|(rule, reading)| (rule, reading.taken));
            let taken = taken.filter(|(_, units)| *units > 0).collect();
            let Some(id) = self.id(event) else { return };
            self.taken.insert(event.request, Receipt { id, at: settlement.at, taken });
        }
    }

    /// The name of the claim that a request began with, or begins with now: in parts always a new one.
    fn id(&self, event: &Event) -> Option<[u8; 16]> {
        match event.what {
            What::Begins { .. } if self.is_in_parts => Some((self.moments.len() as u128).to_be_bytes()),
            What::Begins { .. } => Some(self.ids[event.request]),
            What::Runs | What::Ends { .. } => self.taken.get(&event.request).map(|receipt| receipt.id),
        }
    }

    /// How all counters stand in a store.
    pub(crate) fn counters(&self, store: &impl Store) -> Vec<Settlement> {
        let look = |(rule, caller): (usize, &'static str)| {
            let charges = smallvec![self.charge(rule, caller, Ask::Exactly, 0)];
            block_on(store.settle(&Claim { id: ClaimId(u128::MAX), charges, once: None, patience: None }))
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
        Charge { key, limit, ask, units, mode, on_failure, strict: true }
    }

    fn is_hold(&self, rule: usize) -> bool {
        self.rules[rule].1.algorithm() == Algorithm::Concurrency
    }
}

/// Whether two stores answer alike, and their counters stand alike, after every event. `set_now` moves the clocks of both.
pub(crate) fn compare(
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
        let mut actual = block_on(other.settle(&claim));
        let counters = play.counters(other);
        if !counters.iter().chain([&actual]).flat_map(|it| &it.readings).all(|reading| reading.source == Source::Store)
        {
            // A machine on which nothing goes on for a second: what the store has now, nobody knows.
            return Err(TestCaseError::reject("the store did not answer"));
        }
        if expected.replay == Replay::Conflict && actual.replay == expected.replay {
            // What a conflict says of the counters is the store's own affair.
            actual.readings.clone_from(&expected.readings);
        }
        prop_assert_eq!(&actual, &expected, "event {} at {:?}: {:?}", number, now, event);
        prop_assert_eq!(counters, play.counters(one), "after event {}: {:?}", number, event);
        drop(claim);
        play.note(event, &expected);
    }
    Ok(())
}
