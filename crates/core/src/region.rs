//! Regions: places with a store of their own, and what a counter in one has to do with those in others.

use std::fmt;
use std::sync::Arc;

use siphasher::sip::SipHasher13;

use crate::limit::Limit;

/// A region, as one process numbers them: itself first, the others in the order of their names. It identifies nothing
/// outside of the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RegionId(u8);

/// What happens to a counter whose units are debited in other regions, while these can't be reached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Apart {
    /// Each region counts on with the whole limit.
    #[default]
    Alone,
    /// Each region counts on with its equal share of the limit.
    Share,
}

/// The terms on which units of a counter are debited in other regions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct GlobalTerms {
    /// What happens while other regions can't be reached.
    pub apart: Apart,
    /// The part of the quota, in basis points, from which on units are debited. While less is used, they wait.
    pub debit_threshold: u16,
}

/// A part of limits: so many of so many equal parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RegionShare {
    /// The parts that are counted.
    pub parts: u16,
    /// All parts; at least 1.
    pub whole: u16,
}

/// How debits between this region and others were doing when a claim was settled. The later, the worse.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RegionLink {
    /// They arrive.
    #[default]
    Together,
    /// They arrive late: limits that are debited in other regions are lowered step by step.
    Lagging,
    /// They do not arrive, at least in one region: [`Apart`] says what happens.
    Apart,
}

/// The regions of a system by their names, and the one of this process. Clones share the names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegionNames {
    /// By number: the region of this process, then the others in the order of their names.
    names: Arc<[Box<str>]>,
}

/// Why names are not those of regions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RegionNamesError {
    /// The name is empty, too long, or has other characters than lowercase letters, digits, `-`, `_` and `.`.
    BadName(String),
    /// The name occurs twice.
    Repeated(String),
    /// There are more than [`RegionNames::MAX`].
    TooMany,
}

impl RegionId {
    /// The region of this process.
    pub const HERE: RegionId = RegionId(0);

    /// The region with this number.
    pub const fn new(number: u8) -> RegionId {
        RegionId(number)
    }

    /// Its number.
    pub const fn number(self) -> u8 {
        self.0
    }

    /// Whether it is the region of this process.
    pub const fn is_here(self) -> bool {
        self.0 == 0
    }
}

impl Apart {
    /// The name in rule files.
    pub fn name(self) -> &'static str {
        match self {
            Apart::Alone => "alone",
            Apart::Share => "share",
        }
    }
}

impl GlobalTerms {
    /// The default of [`debit_threshold`](Self::debit_threshold).
    pub const DEBIT_THRESHOLD: u16 = 500;

    /// Whether a counter is used so much that its units are debited in other regions.
    #[inline]
    pub fn reaches_threshold(self, used: u64, quota: u64) -> bool {
        u128::from(used) * 10_000 >= u128::from(quota) * u128::from(self.debit_threshold)
    }
}

impl Default for GlobalTerms {
    fn default() -> GlobalTerms {
        GlobalTerms { apart: Apart::default(), debit_threshold: Self::DEBIT_THRESHOLD }
    }
}

impl RegionShare {
    /// Whole limits.
    pub const WHOLE: RegionShare = RegionShare { parts: 1, whole: 1 };
    /// Basis points in a whole.
    const BPS: u16 = 10_000;

    /// A number of basis points.
    pub fn of_bps(bps: u16) -> RegionShare {
        RegionShare { parts: bps, whole: Self::BPS }
    }

    /// The share of a limit: amount and burst, rounded down, so that all shares together are no more than the limit.
    pub fn of(self, limit: &Limit) -> Limit {
        limit.part_of(self.parts, self.whole)
    }
}

impl Default for RegionShare {
    fn default() -> RegionShare {
        RegionShare::WHOLE
    }
}

impl RegionLink {
    /// Whether limits of these terms are lowered meanwhile.
    pub fn lowers(self, terms: GlobalTerms) -> bool {
        match self {
            RegionLink::Together => false,
            RegionLink::Lagging => true,
            RegionLink::Apart => terms.apart == Apart::Share,
        }
    }

    /// The name in responses, logs and health.
    pub fn name(self) -> &'static str {
        match self {
            RegionLink::Together => "together",
            RegionLink::Lagging => "lagging",
            RegionLink::Apart => "apart",
        }
    }
}

impl RegionNames {
    /// The maximum number of regions.
    pub const MAX: usize = 16;
    /// The maximum length of a name, in bytes.
    pub const MAX_NAME_BYTES: usize = 40;

    /// The region of this process, and the others.
    ///
    /// # Errors
    /// If a name is not valid or occurs twice, or if there are too many.
    pub fn new<'n>(here: &'n str, others: impl IntoIterator<Item = &'n str>) -> Result<RegionNames, RegionNamesError> {
        let mut names: Vec<Box<str>> = Vec::new();
        for name in std::iter::once(here).chain(others) {
            if !is_name(name) {
                return Err(RegionNamesError::BadName(name.to_owned()));
            }
            if names.iter().any(|other| **other == *name) {
                return Err(RegionNamesError::Repeated(name.to_owned()));
            }
            if names.len() == Self::MAX {
                return Err(RegionNamesError::TooMany);
            }
            names.push(name.into());
        }
        names[1..].sort_unstable();
        Ok(RegionNames { names: names.into() })
    }

    /// The name of the region of this process.
    pub fn here(&self) -> &str {
        &self.names[0]
    }

    /// The number of regions.
    #[expect(clippy::len_without_is_empty, reason = "there is always the region of this process")]
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// The regions with their names.
    pub fn iter(&self) -> impl Iterator<Item = (RegionId, &str)> {
        (0..).map(RegionId).zip(self.names.iter().map(|name| &**name))
    }

    /// The other regions with their names.
    pub fn others(&self) -> impl Iterator<Item = (RegionId, &str)> {
        self.iter().skip(1)
    }

    /// The name of a region.
    pub fn name(&self, region: RegionId) -> Option<&str> {
        self.names.get(usize::from(region.0)).map(|name| &**name)
    }

    /// The region of this name.
    pub fn id(&self, name: &str) -> Option<RegionId> {
        self.iter().find(|(_, other)| *other == name).map(|(region, _)| region)
    }

    /// The region that owns the counters of a partition, if nothing else says which: the one whose name has the highest
    /// hash together with it. `home_hash` is the key's. Another region more or less moves only the partitions that it wins
    /// or had.
    pub fn home_of(&self, home_hash: u128) -> RegionId {
        let hasher = SipHasher13::new_with_keys((home_hash >> 64) as u64, home_hash as u64);
        let weight = |(_, name): &(RegionId, &str)| hasher.hash(name.as_bytes());
        self.iter().max_by_key(weight).map_or(RegionId::HERE, |(region, _)| region)
    }
}

impl fmt::Display for RegionNamesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RegionNamesError::BadName(name) => write!(
                f,
                "{name:?} is not a name of a region: write 1 to {} lowercase letters, digits, -, _ and .",
                RegionNames::MAX_NAME_BYTES
            ),
            RegionNamesError::Repeated(name) => write!(f, "the region {name:?} is named twice"),
            RegionNamesError::TooMany => write!(f, "there are more than {} regions", RegionNames::MAX),
        }
    }
}

impl std::error::Error for RegionNamesError {}

fn is_name(name: &str) -> bool {
    let is_allowed = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'-' | b'_' | b'.');
    !name.is_empty() && name.len() <= RegionNames::MAX_NAME_BYTES && name.bytes().all(is_allowed)
}
