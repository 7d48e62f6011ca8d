//! What is not kept for good.

use tollgate_core::{Span, Timestamp};

use crate::error::{DbError, Fault};
use crate::statement::Statement;
use crate::{Begin, Db, OPERATION};

/// How long a write under an idempotency key is remembered.
pub const KEEP_ONCE: Span = Span::from_secs(24 * 3_600);
/// How long a deleted record is: a follower that was away for longer loads everything.
pub const KEEP_DELETED: Span = Span::from_secs(7 * 24 * 3_600);

/// Rows that go in one transaction, for which all writers wait.
const AT_ONCE: u64 = 5_000;

/// What was forgotten.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Swept {
    /// Writes under idempotency keys.
    pub once: u64,
    /// Deleted records.
    pub deleted: u64,
}

impl Db {
    /// Forgets what need not be known any more: writes under idempotency keys after [`KEEP_ONCE`], deleted records after
    /// [`KEEP_DELETED`]. The audit log is kept.
    pub async fn sweep(&self, now: Timestamp) -> Result<Swept, DbError> {
        let mut swept = Swept::default();
        loop {
            let some = self.within(OPERATION, self.sweep_some(now)).await?;
            swept.once += some.once;
            swept.deleted += some.deleted;
            if some.once < AT_ONCE && some.deleted < AT_ONCE {
                return Ok(swept);
            }
        }
    }

    async fn sweep_some(&self, now: Timestamp) -> Result<Swept, Fault> {
        let mut lent = self.begin(self.writer(), Begin::Write).await?;
        // No writer and no other sweep between here and the end: the row is theirs too.
        lent.run(&Statement::new("UPDATE control SET swept = swept")).await?;
        let mut once = Statement::new("DELETE FROM once WHERE key IN ");
        once.and(
            "(SELECT key FROM once WHERE at <= ? ORDER BY at LIMIT ?)",
            [now.before(KEEP_ONCE).into(), AT_ONCE.into()],
        );
        let once = lent.run(&once).await?;
        let mut delete = Statement::new("DELETE FROM records WHERE (kind, domain, name) IN ");
        delete.and(
            "(SELECT kind, domain, name FROM records WHERE document IS NULL AND updated_at <= ? ORDER BY updated_at LIMIT ?) \
             RETURNING generation",
            [now.before(KEEP_DELETED).into(), AT_ONCE.into()],
        );
        let (mut deleted, mut highest) = (0, 0);
        lent.each(&delete, |row| {
            deleted += 1;
            highest = row.number(0)?.max(highest);
            Ok(())
        })
        .await?;
        let mut note = Statement::new("UPDATE control SET swept = ");
        note.and("? WHERE swept < ?", [highest.into(), highest.into()]);
        lent.run(&note).await?;
        lent.script("COMMIT").await?;
        lent.keep();
        Ok(Swept { once, deleted })
    }
}
