//! Beginning bans: a block in the store of record, or here until it can be written.

use std::time::Duration;

use tollgate::{Span, Timestamp};
use tollgate_control::{Change, Precondition, RecordName, StoredRecord, WriteError};
use tollgate_observe::{BanEvent, Refusals, SubjectKind};
use tollgate_records::documents::{BanDocument, BlockDocument};
use tollgate_records::{RecordKind, Rfc3339};
use tollgate_rules::model::{BanAction, SignalBan};
use tollgate_rules::{Ban, Signal};

use super::notes::BanNote;
use super::{Bans, MAX_WAITING_BANS};
use crate::api::MAX_RANGES;
use crate::store_of_record::{Author, ControlWriteError};

/// Someone who was refused often enough, or for whom a signal is raised.
#[derive(Debug)]
pub(super) struct DueBan<'r> {
    /// Of a signal, as if it were a rule.
    pub(super) refusals: Refusals,
    pub(super) cause: BanCause<'r>,
}

/// Why someone is banned.
#[derive(Clone, Copy, Debug)]
pub(super) enum BanCause<'r> {
    Rule(&'r Ban),
    Signal(&'r Signal, SignalBan),
}

/// What the store of record says about a ban.
#[derive(Debug)]
pub(super) enum BanWrite {
    /// It has the ban.
    Written,
    /// There is a block already, or the record was changed after the ban was made.
    Moot,
    /// It can't take it now.
    Away,
}

/// The author in the audit log.
pub(super) const AUTHOR: &str = "tollgate";
/// The action in the audit log.
pub(super) const ACTION: &str = "block.ban";
/// How long a ban waits for the store of record before it is in force without it.
const WRITE_TIMEOUT: Duration = Duration::from_millis(400);
/// Attempts of a write that another writer was faster than.
const MAX_ATTEMPTS: usize = 3;

impl DueBan<'_> {
    pub(super) fn record_name(&self) -> RecordName {
        RecordName::new(RecordKind::Block, &*self.refusals.domain, &*self.refusals.name)
    }

    /// The block, after the ban before it.
    pub(super) fn document(&self, before: Option<&BlockDocument>, now: Timestamp) -> BlockDocument {
        let last = before.and_then(|before| {
            let (end, ban) = (before.expires_at?, before.ban.as_ref()?);
            Some((end.0.since(ban.began_at.0), ban.number))
        });
        let name = &self.refusals.rule;
        let (lasts, action, after, within, reason) = match self.cause {
            BanCause::Rule(ban) => {
                let (after, within) = (ban.limit().amount(), ban.limit().period().span().as_secs_ceil());
                let reason = format!("banned by the rule {name}: {after} refusals in {within} s");
                (ban.next_length(last.map(|(lasted, _)| lasted)), ban.action(), after, within, reason)
            }
            BanCause::Signal(signal, ban) => {
                let (after, within) = (signal.threshold(), signal.window().as_secs_ceil());
                let distinct = signal.distinct();
                let reason = format!("banned by the signal {name}: {after} values of {distinct} in {within} s");
                (ban.lasts, ban.action, after, within, reason)
            }
        };
        BlockDocument {
            range: self.refusals.subject == SubjectKind::Network,
            status: 403,
            shadow: action == BanAction::Shadow,
            expires_at: Some(Rfc3339(now.after(lasts))),
            reason,
            masked: self.refusals.subject == SubjectKind::Masked,
            ban: Some(BanDocument {
                rule: name.to_string(),
                signal: matches!(self.cause, BanCause::Signal(..)),
                after,
                within,
                began_at: Rfc3339(now),
                number: last.map_or(1, |(_, number)| number.saturating_add(1)),
            }),
        }
    }
}

impl Bans {
    /// Begins bans. Whoever is blocked already stays blocked as before.
    pub(super) async fn begin(&self, due: &[DueBan<'_>]) {
        let mut is_away = !self.control.takes_writes();
        for one in due {
            let (name, now) = (one.record_name(), self.control.now());
            if one.refusals.subject == SubjectKind::Network
                && self.control.limiter().tenants().wildcard_counts().ranges >= MAX_RANGES
            {
                self.drop_ban(one, "too many ranges are blocked");
                continue;
            }
            let make = |before: Option<&BlockDocument>| one.document(before, now);
            if !is_away {
                match self.write(&name, now, &make).await {
                    (BanWrite::Written, document) => {
                        self.begun(one);
                        if let Some(document) = document.filter(|_| !self.control.is_shared()) {
                            self.publish(&BanNote::new(&name, now, &document)).await;
                        }
                        continue;
                    }
                    (BanWrite::Moot, _) => continue,
                    // The others don't wait for it.
                    (BanWrite::Away, _) => is_away = true,
                }
            }
            if self.state().waiting.contains_key(&name) {
                continue;
            }
            if self.state().waiting.len() >= MAX_WAITING_BANS {
                self.drop_ban(one, "too many bans wait for the store of record");
                continue;
            }
            let note = BanNote::new(&name, now, &make(None));
            if self.put_here(&note) {
                self.begun(one);
                self.publish(&note).await;
            }
        }
    }

    fn begun(&self, due: &DueBan<'_>) {
        let (domain, rule) = (&due.refusals.domain, &due.refusals.rule);
        tracing::info!(%domain, %rule, "a subject of the rule is banned");
        self.note(&due.refusals, BanEvent::Begun);
    }

    fn drop_ban(&self, due: &DueBan<'_>, why: &str) {
        tracing::warn!(domain = %due.refusals.domain, rule = %due.refusals.rule, "a ban could not begin: {why}");
        self.note(&due.refusals, BanEvent::Dropped);
    }

    /// Writes a ban that was made at this time, unless there is a block, or the record was changed since. With the document, if it was
    /// written.
    pub(super) async fn write(
        &self,
        name: &RecordName,
        at: Timestamp,
        make: &(dyn Fn(Option<&BlockDocument>) -> BlockDocument + Sync),
    ) -> (BanWrite, Option<BlockDocument>) {
        match tokio::time::timeout(WRITE_TIMEOUT, self.try_write(name, at, make)).await {
            Ok(Ok(written)) => written,
            Ok(Err(_)) | Err(_) => (BanWrite::Away, None),
        }
    }

    async fn try_write(
        &self,
        name: &RecordName,
        at: Timestamp,
        make: &(dyn Fn(Option<&BlockDocument>) -> BlockDocument + Sync),
    ) -> Result<(BanWrite, Option<BlockDocument>), ControlWriteError> {
        let db = self.control.db().ok_or(ControlWriteError::Off)?;
        let unavailable = |error| ControlWriteError::Refused(WriteError::from(error));
        for _ in 0..MAX_ATTEMPTS {
            let stored = db.get_with_deleted(name).await.map_err(unavailable)?;
            let before = stored.as_ref().and_then(parse);
            if stored.as_ref().is_some_and(|stored| is_settled(stored, before.as_ref(), at, self.control.now())) {
                return Ok((BanWrite::Moot, None));
            }
            let document = make(before.as_ref());
            let expect = match &stored {
                Some(stored) if stored.document.is_some() => Precondition::Generation(stored.generation),
                _ => Precondition::Absent,
            };
            let change = Change {
                name: name.clone(),
                expect,
                document: serde_json::to_string(&document).ok(),
                action: ACTION.to_owned(),
                reason: document.reason.clone(),
            };
            let author = Author { name: AUTHOR.to_owned(), from: String::new() };
            match self.control.write(&author, vec![change], None).await {
                Ok(_) => return Ok((BanWrite::Written, Some(document))),
                Err(ControlWriteError::Refused(WriteError::PreconditionFailed { .. })) => {}
                Err(error) => return Err(error),
            }
        }
        Ok((BanWrite::Moot, None))
    }
}

/// The block of a record.
pub(super) fn parse(stored: &StoredRecord) -> Option<BlockDocument> {
    serde_json::from_str(stored.document.as_deref()?).ok()
}

/// Whether a record leaves nothing to do for a ban that was made at this time: it is a block in force, or it was changed after that.
fn is_settled(stored: &StoredRecord, block: Option<&BlockDocument>, at: Timestamp, now: Timestamp) -> bool {
    let is_in_force = match block {
        Some(block) => block.expires_at.is_none_or(|end| end.0 > now),
        // A newer version may have written it.
        None => stored.document.is_some(),
    };
    is_in_force || stored.updated_at > at
}

/// How long a note about a ban is of use to others.
pub(super) const NOTE_RETENTION: Span = Span::from_secs(600);
