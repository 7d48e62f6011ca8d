//! Settling a receipt: slots are released, failures refunded, real costs charged. All of it is one claim.

use std::fmt;
use std::sync::Arc;

use smallvec::SmallVec;
use tollgate_core::{
    Ask, Charge, Claim, EXACT, Key, Limit, Mode, Once, Reading, RegionId, Replay, Settlement, Source, Span,
    key::OwnedValue,
};
use tollgate_rules::{Domain, Rule, RuleCounters, Ruleset};
use tollgate_store::Store;

use crate::limiter::Limiter;
use crate::receipt::{OnEnd, Receipt, TakenCharge};

/// The outcome of a request that was admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestOutcome {
    /// The request has ended.
    Ok,
    /// The request has failed: rules with `refund: on_failure` refund it.
    Failed,
    /// The request is still running: its holds are extended.
    Running,
}

/// The result of settling a receipt.
pub struct SettledReceipt {
    rules: Arc<Ruleset>,
    charges: SmallVec<[SettledCharge; 4]>,
    settlement: Settlement,
}

/// A charge of the settlement, with what rules need to look up its counter.
#[derive(Debug)]
struct SettledCharge {
    scope: u64,
    amount: u64,
    change: CounterChange,
}

/// The effect of a settlement on one counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CounterChange {
    /// A slot was released.
    Released,
    /// A slot was extended.
    Extended,
    /// A slot had expired, and no other was free.
    Lost,
    /// Units were given back: fewer than were overcharged, where some of them no longer count.
    Returned(u64),
    /// Units were added, past the limit if necessary.
    Debited(u64),
}

/// The effect of a settlement on one rule's counter.
#[derive(Clone, Debug)]
pub struct SettledRule<'a> {
    /// The rule.
    pub rule: &'a Rule,
    /// The limit that applies to the counter.
    pub limit: Limit,
    /// How the counter changed.
    pub change: CounterChange,
    /// The reading of the counter after the change.
    pub reading: &'a Reading,
}

/// How much longer than its receipt the record of a settlement is stored: another server's clock may be behind, so that the
/// receipt is still valid there.
const RECORD_MARGIN: Span = Span::from_secs(10);

/// Why a receipt was not settled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SettleError {
    /// It was settled before, with another outcome or cost.
    AlreadySettled,
    /// Another settlement of it began a moment ago and its result is unknown. The caller should retry.
    Pending,
    /// A running request has no cost yet.
    CostOfRunning,
    /// The cost is too large to be counted exactly.
    CostTooLarge,
    /// It was taken in a region that these rules do not know.
    UnknownRegion,
}

impl<S: Store> Limiter<S> {
    /// Settles a receipt with the outcome of its request and, if known, its real cost. It is idempotent: a repetition has
    /// the same result and changes nothing.
    ///
    /// # Errors
    /// If the receipt was settled before with another outcome or cost, or the cost is invalid. Nothing was changed then.
    pub async fn settle_receipt(
        &self,
        receipt: &Receipt,
        outcome: RequestOutcome,
        cost: Option<u64>,
        timeout: Option<Span>,
    ) -> Result<SettledReceipt, SettleError> {
        match cost {
            Some(_) if outcome == RequestOutcome::Running => return Err(SettleError::CostOfRunning),
            Some(EXACT..) => return Err(SettleError::CostTooLarge),
            _ => {}
        }
        let rules = self.rules();
        let name = receipt.record_name();
        let regions = receipt.region_ids(&rules)?;
        let taken_in = regions.first().copied().unwrap_or(RegionId::HERE);
        // Counters that no rule uses any more need no settlement.
        let still_counted = receipt.taken.iter().filter_map(|taken| Some((taken, taken.counters(&rules)?)));
        let still_counted: SmallVec<[(&TakenCharge, RuleCounters<'_>); 4]> = still_counted.collect();
        let mut claim = Claim { id: receipt.id, charges: SmallVec::new(), once: None, timeout };
        let mut charges = SmallVec::new();
        for (taken, counters) in &still_counted {
            if let Some((charge, change)) = taken.charge(counters, receipt, outcome, cost) {
                let region = regions.get(usize::from(taken.region)).copied().unwrap_or(taken_in);
                let charge = Charge { key: charge.key.in_region(region), ..charge };
                claim.charges.push(charge);
                charges.push(SettledCharge { scope: taken.scope, amount: taken.amount, change });
            }
            // Even if no counter changes, so that a different outcome is refused later.
            claim.once.get_or_insert_with(|| {
                // An earlier version's receipt: the record is where that version looks for it.
                let of_counters = || still_counted.iter().find_map(|(taken, counters)| taken.key(counters).caller());
                let caller = receipt.caller.as_ref().map(OwnedValue::value).or_else(of_counters);
                let keep = if outcome == RequestOutcome::Running { Span::ZERO } else { receipt.record_ttl() };
                let once = counters.domain.once_of_receipt(&name, caller, outcome_code(outcome, cost), keep);
                // One record, wherever it is settled.
                Once { key: once.key.in_region(taken_in), ..once }
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
            Replay::First | Replay::Again { .. } => Ok(SettledReceipt { rules, charges, settlement }),
        }
    }
}

impl RequestOutcome {
    /// The name in requests, responses and metrics.
    pub fn name(self) -> &'static str {
        match self {
            RequestOutcome::Ok => "ok",
            RequestOutcome::Failed => "failed",
            RequestOutcome::Running => "running",
        }
    }
}

impl Receipt {
    /// The name of the settlement's record. It includes the time, since callers may reuse the name of a claim.
    fn record_name(&self) -> [u8; 24] {
        let mut name = [0; 24];
        let (claim, taken_at) = name.split_at_mut(16);
        claim.copy_from_slice(&self.id.0.to_be_bytes());
        taken_at.copy_from_slice(&self.taken_at.as_micros().to_be_bytes());
        name
    }

    /// Its regions as these rules number them.
    fn region_ids(&self, rules: &Ruleset) -> Result<SmallVec<[RegionId; 2]>, SettleError> {
        let known = rules.domains().first().map(Domain::regions);
        let id = |name: &str| known.and_then(|known| known.id(name)).ok_or(SettleError::UnknownRegion);
        self.regions.iter().map(|name| id(name)).collect()
    }

    fn record_ttl(&self) -> Span {
        Span::from_micros(self.hold.as_micros().saturating_add(RECORD_MARGIN.as_micros()))
    }
}

impl TakenCharge {
    /// The charge that settles it, if its counter must change.
    fn charge<'a>(
        &'a self,
        counters: &'a RuleCounters<'a>,
        receipt: &Receipt,
        outcome: RequestOutcome,
        cost: Option<u64>,
    ) -> Option<(Charge<'a>, CounterChange)> {
        let back = Ask::Return { taken_at: receipt.taken_at };
        let (ask, units, change) = match (self.on_end, outcome) {
            (OnEnd::Release, RequestOutcome::Running) => (Ask::Exactly, 1, CounterChange::Extended),
            (OnEnd::Release, _) => (back, 1, CounterChange::Released),
            (OnEnd::Units { .. }, RequestOutcome::Running) => return None,
            (OnEnd::Units { refund: true, .. }, RequestOutcome::Failed) => {
                (back, self.units, CounterChange::Returned(0))
            }
            (OnEnd::Units { settle, .. }, _) => match cost.filter(|_| settle)? {
                cost if cost < self.units => (back, self.units - cost, CounterChange::Returned(0)),
                cost if cost > self.units => (Ask::Regardless, cost - self.units, CounterChange::Debited(0)),
                _ => return None,
            },
        };
        let RuleCounters { limit, on_failure, .. } = counters;
        let (key, on_failure) = (self.key(counters), *on_failure);
        let shortcuts = counters.rule.shortcuts(limit).of_changes();
        Some((Charge { key, limit, ask, units, mode: Mode::Enforce, on_failure, shortcuts }, change))
    }

    fn counters<'r>(&self, rules: &'r Ruleset) -> Option<RuleCounters<'r>> {
        rules.counters(self.scope, self.amount)
    }

    fn key<'a>(&'a self, counters: &'a RuleCounters<'a>) -> Key<'a> {
        Key::new(counters.scope, self.values.iter().map(OwnedValue::value).collect())
    }
}

/// Whether the store refused a charge that it never refuses otherwise: it can't tell yet whether the receipt was settled.
fn is_pending(claim: &Claim<'_>, settlement: &Settlement) -> bool {
    let mut read = claim.charges.iter().zip(&settlement.readings);
    read.any(|(charge, reading)| charge.ask != Ask::Exactly && !reading.admits && reading.source == Source::Store)
}

/// A number that identifies the outcome and the cost.
fn outcome_code(outcome: RequestOutcome, cost: Option<u64>) -> u64 {
    let kind = match outcome {
        RequestOutcome::Ok => 0,
        RequestOutcome::Failed => 1,
        RequestOutcome::Running => 2,
    };
    cost.map_or(0, |cost| cost + 1) << 2 | kind
}

impl SettledReceipt {
    /// The counters that changed, with their rules. Empty for a replay after a change of rules: the stored numbers can't be
    /// assigned to rules then.
    pub fn rules(&self) -> impl Iterator<Item = SettledRule<'_>> {
        let is_same = self.charges.len() == self.settlement.readings.len();
        let charges = if is_same { &self.charges[..] } else { &[] };
        charges.iter().zip(&self.settlement.readings).filter_map(|(charge, reading)| {
            let RuleCounters { rule, limit, .. } = self.rules.counters(charge.scope, charge.amount)?;
            let change = match charge.change {
                CounterChange::Extended if !reading.admits => CounterChange::Lost,
                CounterChange::Returned(_) => CounterChange::Returned(reading.taken),
                CounterChange::Debited(_) => CounterChange::Debited(reading.taken),
                change => change,
            };
            Some(SettledRule { rule, limit, change, reading })
        })
    }

    /// Whether the receipt was settled before: the numbers are those of the first settlement.
    pub fn is_replay(&self) -> bool {
        matches!(self.settlement.replay, Replay::Again { .. })
    }

    /// Whether the store recorded the settlement. If not, the store is unavailable, and what can be deferred is sent to it
    /// when it is available again.
    pub fn is_stored(&self) -> bool {
        self.settlement.readings.iter().all(|reading| reading.source.is_recorded())
    }
}

impl fmt::Debug for SettledReceipt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.rules().map(|one| (one.rule.name(), one.change))).finish()
    }
}

impl fmt::Display for SettleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SettleError::AlreadySettled => "the receipt was settled before, with another outcome or cost",
            SettleError::Pending => {
                "another request is settling this receipt; retry: settling the same receipt twice has no further effect"
            }
            SettleError::CostOfRunning => "a running request has no cost yet; send `cost` when the request has ended",
            SettleError::UnknownRegion => {
                "the receipt was taken in a region that this server does not know; settle it there, or set `regions`"
            }
            SettleError::CostTooLarge => "the cost is too large to be counted exactly; it must be below 2^53",
        })
    }
}

impl std::error::Error for SettleError {}
