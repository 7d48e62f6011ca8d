//! Shares of regions that follow demand.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tollgate_control::{Db, DbLocation};
use tollgate_records::Controls;
use tollgate_rules::MovingShares;

use super::ControlPlane;

/// What a server starts with may be older than the shares in force, unless it is alone with its store of record.
pub(super) fn begin(controls: &mut Controls, db: Option<&Db>) {
    let is_shared = db.is_some_and(|db| matches!(db.location(), DbLocation::Postgres(_)));
    controls.set_shares_unknown(is_shared);
}

impl ControlPlane {
    /// The shares of a rule in the records that are in force, with the generation of their write.
    pub fn shares(&self, domain: &str, rule: &str) -> Option<(u64, MovingShares)> {
        self.controls().shares(domain, rule).cloned()
    }

    /// Begins to use the shares of the store of record, if it can be read. To be called when the other servers know of this one:
    /// from then on none is given out of what this server may use.
    pub async fn know_shares(self: &Arc<ControlPlane>) {
        if !self.controls().are_shares_unknown() || self.catch_up(None).await.is_err() || self.unconfirmed().is_some() {
            return;
        }
        if self.is_available.load(Ordering::Acquire) && self.controls().set_shares_unknown(false) {
            self.replace_layer(Vec::new());
        }
    }
}
