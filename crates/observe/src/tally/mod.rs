//! What is counted for each rule and tier.
//!
//! A row is a rule and a tier of it. Rows are found by a rule's place, in a board that is kept beside the ruleset; a ruleset that
//! takes another's place has a board of its own with the same rows, as far as names are the same. So counts go on over a reload, and a
//! decision by the old rules is counted where it belongs.

mod board;
mod row;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use tollgate::{Ruleset, Seen};

use crate::ruling::{Ruled, Ruling};
use board::Board;

pub(crate) use row::used;
pub use row::{Count, Counts, Peak, Row, RowName};

/// What is counted for every rule and tier.
#[derive(Debug, Default)]
pub struct Tally {
    rows: Mutex<Rows>,
    /// Throttles, which have no rule.
    throttles: OnceLock<Arc<Row>>,
    limits: TallyLimits,
}

/// How much is told apart.
#[derive(Clone, Copy, Debug)]
pub struct TallyLimits {
    /// The most rows. What is past them is counted in one row, `other`.
    pub most_rows: usize,
}

/// All rows, by name.
#[derive(Debug, Default)]
struct Rows {
    by_name: HashMap<RowName, Arc<Row>>,
    other: Option<Arc<Row>>,
}

impl Default for TallyLimits {
    fn default() -> TallyLimits {
        TallyLimits { most_rows: 10_000 }
    }
}

impl Tally {
    /// With other bounds.
    pub fn new(limits: TallyLimits) -> Tally {
        Tally { limits, ..Tally::default() }
    }

    /// Counts a decision: once under the limit that decided it, and for every limit how it stood.
    #[inline]
    pub fn count(&self, seen: &Seen<'_, '_>, ruled: Ruled) {
        let Some(board) = self.board(seen.rules) else { return };
        let (rows, domain) = (board.domain(seen.matched.domain), seen.domain());
        let mut is_counted = false;
        for (at, limit) in seen.limits().enumerate() {
            let row = rows.row(self, domain, limit.applied);
            let numbers = row.numbers();
            if ruled.decider == Some(at) {
                row::decided(numbers, ruled.ruling);
                is_counted = true;
            }
            row.met(numbers, &limit, seen.settlement.at);
        }
        if !is_counted {
            let is_blocked = seen.matched.block.is_some() && !seen.verdict.allowed;
            let row = if is_blocked { rows.block() } else { rows.none() };
            row::decided(row.numbers(), ruled.ruling);
        }
    }

    /// Counts throttles: how many passed and were refused, and what to call that.
    pub(crate) fn throttled(&self, passed: (Ruling, u64), refused: (Ruling, u64)) {
        let name = || RowName::new(RowName::RESP, RowName::THROTTLE, RowName::REQUEST);
        self.throttles.get_or_init(|| self.row(name())).throttled(passed, refused);
    }

    /// Sees to it that the rows of these rules are there, before the first decision is.
    pub fn expect(&self, rules: &Ruleset) {
        self.board(rules);
    }

    /// All rows, in the order of their names. `other` comes last, if there is one.
    pub fn rows(&self) -> Vec<Arc<Row>> {
        let rows = self.rows.lock().unwrap_or_else(PoisonError::into_inner);
        let (mut all, other): (Vec<_>, _) = (rows.by_name.values().cloned().collect(), rows.other.clone());
        // A decision may wait for a row of its own.
        drop(rows);
        all.sort_unstable_by(|one, other| one.name().cmp(other.name()));
        all.extend(other);
        all
    }

    /// All decisions so far, by ruling.
    pub fn totals(&self) -> [u64; Ruling::ALL.len()] {
        let mut totals = [0; Ruling::ALL.len()];
        for row in self.rows() {
            let counts = row.counts();
            totals.iter_mut().zip(Ruling::ALL).for_each(|(total, ruling)| *total += counts[Count::Ruled(ruling)]);
        }
        totals
    }

    /// The row of this name, or the one for all that are too many.
    fn row(&self, name: RowName) -> Arc<Row> {
        let mut rows = self.rows.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(row) = rows.by_name.get(&name) {
            return row.clone();
        }
        if rows.by_name.len() >= self.limits.most_rows {
            // Those of rules that are gone make room.
            rows.by_name.retain(|_, row| Arc::strong_count(row) > 1);
        }
        if rows.by_name.len() >= self.limits.most_rows {
            return rows.other.get_or_insert_with(|| Arc::new(Row::new(RowName::other()))).clone();
        }
        let row = Arc::new(Row::new(name.clone()));
        rows.by_name.insert(name, row.clone());
        row
    }

    #[inline]
    fn board<'r>(&self, rules: &'r Ruleset) -> Option<&'r Board> {
        rules.beside(|rules| Board::new(self, rules))
    }
}
