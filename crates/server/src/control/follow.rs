//! Follows the store of record: what any server writes is in force here a moment later.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use tollgate::control::Applied;
use tollgate::{Adjustment, Timestamp};
use tollgate_control::{Db, DbError, Kind, Point, Reader, Record};

use super::feed::{MOST_BYTES, MOST_LINES};
use super::load::{AT_ONCE, Everything, record};
use super::stream::line;
use super::{Control, PART, Tokens};
use crate::net::Closing;

/// How often the store of record is asked, besides being listened to: what was not heard is seen then.
const POLL: Duration = Duration::from_secs(5);
/// How long to wait before a database that is away is asked again.
const TRY_AGAIN: Duration = Duration::from_secs(1);

/// What one look at the store of record brings.
struct News<'c> {
    control: &'c Control,
    taken: u64,
    /// What followers are told, and the copy: with tokens, which are for the copy alone.
    lines: Vec<(u64, Bytes)>,
    bytes: usize,
    /// It is too much to be told line by line.
    too_many: bool,
    layer: bool,
    tokens: Vec<(String, Option<String>)>,
    /// Callers whose counters start afresh: domain and name.
    resets: Vec<(String, String)>,
}

impl Control {
    /// Follows until the server is about to stop.
    pub(crate) async fn follow(self: Arc<Control>, closing: Closing) {
        // A database that is away may be waited for; a switch that ends may not.
        tokio::join!(self.follow_records(closing.clone()), self.follow_switches(closing));
    }

    async fn follow_records(self: &Arc<Control>, mut closing: Closing) {
        let Some(db) = self.db.clone() else { return };
        let mut is_away = self.catch_up(None).await.is_err();
        loop {
            tokio::select! {
                _ = db.changed(self.generation()), if !is_away => {}
                () = tokio::time::sleep(if is_away { TRY_AGAIN } else { POLL }) => {}
                () = closing.begun() => return,
            }
            is_away = self.catch_up(None).await.is_err();
        }
    }

    /// Switches that end.
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
                () = end => self.replace_layer(),
                changed = in_force.changed() => if changed.is_err() { return },
                () = closing.begun() => return,
            }
        }
    }

    /// Applies all that was written past the generation in force, or up to one at least.
    pub(crate) async fn catch_up(self: &Arc<Control>, at_least: Option<u64>) -> Result<u64, DbError> {
        let control = self.clone();
        // Of its own: half of it is not to be left undone because somebody hung up.
        let caught_up = tokio::spawn(async move { control.catch_up_now(at_least).await }).await;
        caught_up.unwrap_or_else(|error| Err(DbError::Away(error.to_string())))
    }

    async fn catch_up_now(&self, at_least: Option<u64>) -> Result<u64, DbError> {
        let Some(db) = &self.db else { return Ok(0) };
        // One at a time: records are applied in the order of their generations.
        let mut known = self.known.lock().await;
        if at_least.is_some_and(|wanted| wanted <= known.generation) {
            return Ok(known.generation);
        }
        let mut news = News::new(self);
        let past = (known.generation > 0).then_some(&*known);
        let read = match self.knows_tokens() {
            true => db.read(past, true, &mut news).await,
            // Those that are older than what this server began with would never be heard of.
            false => Err(DbError::TooOld),
        };
        let told = match read {
            Ok(Some(at)) => Ok(at),
            Ok(None) => Err(DbError::Away("nobody reads it".to_owned())),
            Err(DbError::TooOld) => self.load_again(db, &known, &mut news).await,
            Err(error) => Err(error),
        };
        let at = told.inspect_err(|error| self.is_away(error))?;
        self.knows_tokens.store(true, Ordering::Release);
        if at != *known || news.too_many {
            self.put_in_force(&mut news, &at);
            *known = at.clone();
        }
        drop(known);
        self.copy.iter().for_each(|copy| copy.begin());
        for (domain, caller) in std::mem::take(&mut news.resets) {
            self.reset(&domain, &caller).await;
        }
        self.is_back();
        Ok(at.generation)
    }

    fn put_in_force(&self, news: &mut News<'_>, at: &Point) {
        self.controls().reached(at.generation);
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
        self.in_force.send_replace(at.generation);
        match (&self.copy, news.too_many) {
            (Some(copy), true) => copy.begin_again(),
            (Some(copy), false) => copy.add(&news.lines, at.generation),
            (None, _) => {}
        }
        if news.too_many {
            self.feed.begin_again(at.clone());
        } else {
            self.feed.add(news.lines.drain(..).filter(|(_, line)| !is_token(line)), at.generation);
        }
        self.metrics.in_force(at.generation, self.limiter.tenants().len());
    }

    /// Loads everything into a place of its own, and swaps it in.
    async fn load_again<'c>(&'c self, db: &Db, known: &Point, news: &mut News<'c>) -> Result<Point, DbError> {
        // If it was restored from a backup, its generations will come to where they were by another way.
        match db.disown(known).await {
            Ok(()) => {}
            Err(DbError::Away(why)) => return Err(DbError::Away(why)),
            Err(error) => tracing::warn!(%error, "a store of record that was restored could not be marked as another"),
        }
        let Everything { controls, tokens, at, unreadable, .. } = Everything::read(db).await?;
        tracing::info!("what was known of the store of record was too old, or of another one: all of it was loaded");
        (0..unreadable).for_each(|_| self.metrics.unreadable());
        let tenants = controls.tenants().clone();
        *self.controls() = controls;
        self.limiter.install_tenants(tenants);
        self.tokens.send_replace(Arc::new(tokens));
        *news = News { layer: true, too_many: true, ..News::new(self) };
        Ok(at)
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
        self.metrics.away();
        if !before {
            tracing::warn!("the store of record is away; what it said last holds: {error}");
        }
    }

    fn is_back(&self) {
        if self.health.conditions().iter().any(|(part, _)| *part == PART) {
            self.health.restore(PART);
            tracing::info!(generation = self.generation(), "the store of record is back");
        }
        self.metrics.heard(self.now());
    }
}

impl News<'_> {
    fn new(control: &Control) -> News<'_> {
        News {
            control,
            taken: 0,
            lines: Vec::new(),
            bytes: 0,
            too_many: false,
            layer: false,
            tokens: Vec::new(),
            resets: Vec::new(),
        }
    }
}

impl Reader for News<'_> {
    fn take(&mut self, stored: Record<'_>) {
        self.taken += 1;
        if let Some(line) = line(&stored).filter(|_| !self.too_many) {
            self.bytes += line.len();
            self.lines.push((stored.generation, Bytes::from(line)));
        }
        if self.lines.len() > MOST_LINES || self.bytes > MOST_BYTES {
            (self.too_many, self.lines, self.bytes) = (true, Vec::new(), 0);
        }
        if stored.kind == Kind::Token {
            self.tokens.push((stored.name.to_owned(), stored.document.map(str::to_owned)));
            return;
        }
        let Some(record) = record(&stored) else { return };
        let applied = self.control.controls().apply(&record);
        self.layer |= self.control.told(applied);
        if self.control.limiter.store().shared().is_none() && record.asks_for_reset() {
            self.resets.push((record.domain, record.name));
        }
    }

    fn is_full(&self) -> bool {
        self.taken.is_multiple_of(AT_ONCE)
    }

    async fn rest(&mut self) -> bool {
        tokio::task::yield_now().await;
        true
    }
}

fn is_token(line: &[u8]) -> bool {
    line.starts_with(b"{\"token\"")
}

fn until(at: Timestamp, now: Timestamp) -> Duration {
    Duration::from_micros(at.since(now).as_micros())
}
