//! Events of what operators changed, from the audit log. One server of a fleet sends them, the first by its id; another continues where
//! it was.
//!
//! A position is the last entry whose event is in the journal of a server. It is saved, and reported to the other servers. Entries
//! whose events are sent twice, by two servers, have the same ids.

#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value, json};
use tollgate::{KeyPrivacy, Ruleset};
use tollgate_control::{AuditEntry, AuditFilter, Db, DbError};
use tollgate_events::{CloudEvent, EventSeverity, EventType, FLEET, Journal};
use tollgate_net::Closing;
use tollgate_records::RecordKind;

use crate::observe::{AuditPosition, Observability};
use crate::store_of_record::ControlPlane;

/// Follows the audit log.
#[derive(Debug)]
pub struct AuditFollower {
    observability: Arc<Observability>,
    control: Arc<ControlPlane>,
    journal: Arc<Journal>,
    /// The last entry whose event was sent; `None` if the store of record has not been read yet.
    position: Option<AuditPosition>,
    /// Whether that is known, from this server or another; or the newest entry when this server started.
    is_known: bool,
}

/// How often the log is read without a notification.
const POLL_INTERVAL: Duration = Duration::from_secs(5);
/// Delay after the store of record or the journal failed.
const RETRY_DELAY: Duration = Duration::from_secs(1);
/// Time limit of the first read, before the server is ready.
const START_TIMEOUT: Duration = Duration::from_secs(1);
/// Entries of one read: their documents can be long.
const BATCH: usize = 50;
/// The file of the position in the directory of the journal.
const FILE: &str = "audit-position.json";

/// Why entries were not sent. They are later.
#[derive(Debug)]
enum FollowError {
    Db(DbError),
    Journal(std::io::Error),
}

impl AuditFollower {
    /// Continues at the saved position, or else with what is written from now on.
    pub async fn new(
        observability: Arc<Observability>,
        control: Arc<ControlPlane>,
        journal: Arc<Journal>,
    ) -> AuditFollower {
        let saved = journal.load_text(FILE).ok().flatten();
        let position: Option<AuditPosition> = saved.and_then(|text| serde_json::from_str(&text).ok());
        let is_known = position.is_some();
        let mut follower = AuditFollower { observability, control, journal, position, is_known };
        // A store of record that is away is read later.
        let _ = tokio::time::timeout(START_TIMEOUT, follower.locate()).await;
        follower
    }

    /// Sends events until shutdown.
    pub async fn follow(mut self, mut closing: Closing) {
        let Some(db) = self.control.db().cloned() else { return };
        let (mut seen, mut wait) = (0, Duration::ZERO);
        loop {
            tokio::select! {
                announced = db.wait_for_change(seen), if wait == POLL_INTERVAL => seen = announced,
                () = tokio::time::sleep(wait) => {}
                () = closing.begun() => return,
            }
            let stepped = tokio::select! {
                stepped = self.step(&db) => stepped,
                () = closing.begun() => return,
            };
            wait = match stepped {
                Ok(()) => POLL_INTERVAL,
                Err(FollowError::Db(error)) => {
                    tracing::debug!(%error, "the audit log can't be read for events");
                    RETRY_DELAY
                }
                Err(FollowError::Journal(error)) => {
                    tracing::warn!(%error, "events of changes can't be written; they are later");
                    RETRY_DELAY
                }
            };
        }
    }

    /// Sends the events of new entries, if this is the server that does it.
    async fn step(&mut self, db: &Db) -> Result<(), FollowError> {
        let Some(mut position) = self.locate().await? else { return Ok(()) };
        if !self.observability.sends_fleet_events(db, self.control.now()) {
            return Ok(());
        }
        loop {
            let entries = db.audit(&AuditFilter::default(), position.id, BATCH).await?;
            let Some(last) = entries.last() else { return Ok(()) };
            position.id = last.id;
            let rules = self.control.limiter().rules();
            let privacy = &self.observability.key_privacy;
            let events = entries.into_iter().filter_map(|entry| event(entry, &position.identity, &rules, privacy));
            let events: Vec<_> = events.map(Arc::new).collect();
            let lines: Vec<_> = events.iter().map(|event| event.to_line()).collect();
            let now = self.control.now();
            self.blocking(move |journal| journal.append(&lines, now)).await?;
            let stream = self.observability.sampler.events.stream();
            events.into_iter().for_each(|event| stream.note(event));
            self.is_known = true;
            self.move_to(position.clone()).await?;
        }
    }

    /// The position in the store of record as it is now.
    async fn locate(&mut self) -> Result<Option<AuditPosition>, FollowError> {
        let Some(db) = self.control.db() else { return Ok(None) };
        let identity = db.identity().await?;
        let mut position = match self.position.clone().filter(|position| position.identity == identity) {
            Some(position) => position,
            // Another store of record, or the first one: its past is no event.
            None => {
                let newest = db.audit_descending(&AuditFilter::default(), None, 1).await?;
                self.is_known = false;
                AuditPosition { identity, id: newest.first().map_or(0, |entry| entry.id) }
            }
        };
        if let Some(reported) = self.observability.reported_audit_position(&position.identity) {
            position.id = if self.is_known { position.id.max(reported) } else { reported };
            self.is_known = true;
        }
        if self.position.as_ref() != Some(&position) {
            self.move_to(position.clone()).await?;
        }
        Ok(Some(position))
    }

    async fn move_to(&mut self, position: AuditPosition) -> Result<(), FollowError> {
        // Numbers and texts are always valid JSON.
        let text = serde_json::to_string(&position).unwrap_or_default();
        self.position = Some(position.clone());
        if self.is_known {
            self.observability.report_audit_position(position);
        }
        self.blocking(move |journal| journal.save_text(FILE, &text)).await
    }

    async fn blocking(
        &self,
        work: impl FnOnce(&Journal) -> std::io::Result<()> + Send + 'static,
    ) -> Result<(), FollowError> {
        let journal = self.journal.clone();
        let done = tokio::task::spawn_blocking(move || work(&journal)).await;
        done.map_err(std::io::Error::other).flatten().map_err(FollowError::Journal)
    }
}

/// The event of an entry; `None` if decisions do not depend on what was changed, or if it is one of many, such as a quota.
fn event(entry: AuditEntry, identity: &str, rules: &Ruleset, privacy: &KeyPrivacy) -> Option<CloudEvent> {
    let (old, new) = (parsed(&entry.before), parsed(&entry.after));
    let changed = new.as_ref().or(old.as_ref());
    let (kind, what, severity) = kind(&entry, old.as_ref())?;
    let AuditEntry { id, generation, at, by, action, name, before, after, reason, .. } = entry;
    let mask = |caller: &str| masked(caller, &name.domain, rules, privacy);
    // Of an address, and of a name that was masked before it was written, nothing is private.
    let is_clear = ["range", "masked"].iter().any(|member| is_true(changed, member));
    let shown = if name.kind == RecordKind::Block && !is_clear { mask(&name.name) } else { name.name.clone() };
    let verb = match (kind, &before, &after) {
        (EventType::PlanHeld, ..) => "is held",
        (EventType::PlanApproved, ..) => "was approved",
        (EventType::PlanConfirmed, ..) => "was confirmed",
        (_, None, Some(_)) => "was created",
        (_, Some(_), None) => "was removed",
        (_, Some(_), Some(_)) => "was changed",
        (_, None, None) => "changed",
    };
    // The name of a block is a caller.
    let named =
        if name.kind == RecordKind::Block || name.name.is_empty() { String::new() } else { format!(" {}", name.name) };
    let of = if name.domain.is_empty() { String::new() } else { format!(" of {}", name.domain) };
    let document = |document: Option<Map<String, Value>>| -> Option<Value> {
        let mut document = document?;
        // Whom an emergency is for, and whom a held write is for.
        for member in ["callers", "name"] {
            if let Some(Value::String(callers)) = document.get_mut(member) {
                *callers = mask(callers);
            }
        }
        Some(Value::Object(document))
    };
    let (before, after) = (document(old), document(new));
    let data = json!({
        "domain": name.domain, "name": shown, "action": action, "by": by, "reason": reason, "generation": generation,
        "before": before, "after": after,
    });
    let short: String = identity.chars().take(SHORT_IDENTITY).collect();
    Some(CloudEvent {
        id: format!("audit-{short}-{id}"),
        source: FLEET.to_owned(),
        at,
        kind,
        severity,
        subject: Some(shown).filter(|name| !name.is_empty()),
        text: format!("{what}{named}{of} {verb} by {by}"),
        data: data.as_object().cloned().unwrap_or_default(),
    })
}

/// The type of an entry's event, what it is about, and how urgent it is.
fn kind(entry: &AuditEntry, old: Option<&Map<String, Value>>) -> Option<(EventType, &'static str, EventSeverity)> {
    use EventSeverity::{Info, Warning};
    Some(match (entry.name.kind, &*entry.action) {
        (RecordKind::Rule, _) => (EventType::RuleChanged, "the rule", Info),
        (RecordKind::Switch, _) => (EventType::SwitchChanged, "a switch", Warning),
        (RecordKind::Emergency, _) => (EventType::EmergencyChanged, "the emergency", Warning),
        (RecordKind::Block, "block.ban") => (EventType::BanBegun, "a ban", Warning),
        (RecordKind::Block, _) if entry.after.is_none() && old.is_some_and(|old| old.contains_key("ban")) => {
            (EventType::BanEnded, "a ban", Info)
        }
        (RecordKind::Block, _) => (EventType::BlockChanged, "a block", Info),
        (RecordKind::Plan, "plan.hold") => (EventType::PlanHeld, "the plan", Warning),
        (RecordKind::Plan, "plan.approve") => (EventType::PlanApproved, "the plan", Info),
        (RecordKind::Plan, "plan.confirm") => (EventType::PlanConfirmed, "the plan", Warning),
        (RecordKind::Lease, _) => (EventType::LeaseChanged, "leases", Info),
        (RecordKind::Gateway, _) => (EventType::GatewayChanged, "the gateway", Info),
        _ => return None,
    })
}

fn parsed(document: &Option<String>) -> Option<Map<String, Value>> {
    serde_json::from_str(document.as_ref()?).ok()
}

fn is_true(document: Option<&Map<String, Value>>, member: &str) -> bool {
    document.is_some_and(|document| document.get(member) == Some(&Value::Bool(true)))
}

/// The characters of the store's identity in an id.
const SHORT_IDENTITY: usize = 8;

/// A caller, unless its domain has private callers. Blocks of all domains have no domain.
fn masked(caller: &str, domain: &str, rules: &Ruleset, privacy: &KeyPrivacy) -> String {
    let mut domains = rules.domains().iter().filter(|one| domain.is_empty() || one.name() == domain);
    let is_private = domains.any(|domain| domain.entity().is_some_and(|entity| domain.is_private(entity)));
    let is_name = !caller.contains(['*', '/']);
    match privacy.log_secret().filter(|_| is_private && is_name) {
        Some(secret) => secret.mask(caller).to_string(),
        None => caller.to_owned(),
    }
}

impl From<DbError> for FollowError {
    fn from(error: DbError) -> FollowError {
        FollowError::Db(error)
    }
}
