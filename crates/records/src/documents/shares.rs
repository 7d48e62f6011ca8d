//! Shares of regions that follow demand.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tollgate_core::Timestamp;
use tollgate_rules::{MovingShare, MovingShares};

/// The shares of a rule with `region: {split: moving}`, in basis points: the record's domain and name say of which.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct SharesDocument {
    /// What servers use, by region.
    pub shares: BTreeMap<String, u16>,
    /// What is held for a region, where that is more: some of its servers may not have the smaller share yet.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub held: BTreeMap<String, u16>,
    /// When a region was last given what was not held for it, in milliseconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub given_at_ms: Option<u64>,
}

impl SharesDocument {
    /// The shares that it means.
    pub fn to_shares(&self) -> MovingShares {
        let share = |(name, share): (&String, &u16)| {
            let held = self.held.get(name).copied().unwrap_or(0).max(*share);
            (name.clone(), MovingShare { share: *share, held })
        };
        let given_at = self.given_at_ms.map(|millis| Timestamp::from_micros(millis.saturating_mul(1_000)));
        MovingShares { of: self.shares.iter().map(share).collect(), given_at }
    }
}

impl From<&MovingShares> for SharesDocument {
    fn from(shares: &MovingShares) -> SharesDocument {
        let held = shares.of.iter().filter(|(_, at)| at.held > at.share);
        SharesDocument {
            shares: shares.of.iter().map(|(name, at)| (name.clone(), at.share)).collect(),
            held: held.map(|(name, at)| (name.clone(), at.held)).collect(),
            // Rounded up: no earlier than it was.
            given_at_ms: shares.given_at.map(|at| at.as_micros().div_ceil(1_000)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_and_shares_mean_the_same() {
        let text = r#"{"shares":{"eu-west":2500,"us-east":5000},"held":{"eu-west":5000},"given_at_ms":7000}"#;
        let document: SharesDocument = serde_json::from_str(text).unwrap();
        let shares = document.to_shares();
        assert_eq!(shares.of["eu-west"], MovingShare { share: 2_500, held: 5_000 });
        assert_eq!(shares.of["us-east"], MovingShare { share: 5_000, held: 5_000 });
        assert_eq!(shares.given_at, Some(Timestamp::from_secs(7)));
        assert_eq!(serde_json::to_string(&SharesDocument::from(&shares)).unwrap(), text);
        let before = r#"{"shares":{"eu-west":2500}}"#;
        assert_eq!(serde_json::from_str::<SharesDocument>(before).unwrap().to_shares().given_at, None);
    }
}
