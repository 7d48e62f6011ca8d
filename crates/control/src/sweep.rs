//! Deleting what is only retained for a while.

use tollgate_core::{Span, Timestamp};

use crate::connection::OPERATION_TIMEOUT;
use crate::db::{Db, TransactionKind};
use crate::error::{DbError, Fault};
use crate::statement::Statement;

/// How long an idempotency key and its answer are retained.
pub const ONCE_RETENTION: Span = Span::from_secs(24 * 3_600);
/// How long a deleted record is retained: a follower that was disconnected for longer loads everything.
pub const DELETED_RETENTION: Span = Span::from_secs(7 * 24 * 3_600);

/// Rows of each table that one transaction deletes. All writers wait for it.
const MAX_ROWS: u64 = 5_000;

/// How many rows a sweep deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SweepReport {
    /// Idempotency keys.
    pub once: u64,
    /// Deleted records.
    pub deleted: u64,
}

impl Db {
    /// Deletes idempotency keys after [`ONCE_RETENTION`], and deleted records after [`DELETED_RETENTION`]. The audit log stays.
    pub async fn sweep(&self, now: Timestamp) -> Result<SweepReport, DbError> {
        let mut total = SweepReport::default();
        loop {
            let batch = self.with_timeout(OPERATION_TIMEOUT, self.sweep_batch(now)).await?;
            total.once += batch.once;
            total.deleted += batch.deleted;
            if batch.once < MAX_ROWS && batch.deleted < MAX_ROWS {
                return Ok(total);
            }
        }
    }

    async fn sweep_batch(&self, now: Timestamp) -> Result<SweepReport, Fault> {
        let mut connection = self.begin(self.writer(), TransactionKind::Write).await?;
        // Writers and other sweeps lock this row too: they wait until the commit.
        connection.run(&Statement::new("UPDATE control SET swept = swept")).await?;
        let mut once = Statement::new("DELETE FROM once WHERE key IN ");
        once.push(
            "(SELECT key FROM once WHERE at <= ? ORDER BY at LIMIT ?)",
            [now.before(ONCE_RETENTION).into(), MAX_ROWS.into()],
        );
        let once = connection.run(&once).await?;
        let mut delete = Statement::new("DELETE FROM records WHERE (kind, domain, name) IN ");
        delete.push(
            "(SELECT kind, domain, name FROM records WHERE document IS NULL AND updated_at <= ? ORDER BY updated_at LIMIT ?) \
             RETURNING generation",
            [now.before(DELETED_RETENTION).into(), MAX_ROWS.into()],
        );
        let (mut deleted, mut highest) = (0, 0);
        connection
            .each(&delete, |row| {
                deleted += 1;
                highest = row.number(0)?.max(highest);
                Ok(())
            })
            .await?;
        let mut note = Statement::new("UPDATE control SET swept = ");
        note.push("? WHERE swept < ?", [highest.into(), highest.into()]);
        connection.run(&note).await?;
        connection.script("COMMIT").await?;
        connection.release();
        Ok(SweepReport { once, deleted })
    }
}
