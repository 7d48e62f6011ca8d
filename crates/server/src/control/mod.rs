//! The control plane of one server: what operators decided, followed from the store of record, and written to it.
//!
//! ```text
//! Db (SQLite, PostgreSQL) ─ read ─▶ Controls ─▶ Tenants, in force at once; a Layer, which the rules' thread compiles
//!        ▲                                   └──────▶ the copy on disk, and the lines of the feed
//!      write ◀─ the admin API: one transaction, then the server catches up before it answers
//! ```
//!
//! Decisions never wait for any of this: a database that is away leaves what is in force as it is.

mod copy;
mod ended;
mod feed;
mod follow;
mod keep;
mod load;
mod stream;
mod write;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Mutex as AsyncMutex, watch};
use tollgate::control::Controls;
use tollgate::{Clock, Limiter, Span, Timestamp};
use tollgate_control::{Db, Place, Point};

use crate::counters::Counters;
use crate::health::Health;
use crate::observe::metrics::ControlMetrics;
use crate::rules_watch::{LayerHandle, RulesSource};
use bytes::Bytes;
use tokio::sync::mpsc;
use tollgate::control::lines;

use copy::Copy;
#[cfg(test)]
pub(crate) use ended::{KEEP_ENDED, MOST_WRITES};
pub(crate) use ended::{is_over, taken_away};
pub(crate) use feed::{Cursor, Feed, Followed};
pub(crate) use load::{Loaded, Sources, load};
pub(crate) use stream::{Chunk, WAITING, written};
pub(crate) use write::{Author, NotWritten};

/// What the rest of the server knows of the store of record.
pub(crate) struct Control {
    db: Option<Db>,
    limiter: Arc<Limiter<Counters>>,
    rules: RulesSource,
    layer: LayerHandle,
    clock: Box<dyn Clock>,
    controls: Mutex<Controls>,
    /// As of which write they are. One catches up at a time.
    known: AsyncMutex<Point>,
    copy: Option<Arc<Copy>>,
    /// The generation that is in force.
    in_force: watch::Sender<u64>,
    /// Tokens, as their records say.
    tokens: watch::Sender<Arc<Tokens>>,
    /// Whether these are all that there are.
    knows_tokens: AtomicBool,
    feed: Feed,
    health: Arc<Health>,
    metrics: ControlMetrics,
}

/// Tokens by their names: the documents of their records.
pub(crate) type Tokens = std::collections::BTreeMap<String, String>;

/// What a control plane is made of.
pub(crate) struct Parts {
    pub(crate) limiter: Arc<Limiter<Counters>>,
    pub(crate) rules: RulesSource,
    pub(crate) layer: LayerHandle,
    pub(crate) health: Arc<Health>,
    pub(crate) metrics: ControlMetrics,
    pub(crate) clock: Box<dyn Clock>,
}

/// The part of health that is about the store of record.
const PART: &str = "control";

impl Control {
    /// What was loaded is in force from now on.
    pub(crate) fn new(loaded: Loaded, parts: Parts) -> Arc<Control> {
        let Loaded { db, controls, tokens, knows_tokens, at, copy, trouble } = loaded;
        let Parts { limiter, rules, layer, health, metrics, clock } = parts;
        limiter.install_tenants(controls.tenants().clone());
        metrics.in_force(at.generation, controls.tenants().len());
        if db.is_some() {
            metrics.begun(clock.now());
        }
        if let Some(trouble) = trouble {
            health.degrade(PART, trouble);
        }
        Arc::new(Control {
            db,
            limiter,
            rules,
            layer,
            clock,
            in_force: watch::Sender::new(at.generation),
            feed: Feed::new(at.clone()),
            controls: Mutex::new(controls),
            known: AsyncMutex::new(at),
            copy: copy.map(|path| Arc::new(Copy::new(&path))),
            tokens: watch::Sender::new(Arc::new(tokens)),
            knows_tokens: AtomicBool::new(knows_tokens),
            health,
            metrics,
        })
    }

    /// One without a store of record.
    #[cfg(test)]
    pub(crate) fn off(
        limiter: Arc<Limiter<Counters>>,
        metrics: &crate::observe::metrics::Metrics,
        health: &Arc<Health>,
    ) -> Arc<Control> {
        let layer = LayerHandle::default();
        let loaded = Loaded::nothing();
        let parts = Parts {
            limiter,
            rules: RulesSource::new(Vec::new(), tollgate::LoadOptions::default(), layer.clone()),
            layer,
            health: health.clone(),
            metrics: metrics.control().clone(),
            clock: Box::new(tollgate::SystemClock::default()),
        };
        Control::new(loaded, parts)
    }

    /// The store of record, if there is one.
    pub(crate) fn db(&self) -> Option<&Db> {
        self.db.as_ref()
    }

    /// What kind of store of record it is.
    pub(crate) fn kind(&self) -> &'static str {
        match self.db.as_ref().map(Db::place) {
            None => "none",
            Some(Place::File(_)) => "sqlite",
            Some(Place::Postgres(_)) => "postgres",
        }
    }

    /// How long ago the store of record said what is in force here; `None` if it never did.
    pub(crate) fn age(&self) -> Option<Span> {
        self.metrics.heard_at().map(|at| self.now().since(at))
    }

    pub(crate) fn limiter(&self) -> &Arc<Limiter<Counters>> {
        &self.limiter
    }

    /// Where rules come from: for trying out what is about to be written, and for those who decide by them elsewhere.
    pub(crate) fn rules(&self) -> &RulesSource {
        &self.rules
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// The generation that is in force here.
    pub(crate) fn generation(&self) -> u64 {
        *self.in_force.borrow()
    }

    /// Who may ask: follows the records of tokens.
    pub(crate) fn tokens(&self) -> watch::Receiver<Arc<Tokens>> {
        self.tokens.subscribe()
    }

    /// Whether these are all tokens that there are. If not, that there is none means nothing.
    pub(crate) fn knows_tokens(&self) -> bool {
        self.knows_tokens.load(Ordering::Acquire)
    }

    pub(crate) fn feed(&self) -> &Feed {
        &self.feed
    }

    /// The layer above the files as it is in force, for trying out a change of it.
    pub(crate) fn current_layer(&self) -> tollgate::Layer {
        self.controls().layer(self.now())
    }

    /// The line of the rule files that are in force. None if there are so many that nobody would take it.
    pub(crate) fn files(&self) -> Option<Bytes> {
        let line = written(&self.rules.files());
        (line.len() < lines::LONGEST).then(|| Bytes::from(line))
    }

    /// Sends all that the store of record says.
    ///
    /// # Errors
    /// If it can't be asked; something may have been sent then.
    pub(crate) async fn send_snapshot(&self, out: mpsc::Sender<Chunk>) -> Result<(), tollgate_control::DbError> {
        let Some(db) = &self.db else { return Ok(()) };
        stream::send(db, stream::Tokens::LeftOut, self.files(), out).await.map(drop)
    }

    /// Sends this server's own copy of it, if there is one.
    pub(crate) async fn send_copy(&self, out: mpsc::Sender<Chunk>) {
        let Some(copy) = &self.copy else { return };
        copy::send_copy(copy.path(), self.files(), out).await;
    }

    fn controls(&self) -> MutexGuard<'_, Controls> {
        self.controls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Control {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Control").field("db", &self.db).field("generation", &self.generation()).finish_non_exhaustive()
    }
}
