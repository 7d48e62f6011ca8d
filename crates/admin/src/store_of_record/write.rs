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
    /// The store of record waits for confirmation.
    Unconfirmed(String),
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
        if let Some(waiting) = self.unconfirmed() {
            return Err(ControlWriteError::Unconfirmed(waiting.to_string()));
        }
        let (by, from, at) = (author.name.clone(), author.from.clone(), self.now());
        // Nothing is written to another database than the known one, also before the follower finds that it is.
        let known = Some(self.feed.at()).filter(|known| !known.identity.is_empty());
        let write = WriteBatch { by, from, at, once, since, known, is_note: false, changes };
        let written = db.write(&write).await.map_err(ControlWriteError::Refused);
        self.metrics.written(written.is_ok());
        let written = written?;
        if let WriteOutcome::Committed { generation, .. } = &written {
            // If this fails, the follower retries; the write is done.
            let _ = self.catch_up(Some(*generation)).await;
        }
        Ok(written)
    }
}
