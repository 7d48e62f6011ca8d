//! Follows the store of record: writes of any server are applied here within moments.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tollgate::{Adjustment, Timestamp};
use tollgate_control::{DbError, FeedPosition, RecordSink};
use tollgate_records::{Effect, Record, RecordKind};
use tollgate_telemetry::metrics::WrittenChange;

use super::feed::{MAX_BYTES, MAX_LINES};
use super::load::{BATCH, LoadedRecords, NOTHING_KNOWN};
use super::measure::WrittenChanges;
use super::stream::RecordLine;
use super::{COMPONENT, ControlPlane, TokenRecords};
use tollgate_net::Closing;

/// Polling interval, for changes whose notification was missed.
const POLL_INTERVAL: Duration = Duration::from_secs(5);
/// Delay before an unavailable database is tried again.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// The changes of one read of the store of record.
pub(super) struct Changes<'c> {
    control: &'c ControlPlane,
    taken: u64,
    /// Lines for followers and for the copy; tokens are for the copy only.
    lines: Vec<RecordLine>,
    bytes: usize,
    /// Whether there are too many changes to send line by line.
    too_many: bool,
    layer: bool,
    tokens: Vec<(String, Option<String>)>,
    /// Callers whose counters are reset: domain and name.
    resets: Vec<(String, String)>,
    written: WrittenChanges,
}

impl ControlPlane {
    /// Follows until the server is about to stop.
    pub async fn follow(self: Arc<ControlPlane>, closing: Closing) {
        // The end of a switch must not wait for an unavailable database.
        tokio::join!(
            self.follow_records(closing.clone()),
            self.follow_switches(closing.clone()),
            self.follow_pending(closing)
        );
    }

    async fn follow_records(self: &Arc<ControlPlane>, mut closing: Closing) {
        let Some(db) = self.db.clone() else { return };
        let mut mark_unavailable = self.catch_up(None).await.is_err();
        loop {
            // A confirmation is a write to the database that waits for it.
            let seen = self.unconfirmed().map_or_else(|| self.generation(), |waiting| waiting.found.generation);
            tokio::select! {
                _ = db.wait_for_change(seen), if !mark_unavailable => {}
                () = tokio::time::sleep(if mark_unavailable { RETRY_DELAY } else { POLL_INTERVAL }) => {}
                () = closing.begun() => return,
            }
            mark_unavailable = self.catch_up(None).await.is_err();
        }
    }

    /// Replaces the layer when switches end.
    async fn follow_switches(&self, mut closing: Closing) {
        let mut in_force = self.in_force.subscribe();
        loop {
            let now = self.now();
            let ends = self.controls().layer_changes_at(now).map(|at| until(at, now));
            let end = async {
                match ends {
                    Some(end) => tokio::time::sleep(end).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = end => self.replace_layer(Vec::new()),
                changed = in_force.changed() => if changed.is_err() { return },
                () = closing.begun() => return,
            }
        }
    }

    /// Applies all writes after the generation in force, up to `at_least` if given.
    pub async fn catch_up(self: &Arc<ControlPlane>, at_least: Option<u64>) -> Result<u64, DbError> {
        let control = self.clone();
        // In its own task, so that a cancelled request does not leave it half done.
        let caught_up = tokio::spawn(async move { control.catch_up_now(at_least).await }).await;
        caught_up.unwrap_or_else(|error| Err(DbError::Unavailable(error.to_string())))
    }

    async fn catch_up_now(&self, at_least: Option<u64>) -> Result<u64, DbError> {
        let Some(db) = &self.db else { return Ok(0) };
        // One at a time: records are applied in the order of their generations.
        let mut applied = self.applied.lock().await;
        if at_least.is_some_and(|target| target <= applied.generation) {
            return Ok(applied.generation);
        }
        let mut changes = Changes::new(self);
        let past = (applied.generation > 0).then_some(&*applied);
        let read = match self.knows_tokens() {
            true => db.read_since(past, true, &mut changes).await,
            // Tokens older than the snapshot that this server started from would be missed.
            false => Err(DbError::TooOld),
        };
        let read = match read {
            Ok(None) => Err(DbError::Unavailable("the read was cancelled".to_owned())),
            Err(DbError::TooOld) => self.reconcile(db, &applied, &mut changes).await,
            read => read,
        };
        let Some(at) = read.inspect_err(|error| self.mark_unavailable(error))? else {
            return Ok(applied.generation);
        };
        self.knows_tokens.store(true, Ordering::Release);
        if at != *applied || changes.too_many {
            self.put_in_force(&mut changes, &at);
            *applied = at.clone();
        }
        drop(applied);
        self.copy.iter().for_each(|copy| copy.resume());
        for (domain, caller) in std::mem::take(&mut changes.resets) {
            self.reset(&domain, &caller).await;
        }
        self.mark_available();
        Ok(at.generation)
    }

    fn put_in_force(&self, changes: &mut Changes<'_>, at: &FeedPosition) {
        self.controls().advance_to(at.generation);
        if changes.layer {
            self.replace_layer(changes.written.take_layer());
        }
        if !changes.tokens.is_empty() {
            self.tokens.send_modify(|tokens| {
                let mut changed = TokenRecords::clone(tokens);
                for (name, document) in std::mem::take(&mut changes.tokens) {
                    match document {
                        Some(document) => drop(changed.insert(name, document)),
                        None => drop(changed.remove(&name)),
                    }
                }
                *tokens = Arc::new(changed);
            });
        }
        self.measure(changes.written.take_rest());
        self.in_force.send_replace(at.generation);
        match (&self.copy, changes.too_many) {
            (Some(copy), true) => copy.reset(),
            (Some(copy), false) => copy.add(&changes.lines, at.generation),
            (None, _) => {}
        }
        if changes.too_many {
            self.feed.reset(at.clone());
        } else {
            self.feed.add(changes.lines.drain(..).filter(|line| line.kind.decides()), at.generation);
        }
        self.metrics.set_generation(at.generation, self.limiter.tenants().len());
    }

    /// Swaps everything that was loaded in.
    pub(super) fn install<'c>(&'c self, records: LoadedRecords, changes: &mut Changes<'c>) -> FeedPosition {
        let LoadedRecords { mut controls, tokens, at, unreadable, .. } = records;
        self.pending.apply_to(&mut controls);
        tracing::info!("the known state was too old, or of another store of record; everything was reloaded");
        (0..unreadable).for_each(|_| self.metrics.unreadable());
        let tenants = controls.tenants().clone();
        {
            let mut before = self.controls();
            controls.set_shares_unknown(before.are_shares_unknown());
            *before = controls;
        }
        self.limiter.install_tenants(tenants);
        self.tokens.send_replace(Arc::new(tokens));
        *changes = Changes { layer: true, too_many: true, ..Changes::new(self) };
        at
    }

    /// Replaces the layer, which these changes made what it is.
    pub(super) fn replace_layer(&self, written: Vec<WrittenChange>) {
        let layer = self.controls().layer(self.now());
        if self.layer.replace_written(layer, written) {
            tracing::info!("the layer above the rule files changed");
        }
    }

    /// Applies a record. One that can't be read is logged and counted, and changes nothing.
    pub(super) fn apply(&self, record: &Record<'_>) -> Effect {
        self.controls().apply(record).unwrap_or_else(|why| {
            tracing::warn!("{why}");
            self.metrics.unreadable();
            Effect::Nothing
        })
    }

    /// Resets a caller's counters in a local store. In a shared store the writer has reset them.
    async fn reset(&self, domain: &str, caller: &str) {
        let others = [];
        let result = self.limiter.adjust(Some(domain), None, caller, &others, None, Adjustment::Reset).await;
        if let Err(error) = result {
            tracing::warn!(%error, "a caller's counters could not be reset");
        }
    }

    fn mark_unavailable(&self, error: &DbError) {
        let before = self.health.conditions().iter().any(|(part, _)| *part == COMPONENT);
        let state = match self.is_known.load(Ordering::Acquire) {
            true => "the store of record is unavailable; its last state stays in force",
            false => NOTHING_KNOWN,
        };
        self.health.degrade(COMPONENT, format!("{state}: {error}"));
        self.is_available.store(false, Ordering::Release);
        self.metrics.set_unavailable();
        if !before {
            tracing::warn!("{state}: {error}");
        }
    }

    fn mark_available(&self) {
        self.is_known.store(true, Ordering::Release);
        self.is_available.store(true, Ordering::Release);
        self.health.release(COMPONENT);
        self.release();
        if self.health.conditions().iter().any(|(part, _)| *part == COMPONENT) {
            self.health.restore(COMPONENT);
            tracing::info!(generation = self.generation(), "the store of record is available again");
        }
        self.metrics.set_available(self.now());
    }
}

impl Changes<'_> {
    fn new(control: &ControlPlane) -> Changes<'_> {
        Changes {
            control,
            taken: 0,
            lines: Vec::new(),
            bytes: 0,
            too_many: false,
            layer: false,
            tokens: Vec::new(),
            resets: Vec::new(),
            written: WrittenChanges::default(),
        }
    }
}

impl RecordSink for Changes<'_> {
    fn push(&mut self, record: Record<'_>) {
        self.taken += 1;
        if !self.too_many
            && let Some(line) = RecordLine::new(&record)
        {
            self.bytes += line.bytes.len();
            self.lines.push(line);
        }
        if self.lines.len() > MAX_LINES || self.bytes > MAX_BYTES {
            (self.too_many, self.lines, self.bytes) = (true, Vec::new(), 0);
        }
        if record.kind == RecordKind::Token {
            self.tokens.push((record.name.into_owned(), record.document.map(Cow::into_owned)));
            return;
        }
        if self.control.pending.covers(&record) {
            // The change that waits is in force, until it is resolved.
            return;
        }
        match self.control.apply(&record) {
            Effect::Layer => self.layer = true,
            Effect::Tenants { reset: true } if self.control.limiter.store().shared().is_none() => {
                self.resets.push((record.domain.into_owned(), record.name.into_owned()));
            }
            Effect::Tenants { .. } | Effect::Nothing => {}
        }
    }

    fn push_written(&mut self, record: Record<'_>, written_at: Timestamp) {
        if written_at >= self.control.began && !self.control.pending.covers(&record) {
            self.written.add(record.kind, record.generation, written_at);
        }
        self.push(record);
    }

    fn is_full(&self) -> bool {
        self.taken.is_multiple_of(BATCH)
    }

    async fn flush(&mut self) -> bool {
        tokio::task::yield_now().await;
        true
    }
}

fn until(at: Timestamp, now: Timestamp) -> Duration {
    Duration::from_micros(at.since(now).as_micros())
}
