//! The first of a list.

use super::name::Name;
use super::summary::{Cell, DECISIONS, Floor, Keep, REFUSALS, Summary};

/// What keys are ranked by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// Decisions that a limit had a say in.
    Decisions,
    /// Decisions that it refused.
    Refusals,
    /// How full the counter was at most.
    Utilisation,
}

/// Which keys.
#[derive(Clone, Copy, Debug, Default)]
pub struct Filter<'f> {
    /// Of this domain alone.
    pub domain: Option<&'f str>,
    /// Of this rule alone.
    pub rule: Option<&'f str>,
}

/// The first keys.
#[derive(Clone, Debug, PartialEq)]
pub struct Top {
    /// All that was counted, of all keys of all rules. By utilisation it is decisions that are counted.
    pub total: u64,
    /// No count is more than this above the truth, and no key that is not listed came more often.
    pub error: u64,
    /// The first ones first.
    pub keys: Vec<TopKey>,
}

/// One of them. Counts are what came at most.
#[derive(Clone, Debug, PartialEq)]
pub struct TopKey {
    /// Whose.
    pub name: Name,
    /// Decisions.
    pub decisions: u64,
    /// Refusals.
    pub refusals: u64,
    /// In thousandths; `None` if the counter was not read.
    pub used_of_1_000: Option<u32>,
    /// How far what it is ranked by may be above the truth.
    pub error: u64,
}

/// One key as it is told to other servers.
#[derive(Clone, Debug, PartialEq)]
pub struct ListedKey {
    /// Whose.
    pub name: Name,
    /// Decisions and refusals that were counted.
    pub seen: [u64; 2],
    /// What may be missing of them.
    pub missed: [u64; 2],
    /// In thousandths.
    pub used_of_1_000: Option<u32>,
}

impl By {
    /// All of them.
    pub const ALL: [By; 3] = [By::Decisions, By::Refusals, By::Utilisation];

    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            By::Decisions => "decisions",
            By::Refusals => "refusals",
            By::Utilisation => "utilisation",
        }
    }
}

impl Filter<'_> {
    fn takes(&self, name: &Name) -> bool {
        self.domain.is_none_or(|domain| name.domain() == domain) && self.rule.is_none_or(|rule| name.rule() == rule)
    }
}

impl Summary {
    /// The first keys of it.
    pub fn top(&self, by: By, filter: Filter<'_>, limit: usize) -> Top {
        let (measure, error) = match by {
            By::Decisions => (DECISIONS, self.floor.missed[DECISIONS]),
            By::Refusals => (REFUSALS, self.floor.missed[REFUSALS]),
            By::Utilisation => (DECISIONS, 0),
        };
        let listed = |cell: &Cell| match by {
            // What was never seen is not above the floor.
            By::Decisions | By::Refusals => cell.seen[measure] > 0,
            // Below the floor it may have been fuller while it was not listed.
            By::Utilisation => cell.used.is_some_and(|used| used >= self.floor.used.0),
        };
        let rank = |cell: &Cell| match by {
            By::Decisions | By::Refusals => cell.most(measure),
            By::Utilisation => u64::from(cell.used.unwrap_or(0)),
        };
        let cells = self.cells.iter().map(|(_, cell)| cell);
        let mut keys: Vec<_> = cells.filter(|cell| listed(cell) && filter.takes(&cell.name)).collect();
        // The same for all who ask, whatever the order they were found in.
        let rank = |cell: &Cell| std::cmp::Reverse((rank(cell), cell.most(DECISIONS)));
        keys.sort_unstable_by(|one, other| {
            rank(one).cmp(&rank(other)).then_with(|| one.name.parts().cmp(&other.name.parts()))
        });
        keys.truncate(limit);
        let keys = keys.into_iter().map(|cell| TopKey {
            name: cell.name.clone(),
            decisions: cell.most(DECISIONS),
            refusals: cell.most(REFUSALS),
            used_of_1_000: cell.used,
            error: if by == By::Utilisation { 0 } else { cell.missed[measure] },
        });
        Top { total: self.totals[measure], error, keys: keys.collect() }
    }

    /// No more than so many keys by each measure.
    #[must_use]
    pub fn first(mut self, most: usize) -> Summary {
        self.prune(Keep { counted: most, used: most });
        self
    }

    /// All that was counted: decisions and refusals.
    pub fn totals(&self) -> [u64; 2] {
        self.totals
    }

    /// What keys that are not listed had at most: decisions, refusals, and thousandths of their limit.
    pub fn floors(&self) -> ([u64; 2], u32) {
        (self.floor.missed, self.floor.used.0)
    }

    /// Its keys.
    pub fn listed(&self) -> impl Iterator<Item = ListedKey> {
        self.cells.iter().map(|(_, cell)| ListedKey {
            name: cell.name.clone(),
            seen: cell.seen,
            missed: cell.missed,
            used_of_1_000: cell.used,
        })
    }

    /// What another server told: found by names.
    pub fn told(totals: [u64; 2], floors: ([u64; 2], u32), keys: impl IntoIterator<Item = ListedKey>) -> Summary {
        let cells = keys.into_iter().map(|key| {
            let mut cell = Cell::new(key.name, &Floor::default());
            (cell.seen, cell.missed, cell.used) = (key.seen, key.missed, key.used_of_1_000);
            (0, cell)
        });
        Summary { totals, floor: Floor { missed: floors.0, used: (floors.1, 0) }, cells: cells.collect() }.by_name()
    }
}
