//! The control plane of one server: follows the store of record and writes to it.
//!
//! ```text
//! Db (SQLite, PostgreSQL) ─ read ─▶ Controls ─▶ Tenants, in force at once; a Layer, which the rules' thread compiles
//!        ▲                                   └──────▶ the copy on disk, and the lines of the feed
//!      write ◀─ the admin API: one transaction, then the server catches up before it answers
//! ```
//!
//! Decisions never wait for any of this: while the database is unavailable, the rules and tenants in force stay as they are.

mod bans;
mod expired;
mod feed;
mod follow;
mod load;
mod local_copy;
mod maintenance;
mod measure;
mod pending;
mod pending_sync;
mod shares;
mod stream;
mod unconfirmed;
mod write;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Mutex as AsyncMutex, watch};
use tollgate::{Clock, Limiter, Span, Timestamp};
use tollgate_control::{Db, DbError, DbLocation, FeedPosition, RecordName};
use tollgate_records::Controls;

use crate::rule_source::{LayerHandle, RuleSource};
use bytes::Bytes;
use tokio::sync::mpsc;
use tollgate_records::lines;
use tollgate_store::Counters;
use tollgate_telemetry::Health;
use tollgate_telemetry::metrics::{ChangeMetrics, ControlMetrics};

#[cfg(test)]
pub(crate) use expired::{EXPIRED_RETENTION, MAX_SWEEP_WRITES};
pub use expired::{deletion, is_expired};
pub use feed::{Cursor, Feed, FeedBatch};
pub use load::{Loaded, Sources, load};
use local_copy::LocalCopy;
pub use pending::{
    MAX_PENDING, MAX_PENDING_BYTES, PendingChange, PendingChanges, PendingOutcome, URGENT_KINDS, UrgentChange,
};
pub use stream::{Chunk, MAX_WAITING_CHUNKS, encode_line};
pub use unconfirmed::{ConfirmError, Differences, Unconfirmed};
pub use write::{Author, ControlWriteError};

/// The control plane of a server.
pub struct ControlPlane {
    db: Option<Db>,
    limiter: Arc<Limiter<Counters>>,
    rules: RuleSource,
    layer: LayerHandle,
    clock: Box<dyn Clock>,
    controls: Mutex<Controls>,
    /// The point up to which records are applied. One task catches up at a time.
    applied: AsyncMutex<FeedPosition>,
    copy: Option<Arc<LocalCopy>>,
    /// The generation in force.
    in_force: watch::Sender<u64>,
    /// The records of tokens.
    tokens: watch::Sender<Arc<TokenRecords>>,
    /// Whether these are all tokens.
    knows_tokens: AtomicBool,
    /// Whether the store of record answered the last time.
    is_available: AtomicBool,
    /// Changes of operators that wait for the store of record.
    pending: PendingChanges,
    /// Blocks that operators ended here.
    ended: Mutex<Vec<RecordName>>,
    /// Whether the state in force is one of the store of record.
    is_known: AtomicBool,
    /// The store of record, if it waits for confirmation.
    unconfirmed: Mutex<Option<Arc<Unconfirmed>>>,
    feed: Feed,
    health: Arc<Health>,
    metrics: ControlMetrics,
    changes: ChangeMetrics,
    /// When this server began to follow: what was written before is not measured.
    began: Timestamp,
}

/// The documents of tokens' records, by name.
pub type TokenRecords = std::collections::BTreeMap<String, String>;

/// The parts of a control plane.
pub struct ControlPlaneParts {
    pub limiter: Arc<Limiter<Counters>>,
    pub rules: RuleSource,
    pub layer: LayerHandle,
    pub health: Arc<Health>,
    pub metrics: ControlMetrics,
    pub changes: ChangeMetrics,
    pub clock: Box<dyn Clock>,
}

/// The health component of the store of record.
pub const COMPONENT: &str = "control";

impl ControlPlane {
    /// Installs what was loaded.
    pub fn new(loaded: Loaded, parts: ControlPlaneParts) -> Arc<ControlPlane> {
        let Loaded { db, controls, tokens, knows_tokens, at, copy, is_known, pending, trouble, unconfirmed } = loaded;
        let ControlPlaneParts { limiter, rules, layer, health, metrics, changes, clock } = parts;
        limiter.install_tenants(controls.tenants().clone());
        metrics.set_generation(at.generation, controls.tenants().len());
        if db.is_some() {
            metrics.set_oldest(clock.now());
        }
        if let Some(trouble) = trouble {
            health.degrade(COMPONENT, trouble);
        }
        let control = ControlPlane {
            db,
            limiter,
            rules,
            layer,
            began: clock.now(),
            clock,
            in_force: watch::Sender::new(at.generation),
            feed: Feed::new(at.clone()),
            controls: Mutex::new(controls),
            applied: AsyncMutex::new(at),
            copy: copy.map(|path| Arc::new(LocalCopy::new(&path))),
            tokens: watch::Sender::new(Arc::new(tokens)),
            knows_tokens: AtomicBool::new(knows_tokens),
            is_known: AtomicBool::new(is_known),
            is_available: AtomicBool::new(false),
            pending,
            ended: Mutex::default(),
            unconfirmed: Mutex::default(),
            health,
            metrics,
            changes,
        };
        if let Some(unconfirmed) = unconfirmed {
            control.hold(unconfirmed);
        }
        Arc::new(control)
    }

    /// A control plane without a store of record.
    #[cfg(test)]
    pub fn off(
        limiter: Arc<Limiter<Counters>>,
        metrics: &tollgate_telemetry::metrics::Metrics,
        health: &Arc<Health>,
    ) -> Arc<ControlPlane> {
        let layer = LayerHandle::default();
        let loaded = Loaded::nothing();
        let parts = ControlPlaneParts {
            limiter,
            rules: RuleSource::new(Vec::new(), tollgate::LoadOptions::default(), layer.clone()),
            layer,
            health: health.clone(),
            metrics: metrics.control().clone(),
            changes: metrics.changes().clone(),
            clock: Box::new(tollgate::SystemClock::default()),
        };
        ControlPlane::new(loaded, parts)
    }

    /// The store of record, if there is one.
    pub fn db(&self) -> Option<&Db> {
        self.db.as_ref()
    }

    /// The kind of the store of record.
    pub fn kind(&self) -> &'static str {
        match self.db.as_ref().map(Db::location) {
            None => "none",
            Some(DbLocation::File(_)) => "sqlite",
            Some(DbLocation::Postgres(_)) => "postgres",
        }
    }

    /// The time since the store of record was last read; `None` if it never was.
    pub fn age(&self) -> Option<Span> {
        self.metrics.last_contact().map(|at| self.now().since(at))
    }

    pub fn limiter(&self) -> &Arc<Limiter<Counters>> {
        &self.limiter
    }

    /// The source of rules: to validate changes, and for services that decide locally.
    pub fn rules(&self) -> &RuleSource {
        &self.rules
    }

    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// How long this server follows the store of record.
    pub fn uptime(&self) -> Span {
        self.now().since(self.began)
    }

    /// The generation in force here.
    pub fn generation(&self) -> u64 {
        *self.in_force.borrow()
    }

    /// Subscribes to the records of tokens.
    pub fn tokens(&self) -> watch::Receiver<Arc<TokenRecords>> {
        self.tokens.subscribe()
    }

    /// Whether all tokens are known. If not, an empty set means nothing.
    pub fn knows_tokens(&self) -> bool {
        self.knows_tokens.load(Ordering::Acquire)
    }

    pub fn feed(&self) -> &Feed {
        &self.feed
    }

    /// The layer in force above the files, to validate a change of it.
    pub fn current_layer(&self) -> tollgate::Layer {
        self.controls().layer(self.now())
    }

    /// The line of the rule files in force. `None` if it is too long for any client.
    pub fn files(&self) -> Option<Bytes> {
        let line = encode_line(&self.rules.files());
        (line.len() < lines::MAX_LINE_BYTES).then(|| Bytes::from(line))
    }

    /// Sends a snapshot of the store of record.
    ///
    /// # Errors
    /// If it can't be read; a part may have been sent then.
    pub async fn send_snapshot(&self, out: mpsc::Sender<Chunk>) -> Result<(), DbError> {
        let Some(db) = &self.db else { return Ok(()) };
        let sent = stream::send(db, &self.feed.at(), stream::TokenInclusion::Omitted, self.files(), out).await;
        match sent {
            // This server does not decide by it.
            Err(DbError::TooOld) => Err(DbError::Unavailable("it is another one than the known one".to_owned())),
            sent => sent.map(drop),
        }
    }

    /// Sends a snapshot with tokens, as this server's copy has them.
    #[cfg(test)]
    pub async fn send_own_snapshot(&self, db: &Db, out: mpsc::Sender<Chunk>) {
        let sent = stream::send(db, &self.feed.at(), stream::TokenInclusion::Included, None, out).await;
        assert!(sent.is_ok_and(|sent| sent.is_some()));
    }

    /// Sends this server's copy of it, if there is one.
    pub async fn send_copy(&self, out: mpsc::Sender<Chunk>) {
        let Some(copy) = &self.copy else { return };
        let pending = self.pending.all();
        let lines = pending.iter().filter_map(|change| stream::RecordLine::new(&change.record(self.generation())));
        let above = lines.map(|line| line.bytes).collect();
        local_copy::send_copy(copy.path(), self.files(), above, out).await;
    }

    fn controls(&self) -> MutexGuard<'_, Controls> {
        self.controls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for ControlPlane {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ControlPlane")
            .field("db", &self.db)
            .field("generation", &self.generation())
            .finish_non_exhaustive()
    }
}
