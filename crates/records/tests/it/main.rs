//! Records, their documents and their lines.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test that fails may panic")]

mod controls;
mod documents;
mod lines;
mod record;

use tollgate_records::{Record, RecordKind};

/// A record as tests write it.
pub(crate) fn record<'r>(
    generation: u64,
    kind: RecordKind,
    domain: &'r str,
    name: &'r str,
    document: Option<&'r str>,
) -> Record<'r> {
    Record { generation, kind, domain: domain.into(), name: name.into(), document: document.map(Into::into) }
}
