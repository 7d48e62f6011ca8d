//! Deletes blocks, switches, emergencies, plans and releases of rule files some time after they expired, by ordinary writes.
//!
//! Expired records have no effect, so nothing waits for this. They remain in the audit log.

use std::sync::Arc;

use serde::Deserialize;
use tollgate::{Span, Timestamp};
use tollgate_control::{Change, MAX_CHANGES, Precondition, RecordFilter, StoredRecord, WriteError};
use tollgate_records::RecordKind;
use tollgate_records::Rfc3339;

use super::{Author, ControlPlane, ControlWriteError};

/// How long expired records are still listed.
pub(crate) const EXPIRED_RETENTION: Span = Span::from_secs(24 * 3_600);
/// Batches of [`MAX_CHANGES`] records of a kind that are deleted in one pass. The rest is for the next one.
pub(crate) const MAX_SWEEP_WRITES: usize = 5;

/// The author in the audit log.
const AUTHOR: &str = "tollgate";

/// The kinds of records that expire.
const EXPIRING: [RecordKind; 5] =
    [RecordKind::Block, RecordKind::Switch, RecordKind::Emergency, RecordKind::Plan, RecordKind::Files];

/// The relevant part of their documents.
#[derive(Deserialize)]
struct Expiring {
    expires_at: Option<Rfc3339>,
}

impl ControlPlane {
    /// Deletes a bounded number of records that expired [`EXPIRED_RETENTION`] ago, and returns how many.
    ///
    /// # Errors
    /// If the store of record can't be read or written; some records may be deleted then.
    pub async fn sweep_expired(self: &Arc<ControlPlane>) -> Result<usize, ControlWriteError> {
        let Some(db) = self.db.clone() else { return Ok(0) };
        let by = Author { name: AUTHOR.to_owned(), from: String::new() };
        let ended = self.now().before(EXPIRED_RETENTION);
        let mut deleted = 0;
        for kind in EXPIRING {
            // Timestamps sort as text, except within a second.
            let before = Some(("expires_at".to_owned(), Rfc3339(ended.after(Span::from_secs(1))).to_string()));
            let filter = RecordFilter { before, ..RecordFilter::new(kind) };
            let mut after = None;
            for _ in 0..MAX_SWEEP_WRITES {
                let page = db.list(&filter, after.as_ref(), MAX_CHANGES).await;
                let page = page.map_err(|error| ControlWriteError::Refused(error.into()))?;
                let Some(last) = page.last() else { break };
                after = Some(last.name.clone());
                let changes: Vec<Change> =
                    page.into_iter().filter(|one| is_expired(one, ended)).map(deletion).collect();
                if changes.is_empty() {
                    continue;
                }
                let count = changes.len();
                match self.write(&by, changes, None).await {
                    Ok(_) => deleted += count,
                    // Another writer was faster. The next pass tries again.
                    Err(ControlWriteError::Refused(WriteError::PreconditionFailed { .. })) => {}
                    Err(why) => return Err(why),
                }
            }
        }
        Ok(deleted)
    }
}

/// Whether a record expired by `by`. An unreadable one did not.
pub fn is_expired(stored: &StoredRecord, by: Timestamp) -> bool {
    let expiring = stored.document.as_deref().and_then(|text| serde_json::from_str::<Expiring>(text).ok());
    expiring.and_then(|expiring| expiring.expires_at).is_some_and(|end| end.0 <= by)
}

/// Deletes an expired record, if it is unchanged.
pub fn deletion(stored: StoredRecord) -> Change {
    Change {
        action: format!("{}.delete", stored.name.kind),
        name: stored.name,
        expect: Precondition::Generation(stored.generation),
        document: None,
        reason: "it expired".to_owned(),
    }
}
