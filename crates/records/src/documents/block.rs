//! Blocks of callers and of address ranges.

use serde::{Deserialize, Serialize};
use tollgate_rules::model::Network;
use tollgate_rules::tenants::{Block, BlockAction, BlockSubject};

use super::FieldFaults;
use crate::Rfc3339;

/// A block of a caller or of an address range. The record's name is the caller or the range.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct BlockDocument {
    /// Whether the name is an address range.
    #[serde(default)]
    pub range: bool,
    /// The HTTP status of the refusal: 403 or 429.
    #[serde(default = "forbidden")]
    pub status: u16,
    /// Serve the requests and only mark them for the gateway.
    #[serde(default)]
    pub shadow: bool,
    /// The end of the block; by default it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Rfc3339>,
    /// The operator's reason, which the audit log shows.
    pub reason: String,
}

fn forbidden() -> u16 {
    403
}

impl BlockDocument {
    /// The block that a record of this domain and name means; `None` if there are faults.
    pub fn to_block(&self, domain: &str, name: &str, faults: &mut FieldFaults) -> Option<(BlockSubject, Block)> {
        faults.check_reason(&self.reason);
        let response = match (self.status, self.shadow) {
            (_, true) => Some(BlockAction::Marked),
            (403, false) => Some(BlockAction::Forbidden),
            (429, false) => Some(BlockAction::TooMany),
            _ => {
                faults.add("status", "write 403 or 429");
                None
            }
        };
        let blocked = self.blocked(domain, name, faults);
        let during = super::during(None, self.expires_at);
        Some((blocked?, Block { during, action: response? }))
    }

    /// The caller or the range that a record of this domain and name blocks; `None` if the name is not a range.
    pub fn blocked(&self, domain: &str, name: &str, faults: &mut FieldFaults) -> Option<BlockSubject> {
        if !self.range {
            return Some(BlockSubject::Caller { domain: domain.to_owned(), caller: name.to_owned() });
        }
        match name.parse::<Network>() {
            Ok(network) => {
                Some(BlockSubject::Range { domain: (!domain.is_empty()).then(|| domain.to_owned()), network })
            }
            Err(fault) => {
                faults.add("range", format!("{}; {}", fault.message, fault.remedy));
                None
            }
        }
    }
}
