//! Where records go that are read in bulk.

use tollgate_core::Timestamp;
use tollgate_records::{Record, RecordKind};

use crate::error::Fault;
use crate::model::FeedPosition;
use crate::statement::Row;

/// Receives many records, at its own pace.
pub trait RecordSink: Send {
    /// The records that follow are as of this position.
    fn begin(&mut self, _at: &FeedPosition) {}

    /// Takes one record.
    fn push(&mut self, record: Record<'_>);

    /// Takes one record that was written at this time.
    fn push_written(&mut self, record: Record<'_>, _written_at: Timestamp) {
        self.push(record);
    }

    /// Whether it takes no more before a [flush](RecordSink::flush).
    fn is_full(&self) -> bool;

    /// Makes room. `false` ends the read.
    fn flush(&mut self) -> impl Future<Output = bool> + Send;
}

/// Records that are handed out before other tasks get their turn on the thread.
const YIELD_AFTER: u64 = 256;

/// A sink that calls a function for each record and never ends the read.
pub(crate) struct ForEach<F> {
    each: F,
    count: u64,
}

impl<F: FnMut(Record<'_>) + Send> ForEach<F> {
    pub(crate) fn new(each: F) -> ForEach<F> {
        ForEach { each, count: 0 }
    }
}

impl<F: FnMut(Record<'_>) + Send> RecordSink for ForEach<F> {
    fn push(&mut self, record: Record<'_>) {
        self.count += 1;
        (self.each)(record);
    }

    fn is_full(&self) -> bool {
        self.count.is_multiple_of(YIELD_AFTER)
    }

    async fn flush(&mut self) -> bool {
        tokio::task::yield_now().await;
        true
    }
}

/// The columns that [`read_record`] reads, in this order.
pub(crate) const RECORD_COLUMNS: &str = "kind, domain, name, generation, document, updated_at";

/// The record in a row, and when it was written. None if only a newer Tollgate knows its kind.
pub(crate) fn read_record(row: Row<'_>) -> Result<Option<(Record<'_>, Timestamp)>, Fault> {
    let Some(kind) = RecordKind::parse(row.text(0)?) else { return Ok(None) };
    let (domain, name) = (row.text(1)?.into(), row.text(2)?.into());
    let document = row.optional_text(4)?.map(Into::into);
    Ok(Some((Record { kind, domain, name, generation: row.number(3)?, document }, row.timestamp(5)?)))
}
