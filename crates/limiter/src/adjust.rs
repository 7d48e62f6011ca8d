//! Operators change one caller's counters: start them afresh, give units back, take some away.
//!
//! It is the claim by which [`Limiter::standing`] looks, with another ask. What the store can't do now is not done later: whoever
//! asked is told, and may ask again.

use smallvec::SmallVec;
use tollgate_core::{
    Algorithm, Ask, Charge, Claim, Descriptor, Limit, Mode, OnFailure, Reading, Settlement, Source, Span, Timestamp,
    Wait,
};
use tollgate_rules::{Known, Looks, RequestError, Room, Rule};
use tollgate_store::Store;

use crate::explain::shown;
use crate::ids;
use crate::limiter::Limiter;
use crate::standing::RuleName;

/// What becomes of a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Adjustment {
    /// It is as if nobody had ever used it. Slots that are held are free.
    Reset,
    /// So many units are given back, or as many as count, whenever they were taken: the newest first.
    Credit(u64),
    /// So many units are taken, past the limit if need be.
    Debit(u64),
}

/// A caller's counters after they were changed.
#[derive(Clone, Debug)]
pub struct Adjusted {
    /// The domain.
    pub domain: String,
    /// The attribute that names the caller.
    pub entity: String,
    /// When, by the store's clock.
    pub at: Timestamp,
    /// The counters that were to be changed, in the order of the rules.
    pub counters: Vec<AdjustedCounter>,
    /// The rules none of whose counters was, and why.
    pub left_out: Vec<(RuleName, String)>,
}

/// What became of one counter.
#[derive(Clone, Debug)]
pub struct AdjustedCounter {
    /// The rule that counts with it.
    pub rule: RuleName,
    /// The values that name it.
    pub key: Vec<String>,
    /// What it is held to.
    pub limit: Limit,
    /// How many units were forgotten, given back or taken.
    pub moved: u64,
    /// How it stands after that. If the store did not answer, it does not admit, and its source is another.
    pub reading: Reading,
}

impl<S: Store> Limiter<S> {
    /// Changes a caller's counters: of one rule, or of all whose key has the caller and nothing that is not in `others`. `entity` is
    /// the attribute that names the caller; by default the domain's. None if neither says which.
    ///
    /// The counters of one caller change together; those of rules whose keys do not have the domain's entity one by one. A store that
    /// is away is no error: [`Adjusted::is_stored`] says so, and nothing is done later. One that did not answer in time may have
    /// done it.
    ///
    /// # Errors
    /// If there is no such domain or rule, or more is said than a request may.
    pub async fn adjust(
        &self,
        domain: Option<&str>,
        entity: Option<&str>,
        caller: &str,
        others: &[(&str, &str)],
        rule: Option<&str>,
        adjustment: Adjustment,
    ) -> Result<Option<Adjusted>, RequestError> {
        let rules = self.rules();
        let domain = rules.domain(domain)?;
        if let Some(name) = rule.filter(|name| domain.rules().iter().all(|rule| rule.name() != *name)) {
            return Err(RequestError::UnknownRule(name.into()));
        }
        let Some(entity) = entity.or(domain.entity()) else { return Ok(None) };
        let mut known = vec![(entity, caller)];
        known.extend(others);
        let ways = domain.ways(&known);
        let descriptors = [Descriptor::new(&known)];
        let room = Room::default();
        let looks = {
            let known = Known { tenants: &self.tenants(), now: &|| self.clock().now(), room: &room };
            domain.looks(&descriptors, &ways, ids::next(), &known)?
        };
        let (claim, changed, left_out) = chosen(looks, rule, adjustment);
        let mut settlement = Settlement::default();
        self.settle(&claim, &mut settlement).await;
        let read = changed.iter().zip(&claim.charges).zip(&settlement.readings);
        let counters = read.map(|((rule, charge), reading)| AdjustedCounter {
            rule: RuleName::of(rule),
            key: charge.key.values().iter().map(shown).collect(),
            limit: charge.limit.clone(),
            moved: if reading.source == Source::Store { reading.taken } else { 0 },
            reading: adjustment.reading(*reading),
        });
        Ok(Some(Adjusted {
            domain: domain.name().to_owned(),
            entity: entity.to_owned(),
            at: settlement.at,
            counters: counters.collect(),
            left_out: left_out.into_iter().map(|(rule, why)| (RuleName::of(rule), why)).collect(),
        }))
    }
}

/// Why slots are left out.
const HELD: &str = "its slots are held by requests; they can be reset, not credited or debited";

/// Rules without a counter to change, and why.
type LeftOut<'a> = Vec<(&'a Rule, String)>;

/// The claim that changes the counters that can be, the rules behind them, and those that are left out.
fn chosen<'a>(looks: Looks<'a>, rule: Option<&str>, adjustment: Adjustment) -> (Claim<'a>, Vec<&'a Rule>, LeftOut<'a>) {
    let is_meant = |one: &Rule| rule.is_none_or(|name| one.name() == name);
    let mut left_out = looks.left_out;
    left_out.retain(|(rule, _)| is_meant(rule));
    let (mut charges, mut changed) = (SmallVec::new(), Vec::new());
    let looked = looks.claim.charges.into_iter().zip(looks.rules).map(|(charge, (rule, _))| (charge, rule));
    for (charge, rule) in looked.filter(|(_, rule)| is_meant(rule)) {
        if charge.limit.algorithm() == Algorithm::Concurrency && adjustment != Adjustment::Reset {
            left_out.push((rule, HELD.to_owned()));
            continue;
        }
        let (ask, units, mode) = adjustment.asks();
        // Nobody but the store can do it, whatever the rule's policy.
        charges.push(Charge { ask, units, mode, on_failure: OnFailure::Deny, strict: true, ..charge });
        changed.push(rule);
    }
    (Claim { charges, ..looks.claim }, changed, left_out)
}

impl Adjustment {
    /// What it asks of a counter.
    fn asks(self) -> (Ask, u64, Mode) {
        match self {
            Adjustment::Reset => (Ask::Reset, 0, Mode::Enforce),
            Adjustment::Credit(units) => (Ask::Credit, units, Mode::Enforce),
            // Not `Regardless`, which reports what has happened: if the store is away, that is told to it later.
            Adjustment::Debit(units) => (Ask::Exactly, units, Mode::Soft),
        }
    }

    /// What a counter says after it: that a debit went past the limit is no refusal.
    fn reading(self, reading: Reading) -> Reading {
        match self {
            Adjustment::Debit(_) if reading.source == Source::Store => {
                Reading { admits: true, wait: Wait::None, delay: Span::ZERO, ..reading }
            }
            _ => reading,
        }
    }
}

impl Adjusted {
    /// Whether the store has it. If not, it is away, and of those counters that it did not answer for ([`Reading::source`]) none was
    /// changed, as far as is known.
    pub fn is_stored(&self) -> bool {
        self.counters.iter().all(|counter| counter.reading.source == Source::Store)
    }
}
