//! Ranking of keys.

use super::key_name::KeyName;
use super::summary::{DECISIONS, Floor, KeyStats, REFUSALS, Retention, Summary};

/// The measure that keys are ranked by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RankBy {
    /// Decisions in which the limit was evaluated.
    Decisions,
    /// Decisions that the limit refused.
    Refusals,
    /// Highest utilisation of the counter.
    Utilisation,
}

/// Restricts the keys of a ranking.
#[derive(Clone, Copy, Debug, Default)]
pub struct KeyFilter<'f> {
    /// Only keys of this domain.
    pub domain: Option<&'f str>,
    /// Only keys of this rule.
    pub rule: Option<&'f str>,
    /// Only keys with this text, in lower case.
    pub search: Option<KeySearch<'f>>,
}

/// A text that a key or its rule has.
#[derive(Clone, Copy, Debug)]
pub struct KeySearch<'f> {
    /// In lower case.
    pub text: &'f str,
    /// Whether keys are searched too, or only the names of rules: keys must not be guessed by those who can't see them.
    pub in_keys: bool,
}

/// A ranking of keys.
#[derive(Clone, Debug, PartialEq)]
pub struct TopKeys {
    /// The total over all keys of all rules; for utilisation, the total of decisions.
    pub total: u64,
    /// No count exceeds the truth by more than this, and no unlisted key has more.
    pub error: u64,
    /// Heaviest first.
    pub keys: Vec<TopKey>,
}

/// A ranked key. Counts are upper bounds.
#[derive(Clone, Debug, PartialEq)]
pub struct TopKey {
    /// The name of the key.
    pub name: KeyName,
    /// Decisions.
    pub decisions: u64,
    /// Refusals.
    pub refusals: u64,
    /// Per mille; `None` if the counter was not read.
    pub used_permille: Option<u32>,
    /// The maximal error of the ranked measure.
    pub error: u64,
}

/// A key as servers exchange it.
#[derive(Clone, Debug, PartialEq)]
pub struct SummaryKey {
    /// The name of the key.
    pub name: KeyName,
    /// Counted decisions and refusals.
    pub counted: [u64; 2],
    /// Decisions and refusals that may have been missed.
    pub missed: [u64; 2],
    /// Per mille.
    pub used_permille: Option<u32>,
}

impl RankBy {
    /// All measures.
    pub const ALL: [RankBy; 3] = [RankBy::Decisions, RankBy::Refusals, RankBy::Utilisation];

    /// Its name in the API.
    pub fn name(self) -> &'static str {
        match self {
            RankBy::Decisions => "decisions",
            RankBy::Refusals => "refusals",
            RankBy::Utilisation => "utilisation",
        }
    }
}

impl KeyFilter<'_> {
    fn matches(&self, name: &KeyName) -> bool {
        self.domain.is_none_or(|domain| name.domain() == domain)
            && self.rule.is_none_or(|rule| name.rule() == rule)
            && self.search.is_none_or(|search| search.matches(name))
    }
}

impl KeySearch<'_> {
    fn matches(&self, name: &KeyName) -> bool {
        name.rule().to_lowercase().contains(self.text)
            || self.in_keys && name.clear_key().to_lowercase().contains(self.text)
    }
}

impl Summary {
    /// The first keys of it.
    pub fn top(&self, by: RankBy, filter: KeyFilter<'_>, limit: usize) -> TopKeys {
        let (measure, error) = match by {
            RankBy::Decisions => (DECISIONS, self.floor.missed[DECISIONS]),
            RankBy::Refusals => (REFUSALS, self.floor.missed[REFUSALS]),
            RankBy::Utilisation => (DECISIONS, 0),
        };
        let is_listed = |stats: &KeyStats| match by {
            // A key that was never counted is not above the floor.
            RankBy::Decisions | RankBy::Refusals => stats.counted[measure] > 0,
            // Below the floor it may have been fuller while unlisted.
            RankBy::Utilisation => stats.used.is_some_and(|used| used >= self.floor.used.0),
        };
        let rank = |stats: &KeyStats| match by {
            RankBy::Decisions | RankBy::Refusals => stats.upper_bound(measure),
            RankBy::Utilisation => u64::from(stats.used.unwrap_or(0)),
        };
        let keys = self.keys.iter().map(|(_, stats)| stats);
        let mut keys: Vec<_> = keys.filter(|stats| is_listed(stats) && filter.matches(&stats.name)).collect();
        // Deterministic, whatever the order of the keys.
        let rank = |stats: &KeyStats| std::cmp::Reverse((rank(stats), stats.upper_bound(DECISIONS)));
        keys.sort_unstable_by(|one, other| {
            rank(one).cmp(&rank(other)).then_with(|| one.name.parts().cmp(&other.name.parts()))
        });
        keys.truncate(limit);
        let keys = keys.into_iter().map(|stats| TopKey {
            name: stats.name.clone(),
            decisions: stats.upper_bound(DECISIONS),
            refusals: stats.upper_bound(REFUSALS),
            used_permille: stats.used,
            error: if by == RankBy::Utilisation { 0 } else { stats.missed[measure] },
        });
        TopKeys { total: self.totals[measure], error, keys: keys.collect() }
    }

    /// Retains at most `max` keys by each measure.
    #[must_use]
    pub fn limited_to(mut self, max: usize) -> Summary {
        self.prune(Retention { counted: max, used: max });
        self
    }

    /// Totals of decisions and refusals.
    pub fn totals(&self) -> [u64; 2] {
        self.totals
    }

    /// Upper bounds for unlisted keys: decisions, refusals, and utilisation per mille.
    pub fn floors(&self) -> ([u64; 2], u32) {
        (self.floor.missed, self.floor.used.0)
    }

    /// Its keys.
    pub fn keys(&self) -> impl Iterator<Item = SummaryKey> {
        self.keys.iter().map(|(_, stats)| SummaryKey {
            name: stats.name.clone(),
            counted: stats.counted,
            missed: stats.missed,
            used_permille: stats.used,
        })
    }

    /// Builds a summary from the keys of another server, indexed by name.
    pub fn from_keys(totals: [u64; 2], floors: ([u64; 2], u32), keys: impl IntoIterator<Item = SummaryKey>) -> Summary {
        let keys = keys.into_iter().map(|key| {
            let mut stats = KeyStats::new(key.name, &Floor::default());
            (stats.counted, stats.missed, stats.used) = (key.counted, key.missed, key.used_permille);
            (0, stats)
        });
        Summary { totals, floor: Floor { missed: floors.0, used: (floors.1, 0) }, keys: keys.collect() }.by_name()
    }
}
