//! Follows the store of record: what any server writes is in force here a moment later.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use tollgate::control::{Applied, Controls, Record};
use tollgate::tenants::Tenants;
use tollgate::{Adjustment, Timestamp};
use tollgate_control::{Db, DbError, Kind};

use super::copy::{line, write_all};
use super::load::{record, snapshot_in};
use super::{Control, PART, Tokens};
use crate::net::Closing;

/// How often the store of record is asked, besides being listened to: what was not heard is seen then.
const POLL: Duration = Duration::from_secs(5);
/// How long to wait before a database that is away is asked again.
const TRY_AGAIN: Duration = Duration::from_secs(1);
/// How often a snapshot is written for other servers.
const SNAPSHOT_EVERY: Duration = Duration::from_secs(60);
/// How often what is only kept for a while is looked through.
const SWEEP_EVERY: Duration = Duration::from_secs(3_600);

/// What one look at the store of record brought.
#[derive(Default)]
struct News {
    lines: Vec<(u64, Bytes)>,
    layer: bool,
    tokens: Vec<(String, Option<String>)>,
    /// Callers whose counters start afresh: domain and name.
    resets: Vec<(String, String)>,
}

impl Control {
    /// Follows until the server is about to stop.
    pub(crate) async fn follow(self: Arc<Control>, mut closing: Closing) {
        let Some(db) = self.db.clone() else { return };
        let mut is_away = self.catch_up().await.is_err();
        loop {
            let now = self.now();
            let layer_changes = self.controls().layer_changes_at(now).map(|at| until(at, now));
            tokio::select! {
                _ = db.changed(self.generation()), if !is_away => {}
                () = tokio::time::sleep(if is_away { TRY_AGAIN } else { POLL }) => {}
                () = tokio::time::sleep(layer_changes.unwrap_or(POLL)) => self.replace_layer(),
                () = closing.begun() => return,
            }
            is_away = self.catch_up().await.is_err();
        }
    }

    /// Writes snapshots for other servers, and forgets what is old, until the server is about to stop.
    pub(crate) async fn keep(self: Arc<Control>, snapshots: Option<PathBuf>, mut closing: Closing) {
        let Some(db) = self.db.clone() else { return };
        let (mut written, mut sweep) = (0, tokio::time::interval(SWEEP_EVERY));
        let mut snapshot = tokio::time::interval(SNAPSHOT_EVERY);
        loop {
            tokio::select! {
                _ = snapshot.tick() => {
                    let Some(directory) = snapshots.as_ref().filter(|_| self.generation() != written) else { continue };
                    match write_all(&db, &snapshot_in(directory), false).await {
                        Ok(generation) => written = generation,
                        Err(why) => tracing::warn!("no snapshot was written: {why}"),
                    }
                }
                _ = sweep.tick() => {
                    if let Err(error) = db.sweep(self.now()).await {
                        tracing::debug!(%error, "nothing was swept");
                    }
                }
                () = closing.begun() => return,
            }
        }
    }

    /// Applies all that was written past the generation in force.
    pub(crate) async fn catch_up(&self) -> Result<u64, DbError> {
        let Some(db) = &self.db else { return Ok(0) };
        // One at a time: records are applied in the order of their generations.
        let mut copy = self.catching_up.lock().await;
        let (after, mut news) = (self.generation(), News::default());
        let told = match self.knows_tokens() {
            true => db.each_since(after, true, |stored| news.take(self, &stored)).await,
            // Those that are older than what this server began with would never be heard of.
            false => Err(DbError::TooOld),
        };
        let told = match told {
            Ok(generation) => Ok(generation),
            Err(DbError::TooOld) => self.load_again(db, &mut news).await,
            Err(error) => Err(error),
        };
        let generation = match told {
            Ok(generation) => generation,
            Err(error) => {
                self.is_away(&error);
                return Err(error);
            }
        };
        self.knows_tokens.store(true, Ordering::Release);
        let changed = generation != after;
        if changed {
            self.put_in_force(&mut news, generation);
        }
        if let Some(copy) = copy.as_mut() {
            let lines: Vec<u8> = news.lines.iter().flat_map(|(_, line)| line.iter().copied()).collect();
            if let Err(why) = copy.keep(db, &lines, news.lines.len() as u64).await {
                tracing::warn!("this server's copy of the store of record is old: {why}");
            }
        }
        drop(copy);
        for (domain, caller) in std::mem::take(&mut news.resets) {
            self.reset(&domain, &caller).await;
        }
        self.is_back();
        Ok(generation)
    }

    fn put_in_force(&self, news: &mut News, generation: u64) {
        self.controls().reached(generation);
        if news.layer {
            self.replace_layer();
        }
        if !news.tokens.is_empty() {
            self.tokens.send_modify(|tokens| {
                let mut changed = Tokens::clone(tokens);
                for (name, document) in std::mem::take(&mut news.tokens) {
                    match document {
                        Some(document) => drop(changed.insert(name, document)),
                        None => drop(changed.remove(&name)),
                    }
                }
                *tokens = Arc::new(changed);
            });
        }
        self.in_force.send_replace(generation);
        self.feed.add(news.lines.iter().filter(|(_, line)| !is_token(line)).cloned(), generation);
        self.metrics.in_force(generation, self.limiter.tenants().len());
    }

    /// Loads everything into a place of its own, and swaps it in.
    async fn load_again(&self, db: &Db, news: &mut News) -> Result<u64, DbError> {
        tracing::info!("what is known of the store of record is too old: loading all of it");
        let (mut controls, mut tokens) = (Controls::default(), Tokens::new());
        let generation = db
            .each_since(0, false, |stored| match (stored.kind, record(&stored)) {
                (Kind::Token, _) => {
                    tokens.extend(stored.document.map(|document| (stored.name.to_owned(), document.to_owned())));
                }
                (_, Some(record)) => {
                    self.told(controls.apply(&record));
                }
                _ => {}
            })
            .await?;
        controls.reached(generation);
        let tenants: Arc<Tenants> = controls.tenants().clone();
        *self.controls() = controls;
        self.limiter.install_tenants(tenants);
        self.tokens.send_replace(Arc::new(tokens));
        self.feed.begin_again(generation);
        *news = News { layer: true, ..News::default() };
        Ok(generation)
    }

    fn replace_layer(&self) {
        let layer = self.controls().layer(self.now());
        if self.layer.replace(layer) {
            tracing::info!("the rules above the files changed");
        }
    }

    fn told(&self, applied: Result<Applied, String>) -> bool {
        match applied {
            Ok(applied) => applied == Applied::Layer,
            Err(why) => {
                tracing::warn!("{why}");
                self.metrics.unreadable();
                false
            }
        }
    }

    /// A caller starts afresh, where the counters are this server's alone: those that are shared, who wrote it has reset.
    async fn reset(&self, domain: &str, caller: &str) {
        let others = [];
        let told = self.limiter.adjust(Some(domain), None, caller, &others, None, Adjustment::Reset).await;
        if let Err(error) = told {
            tracing::warn!(%error, "a caller's counters could not be reset");
        }
    }

    fn is_away(&self, error: &DbError) {
        let before = self.health.conditions().iter().any(|(part, _)| *part == PART);
        self.health.degrade(PART, format!("the store of record is away; what it said last holds: {error}"));
        self.metrics.away(true);
        if !before {
            tracing::warn!("the store of record is away; what it said last holds: {error}");
        }
    }

    fn is_back(&self) {
        if self.health.conditions().iter().any(|(part, _)| *part == PART) {
            self.health.restore(PART);
            tracing::info!(generation = self.generation(), "the store of record is back");
        }
        self.metrics.away(false);
    }
}

impl News {
    fn take(&mut self, control: &Control, stored: &tollgate_control::Record<'_>) {
        if let Some(line) = line(stored, true) {
            self.lines.push((stored.generation, Bytes::from(line)));
        }
        if stored.kind == Kind::Token {
            self.tokens.push((stored.name.to_owned(), stored.document.map(str::to_owned)));
            return;
        }
        let Some(record) = record(stored) else { return };
        let applied = control.controls().apply(&record);
        self.layer |= control.told(applied);
        if control.limiter.store().shared().is_none() && asks_for_reset(&record) {
            self.resets.push((record.domain, record.name));
        }
    }
}

/// Whether the write that made a quota what it is asked for its caller to start afresh.
fn asks_for_reset(record: &Record) -> bool {
    #[derive(serde::Deserialize)]
    struct Reset {
        reset_by: Option<u64>,
    }
    let document = record.document.as_ref().filter(|_| record.kind == tollgate::control::Kind::Quota);
    let reset = document.and_then(|document| serde_json::from_str::<Reset>(document.get()).ok());
    reset.is_some_and(|reset| reset.reset_by.is_some())
}

fn is_token(line: &[u8]) -> bool {
    line.starts_with(b"{\"token\"")
}

fn until(at: Timestamp, now: Timestamp) -> Duration {
    Duration::from_micros(at.since(now).as_micros())
}
