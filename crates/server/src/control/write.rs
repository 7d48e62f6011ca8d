//! Writing to the store of record.

use std::sync::Arc;

use tollgate_control::{Change, Once, Write, WriteError, Written};

use super::Control;

/// Who writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Author {
    /// As the audit log names it: a token, a certificate, `loopback`.
    pub(crate) name: String,
    /// The address that it came from.
    pub(crate) from: String,
}

/// Why nothing was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NotWritten {
    /// There is no store of record.
    Off,
    /// It can't be written.
    Refused(WriteError),
}

impl Control {
    /// Writes changes, all of them or none, and puts them in force here before it answers. Other servers hear of them by
    /// themselves.
    ///
    /// # Errors
    /// Nothing was written then, unless the error says otherwise.
    pub(crate) async fn write(
        self: &Arc<Control>,
        author: &Author,
        changes: Vec<Change>,
        once: Option<Once>,
    ) -> Result<Written, NotWritten> {
        self.write_since(author, changes, once, None).await
    }

    /// The same, but only if nothing at all was written past a generation: for what depends on more than it changes.
    ///
    /// # Errors
    /// As above.
    pub(crate) async fn write_since(
        self: &Arc<Control>,
        author: &Author,
        changes: Vec<Change>,
        once: Option<Once>,
        since: Option<u64>,
    ) -> Result<Written, NotWritten> {
        let db = self.db().ok_or(NotWritten::Off)?;
        let write = Write { by: author.name.clone(), from: author.from.clone(), at: self.now(), once, since, changes };
        let before = self.generation();
        let written = db.write(&write).await.map_err(NotWritten::Refused);
        self.metrics.written(written.is_ok());
        let written = written?;
        if let Written::Now { generation, .. } = &written {
            // A generation that has been there before is of a store of record that was restored from a backup.
            let at_least = Some(*generation).filter(|generation| *generation > before);
            // If this fails, the follower tries again; it is written all the same.
            let _ = self.catch_up(at_least).await;
        }
        Ok(written)
    }
}
