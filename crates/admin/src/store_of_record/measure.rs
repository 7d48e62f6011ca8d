//! How long changes take from being written to being in force here.

use tollgate::Timestamp;
use tollgate_records::RecordKind;
use tollgate_telemetry::metrics::{ChangeKind, WrittenChange};

use super::ControlPlane;

/// The changes of one read, and when they were written. Records of one kind in one write are one change.
#[derive(Debug, Default)]
pub(super) struct WrittenChanges {
    changes: Vec<WrittenChange>,
    /// Kind and generation of the record that was added last.
    last: Option<(ChangeKind, u64)>,
}

/// Changes of one read that are measured: the oldest, if there are more.
const MAX_MEASURED: usize = 1_024;

impl WrittenChanges {
    /// One change.
    pub(super) fn one(kind: RecordKind, at: Timestamp) -> WrittenChanges {
        let mut changes = WrittenChanges::default();
        changes.add(kind, 0, at);
        changes
    }

    /// Adds a record.
    pub(super) fn add(&mut self, kind: RecordKind, generation: u64, at: Timestamp) {
        let Some(kind) = change_kind(kind) else { return };
        let is_known = self.last.replace((kind, generation)) == Some((kind, generation));
        if !is_known && self.changes.len() < MAX_MEASURED {
            self.changes.push(WrittenChange { kind, at });
        }
    }

    /// Takes the changes to the layer above the rule files, which is in force when it is compiled.
    pub(super) fn take_layer(&mut self) -> Vec<WrittenChange> {
        let is_layer = |change: &WrittenChange| matches!(change.kind, ChangeKind::Rule | ChangeKind::Switch);
        let (layer, rest) = self.changes.drain(..).partition(is_layer);
        self.changes = rest;
        layer
    }

    /// Takes the others.
    pub(super) fn take_rest(&mut self) -> Vec<WrittenChange> {
        std::mem::take(&mut self.changes)
    }
}

impl ControlPlane {
    /// These changes are in force now.
    pub(super) fn measure(&self, written: Vec<WrittenChange>) {
        let now = self.now();
        written.into_iter().for_each(|change| self.changes.in_force(change, now));
    }
}

/// The kind of change that a record is; `None` if nothing comes into force by it.
fn change_kind(kind: RecordKind) -> Option<ChangeKind> {
    match kind {
        RecordKind::Quota => Some(ChangeKind::Quota),
        RecordKind::Rule => Some(ChangeKind::Rule),
        RecordKind::Switch => Some(ChangeKind::Switch),
        RecordKind::Emergency => Some(ChangeKind::Emergency),
        RecordKind::Block => Some(ChangeKind::Block),
        RecordKind::Token => Some(ChangeKind::Token),
        RecordKind::RuleVersion
        | RecordKind::Files
        | RecordKind::Plan
        | RecordKind::Shares
        | RecordKind::Counter
        | RecordKind::Lease
        | RecordKind::Gateway
        | RecordKind::Access
        | RecordKind::Control
        | RecordKind::Unknown => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_of_one_kind_in_one_write_are_one_change() {
        let (mut written, at) = (WrittenChanges::default(), Timestamp::from_secs(1_700_000_000));
        for (kind, generation) in [
            (RecordKind::Quota, 1),
            (RecordKind::Quota, 1),
            (RecordKind::RuleVersion, 2),
            (RecordKind::Rule, 2),
            (RecordKind::Switch, 3),
            (RecordKind::Quota, 4),
        ] {
            written.add(kind, generation, at);
        }
        let kinds = |changes: Vec<WrittenChange>| changes.iter().map(|change| change.kind.name()).collect::<Vec<_>>();
        assert_eq!(kinds(written.take_layer()), ["rule", "switch"]);
        assert_eq!(kinds(written.take_rest()), ["quota", "quota"]);
        assert_eq!(kinds(written.take_rest()), [""; 0]);
    }

    #[test]
    fn what_is_measured_is_bounded() {
        let mut written = WrittenChanges::default();
        (0..2_000).for_each(|generation| written.add(RecordKind::Block, generation, Timestamp::from_secs(generation)));
        let measured = written.take_rest();
        assert_eq!((measured.len(), measured[0].at), (MAX_MEASURED, Timestamp::from_secs(0)));
    }
}
