//! Changes that operators made while the store of record was unavailable: blocks, switches and emergencies, which can't wait.
//!
//! They are in force on this server at once, above the records of the store of record, and are saved in a file. Servers with a shared
//! counter store notify each other of them ([`sync`](super::pending_sync)). When the store of record is available again they are written
//! to it, in the order in which they were made, by the first server that can.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tollgate_control::{RecordName, WriteError};
use tollgate_records::{Controls, Effect, Record, RecordKind, Rfc3339};
use tollgate_store::{BulletinEntry, InRegion};

use super::measure::WrittenChanges;
use super::{Author, ControlPlane, ControlWriteError};
use crate::data_dir;

/// A change that waits for the store of record. Servers and versions exchange it as JSON: members are only added.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PendingChange {
    /// Random, and the same on every server.
    pub id: String,
    /// When it was made.
    pub at: Rfc3339,
    /// Who made it, and from which address.
    pub by: String,
    pub from: String,
    /// As in the audit log.
    pub action: String,
    pub reason: String,
    pub kind: RecordKind,
    #[serde(default)]
    pub domain: String,
    #[serde(default)]
    pub name: String,
    /// The document as text; `None` deletes the record.
    #[serde(default)]
    pub document: Option<String>,
    /// The identity of the store of record that it is for; empty if that is not known.
    #[serde(default)]
    pub identity: String,
}

/// A change to make without the store of record.
pub struct UrgentChange {
    pub name: RecordName,
    pub document: Option<String>,
    pub action: &'static str,
    pub reason: String,
}

/// What became of a change that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingOutcome {
    pub id: String,
    /// Whether it survives a restart of this server.
    pub is_saved: bool,
    /// Whether the servers of each region were notified of it; the errors say why not.
    pub shared: Vec<InRegion<()>>,
}

/// The changes that wait, in the order in which they were made.
#[derive(Debug, Default)]
pub struct PendingChanges {
    /// The file; `None` without a data directory.
    path: Option<PathBuf>,
    changes: Mutex<Vec<PendingChange>>,
    /// Names of records that are changed, so that the follower need not search.
    names: Mutex<BTreeSet<(RecordKind, String, String)>>,
}

/// The file next to the copy of the store of record.
const FILE: &str = "control-pending.jsonl";
/// Changes that wait.
pub const MAX_PENDING: usize = 256;
/// Bytes of the document of a change that waits.
pub const MAX_PENDING_BYTES: usize = 16 << 10;
/// The kinds of records that can be changed without the store of record.
pub const URGENT_KINDS: [RecordKind; 3] = [RecordKind::Switch, RecordKind::Emergency, RecordKind::Block];

/// The bulletin in which servers notify each other.
pub(super) const BULLETIN: &str = "pending-changes";
/// The time for notifying others, or for asking them.
pub(super) const BULLETIN_TIMEOUT: Duration = Duration::from_millis(500);
/// The health component of changes that wait.
pub(super) const COMPONENT: &str = "control-pending";

impl PendingChange {
    pub(super) fn record_name(&self) -> RecordName {
        RecordName::new(self.kind, &*self.domain, &*self.name)
    }

    /// The record that it makes.
    pub(super) fn record(&self, generation: u64) -> Record<'_> {
        Record {
            generation,
            kind: self.kind,
            domain: (&*self.domain).into(),
            name: (&*self.name).into(),
            document: self.document.as_deref().map(Into::into),
        }
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        // Texts are always valid JSON.
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// Reads one. `None` if it is none, or of a kind that can't wait.
    pub(super) fn decode(text: &[u8]) -> Option<PendingChange> {
        let change: PendingChange = serde_json::from_slice(text).ok()?;
        let is_bounded = change.document.as_ref().is_none_or(|document| document.len() <= MAX_PENDING_BYTES);
        (URGENT_KINDS.contains(&change.kind) && is_bounded).then_some(change)
    }

    fn key(&self) -> (RecordKind, String, String) {
        (self.kind, self.domain.clone(), self.name.clone())
    }
}

impl PendingChanges {
    /// Those in the file next to the copy.
    pub(super) fn load(copy: Option<&Path>) -> PendingChanges {
        let pending = PendingChanges { path: copy.map(|copy| copy.with_file_name(FILE)), ..PendingChanges::default() };
        let Some(path) = &pending.path else { return pending };
        match fs::read(path) {
            Ok(text) => {
                let lines = text.split(|byte| *byte == b'\n').filter_map(PendingChange::decode);
                for change in lines.take(MAX_PENDING) {
                    pending.add(change);
                }
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "changes that wait for the store of record can't be read")
            }
        }
        pending
    }

    /// Applies all of them.
    pub(super) fn apply_to(&self, controls: &mut Controls) {
        for change in self.lock().iter() {
            let generation = controls.generation();
            if let Err(why) = controls.apply(&change.record(generation)) {
                tracing::warn!("{why}");
            }
        }
    }

    pub(super) fn all(&self) -> Vec<PendingChange> {
        self.lock().clone()
    }

    pub(super) fn count(&self) -> usize {
        self.lock().len()
    }

    /// Whether a record is changed by one of them: then that change is in force.
    pub(super) fn covers(&self, record: &Record<'_>) -> bool {
        let names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        !names.is_empty() && names.contains(&(record.kind, record.domain.to_string(), record.name.to_string()))
    }

    /// The last change to a record.
    pub(super) fn last(&self, name: &RecordName) -> Option<PendingChange> {
        self.lock().iter().rev().find(|change| change.record_name() == *name).cloned()
    }

    /// Adds a change. `false` if it is known, or if there is no room.
    pub(super) fn add(&self, change: PendingChange) -> bool {
        let mut changes = self.lock();
        if changes.len() >= MAX_PENDING || changes.iter().any(|known| known.id == change.id) {
            return false;
        }
        self.names.lock().unwrap_or_else(PoisonError::into_inner).insert(change.key());
        let place = changes.partition_point(|known| known.at <= change.at);
        changes.insert(place, change);
        true
    }

    pub(super) fn remove(&self, id: &str) {
        let mut changes = self.lock();
        changes.retain(|change| change.id != id);
        *self.names.lock().unwrap_or_else(PoisonError::into_inner) = changes.iter().map(PendingChange::key).collect();
    }

    /// Writes the file, or removes it if nothing waits. `false` without a data directory.
    fn save(&self) -> io::Result<bool> {
        let Some(path) = &self.path else { return Ok(false) };
        let changes = self.lock().clone();
        if changes.is_empty() {
            return match fs::remove_file(path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
                _ => Ok(true),
            };
        }
        let lines: Vec<u8> = changes.iter().flat_map(|change| [change.encode(), b"\n".to_vec()].concat()).collect();
        data_dir::replace(path, |file| file.write_all(&lines))?;
        Ok(true)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<PendingChange>> {
        self.changes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ControlPlane {
    /// Puts a change in force that the store of record can't take now. It is written when it can.
    ///
    /// # Errors
    /// If the change is invalid, or too many wait already.
    pub async fn put_pending(
        self: &Arc<ControlPlane>,
        author: &Author,
        change: UrgentChange,
    ) -> Result<PendingOutcome, ControlWriteError> {
        let UrgentChange { name, document, action, reason } = change;
        let refused = |why: String| ControlWriteError::Refused(WriteError::Invalid(why));
        if document.as_ref().is_some_and(|document| document.len() > MAX_PENDING_BYTES) {
            return Err(refused(format!(
                "without the store of record a document has at most {MAX_PENDING_BYTES} bytes"
            )));
        }
        if self.pending.count() >= MAX_PENDING {
            return Err(refused(format!("{MAX_PENDING} changes wait for the store of record already")));
        }
        let change = PendingChange {
            id: format!("{:032x}", fastrand::u128(..)),
            at: Rfc3339(self.now()),
            by: author.name.clone(),
            from: author.from.clone(),
            action: action.to_owned(),
            reason,
            kind: name.kind,
            domain: name.domain,
            name: name.name,
            document,
            identity: self.feed.at().identity,
        };
        self.adopt(change.clone()).map_err(refused)?;
        tracing::warn!(
            kind = %change.kind,
            by = change.by,
            id = change.id,
            "a change is in force without the store of record, and waits for it"
        );
        let is_saved = self.save_pending().await;
        let shared = match self.limiter.store().shared() {
            Some(shared) => {
                let text = change.encode();
                let entry = BulletinEntry { id: &change.id, text: &text, is_replaced: false };
                shared.publish(BULLETIN, entry, BULLETIN_TIMEOUT).await
            }
            None => vec![InRegion::here(Err("the counter store is not shared".to_owned()))],
        };
        Ok(PendingOutcome { id: change.id, is_saved, shared })
    }

    /// The changes that wait for the store of record.
    pub fn pending_changes(&self) -> Vec<PendingChange> {
        self.pending.all()
    }

    /// The last change to a record that waits.
    pub fn pending_change(&self, name: &RecordName) -> Option<PendingChange> {
        self.pending.last(name)
    }

    /// Puts a change in force above the records.
    pub(super) fn adopt(&self, change: PendingChange) -> Result<(), String> {
        let effect = self.controls().apply(&change.record(self.generation()))?;
        let written = WrittenChanges::one(change.kind, change.at.0);
        self.pending.add(change);
        self.show_pending();
        self.after_pending(effect, written);
        Ok(())
    }

    /// Services that follow this server get what is in force now with a new snapshot.
    pub(super) fn after_pending(&self, effect: Effect, mut written: WrittenChanges) {
        if effect == Effect::Layer {
            self.replace_layer(written.take_layer());
        }
        self.measure(written.take_rest());
        self.feed.reset(self.feed.at());
    }

    /// Reports how many changes wait.
    pub(super) fn show_pending(&self) {
        match self.pending.count() {
            0 => self.health.restore(COMPONENT),
            count => self.health.degrade(
                COMPONENT,
                format!("{count} changes by operators are in force here and wait for the store of record"),
            ),
        }
    }

    /// Writes the file. Returns whether the changes survive a restart.
    pub(super) async fn save_pending(self: &Arc<ControlPlane>) -> bool {
        let control = self.clone();
        let saved = tokio::task::spawn_blocking(move || control.pending.save()).await;
        match saved.unwrap_or_else(|error| Err(io::Error::other(error))) {
            Ok(is_saved) => is_saved,
            Err(error) => {
                tracing::error!(%error, "changes that wait for the store of record can't be saved");
                false
            }
        }
    }
}
