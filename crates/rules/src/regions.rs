//! What a limit means in several regions, each with a store of its own.

use std::borrow::Cow;
use std::fmt::Write as _;

use tollgate_core::{Apart, GlobalTerms, RegionId, RegionNames, RegionShare};

/// The regions that rules may name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum KnownRegions {
    /// None: this process is in no region, and refuses rules that depend on them.
    #[default]
    None,
    /// Rules are only read, not enforced: every name is taken as a region.
    Unchecked,
    /// The region of this process. Which others there are is not known.
    Here(String),
    /// All regions.
    All(RegionNames),
}

/// What a limit means in several regions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum RegionMode {
    /// Each region counts by itself, with the whole limit.
    #[default]
    Each,
    /// Each region counts by itself, with a share of the limit.
    Split(Split),
    /// One region owns each counter, and the others ask it.
    Home(HomeOf),
    /// Each region counts by itself, and what it counts is debited in the others.
    Global(GlobalTerms),
}

/// The shares of regions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Split {
    /// As written.
    pub shares: Shares,
    /// The share of this process's region. `None` if the region is not known.
    pub here: Option<RegionShare>,
}

/// The shares of regions as written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shares {
    /// All have the same share.
    Equal,
    /// Regions and their shares in basis points, in the order of the file.
    Of(Vec<(String, u16)>),
    /// They follow demand.
    Moving {
        /// Where they come from.
        origin: MovingOrigin,
        /// The share of each region of limits that are too long for it. `None` if the regions are not known.
        equal: Option<RegionShare>,
    },
}

/// Where shares that follow demand come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MovingOrigin {
    /// There are none yet: all have the same share.
    Equal,
    /// The write of this generation in the store of record.
    Written(u64),
    /// What is in force is not known yet: the region has the least share that it can have.
    Unknown,
}

/// The region that owns a counter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HomeOf {
    /// The home of the caller; of a counter without a caller, one of the regions by its hash. `None` if the regions are
    /// not known.
    Caller(Option<RegionNames>),
    /// This region.
    Fixed(String, RegionId),
}

impl KnownRegions {
    /// The names of all regions, if they are known.
    pub fn all(&self) -> Option<&RegionNames> {
        match self {
            KnownRegions::All(names) => Some(names),
            KnownRegions::None | KnownRegions::Unchecked | KnownRegions::Here(_) => None,
        }
    }

    /// The region of this name, if it is known.
    pub fn id(&self, name: &str) -> Option<RegionId> {
        match self {
            KnownRegions::All(names) => names.id(name),
            KnownRegions::Here(here) => (here == name).then_some(RegionId::HERE),
            KnownRegions::None | KnownRegions::Unchecked => None,
        }
    }
}

impl RegionMode {
    /// The mode in one word.
    pub fn name(&self) -> &'static str {
        match self {
            RegionMode::Each => "each",
            RegionMode::Split(_) => "split",
            RegionMode::Home(_) => "home",
            RegionMode::Global(_) => "global",
        }
    }

    /// The mode as a rule file has it: `split`, `home: us-east`, `split: {us-east: 50%, eu-west: 50%}`.
    pub fn text(&self) -> Cow<'static, str> {
        match self {
            RegionMode::Home(HomeOf::Fixed(name, _)) => Cow::Owned(format!("home: {name}")),
            RegionMode::Global(terms) if *terms != GlobalTerms::default() => Cow::Owned(global_text(*terms)),
            RegionMode::Split(Split { shares: Shares::Moving { .. }, .. }) => Cow::Borrowed("split: moving"),
            RegionMode::Split(Split { shares: Shares::Of(shares), .. }) => {
                let mut text = "split: {".to_owned();
                for (at, (name, bps)) in shares.iter().enumerate() {
                    let comma = if at == 0 { "" } else { ", " };
                    // Writing to a String can't fail.
                    let _ = write!(text, "{comma}{name}: {}", percent(*bps));
                }
                text.push('}');
                Cow::Owned(text)
            }
            other => Cow::Borrowed(other.name()),
        }
    }

    /// The share of this process's region, if each has one.
    pub fn share(&self) -> Option<RegionShare> {
        match self {
            RegionMode::Split(split) => split.here,
            RegionMode::Each | RegionMode::Home(_) | RegionMode::Global(_) => None,
        }
    }

    /// The share of a limit that counts for longer than those of the rule do: with shares that follow demand, an equal one.
    pub(crate) fn share_of_longer(&self) -> Option<RegionShare> {
        match self {
            RegionMode::Split(Split { shares: Shares::Moving { equal, .. }, .. }) => *equal,
            other => other.share(),
        }
    }

    /// If shares follow demand: where the present ones come from.
    pub fn moving(&self) -> Option<MovingOrigin> {
        match self {
            RegionMode::Split(Split { shares: Shares::Moving { origin, .. }, .. }) => Some(*origin),
            _ => None,
        }
    }

    /// If units are debited in other regions: on which terms.
    pub fn global(&self) -> Option<GlobalTerms> {
        match self {
            RegionMode::Global(terms) => Some(*terms),
            RegionMode::Each | RegionMode::Split(_) | RegionMode::Home(_) => None,
        }
    }

    /// Whether one region owns each counter.
    pub fn is_home(&self) -> bool {
        matches!(self, RegionMode::Home(_))
    }
}

/// The terms that are not the default.
fn global_text(terms: GlobalTerms) -> String {
    let GlobalTerms { apart, debit_threshold } = terms;
    let apart = (apart != Apart::default()).then(|| format!("apart: {}", apart.name()));
    let is_usual = debit_threshold == GlobalTerms::DEBIT_THRESHOLD;
    let threshold = (!is_usual).then(|| format!("debit_threshold: {}", percent(debit_threshold)));
    let terms: Vec<String> = apart.into_iter().chain(threshold).collect();
    format!("global: {{{}}}", terms.join(", "))
}

/// Basis points as a percentage.
fn percent(bps: u16) -> String {
    let share = format!("{}.{:02}", bps / 100, bps % 100);
    format!("{}%", share.trim_end_matches('0').trim_end_matches('.'))
}
