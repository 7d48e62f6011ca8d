//! Who is not served.

use serde::{Deserialize, Serialize};
use tollgate_rules::model::Network;
use tollgate_rules::tenants::{Block, Blocked, BlockedAs};

use super::Faults;
use crate::control::Moment;

/// A caller or an address range that is not served. Which, its record's name says.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct BlockDocument {
    /// Whether it is an address range.
    #[serde(default)]
    pub range: bool,
    /// What it is told: 403, or 429.
    #[serde(default = "forbidden")]
    pub status: u16,
    /// It is served, and marked for the gateway.
    #[serde(default)]
    pub shadow: bool,
    /// Until when; by default for good.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Moment>,
    /// Why.
    pub reason: String,
}

fn forbidden() -> u16 {
    403
}

impl BlockDocument {
    /// What it means, under its record's domain and name.
    pub fn meaning(&self, domain: &str, name: &str, faults: &mut Faults) -> Option<(Blocked, Block)> {
        if self.reason.trim().is_empty() {
            faults.add("reason", "it is missing; say why, for those who find it in the audit log");
        }
        faults.text("reason", Some(&self.reason));
        let told = match (self.status, self.shadow) {
            (_, true) => Some(BlockedAs::Marked),
            (403, false) => Some(BlockedAs::Forbidden),
            (429, false) => Some(BlockedAs::TooMany),
            _ => {
                faults.add("status", "write 403 or 429");
                None
            }
        };
        let who = self.who(domain, name, faults);
        let during = super::during(None, self.expires_at);
        Some((who?, Block { during, told: told? }))
    }

    /// Who it is about.
    pub fn who(&self, domain: &str, name: &str, faults: &mut Faults) -> Option<Blocked> {
        if !self.range {
            return Some(Blocked::Caller { domain: domain.to_owned(), caller: name.to_owned() });
        }
        match name.parse::<Network>() {
            Ok(network) => Some(Blocked::Range { domain: (!domain.is_empty()).then(|| domain.to_owned()), network }),
            Err(fault) => {
                faults.add("range", format!("{}; {}", fault.message, fault.remedy));
                None
            }
        }
    }
}
