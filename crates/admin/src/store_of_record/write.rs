//! Writing to the store of record.

use std::sync::Arc;

use tollgate_control::{Change, IdempotencyKey, WriteBatch, WriteError, WriteOutcome};

use super::ControlPlane;

/// The author of a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Author {
    /// Its name in the audit log: a token, a certificate, `loopback`.
    pub name: String,
    /// Its address.
    pub from: String,
}

/// Why a write failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ControlWriteError {
    /// There is no store of record.
    Off,
    /// The database rejected it or is unavailable.
    Refused(WriteError),
}

impl ControlPlane {
    /// Writes changes in one transaction, and applies them here before it returns. Other servers follow on their own.
    ///
    /// # Errors
    /// Nothing was written, unless the error says otherwise.
    pub async fn write(
        self: &Arc<ControlPlane>,
        author: &Author,
        changes: Vec<Change>,
        once: Option<IdempotencyKey>,
    ) -> Result<WriteOutcome, ControlWriteError> {
        self.write_since(author, changes, once, None).await
    }

    /// The same, but only if nothing was written after a generation: for changes that depend on more than they write.
    ///
    /// # Errors
    /// As above.
    pub async fn write_since(
        self: &Arc<ControlPlane>,
        author: &Author,
        changes: Vec<Change>,
        once: Option<IdempotencyKey>,
        since: Option<u64>,
    ) -> Result<WriteOutcome, ControlWriteError> {
        let db = self.db().ok_or(ControlWriteError::Off)?;
        let write = WriteBatch {
            by: author.name.clone(),
            from: author.from.clone(),
            at: self.now(),
            once,
            since,
            is_note: false,
            changes,
        };
        let before = self.generation();
        let written = db.write(&write).await.map_err(ControlWriteError::Refused);
        self.metrics.written(written.is_ok());
        let written = written?;
        if let WriteOutcome::Committed { generation, .. } = &written {
            // A smaller generation means that the store of record was restored from a backup.
            let at_least = Some(*generation).filter(|generation| *generation > before);
            // If this fails, the follower retries; the write is done.
            let _ = self.catch_up(at_least).await;
        }
        Ok(written)
    }
}
