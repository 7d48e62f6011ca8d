//! Brings changes that wait to other servers, and to the store of record when it is available.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tollgate::Timestamp;
use tollgate_control::{
    Change, Db, FeedPosition, IdempotencyKey, MAX_REASON_BYTES, Precondition, StoredRecord, WriteBatch, WriteError,
    WriteOutcome,
};
use tollgate_net::Closing;
use tollgate_records::{Record, Rfc3339};
use tollgate_store::{BulletinEntry, InRegion};

use super::ControlPlane;
use super::measure::WrittenChanges;
use super::pending::{BULLETIN, BULLETIN_TIMEOUT, PendingChange};

/// How often servers ask each other, and the store of record.
const SYNC_INTERVAL: Duration = Duration::from_secs(1);
/// Attempts to write a change while others write the same record.
const MAX_ATTEMPTS: usize = 10;
/// Replaces a change in the bulletin that is in the store of record.
const DONE: &[u8] = b"{}";
/// The author of notes in the audit log.
const AUTHOR: &str = "tollgate";

/// What became of a change.
enum Resolution {
    /// The store of record has it.
    Written,
    /// The record was changed later than this change was made.
    Discarded,
}

/// The entries of a bulletin: ids and texts.
type BulletinEntries = Vec<(String, Vec<u8>)>;

/// The bulletins of the regions that answered.
#[derive(Debug, Default)]
struct Published {
    /// By id. A change that is in the store of record, by one of them, is done.
    entries: HashMap<String, Vec<u8>>,
    regions: Vec<HashMap<String, Vec<u8>>>,
}

impl Published {
    fn new(answers: Vec<InRegion<BulletinEntries>>) -> Published {
        let mut published = Published::default();
        for InRegion { region, answer } in answers {
            match answer {
                Ok(entries) => published.regions.push(entries.into_iter().collect()),
                Err(error) => tracing::debug!(error, region, "the changes of other servers can't be read"),
            }
        }
        for (id, text) in published.regions.iter().flatten() {
            if text == DONE || !published.entries.contains_key(id) {
                published.entries.insert(id.clone(), text.clone());
            }
        }
        published
    }

    /// Whether a region lacks a change.
    fn is_missing(&self, id: &str) -> bool {
        self.regions.iter().any(|region| !region.contains_key(id))
    }

    /// Changes that are done, and that wait by the bulletin of a region.
    fn outdated(&self) -> impl Iterator<Item = &str> {
        let is_outdated = |(id, text): &(&String, &Vec<u8>)| {
            *text == DONE && self.regions.iter().any(|region| region.get(*id).is_some_and(|other| other != DONE))
        };
        self.entries.iter().filter(is_outdated).map(|(id, _)| &**id)
    }
}

impl ControlPlane {
    /// Exchanges changes until the server is about to stop.
    pub(super) async fn follow_pending(self: &Arc<ControlPlane>, mut closing: Closing) {
        if self.db.is_none() {
            return;
        }
        self.show_pending();
        loop {
            tokio::select! {
                () = tokio::time::sleep(SYNC_INTERVAL) => {}
                () = closing.begun() => return,
            }
            self.sync_pending().await;
        }
    }

    /// Learns the changes of other servers, sends them this server's, and writes all of them if the store of record is available.
    pub(super) async fn sync_pending(self: &Arc<ControlPlane>) {
        let published = self.published().await;
        let mut known = self.pending.all();
        let of_others = published.entries.iter().filter_map(|(id, text)| {
            let change = PendingChange::decode(text).filter(|change| change.id == *id)?;
            let is_new = known.iter().all(|known| known.id != change.id);
            (is_new && self.is_same_store(&change)).then_some(change)
        });
        let mut of_others: Vec<_> = of_others.collect();
        of_others.sort_by_key(|change| change.at);
        let mut is_changed = false;
        // In the order of their times: what can't be written holds up those after it.
        let mut is_writable = self.is_available.load(Ordering::Acquire);
        for change in of_others {
            // With the store of record at hand it goes there, and comes back as a record.
            is_writable = is_writable && self.resolve(&change).await.is_ok();
            if is_writable {
                continue;
            }
            tracing::warn!(kind = %change.kind, by = change.by, id = change.id, "a change of another server is in force");
            match self.adopt(change.clone()) {
                Ok(()) => {
                    is_changed = true;
                    known.push(change);
                }
                Err(why) => tracing::warn!("{why}"),
            }
        }
        for change in known {
            is_writable = is_writable && self.resolve(&change).await.is_ok();
            is_changed |= is_writable;
            if !is_writable && published.is_missing(&change.id) {
                self.publish(&change.id, &change.encode(), false).await;
            }
        }
        // In a region that could not be reached when they were written.
        for id in published.outdated() {
            self.publish(id, DONE, true).await;
        }
        if is_changed {
            self.show_pending();
            self.save_pending().await;
        }
    }

    /// The bulletins of all regions that can be read.
    async fn published(&self) -> Published {
        let Some(shared) = self.limiter.store().shared() else { return Published::default() };
        Published::new(shared.published(BULLETIN, BULLETIN_TIMEOUT).await)
    }

    async fn publish(&self, id: &str, text: &[u8], is_replaced: bool) {
        let Some(shared) = self.limiter.store().shared() else { return };
        let entry = BulletinEntry { id, text, is_replaced };
        for InRegion { region, answer } in shared.publish(BULLETIN, entry, BULLETIN_TIMEOUT).await {
            if let Err(error) = answer {
                tracing::debug!(error, region, "other servers can't be notified of a change");
            }
        }
    }

    /// Whether a change is for the store of record of this server, as far as both are known.
    fn is_same_store(&self, change: &PendingChange) -> bool {
        let identity = self.feed.at().identity;
        identity.is_empty() || change.identity.is_empty() || identity == change.identity
    }

    /// Writes a change to the store of record, unless the record was changed since. The stored record is in force then.
    async fn resolve(self: &Arc<ControlPlane>, change: &PendingChange) -> Result<(), WriteError> {
        let Some(db) = self.db.clone() else { return Ok(()) };
        let resolution = match write_once(&db, &self.feed.at(), change, self.now()).await {
            // It was valid for the server that accepted it, and never will be for the database.
            Err(WriteError::Invalid(why)) => {
                tracing::error!(id = change.id, why, "a change that waited can't be written");
                Resolution::Discarded
            }
            written => written?,
        };
        match resolution {
            Resolution::Written => tracing::info!(id = change.id, "a change that waited is in the store of record"),
            Resolution::Discarded => {
                tracing::warn!(id = change.id, "a change that waited is discarded; the audit log says why");
            }
        }
        let name = change.record_name();
        let stored = db.get_with_deleted(&name).await?;
        self.pending.remove(&change.id);
        let record = Record {
            document: stored.as_ref().and_then(|stored| stored.document.as_deref()).map(Into::into),
            ..change.record(self.generation())
        };
        if !self.pending.covers(&record) {
            let effect = self.apply(&record);
            // Its record is measured when it is read.
            self.after_pending(effect, WrittenChanges::default());
        }
        self.publish(&change.id, DONE, true).await;
        // If this fails, the follower tries again.
        let _ = self.catch_up(None).await;
        Ok(())
    }
}

/// Writes a change under its id, to the known store of record. Whichever server is first writes it; the others find that.
async fn write_once(
    db: &Db,
    known: &FeedPosition,
    change: &PendingChange,
    now: Timestamp,
) -> Result<Resolution, WriteError> {
    let known = Some(known.clone()).filter(|known| !known.identity.is_empty());
    let once = IdempotencyKey {
        key: format!("{AUTHOR}/pending/{}", change.id),
        digest: change.id.clone(),
        answer: String::new(),
    };
    let name = change.record_name();
    for _ in 0..MAX_ATTEMPTS {
        if db.find_replay(&once, change.at.0).await?.is_some() {
            return Ok(Resolution::Written);
        }
        let stored = db.get_with_deleted(&name).await?;
        let (write, resolution) = match &stored {
            Some(stored) if stored.updated_at > change.at.0 => (note(change, stored, now), Resolution::Discarded),
            Some(stored) if stored.updated_at == change.at.0 => return Ok(Resolution::Written),
            stored => (batch(change, stored.as_ref()), Resolution::Written),
        };
        match db.write(&WriteBatch { once: Some(once.clone()), known: known.clone(), ..write }).await {
            Ok(WriteOutcome::Committed { .. } | WriteOutcome::Replayed { .. }) => return Ok(resolution),
            // Another writer was faster.
            Err(WriteError::PreconditionFailed { .. }) => {}
            Err(error) => return Err(error),
        }
    }
    Err(WriteError::Unavailable("the record is written too often".to_owned()))
}

/// The write of a change, by its author and at its time.
fn batch(change: &PendingChange, stored: Option<&StoredRecord>) -> WriteBatch {
    let expect = match stored.filter(|stored| stored.document.is_some()) {
        Some(stored) => Precondition::Generation(stored.generation),
        None if change.document.is_none() => Precondition::Any,
        None => Precondition::Absent,
    };
    let reason = format!("{} (made while the store of record was unavailable)", change.reason);
    WriteBatch {
        by: change.by.clone(),
        from: change.from.clone(),
        at: change.at.0,
        once: None,
        since: None,
        known: None,
        is_note: false,
        changes: vec![Change {
            name: change.record_name(),
            expect,
            document: change.document.clone(),
            action: change.action.clone(),
            reason: truncate(reason.trim_start().to_owned()),
        }],
    }
}

/// A note in the audit log that a change was not made.
fn note(change: &PendingChange, stored: &StoredRecord, now: Timestamp) -> WriteBatch {
    let PendingChange { action, by, at, reason, document, .. } = change;
    let text = format!(
        "{action} by {by} at {at}, while the store of record was unavailable, is discarded: {} changed the record at {}. Its reason: \
         {reason}. Its document: {}",
        stored.updated_by,
        Rfc3339(stored.updated_at),
        document.as_deref().unwrap_or("none, it deletes the record"),
    );
    let unchanged = Change {
        name: change.record_name(),
        expect: Precondition::Any,
        document: stored.document.clone(),
        action: format!("{}.discard", change.kind),
        reason: truncate(text),
    };
    WriteBatch {
        by: AUTHOR.to_owned(),
        from: change.from.clone(),
        at: now,
        once: None,
        since: None,
        known: None,
        is_note: true,
        changes: vec![unchanged],
    }
}

fn truncate(mut text: String) -> String {
    if text.len() > MAX_REASON_BYTES {
        let end = (0..=MAX_REASON_BYTES).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
        text.truncate(end);
    }
    text
}

impl From<PendingChange> for StoredRecord {
    /// As if it were stored, for a change that builds on it.
    fn from(change: PendingChange) -> StoredRecord {
        StoredRecord {
            name: change.record_name(),
            generation: 0,
            document: change.document,
            created_at: change.at.0,
            updated_at: change.at.0,
            updated_by: change.by,
            reason: change.reason,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bulletins_of_regions_are_one() {
        let region = |entries: &[(&str, &[u8])]| {
            InRegion::here(Ok(entries.iter().map(|(id, text)| ((*id).to_owned(), text.to_vec())).collect()))
        };
        let published = Published::new(vec![
            region(&[("everywhere", b"1"), ("done here", DONE), ("here", b"2")]),
            InRegion::here(Err("no answer".to_owned())),
            region(&[("everywhere", b"1"), ("done here", b"3"), ("done there", DONE)]),
        ]);
        let texts = ["everywhere", "here", "done here", "done there"].map(|id| published.entries[id].as_slice());
        assert_eq!(texts, [b"1", b"2", DONE, DONE]);
        let missing = ["everywhere", "here", "done here", "unknown"].map(|id| published.is_missing(id));
        assert_eq!(missing, [false, true, false, true]);
        assert_eq!(published.outdated().collect::<Vec<_>>(), ["done here"]);
        assert!(!Published::new(vec![InRegion::here(Err("no answer".to_owned()))]).is_missing("unknown"));
    }
}
