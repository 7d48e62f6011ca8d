//! Servers on one clock, and rules whose requests they count by themselves.

use std::sync::atomic::{AtomicU64, Ordering};

use smallvec::smallvec;
use tollgate_core::key::Home;
use tollgate_core::{
    Algorithm, Ask, Charge, Claim, ClaimId, Key, Limit, Mode, OnFailure, Period, Reading, Scope, Settlement, Shortcuts,
    Span, Timestamp, Value, Verdict,
};
use tollgate_store::conformance::block_on;
use tollgate_store::summed::report::{OtherReports, Report};
use tollgate_store::{ManualClock, MemoryConfig, MemoryStore, Steady, Store, Summed};

pub(super) const START: Timestamp = Timestamp::from_secs(1_767_225_600);
pub(super) const HOLD: Span = Span::from_secs(60);

pub(super) type Server = Summed<MemoryStore<ManualClock>, ManualClock>;

/// A rule with an amount for some requests, and another one for the others.
pub(super) struct Rule {
    scope: Scope,
    amounts: [Limit; 2],
    shortcuts: Shortcuts,
}

impl Rule {
    /// A rule on concurrent requests, with amounts for critical and for other requests.
    pub(super) fn new(name: &str, amounts: [u64; 2]) -> Rule {
        let period = Period::fixed(HOLD).unwrap();
        let limit = |amount| Limit::new(amount, period.clone(), Algorithm::Concurrency).unwrap();
        let scope = Scope::new("d", name, Algorithm::Concurrency, &period, Home::Own);
        Rule { scope, amounts: amounts.map(limit), shortcuts: Shortcuts::Summed }
    }

    /// A limit that the inner store counts.
    pub(super) fn stored(amount: u64) -> Rule {
        let period = Period::fixed(HOLD).unwrap();
        let limit = Limit::new(amount, period.clone(), Algorithm::FixedWindow).unwrap();
        let scope = Scope::new("d", "stored", Algorithm::FixedWindow, &period, Home::Own);
        Rule { scope, amounts: [limit.clone(), limit], shortcuts: Shortcuts::Refusals }
    }

    pub(super) fn amount(&self, class: usize) -> u64 {
        self.amounts[class].amount()
    }

    pub(super) fn asks(&self, class: usize, ask: Ask, units: u64, mode: Mode) -> Charge<'_> {
        Charge {
            key: Key::new(&self.scope, smallvec![]),
            limit: &self.amounts[class],
            ask,
            units,
            mode,
            on_failure: OnFailure::Local,
            shortcuts: self.shortcuts,
        }
    }

    pub(super) fn of_value<'a>(&'a self, value: &'a str, ask: Ask) -> Charge<'a> {
        Charge { key: Key::new(&self.scope, smallvec![Value::Text(value)]), ..self.asks(0, ask, 1, Mode::Enforce) }
    }

    pub(super) fn take(&self, class: usize) -> Charge<'_> {
        self.asks(class, Ask::Exactly, 1, Mode::Enforce)
    }

    pub(super) fn peek(&self, class: usize) -> Charge<'_> {
        self.asks(class, Ask::Exactly, 0, Mode::Enforce)
    }

    pub(super) fn back(&self) -> Charge<'_> {
        self.asks(0, Ask::Return { taken_at: START }, 1, Mode::Enforce)
    }
}

pub(super) fn server(clock: &ManualClock) -> Server {
    Summed::with_clock(MemoryConfig::default().build_with(clock.clone()), clock.clone())
}

/// An id that is used for no other claim.
pub(super) fn new_id() -> ClaimId {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    ClaimId::generated(1, NEXT.fetch_add(1, Ordering::Relaxed))
}

pub(super) fn claim<'a, const N: usize>(id: ClaimId, charges: [Charge<'a>; N]) -> Claim<'a> {
    Claim { id, charges: charges.into_iter().collect(), once: None, timeout: None }
}

pub(super) fn settle(server: &impl Store, claim: &Claim<'_>) -> Settlement {
    block_on(server.settle(claim))
}

pub(super) fn one(server: &impl Store, id: ClaimId, charge: Charge<'_>) -> Reading {
    settle(server, &claim(id, [charge])).readings[0]
}

pub(super) fn passes(server: &impl Store, claim: &Claim<'_>) -> bool {
    Verdict::reach(claim, &settle(server, claim)).allowed
}

/// What all servers agree on as the digest of a key.
pub(super) fn digest(key: &Key<'_>) -> Option<u128> {
    let secret = tollgate_core::key::HashSecret(1, 2);
    Some(key.hash(secret, key.partition(secret)))
}

/// Every server publishes, and then every server reads, without a delay. Servers that are `silent` do neither.
pub(super) fn exchange(servers: &[Server], silent: &[usize]) {
    let speaks = |at: &usize| !silent.contains(at);
    let report = |server: &Server| server.report(digest).unwrap_or((Report::default(), Steady::default()));
    let reports: Vec<_> = servers.iter().map(report).collect();
    for (at, server) in servers.iter().enumerate().filter(|(at, _)| speaks(at)) {
        let others = || (0..servers.len()).filter(|other| *other != at).filter(speaks).map(|other| &reports[other].0);
        let answer = OtherReports {
            reports: others().map(|report| report.counts.clone()).collect(),
            notes: others().flat_map(|report| report.notes.clone()).collect(),
        };
        if reports[at].1 > Steady::default() {
            server.receive(reports[at].1, &answer);
        }
    }
}
