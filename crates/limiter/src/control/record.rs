//! One thing that operators decided.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// One thing that operators decided, as of a generation.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// The write that put it there.
    pub generation: u64,
    /// What it is.
    pub kind: Kind,
    /// The domain; empty for all.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub domain: String,
    /// Its name among those of its kind and domain.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// What it says. `None`: it is not there any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub document: Option<Box<RawValue>>,
}

impl Record {
    /// Whether the write that made a quota what it is asked for its caller's counters to start afresh.
    pub fn asks_for_reset(&self) -> bool {
        #[derive(Deserialize)]
        struct Reset {
            reset_by: Option<u64>,
        }
        let document = self.document.as_ref().filter(|_| self.kind == Kind::Quota);
        let reset = document.and_then(|document| serde_json::from_str::<Reset>(document.get()).ok());
        reset.is_some_and(|reset| reset.reset_by.is_some())
    }
}

/// What a record is.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// What a caller has: its name is the caller's, or a glob.
    Quota,
    /// A rule above the files: its name is the rule's.
    Rule,
    /// How a rule refuses, or all of a domain, or all: its name is the rule's.
    Switch,
    /// A limit before all others.
    Emergency,
    /// A caller or an address range that is not served: its name is the caller's, or the range's.
    Block,
}

impl Kind {
    /// All of them.
    pub const ALL: [Kind; 5] = [Kind::Quota, Kind::Rule, Kind::Switch, Kind::Emergency, Kind::Block];

    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Quota => "quota",
            Kind::Rule => "rule",
            Kind::Switch => "switch",
            Kind::Emergency => "emergency",
            Kind::Block => "block",
        }
    }
}

impl FromStr for Kind {
    type Err = ();

    fn from_str(text: &str) -> Result<Kind, ()> {
        Kind::ALL.into_iter().find(|kind| kind.name() == text).ok_or(())
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
