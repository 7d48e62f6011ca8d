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
    /// Whether the name is the digest of a private name: `#` and 32 hexadecimal digits.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub masked: bool,
    /// Why the servers of the fleet made the block, if no operator did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ban: Option<BanDocument>,
}

/// A block that servers made because too many requests were refused.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct BanDocument {
    /// The rule that refused them, or the signal that was raised.
    pub rule: String,
    /// Whether it is a signal.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub signal: bool,
    /// After so many refusals, or distinct values.
    pub after: u64,
    /// In this time, in seconds.
    pub within: u64,
    /// When it began.
    pub began_at: Rfc3339,
    /// Its number among those that followed each other.
    pub number: u32,
}

fn forbidden() -> u16 {
    403
}

impl BlockDocument {
    /// The block that a record of this domain and name means; `None` if there are faults.
    pub fn to_block(&self, domain: &str, name: &str, faults: &mut FieldFaults) -> Option<(BlockSubject, Block)> {
        faults.check_reason(&self.reason);
        let response = match (self.status, self.shadow) {
            (_, true) if self.ban.is_some() => Some(BlockAction::Admitted),
            (403, false) if self.ban.is_some() => Some(BlockAction::Banned),
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
        if self.masked {
            let digest = masked_name(name);
            if digest.is_none() {
                faults.add("masked", "write `#` and the 32 hexadecimal digits of the name's digest");
            }
            return Some(BlockSubject::Masked { domain: domain.to_owned(), digest: digest? });
        }
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

/// The digest in the name of a block of a private name.
pub fn masked_name(name: &str) -> Option<u128> {
    let digits = name.strip_prefix('#').filter(|digits| digits.len() == 32)?;
    u128::from_str_radix(digits, 16).ok()
}
