//! A store of record that is not the one that this server knows: emptied, restored from an old backup, or another database.
//!
//! Following it would silently end blocks and tiers, revive revoked tokens, or, if it has no tokens, open the admin API. So the known
//! state stays in force, nothing is written, and the server is degraded, until an operator confirms the change or the known store of
//! record is back. A confirmation is an entry in the audit log of that database under its identity, so one is enough for all servers,
//! also for those that restart: they start from their copies, which are not replaced before.

use std::fmt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use serde::Serialize;
use serde_json::json;
use tollgate::{Span, Timestamp};
use tollgate_control::{
    AuditFilter, Change, Db, DbError, FeedPosition, Precondition, RecordName, WriteBatch, WriteError, WriteOutcome,
};
use tollgate_records::{Controls, DifferenceCount, RecordKind};

use super::follow::Changes;
use super::load::{LoadedRecords, Sources, load_snapshot, position_of, snapshot_in};
use super::{Author, COMPONENT, ControlPlane, TokenRecords};

/// A store of record that waits for confirmation.
#[derive(Clone, Debug)]
pub struct Unconfirmed {
    /// The position of the state in force.
    pub known: FeedPosition,
    /// The position of the database.
    pub found: FeedPosition,
    pub differences: Differences,
    /// The generation of the database that was compared, and when.
    compared: (u64, Timestamp),
}

/// How many records of the database differ from those in force.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Differences {
    pub tokens: Difference,
    pub blocks: Difference,
    pub quotas: Difference,
    pub rules: Difference,
    pub switches: Difference,
    pub emergencies: Difference,
}

/// Records that the database does not have, has otherwise, or has in addition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Difference {
    pub missing: usize,
    pub changed: usize,
    pub added: usize,
}

/// Why a confirmation failed.
#[derive(Debug)]
pub enum ConfirmError {
    /// The store of record is the known one.
    NothingToConfirm,
    /// The database has another identity than the one that was confirmed.
    OtherIdentity(String),
    /// The database could not be written or read.
    Failed(WriteError),
}

/// The action in the audit log.
const CONFIRM: &str = "control.confirm";
/// A database that changes is compared again after this time: all of it has to be read.
const COMPARE_INTERVAL: Span = Span::from_secs(60);

impl ControlPlane {
    /// The store of record that waits for confirmation, if it does.
    pub fn unconfirmed(&self) -> Option<Arc<Unconfirmed>> {
        self.unconfirmed.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Accepts the database with this identity as the store of record, on all servers.
    ///
    /// # Errors
    /// If there is nothing to confirm, or it could not be written.
    pub async fn confirm(
        self: &Arc<ControlPlane>,
        by: &Author,
        identity: &str,
        reason: String,
    ) -> Result<(), ConfirmError> {
        let (Some(db), Some(waiting)) = (&self.db, self.unconfirmed()) else {
            return Err(ConfirmError::NothingToConfirm);
        };
        if waiting.found.identity != identity {
            return Err(ConfirmError::OtherIdentity(waiting.found.identity.clone()));
        }
        let position = |at: &FeedPosition| json!({"identity": at.identity, "generation": at.generation});
        let document = json!({
            "known": position(&waiting.known),
            "found": position(&waiting.found),
            "differences": waiting.differences,
        });
        let change = Change {
            name: RecordName::new(RecordKind::Control, "", identity),
            expect: Precondition::Any,
            document: Some(document.to_string()),
            action: CONFIRM.to_owned(),
            reason,
        };
        let write = WriteBatch {
            by: by.name.clone(),
            from: by.from.clone(),
            at: self.now(),
            once: None,
            since: None,
            known: Some(FeedPosition { identity: identity.to_owned(), generation: 0 }),
            is_note: false,
            changes: vec![change],
        };
        match db.write(&write).await {
            Ok(WriteOutcome::Committed { .. } | WriteOutcome::Replayed { .. }) => {}
            Err(WriteError::Stale { .. }) => {
                let now = db.identity().await.unwrap_or_default();
                return Err(ConfirmError::OtherIdentity(now));
            }
            Err(error) => return Err(ConfirmError::Failed(error)),
        }
        self.catch_up(None).await.map_err(|error| ConfirmError::Failed(error.into()))?;
        Ok(())
    }

    /// Decides what to do with a database that can't be followed from the known position on. `None`: it waits for confirmation, and
    /// nothing changed.
    pub(super) async fn reconcile<'c>(
        &'c self,
        db: &Db,
        applied: &FeedPosition,
        changes: &mut Changes<'c>,
    ) -> Result<Option<FeedPosition>, DbError> {
        let found = mark_restored(db, applied).await?;
        let controls = self.controls().empty_like();
        if is_acceptable(db, &found, applied).await? {
            let records = LoadedRecords::read(db, controls).await?;
            return Ok(Some(self.install(records, changes)));
        }
        let now = self.now();
        let waiting = self.unconfirmed().filter(|waiting| waiting.found.identity == found.identity);
        if let Some(waiting) = waiting.filter(|waiting| !waiting.is_due(found.generation, now)) {
            self.hold(Unconfirmed { found, ..Unconfirmed::clone(&waiting) });
            return Ok(None);
        }
        let records = LoadedRecords::read(db, controls).await?;
        if !self.knows_tokens() {
            // Nobody else could confirm it.
            self.tokens.send_replace(Arc::new(records.tokens.clone()));
            self.knows_tokens.store(true, Ordering::Release);
        }
        let differences = Differences::between((&self.controls(), &self.tokens.borrow()), &records);
        if differences == Differences::default() {
            tracing::info!("the store of record is another one than before, with the same records");
            return Ok(Some(self.install(records, changes)));
        }
        let compared = (records.at.generation, now);
        self.hold(Unconfirmed { known: applied.clone(), found: records.at, differences, compared });
        Ok(None)
    }

    /// Keeps the known state in force, and reports it.
    pub(super) fn hold(&self, waiting: Unconfirmed) {
        let text = waiting.to_string();
        let is_news = self.unconfirmed().is_none_or(|before| before.differences != waiting.differences);
        if is_news {
            tracing::warn!("{text}");
        }
        // Changes that wait are not written to it.
        self.is_available.store(false, Ordering::Release);
        self.health.degrade(COMPONENT, text);
        self.metrics.set_unconfirmed(true);
        *self.unconfirmed.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(waiting));
    }

    /// The store of record is the known one.
    pub(super) fn release(&self) {
        *self.unconfirmed.lock().unwrap_or_else(PoisonError::into_inner) = None;
        self.metrics.set_unconfirmed(false);
    }
}

/// What a server starts from: the database, or what it knew of it, if the database is another one that waits for confirmation.
pub(super) async fn read_first(db: &Db, sources: &Sources) -> Result<(LoadedRecords, Option<Unconfirmed>), DbError> {
    let shared = sources.snapshots.as_deref().map(snapshot_in);
    let own = sources.copy.as_deref().and_then(|path| Some((path, position_of(path)?)));
    let known = own.or_else(|| shared.as_deref().and_then(|path| Some((path, position_of(path)?))));
    let Some((path, at)) = known else {
        return Ok((LoadedRecords::read(db, Controls::default()).await?, None));
    };
    let found = mark_restored(db, &at).await?;
    if is_acceptable(db, &found, &at).await? {
        return Ok((LoadedRecords::read(db, Controls::default()).await?, None));
    }
    let Some(mut known) = load_snapshot(path) else {
        return Ok((LoadedRecords::read(db, Controls::default()).await?, None));
    };
    let found = LoadedRecords::read(db, known.controls.empty_like()).await?;
    if sources.copy.as_deref() != Some(path) {
        // Snapshots of other servers have no tokens.
        known.tokens.clone_from(&found.tokens);
    }
    let differences = Differences::between((&known.controls, &known.tokens), &found);
    if differences == Differences::default() {
        return Ok((found, None));
    }
    // It is compared again by the first poll.
    let compared = (found.at.generation, Timestamp::default());
    let waiting = Unconfirmed { known: known.at.clone(), found: found.at, differences, compared };
    tracing::warn!("{waiting}");
    Ok((known, Some(waiting)))
}

/// The position of the database. One that was restored from a backup gets another identity before: its generations will stand for
/// other writes than those that servers know.
async fn mark_restored(db: &Db, known: &FeedPosition) -> Result<FeedPosition, DbError> {
    let found = db.position().await?;
    if found.identity != known.identity || found.continues(known) {
        return Ok(found);
    }
    match db.renew_identity(known).await {
        Ok(()) => {}
        Err(DbError::Unavailable(why)) => return Err(DbError::Unavailable(why)),
        Err(error) => tracing::warn!(%error, "a restored store of record could not be marked as such"),
    }
    db.position().await
}

/// Whether the database may replace the known state: it continues it, nothing was known, or an operator confirmed it.
async fn is_acceptable(db: &Db, found: &FeedPosition, known: &FeedPosition) -> Result<bool, DbError> {
    if known.generation == 0 || found.continues(known) {
        return Ok(true);
    }
    let filter = AuditFilter {
        kind: Some(RecordKind::Control),
        domain: Some(String::new()),
        name: Some(found.identity.clone()),
        ..AuditFilter::default()
    };
    let entries = db.audit(&filter, 0, 1).await?;
    let confirmed = entries.first().filter(|entry| entry.action == CONFIRM);
    if let Some(entry) = confirmed {
        tracing::warn!(by = %entry.by, generation = found.generation, "another store of record is in force: it was confirmed");
    }
    Ok(confirmed.is_some())
}

impl Unconfirmed {
    /// Whether the database changed since it was compared, long enough ago to compare it again.
    fn is_due(&self, generation: u64, now: Timestamp) -> bool {
        generation != self.compared.0 && now.since(self.compared.1) >= COMPARE_INTERVAL
    }
}

impl fmt::Display for Unconfirmed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Unconfirmed { known, found, differences, .. } = self;
        write!(
            f,
            "the store of record is empty, older or another one than before: generation {} is known, and it has generation {} as {}; \
             the known state stays in force, and nothing is written, until an operator restores the database or accepts it with \
             `tollgate control confirm {}`; different in it: {differences}",
            known.generation, found.generation, found.identity, found.identity
        )
    }
}

impl Differences {
    fn between((controls, tokens): (&Controls, &TokenRecords), found: &LoadedRecords) -> Differences {
        let difference = controls.difference(&found.controls);
        Differences {
            tokens: DifferenceCount::between(tokens, &found.tokens).into(),
            blocks: difference.tenants.blocks.into(),
            quotas: difference.tenants.quotas.into(),
            rules: difference.rules.into(),
            switches: difference.switches.into(),
            emergencies: difference.tenants.emergencies.into(),
        }
    }

    fn by_name(&self) -> [(&'static str, Difference); 6] {
        [
            ("tokens", self.tokens),
            ("blocks", self.blocks),
            ("quotas", self.quotas),
            ("rules", self.rules),
            ("switches", self.switches),
            ("emergencies", self.emergencies),
        ]
    }
}

impl fmt::Display for Differences {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for (name, Difference { missing, changed, added }) in self.by_name() {
            if missing + changed + added > 0 {
                write!(f, "{separator}{name}: {missing} missing, {changed} changed, {added} added")?;
                separator = "; ";
            }
        }
        Ok(())
    }
}

impl From<DifferenceCount> for Difference {
    fn from(DifferenceCount { missing, changed, added }: DifferenceCount) -> Difference {
        Difference { missing, changed, added }
    }
}
