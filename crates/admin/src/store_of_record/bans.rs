//! What bans need of the store of record: blocks that are in force here without it, and an end of those that were lifted elsewhere.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use tollgate::Timestamp;
use tollgate_control::{Change, DbLocation, Precondition, RecordName, WriteError};
use tollgate_records::Record;
use tollgate_records::documents::BlockDocument;

use super::{Author, ControlPlane, ControlWriteError};

/// Blocks that operators ended, until they are reported to other servers a moment later.
pub(crate) const MAX_ENDED: usize = 1_024;

impl ControlPlane {
    /// Whether the store of record is likely to take a write now.
    pub(crate) fn takes_writes(&self) -> bool {
        self.db.is_some() && self.is_available.load(Ordering::Acquire) && self.unconfirmed().is_none()
    }

    /// Whether other servers follow the same store of record.
    pub(crate) fn is_shared(&self) -> bool {
        matches!(self.db.as_ref().map(|db| db.location()), Some(DbLocation::Postgres(_)))
    }

    /// Puts a block in force on this server alone, or ends it. `false` if the document is invalid.
    pub(crate) fn put_here(&self, name: &RecordName, document: Option<&str>) -> bool {
        let record = Record {
            generation: 0,
            kind: name.kind,
            domain: (&*name.domain).into(),
            name: (&*name.name).into(),
            document: document.map(Into::into),
        };
        self.controls().apply(&record).inspect_err(|why| tracing::warn!("{why}")).is_ok()
    }

    /// Puts the stored block in force, or none if there is none.
    pub(crate) async fn put_stored(&self, name: &RecordName) {
        let Some(db) = &self.db else { return };
        if let Ok(stored) = db.get(name).await {
            self.put_here(name, stored.as_ref().and_then(|stored| stored.document.as_deref()));
        }
    }

    /// Remembers that an operator ended a block, for the servers that the store of record does not reach.
    pub(crate) fn note_ended(&self, name: RecordName) {
        let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        if ended.len() < MAX_ENDED {
            ended.push(name);
        }
    }

    /// Takes the blocks that operators ended here.
    pub(crate) fn take_ended(&self) -> Vec<RecordName> {
        std::mem::take(&mut *self.ended.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Ends a ban that began before this time. Nothing happens to a block that is none.
    pub(crate) async fn end_ban(
        self: &Arc<ControlPlane>,
        name: &RecordName,
        at: Timestamp,
    ) -> Result<(), ControlWriteError> {
        let Some(db) = &self.db else { return Ok(()) };
        let stored = db.get(name).await.map_err(|error| ControlWriteError::Refused(WriteError::from(error)))?;
        let Some(stored) = stored.filter(|stored| stored.updated_at <= at) else { return Ok(()) };
        let block = stored.document.as_deref().and_then(|text| serde_json::from_str::<BlockDocument>(text).ok());
        if block.is_none_or(|block| block.ban.is_none()) {
            return Ok(());
        }
        let change = Change {
            name: name.clone(),
            expect: Precondition::Generation(stored.generation),
            document: None,
            action: "block.delete".to_owned(),
            reason: "it was lifted on another server".to_owned(),
        };
        let author = Author { name: "tollgate".to_owned(), from: String::new() };
        match self.write(&author, vec![change], None).await {
            Ok(_) | Err(ControlWriteError::Refused(WriteError::PreconditionFailed { .. })) => Ok(()),
            Err(error) => Err(error),
        }
    }
}
