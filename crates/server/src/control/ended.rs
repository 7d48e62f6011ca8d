//! What is over goes: blocks, switches and emergencies are deleted when their end is a while ago, by the ordinary way of writes.
//!
//! Nothing is decided by them any more, so that nobody waits for this. What they were stays in the audit log.

use std::sync::Arc;

use serde::Deserialize;
use tollgate::control::Moment;
use tollgate::{Span, Timestamp};
use tollgate_control::{Change, Expect, Filter, Kind, MOST_CHANGES, Stored, WriteError};

use super::{Author, Control, NotWritten};

/// How long what is over is still shown: who wonders what it was need not read the audit log.
pub(crate) const KEEP_ENDED: Span = Span::from_secs(24 * 3_600);
/// How many times [`MOST_CHANGES`] records of a kind go in one pass. What is left is for the next one.
pub(crate) const MOST_WRITES: usize = 5;

/// What the audit log calls who does this.
const BY: &str = "tollgate";

/// The kinds of records that end.
const ENDING: [Kind; 3] = [Kind::Block, Kind::Switch, Kind::Emergency];

/// The part of their documents that is of interest here.
#[derive(Deserialize)]
struct Ending {
    expires_at: Option<Moment>,
}

impl Control {
    /// Deletes what has been over for [`KEEP_ENDED`], a bounded number, and says how many records that were.
    ///
    /// # Errors
    /// If the store of record can't be read or written; some may be gone then.
    pub(crate) async fn sweep_ended(self: &Arc<Control>) -> Result<usize, NotWritten> {
        let Some(db) = self.db.clone() else { return Ok(0) };
        let by = Author { name: BY.to_owned(), from: String::new() };
        let ended = self.now().before(KEEP_ENDED);
        let mut gone = 0;
        for kind in ENDING {
            // As texts moments are in their order, but within a second.
            let before = Some(("expires_at".to_owned(), Moment(ended.after(Span::from_secs(1))).to_string()));
            let filter = Filter { before, ..Filter::of(kind) };
            let mut after = None;
            for _ in 0..MOST_WRITES {
                let page = db.list(&filter, after.as_ref(), MOST_CHANGES).await;
                let page = page.map_err(|error| NotWritten::Refused(error.into()))?;
                let Some(last) = page.last() else { break };
                after = Some(last.name.clone());
                let changes: Vec<Change> = page.into_iter().filter(|one| is_over(one, ended)).map(taken_away).collect();
                if changes.is_empty() {
                    continue;
                }
                let count = changes.len();
                match self.write(&by, changes, None).await {
                    Ok(_) => gone += count,
                    // Somebody else was faster: another server, or an operator. They are looked at again in the next pass.
                    Err(NotWritten::Refused(WriteError::Lost { .. })) => {}
                    Err(why) => return Err(why),
                }
            }
        }
        Ok(gone)
    }
}

/// Whether a record had ended by a moment. One that can't be read has not.
pub(crate) fn is_over(stored: &Stored, by: Timestamp) -> bool {
    let ending = stored.document.as_deref().and_then(|text| serde_json::from_str::<Ending>(text).ok());
    ending.and_then(|ending| ending.expires_at).is_some_and(|end| end.0 <= by)
}

/// Deletes a record that is over, if it is still the same.
pub(crate) fn taken_away(stored: Stored) -> Change {
    Change {
        action: format!("{}.delete", stored.name.kind),
        name: stored.name,
        expect: Expect::Generation(stored.generation),
        document: None,
        reason: "it was over".to_owned(),
    }
}
