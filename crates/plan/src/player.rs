//! Replays requests in one world.

use std::collections::{BTreeSet, HashSet};
use std::future::Future;
use std::pin::pin;
use std::task::{Context, Waker};

use smallvec::{SmallVec, smallvec};
use tollgate_core::key::HashSecret;
use tollgate_core::{
    Algorithm, Ask, Charge, Claim, ClaimId, Key, Mode, Reading, Request, Settlement, Timestamp, Value, Verdict, Wait,
};
use tollgate_rules::{AppliedRule, Domain, LimitArena, MatchedRules, RequestError, Rule, TenantContext};
use tollgate_store::{ManualClock, MemoryConfig, MemoryStore, Store};

use crate::world::World;
use crate::{TrafficRecord, Uncertainty};

/// Decides requests in one world, one after the other.
pub(crate) struct Player<'w> {
    world: &'w World<'w>,
    store: MemoryStore<ManualClock>,
    clock: ManualClock,
    /// Whether all requests on all counters are recorded.
    is_complete: bool,
    /// The counters that have begun.
    begun: HashSet<u128, foldhash::fast::RandomState>,
    claims: u64,
    settlement: Settlement,
    uncertain: BTreeSet<Uncertainty>,
}

/// A decision.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Played<'w> {
    pub(crate) is_admitted: bool,
    /// The rule that refused it, with its domain.
    pub(crate) denied_by: Option<(&'w Domain, &'w Rule)>,
    pub(crate) wait: Wait,
}

/// A charge that is judged by what its counter was when the request was recorded.
struct ReadCharge {
    applied: AppliedRule,
    has_room: bool,
    mode: Mode,
}

const SHARED: &str = "other callers use its counters, and what they had used was not recorded";
const HELD: &str = "when requests end is not recorded";

/// Counters are hashed for this process only.
const SECRET: HashSecret = HashSecret(0, 0);

impl<'w> Player<'w> {
    pub(crate) fn new(world: &'w World<'w>, is_complete: bool) -> Player<'w> {
        let clock = ManualClock::default();
        // Recorded requests are often slightly out of order.
        let config = MemoryConfig { grace: world.rules.longest_period(), ..MemoryConfig::default() };
        Player {
            world,
            store: config.build_with(clock.clone()),
            clock,
            is_complete,
            begun: HashSet::default(),
            claims: 0,
            settlement: Settlement::default(),
            uncertain: BTreeSet::new(),
        }
    }

    /// The rules whose counters could not be known.
    pub(crate) fn uncertain(self) -> BTreeSet<Uncertainty> {
        self.uncertain
    }

    /// Decides a request that was recorded.
    ///
    /// # Errors
    /// If the rules can't decide it.
    pub(crate) fn play(
        &mut self,
        request: &Request<'_>,
        record: &TrafficRecord,
        at: Timestamp,
        copies: u32,
    ) -> Result<Played<'w>, RequestError> {
        self.clock.set(at);
        self.claims += 1;
        let arena = LimitArena::default();
        let mut claim =
            Claim { id: ClaimId::generated(0, self.claims), charges: SmallVec::new(), once: None, timeout: None };
        let mut matched = MatchedRules::default();
        let context = TenantContext { tenants: self.world.tenants, now: &|| at, arena: &arena };
        let rules = self.world.rules;
        rules.resolve_into(request, Some(&context), &mut claim, &mut matched)?;
        let domain = &rules.domains()[matched.domain];
        if matched.block.is_some_and(|block| block.action.refuses()) {
            return Ok(Played { is_admitted: false, denied_by: None, wait: Wait::Forever });
        }
        let read = self.take_read(&mut claim, &mut matched, domain, record);
        if let Some(refusing) = read.iter().find(|charge| charge.mode == Mode::Enforce && !charge.has_room) {
            let denied_by = rule_of(domain, &refusing.applied).map(|rule| (domain, rule));
            return Ok(Played { is_admitted: false, denied_by, wait: Wait::None });
        }
        if copies > 1 {
            claim.charges.iter_mut().for_each(|charge| charge.units = charge.units.saturating_mul(copies.into()));
        }
        if claim.charges.is_empty() {
            return Ok(Played { is_admitted: true, denied_by: None, wait: Wait::None });
        }
        self.begin(&claim, &matched, domain, record);
        settle(&self.store, &claim, &mut self.settlement);
        let mut verdict = Verdict::reach(&claim, &self.settlement);
        if !verdict.allowed && any_of_has_room(&read) && !enforced_refuses(&claim, &self.settlement.readings) {
            verdict.allowed = true;
        }
        let denied_by = verdict.denied_by.filter(|_| !verdict.allowed);
        let denied_by = denied_by.and_then(|at| rule_of(domain, matched.applied.get(at)?));
        Ok(Played { is_admitted: verdict.allowed, denied_by: denied_by.map(|rule| (domain, rule)), wait: verdict.wait })
    }

    /// Takes out of a claim what can't be counted here, and judges it by the recorded counters. What others use as well and was
    /// not recorded counts for all the callers that the caller stands for.
    fn take_read<'a>(
        &mut self,
        claim: &mut Claim<'a>,
        matched: &mut MatchedRules,
        domain: &Domain,
        record: &TrafficRecord,
    ) -> SmallVec<[ReadCharge; 2]> {
        let caller = domain.entity().and_then(|entity| record.attribute(entity));
        let mut read = SmallVec::new();
        let is_counted = |charge: &Charge<'_>| {
            charge.limit.algorithm() != Algorithm::Concurrency && (self.is_complete || is_of_caller(charge, caller))
        };
        if claim.charges.iter().all(is_counted) {
            return read;
        }
        let charges: SmallVec<[Charge<'a>; 4]> = std::mem::take(&mut claim.charges);
        let applied: SmallVec<[AppliedRule; 4]> = std::mem::take(&mut matched.applied);
        for (mut charge, applied) in charges.into_iter().zip(applied) {
            let is_hold = charge.limit.algorithm() == Algorithm::Concurrency;
            if !is_hold && (self.is_complete || is_of_caller(&charge, caller)) {
                claim.charges.push(charge);
                matched.applied.push(applied);
                continue;
            }
            let Some(rule) = rule_of(domain, &applied) else { continue };
            if let Some(used) = record.used(rule.name(), charge.limit.period()) {
                let has_room = used.saturating_add(charge.units) <= charge.limit.quota();
                read.push(ReadCharge { applied, has_room, mode: charge.mode });
                continue;
            }
            let why = if is_hold { HELD } else { SHARED };
            let (domain, rule) = (domain.name().to_owned(), rule.name().to_owned());
            self.uncertain.insert(Uncertainty { domain, rule, why });
            if !is_hold {
                charge.units = charge.units.saturating_mul(u64::from(record.callers.max(1)));
                claim.charges.push(charge);
                matched.applied.push(applied);
            }
        }
        read
    }

    /// Fills counters that are used for the first time with what they had when the request was recorded.
    fn begin(&mut self, claim: &Claim<'_>, matched: &MatchedRules, domain: &Domain, record: &TrafficRecord) {
        for (charge, applied) in claim.charges.iter().zip(&matched.applied) {
            if !self.begun.insert(charge.key.local_hash(SECRET, charge.key.partition(SECRET))) {
                continue;
            }
            let used = rule_of(domain, applied).and_then(|rule| record.used(rule.name(), charge.limit.period()));
            if let Some(units) = used.filter(|used| *used > 0) {
                let before = Charge { key: copy(&charge.key), ask: Ask::Regardless, units, ..*charge };
                self.claims += 1;
                let id = ClaimId::generated(0, self.claims);
                let fact = Claim { id, charges: smallvec![before], once: None, timeout: None };
                settle(&self.store, &fact, &mut self.settlement);
            }
        }
    }
}

fn settle(store: &MemoryStore<ManualClock>, claim: &Claim<'_>, settlement: &mut Settlement) {
    settlement.readings.clear();
    // The memory store never waits: the first poll completes it.
    let _ = pin!(store.settle_into(claim, settlement)).poll(&mut Context::from_waker(Waker::noop()));
}

fn copy<'k>(key: &Key<'k>) -> Key<'k> {
    Key::new(key.scope(), key.values().iter().copied().collect()).in_region(key.region())
}

fn rule_of<'d>(domain: &'d Domain, applied: &AppliedRule) -> Option<&'d Rule> {
    domain.rule(applied)
}

/// Whether the counter is this caller's alone.
fn is_of_caller(charge: &Charge<'_>, caller: Option<&str>) -> bool {
    caller.is_some_and(|caller| charge.key.values().contains(&Value::Text(caller)))
}

fn any_of_has_room(read: &[ReadCharge]) -> bool {
    read.iter().any(|charge| charge.mode == Mode::AnyOf && charge.has_room)
}

fn enforced_refuses(claim: &Claim<'_>, readings: &[Reading]) -> bool {
    let settled = claim.charges.iter().zip(readings);
    settled.into_iter().any(|(charge, reading)| charge.mode == Mode::Enforce && !reading.admits)
}
