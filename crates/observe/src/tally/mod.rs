//! Counts by rule and tier.
//!
//! A row belongs to a rule and one of its tiers. Each ruleset carries an index that finds rows by the positions of its rules. The
//! index of a reloaded ruleset reuses the rows with the same names. So counts survive a reload, and a decision by the old rules is
//! counted in the right row.

mod index;
mod row;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use tollgate::{DecisionEvent, Ruleset};

use crate::outcome::{DecisionOutcome, DecisionResult};
use crate::stripe;
use index::RowIndex;

pub(crate) use row::used;
pub use row::{CountKind, Peak, RowCounts, RowName, TallyRow};

/// Counts for all rules and tiers.
#[derive(Debug, Default)]
pub struct Tally {
    rows: Mutex<Rows>,
    /// The row of throttles, which have no rule.
    throttles: OnceLock<Arc<TallyRow>>,
    limits: TallyLimits,
}

/// Bounds of a tally.
#[derive(Clone, Copy, Debug)]
pub struct TallyLimits {
    /// Rows; any more are counted in one row, `other`.
    pub max_rows: usize,
}

/// All rows, by name.
#[derive(Debug, Default)]
struct Rows {
    by_name: HashMap<RowName, Arc<TallyRow>>,
    other: Option<Arc<TallyRow>>,
}

impl Default for TallyLimits {
    fn default() -> TallyLimits {
        TallyLimits { max_rows: 10_000 }
    }
}

impl Tally {
    /// Creates a tally with these bounds.
    pub fn new(limits: TallyLimits) -> Tally {
        Tally { limits, ..Tally::default() }
    }

    /// Counts a decision: once for the limit that decided it, and for every limit its result.
    #[inline]
    pub fn count(&self, event: &DecisionEvent<'_, '_>, result: DecisionResult) {
        let rows = self.index(event.rules).domain(event.matched.domain);
        let stripe = stripe::number();
        let mut is_counted = false;
        let settled = event.matched.applied.iter().zip(&event.claim.charges).zip(&event.settlement.readings);
        for (at, ((applied, charge), reading)) in settled.enumerate() {
            let row = rows.row(self, event.domain(), applied);
            let numbers = row.numbers(stripe);
            if result.decider == Some(at) {
                row::count_decision(numbers, result.outcome);
                is_counted = true;
            }
            row.count_limit(numbers, charge, reading, event.settlement);
        }
        if !is_counted {
            let is_blocked = event.matched.block.is_some() && !event.verdict.allowed;
            let row = if is_blocked { rows.block() } else { rows.none() };
            row::count_decision(row.numbers(stripe), result.outcome);
        }
    }

    /// Counts throttles: those that passed and those that were refused, with the outcome of each.
    pub(crate) fn count_throttles(&self, passed: (DecisionOutcome, u64), refused: (DecisionOutcome, u64)) {
        let name = || RowName::new(RowName::RESP, RowName::THROTTLE, RowName::REQUEST);
        self.throttles.get_or_init(|| self.row(name())).count_throttles(passed, refused);
    }

    /// Creates the rows of these rules before the first decision.
    pub fn prepare(&self, rules: &Ruleset) {
        self.index(rules);
    }

    /// All rows, ordered by name. `other` comes last, if it exists.
    pub fn rows(&self) -> Vec<Arc<TallyRow>> {
        let rows = self.rows.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut all, other): (Vec<_>, _) = (rows.by_name.values().cloned().collect(), rows.other.clone());
        // Do not block decisions that need a new row.
        drop(rows);
        all.sort_unstable_by(|one, other| one.name().cmp(other.name()));
        all.extend(other);
        all
    }

    /// All decisions so far, by outcome.
    pub fn totals(&self) -> [u64; DecisionOutcome::ALL.len()] {
        let mut totals = [0; DecisionOutcome::ALL.len()];
        for row in self.rows() {
            let counts = row.counts();
            totals
                .iter_mut()
                .zip(DecisionOutcome::ALL)
                .for_each(|(total, outcome)| *total += counts[CountKind::Outcome(outcome)]);
        }
        totals
    }

    /// The row with this name, or `other` if there are too many.
    fn row(&self, name: RowName) -> Arc<TallyRow> {
        let mut rows = self.rows.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(row) = rows.by_name.get(&name) {
            return row.clone();
        }
        if rows.by_name.len() >= self.limits.max_rows {
            // Drop rows of removed rules.
            rows.by_name.retain(|_, row| Arc::strong_count(row) > 1);
        }
        if rows.by_name.len() >= self.limits.max_rows {
            return rows.other.get_or_insert_with(|| Arc::new(TallyRow::new(RowName::other()))).clone();
        }
        let row = Arc::new(TallyRow::new(name.clone()));
        rows.by_name.insert(name, row.clone());
        row
    }

    #[inline]
    fn index<'r>(&self, rules: &'r Ruleset) -> &'r RowIndex {
        rules.extension(|rules| RowIndex::new(self, rules))
    }
}
