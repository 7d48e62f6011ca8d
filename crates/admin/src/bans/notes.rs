//! Notes about bans in the shared store of counters, for servers that the store of record does not reach: because it is away, or because
//! each server has its own.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tollgate::Timestamp;
use tollgate_control::RecordName;
use tollgate_records::documents::BlockDocument;
use tollgate_records::{RecordKind, Rfc3339};
use tollgate_store::{BulletinEntry, InRegion};

use super::begin::{BanWrite, NOTE_RETENTION};
use super::{Bans, MAX_WAITING_BANS};

/// A ban that began without a store of record that all servers share. Servers and versions exchange it as JSON: members are only added.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct BanNote {
    /// Random.
    pub(super) id: String,
    /// When it was made.
    pub(super) at: Rfc3339,
    pub(super) domain: String,
    pub(super) name: String,
    /// The block; `None` if an operator lifted it.
    pub(super) block: Option<BlockDocument>,
}

/// The bulletin in which servers leave notes.
const BULLETIN: &str = "bans";
/// The time for reading or leaving notes.
const NOTE_TIMEOUT: Duration = Duration::from_millis(300);
/// Notes that are settled and remembered.
const MAX_KNOWN: usize = 4_096;

impl BanNote {
    pub(super) fn new(name: &RecordName, at: Timestamp, block: &BlockDocument) -> BanNote {
        BanNote { block: Some(block.clone()), ..BanNote::lifted(name, at) }
    }

    /// The note that an operator lifted a ban.
    pub(super) fn lifted(name: &RecordName, at: Timestamp) -> BanNote {
        let id = format!("{:032x}", fastrand::u128(..));
        BanNote { id, at: Rfc3339(at), domain: name.domain.clone(), name: name.name.clone(), block: None }
    }

    pub(super) fn record_name(&self) -> RecordName {
        RecordName::new(RecordKind::Block, &*self.domain, &*self.name)
    }

    /// Reads a note. `None` if it is none.
    fn decode(id: &str, text: &[u8]) -> Option<BanNote> {
        let note: BanNote = serde_json::from_slice(text).ok()?;
        (note.id == id && note.block.as_ref().is_none_or(|block| block.ban.is_some())).then_some(note)
    }

    /// Whether its ban has ended.
    fn is_over(&self, now: Timestamp) -> bool {
        self.block.as_ref().is_some_and(|block| block.expires_at.is_none_or(|end| end.0 <= now))
    }
}

impl Bans {
    /// Puts a ban in force here, until the store of record has it. `false` if an operator has changed the block.
    pub(super) fn put_here(&self, note: &BanNote) -> bool {
        let name = note.record_name();
        let Some(document) = note.block.as_ref().and_then(|block| serde_json::to_string(block).ok()) else {
            return false;
        };
        if self.control.pending_change(&name).is_some() || !self.control.put_here(&name, Some(&document)) {
            return false;
        }
        self.state().waiting.insert(name, note.clone());
        true
    }

    /// Leaves a note for the other servers.
    pub(super) async fn publish(&self, note: &BanNote) {
        self.remember(&note.id);
        let Some(shared) = self.control.limiter().store().shared() else { return };
        let Ok(text) = serde_json::to_vec(note) else { return };
        let entry = BulletinEntry { id: &note.id, text: &text, is_replaced: false };
        for InRegion { region, answer } in shared.publish(BULLETIN, entry, NOTE_TIMEOUT).await {
            if let Err(error) = answer {
                tracing::warn!(error, region, "other servers can't be notified of a ban");
            }
        }
    }

    /// Notifies the other servers of the blocks that operators ended here, if the store of record does not.
    async fn publish_lifted(&self) {
        for name in self.control.take_ended() {
            self.state().waiting.remove(&name);
            if !self.control.is_shared() {
                self.publish(&BanNote::lifted(&name, self.control.now())).await;
            }
        }
    }

    /// Adopts the bans of other servers, and writes those that wait to the store of record.
    pub(super) async fn exchange(&self) {
        self.publish_lifted().await;
        let now = self.control.now();
        for note in self.published(now).await {
            self.adopt(note, now).await;
        }
        self.settle_waiting(now).await;
    }

    /// Notes that are new to this server, in the order of their times. Old ones are removed.
    async fn published(&self, now: Timestamp) -> Vec<BanNote> {
        let Some(shared) = self.control.limiter().store().shared() else { return Vec::new() };
        let (mut new, mut old) = (Vec::new(), Vec::new());
        for InRegion { answer, region } in shared.published(BULLETIN, NOTE_TIMEOUT).await {
            let entries = answer.unwrap_or_else(|error| {
                tracing::debug!(error, region, "notes about bans can't be read");
                Vec::new()
            });
            for (id, text) in entries {
                match BanNote::decode(&id, &text) {
                    Some(note) if now < note.at.0.after(NOTE_RETENTION) => new.push(note),
                    _ => old.push(id),
                }
            }
        }
        for id in old {
            // An empty text removes the entry.
            let entry = BulletinEntry { id: &id, text: b"", is_replaced: true };
            shared.publish(BULLETIN, entry, NOTE_TIMEOUT).await;
        }
        let state = self.state();
        new.retain(|note| !state.known.contains_key(&note.id));
        drop(state);
        new.sort_by(|one, other| (one.at, &one.id).cmp(&(other.at, &other.id)));
        new.dedup_by(|one, other| one.id == other.id);
        new
    }

    async fn adopt(&self, note: BanNote, now: Timestamp) {
        self.remember(&note.id);
        let name = note.record_name();
        match &note.block {
            None => self.lift(&name, note.at.0).await,
            Some(_) if note.is_over(now) => {}
            Some(_) if self.state().waiting.contains_key(&name) => {}
            Some(_) if self.state().waiting.len() >= MAX_WAITING_BANS => {
                tracing::warn!(domain = note.domain, "a ban of another server can't be in force here: too many wait");
            }
            Some(_) => drop(self.put_here(&note)),
        }
    }

    /// Ends a ban that an operator lifted on another server.
    async fn lift(&self, name: &RecordName, at: Timestamp) {
        let waiting = self.state().waiting.remove(name);
        if waiting.is_some() {
            self.control.put_here(name, None);
        }
        if let Err(error) = self.control.end_ban(name, at).await {
            tracing::warn!(?error, "a ban that was lifted on another server can't be lifted here");
        }
    }

    /// Writes bans that wait, if the store of record takes them. Without one they stay in force until they end.
    async fn settle_waiting(&self, now: Timestamp) {
        self.put_all_here();
        let waiting: Vec<BanNote> = self.state().waiting.values().cloned().collect();
        let mut is_away = !self.control.takes_writes();
        for note in waiting {
            let name = note.record_name();
            let Some(block) = note.block.as_ref().filter(|_| !note.is_over(now)) else {
                self.state().waiting.remove(&name);
                continue;
            };
            let is_changed = self.control.pending_change(&name).is_some_and(|change| change.at > note.at);
            if is_changed {
                // What the operator did is in force.
                self.state().waiting.remove(&name);
                continue;
            }
            if is_away {
                continue;
            }
            match self.write(&name, note.at.0, &|_| block.clone()).await.0 {
                BanWrite::Away => is_away = true,
                BanWrite::Written => drop(self.state().waiting.remove(&name)),
                BanWrite::Moot => {
                    self.state().waiting.remove(&name);
                    self.control.put_stored(&name).await;
                }
            }
        }
    }

    /// Puts the bans that wait in force again, if what is known of callers was replaced.
    fn put_all_here(&self) {
        let tenants = self.control.limiter().tenants();
        let mut state = self.state();
        if state.applied_to.as_ref().is_some_and(|known| Arc::ptr_eq(known, &tenants)) {
            return;
        }
        state.applied_to = Some(tenants);
        for (name, note) in &state.waiting {
            let document = note.block.as_ref().and_then(|block| serde_json::to_string(block).ok());
            if document.is_some() && self.control.pending_change(name).is_none() {
                self.control.put_here(name, document.as_deref());
            }
        }
    }

    /// Remembers that a note is settled, for as long as it may be read again.
    fn remember(&self, id: &str) {
        let now = self.control.now();
        let mut state = self.state();
        if state.known.len() >= MAX_KNOWN {
            state.known.retain(|_, until| now < *until);
        }
        if state.known.len() < MAX_KNOWN {
            // Removed a while later, by whoever reads it first.
            state.known.insert(id.to_owned(), now.after(NOTE_RETENTION).after(NOTE_RETENTION));
        }
    }
}
