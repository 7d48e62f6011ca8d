//! How a request ended: slots are released, failures refunded, real costs settled. All of it is one claim.

use std::fmt;
use std::sync::Arc;

use smallvec::SmallVec;
use tollgate_core::{
    Ask, Charge, Claim, EXACT, Key, Limit, Mode, Reading, Replay, Settlement, Source, Span, key::OwnedValue,
};
use tollgate_rules::{Counters, Rule, Ruleset};
use tollgate_store::Store;

use crate::limiter::Limiter;
use crate::receipt::{OnEnd, Receipt, Taken};

/// How a request that was admitted stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// It has ended.
    Ok,
    /// It has failed: rules that refund failures do.
    Failed,
    /// It goes on: what it holds is held for longer.
    Running,
}

/// What became of a receipt.
pub struct Settled {
    rules: Arc<Ruleset>,
    parts: SmallVec<[Part; 4]>,
    settlement: Settlement,
}

/// What is asked of one counter.
#[derive(Debug)]
struct Part {
    scope: u64,
    amount: u64,
    moved: Moved,
}

/// What became of what was taken from one counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moved {
    /// A slot was released.
    Released,
    /// A slot is held for longer.
    Extended,
    /// A slot was not there any more, and there is no other.
    Lost,
    /// So many units were given back: fewer than were taken too many, where some of them do not matter any more.
    Returned(u64),
    /// So many units were added, past the limit if need be.
    Debited(u64),
}

/// What became of what one rule took.
#[derive(Clone, Debug)]
pub struct SettledRule<'a> {
    /// The rule.
    pub rule: &'a Rule,
    /// What its counter is held to.
    pub limit: Limit,
    /// What happened.
    pub moved: Moved,
    /// What the counter said then.
    pub reading: &'a Reading,
}

/// How much longer than its receipt the record of an ending lasts: by the clock of another server the receipt may still be good.
const LONGER: Span = Span::from_secs(10);

/// Why a receipt was not settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SettleError {
    /// It was before, and as something else.
    AlreadySettled,
    /// Somebody else began to settle it a moment ago, and has not said how that ended: it may not have. To be tried again.
    Pending,
    /// A request that goes on has no cost yet.
    CostOfRunning,
    /// The cost is too large to be counted exactly.
    CostTooLarge,
}

impl<S: Store> Limiter<S> {
    /// Tells how a request ended for which there is a receipt, and what it really cost. Twice is once: the same again is answered
    /// alike and changes nothing.
    ///
    /// # Errors
    /// If something else was told before, or what is told makes no sense. Nothing was changed then.
    pub async fn settle_receipt(
        &self,
        receipt: &Receipt,
        ending: Ending,
        cost: Option<u64>,
        patience: Option<Span>,
    ) -> Result<Settled, SettleError> {
        match cost {
            Some(_) if ending == Ending::Running => return Err(SettleError::CostOfRunning),
            Some(EXACT..) => return Err(SettleError::CostTooLarge),
            _ => {}
        }
        let rules = self.rules();
        let name = receipt.name();
        // What no rule counts any more, nobody misses.
        let still_counted = receipt.taken.iter().filter_map(|taken| Some((taken, taken.counters(&rules)?)));
        let still_counted: SmallVec<[(&Taken, Counters<'_>); 4]> = still_counted.collect();
        let mut claim = Claim { id: receipt.id, charges: SmallVec::new(), once: None, patience };
        let mut parts = SmallVec::new();
        for (taken, counters) in &still_counted {
            if let Some((charge, moved)) = taken.charge(counters, receipt, ending, cost) {
                claim.charges.push(charge);
                parts.push(Part { scope: taken.scope, amount: taken.amount, moved });
            }
            // Also where nothing moves: what was told stays told.
            claim.once.get_or_insert_with(|| {
                let callers = still_counted.iter().filter_map(|(taken, counters)| taken.key(counters).caller());
                let keep = if ending == Ending::Running { Span::ZERO } else { receipt.record_lasts() };
                counters.domain.once_of_receipt(&name, callers, code(ending, cost), keep)
            });
        }
        let mut settlement = Settlement::default();
        self.settle(&claim, &mut settlement).await;
        let is_pending = is_pending(&claim, &settlement);
        drop(claim);
        drop(still_counted);
        match settlement.replay {
            Replay::Conflict => Err(SettleError::AlreadySettled),
            Replay::First if is_pending => Err(SettleError::Pending),
            Replay::First | Replay::Again { .. } => Ok(Settled { rules, parts, settlement }),
        }
    }
}

impl Ending {
    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Ending::Ok => "ok",
            Ending::Failed => "failed",
            Ending::Running => "running",
        }
    }
}

impl Receipt {
    /// What its ending is recorded under. A claim that was named by its caller may have been made before, and have ended.
    fn name(&self) -> [u8; 24] {
        let mut name = [0; 24];
        let (claim, taken_at) = name.split_at_mut(16);
        claim.copy_from_slice(&self.id.0.to_be_bytes());
        taken_at.copy_from_slice(&self.taken_at.as_micros().to_be_bytes());
        name
    }

    fn record_lasts(&self) -> Span {
        Span::from_micros(self.hold.as_micros().saturating_add(LONGER.as_micros()))
    }
}

impl Taken {
    /// What is asked of the counter, if anything is.
    fn charge<'a>(
        &'a self,
        counters: &'a Counters<'a>,
        receipt: &Receipt,
        ending: Ending,
        cost: Option<u64>,
    ) -> Option<(Charge<'a>, Moved)> {
        let back = Ask::Return { taken_at: receipt.taken_at };
        let (ask, units, moved) = match (self.on_end, ending) {
            (OnEnd::Release, Ending::Running) => (Ask::Exactly, 1, Moved::Extended),
            (OnEnd::Release, _) => (back, 1, Moved::Released),
            (OnEnd::Units { .. }, Ending::Running) => return None,
            (OnEnd::Units { refund: true, .. }, Ending::Failed) => (back, self.units, Moved::Returned(0)),
            (OnEnd::Units { settle, .. }, _) => match cost.filter(|_| settle)? {
                cost if cost < self.units => (back, self.units - cost, Moved::Returned(0)),
                cost if cost > self.units => (Ask::Regardless, cost - self.units, Moved::Debited(0)),
                _ => return None,
            },
        };
        let Counters { limit, on_failure, .. } = counters;
        let (key, on_failure) = (self.key(counters), *on_failure);
        Some((Charge { key, limit, ask, units, mode: Mode::Enforce, on_failure, strict: true }, moved))
    }

    fn counters<'r>(&self, rules: &'r Ruleset) -> Option<Counters<'r>> {
        rules.counters(self.scope, self.amount)
    }

    fn key<'a>(&'a self, counters: &'a Counters<'a>) -> Key<'a> {
        Key::new(counters.scope, self.values.iter().map(OwnedValue::value).collect())
    }
}

/// Whether the store refused what it never refuses, what has happened: it does not know yet whether it was told before.
fn is_pending(claim: &Claim<'_>, settlement: &Settlement) -> bool {
    let mut read = claim.charges.iter().zip(&settlement.readings);
    read.any(|(charge, reading)| charge.ask != Ask::Exactly && !reading.admits && reading.source == Source::Store)
}

/// Tells apart what may be said of an ending.
fn code(ending: Ending, cost: Option<u64>) -> u64 {
    let kind = match ending {
        Ending::Ok => 0,
        Ending::Failed => 1,
        Ending::Running => 2,
    };
    cost.map_or(0, |cost| cost + 1) << 2 | kind
}

impl Settled {
    /// What became of what each rule took, where something did. If it was told before and the rules have changed since, nobody knows
    /// which rules the numbers belong to, and there are none.
    pub fn rules(&self) -> impl Iterator<Item = SettledRule<'_>> {
        let is_known = self.parts.len() == self.settlement.readings.len();
        let parts = if is_known { &self.parts[..] } else { &[] };
        parts.iter().zip(&self.settlement.readings).filter_map(|(part, reading)| {
            let Counters { rule, limit, .. } = self.rules.counters(part.scope, part.amount)?;
            let moved = match part.moved {
                Moved::Extended if !reading.admits => Moved::Lost,
                Moved::Returned(_) => Moved::Returned(reading.taken),
                Moved::Debited(_) => Moved::Debited(reading.taken),
                moved => moved,
            };
            Some(SettledRule { rule, limit, moved, reading })
        })
    }

    /// Whether it was told before: these are the numbers of that time.
    pub fn is_replay(&self) -> bool {
        matches!(self.settlement.replay, Replay::Again { .. })
    }

    /// Whether the store has it. If not, it is away: what could be kept is told to it when it is back.
    pub fn is_stored(&self) -> bool {
        self.settlement.readings.iter().all(|reading| reading.source == Source::Store)
    }
}

impl fmt::Debug for Settled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.rules().map(|one| (one.rule.name(), one.moved))).finish()
    }
}

impl fmt::Display for SettleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SettleError::AlreadySettled => "the receipt was settled before, with another outcome or cost",
            SettleError::Pending => {
                "somebody else is settling the receipt at this moment; settle it again: twice is once"
            }
            SettleError::CostOfRunning => "a request that is running has no cost yet; tell it when it has ended",
            SettleError::CostTooLarge => "the cost is too large to be counted exactly; it must be below 2^53",
        })
    }
}

impl std::error::Error for SettleError {}
