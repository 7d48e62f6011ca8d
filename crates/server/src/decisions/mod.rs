//! The decision log of this server: from the queue of those who decide to where it is kept, and back to whoever asks why.
//!
//! ```text
//! Observer ─ gather ─▶ waiting (lines of JSON) ─ Sink::write, twice a second ─▶ control store, files, standard output, memory
//!                          └────────── find ◀── what is written ◀───────────────┘
//! ```
//!
//! What can't be written waits; past the bound the newest are dropped where they come in, and counted. No decision hears of it.

mod files;
mod line;
mod sink;
#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::{HashSet, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Mutex as AsyncMutex;
use tokio::time::MissedTickBehavior;
use tollgate::{Clock, Span, Timestamp};
use tollgate_control::DecidedFilter;
use tollgate_observe::{Observer, Share};

use crate::health::Health;
use crate::net::Closing;

pub(crate) use files::FilesConfig;
pub(crate) use line::Line;
pub(crate) use sink::{NotLogged, Sink};

/// The decision log.
#[derive(Debug)]
pub(crate) struct Decisions {
    observer: Arc<Observer>,
    sink: Sink,
    config: DecisionsConfig,
    waiting: Mutex<Waiting>,
    /// The number of the next line. Held while lines are made: two who gather keep the order.
    next: Mutex<u64>,
    /// One writes at a time, and takes from the front of what waits.
    writing: AsyncMutex<Pace>,
    written: AtomicU64,
    failed: AtomicU64,
}

/// Who logs, and for how long it is kept.
#[derive(Clone, Debug)]
pub(crate) struct DecisionsConfig {
    pub(crate) server: String,
    pub(crate) region: Option<String>,
    pub(crate) keep: Span,
    /// The most rows in the control store.
    pub(crate) most_rows: u64,
}

/// What became of entries since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LogCounts {
    pub(crate) written: u64,
    /// There were too many.
    pub(crate) dropped: u64,
    /// They were not taken where they are kept, and never will be.
    pub(crate) failed: u64,
}

/// What is asked for.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    pub(crate) filter: DecidedFilter,
    pub(crate) most: usize,
}

/// A line, and by what it is found.
#[derive(Debug)]
struct Logged {
    number: u64,
    at: Timestamp,
    domain: String,
    caller: Option<String>,
    rule: Option<String>,
    text: String,
}

/// Lines that are not written yet; where nothing else keeps them, those that are, too.
#[derive(Debug, Default)]
struct Waiting {
    lines: VecDeque<Arc<Logged>>,
    bytes: usize,
    /// The first so many are written, and only kept.
    written: usize,
}

/// When what is old was last forgotten.
#[derive(Debug, Default)]
struct Pace {
    forgotten_at: Timestamp,
    since_then: u64,
}

/// The part of health that is about the log.
const PART: &str = "decisions";

/// How often what waits is written.
const WRITTEN_EVERY: Duration = Duration::from_millis(500);
/// How soon it is tried again when it could not be.
const AGAIN_AFTER: Duration = Duration::from_secs(1);
/// Lines past which no more are gathered; they stay where they come in, as long as there is room.
const MOST_WAITING: usize = 16_384;
/// The same in bytes.
const MOST_BYTES_WAITING: usize = 16 << 20;
/// Lines that are written at once.
const MOST_AT_ONCE: usize = 1_000;
/// The same in bytes.
const MOST_BYTES_AT_ONCE: usize = 2 << 20;
/// Batches in a row, before others have their turn.
const MOST_BATCHES: usize = 10;
/// How often what is old is forgotten.
const FORGOTTEN_EVERY: Span = Span::from_secs(60);
/// The same in lines that were written since.
const FORGOTTEN_AFTER: u64 = 20_000;

impl Decisions {
    /// What this observer logs is written to the sink.
    pub(crate) fn new(observer: Arc<Observer>, sink: Sink, config: DecisionsConfig) -> Arc<Decisions> {
        Arc::new(Decisions {
            observer,
            sink,
            config,
            waiting: Mutex::default(),
            next: Mutex::new(1),
            writing: AsyncMutex::default(),
            written: AtomicU64::new(0),
            failed: AtomicU64::new(0),
        })
    }

    /// What became of entries since the start.
    pub(crate) fn counts(&self) -> LogCounts {
        LogCounts {
            written: self.written.load(Ordering::Relaxed),
            dropped: self.observer.log().logged().dropped,
            failed: self.failed.load(Ordering::Relaxed),
        }
    }

    /// Where it is kept, in a word; `None` if nothing is logged.
    pub(crate) fn place(&self) -> Option<&'static str> {
        self.observer.log().config().on.then(|| self.sink.name())
    }

    /// How long it is kept.
    pub(crate) fn keep(&self) -> Span {
        self.config.keep
    }

    /// Of decisions that are no refusals, and of callers, how many are logged.
    pub(crate) fn shares(&self) -> (Share, Share) {
        let config = self.observer.log().config();
        (config.sample, config.callers)
    }

    /// Writes what waits, until the server is about to stop.
    pub(crate) async fn keep_writing(
        self: Arc<Decisions>,
        health: Arc<Health>,
        clock: impl Clock,
        mut closing: Closing,
    ) {
        let mut tick = tokio::time::interval(WRITTEN_EVERY);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut is_failing = false;
        loop {
            tokio::select! {
                _ = tick.tick() => {}
                () = closing.begun() => return,
            }
            let written = self.write(clock.now()).await;
            match &written {
                Ok(()) if is_failing => {
                    tracing::info!("decisions are logged again");
                    health.restore(PART);
                }
                Ok(()) => {}
                Err(why) => {
                    if !is_failing {
                        tracing::warn!("decisions can't be logged, and wait: {why}");
                    }
                    let (waiting, dropped) = (self.waiting().left(), self.counts().dropped);
                    health.degrade(
                        PART,
                        format!("decisions can't be logged: {why}; {waiting} wait, {dropped} were dropped"),
                    );
                }
            }
            is_failing = written.is_err();
            if is_failing {
                tokio::select! {
                    () = tokio::time::sleep(AGAIN_AFTER) => {}
                    () = closing.begun() => return,
                }
            }
        }
    }

    /// Writes what waits, all of it unless there is very much.
    ///
    /// # Errors
    /// Why not, in words. What was not written waits.
    pub(crate) async fn write(self: &Arc<Decisions>, now: Timestamp) -> Result<(), String> {
        if !self.observer.log().config().on {
            return Ok(());
        }
        let mut pace = self.writing.lock().await;
        for _ in 0..MOST_BATCHES {
            self.gather().await;
            let batch = self.waiting().batch();
            if batch.is_empty() {
                break;
            }
            match self.sink.write(&batch).await {
                Ok(lines) => {
                    self.waiting().done(lines, self.sink.keeps());
                    self.written.fetch_add(lines as u64, Ordering::Relaxed);
                    pace.since_then += lines as u64;
                }
                Err(NotLogged::Never(why)) => {
                    tracing::error!(lines = batch.len(), "decisions can't be logged, and are lost: {why}");
                    self.waiting().done(batch.len(), true);
                    self.failed.fetch_add(batch.len() as u64, Ordering::Relaxed);
                }
                Err(NotLogged::Yet(why)) => return Err(why),
            }
        }
        if pace.forgotten_at.after(FORGOTTEN_EVERY) <= now || pace.since_then >= FORGOTTEN_AFTER {
            *pace = Pace { forgotten_at: now, since_then: 0 };
            self.sink.forget(&self.config, now).await?;
            self.waiting().forget(now.before(self.config.keep));
        }
        Ok(())
    }

    /// Makes lines of what was logged since.
    async fn gather(self: &Arc<Decisions>) {
        let this = self.clone();
        // Thousands of lines take a while, and this thread has connections to accept. If it panics, it has said so.
        let _ = tokio::task::spawn_blocking(move || this.gather_now()).await;
    }

    fn gather_now(&self) {
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        if self.waiting().is_full() {
            return;
        }
        let logged = |entry| {
            let line = Line::of(entry, &self.config.server, self.config.region.as_deref());
            // Texts and numbers always have a form in JSON.
            let text = serde_json::to_string(&line).unwrap_or_default();
            let Line { at, domain, caller, rule, .. } = line;
            let number = *next;
            *next += 1;
            Logged { number, at: at.0, domain, caller, rule, text }
        };
        // Made before others have to wait for them.
        let lines: Vec<_> = self.observer.log().take().into_iter().map(logged).collect();
        let mut waiting = self.waiting();
        lines.into_iter().for_each(|line| waiting.add(line));
    }

    /// The lines that are asked for, the newest first. What is not written yet is among them.
    pub(crate) async fn find(self: &Arc<Decisions>, wanted: &Wanted) -> Result<Vec<Line>, NotLogged> {
        self.gather().await;
        // Looked at first: what is written meanwhile is found twice, and told once.
        let mut texts: Vec<String> = {
            let waiting = self.waiting();
            let matching = waiting.lines.iter().rev().filter(|line| line.is(&wanted.filter));
            matching.take(wanted.most).map(|line| line.text.clone()).collect()
        };
        texts.extend(self.sink.find(wanted).await?);
        let mut seen = HashSet::new();
        texts.retain(|text| seen.insert(text.clone()));
        let mut lines: Vec<Line> = texts.iter().filter_map(|text| serde_json::from_str(text).ok()).collect();
        lines.sort_by_key(|line| Reverse(line.at));
        lines.truncate(wanted.most);
        Ok(lines)
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waiting {
    /// Lines that are not written.
    fn left(&self) -> usize {
        self.lines.len() - self.written
    }

    fn is_full(&self) -> bool {
        self.left() >= MOST_WAITING || self.bytes >= 2 * MOST_BYTES_WAITING
    }

    fn add(&mut self, line: Logged) {
        self.bytes += line.text.len();
        self.lines.push_back(Arc::new(line));
    }

    /// The next lines that are to be written.
    fn batch(&self) -> Vec<Arc<Logged>> {
        let mut bytes = 0;
        let left = self.lines.iter().skip(self.written).take(MOST_AT_ONCE);
        left.take_while(|line| {
            let is_first = bytes == 0;
            bytes += line.text.len();
            is_first || bytes <= MOST_BYTES_AT_ONCE
        })
        .cloned()
        .collect()
    }

    /// The next so many lines are written. Where something keeps them they need not be kept here.
    fn done(&mut self, lines: usize, are_kept: bool) {
        self.written = (self.written + lines).min(self.lines.len());
        while self.written > 0 && (are_kept || self.lines.len() > MOST_WAITING || self.bytes > MOST_BYTES_WAITING) {
            self.pop();
        }
    }

    /// Forgets what was written and is older.
    fn forget(&mut self, before: Timestamp) {
        while self.written > 0 && self.lines.front().is_some_and(|line| line.at < before) {
            self.pop();
        }
    }

    fn pop(&mut self) {
        if let Some(line) = self.lines.pop_front() {
            self.bytes -= line.text.len();
            self.written -= 1;
        }
    }
}

impl Logged {
    fn is(&self, wanted: &DecidedFilter) -> bool {
        self.caller.as_ref() == Some(&wanted.caller)
            && wanted.domain.as_ref().is_none_or(|domain| *domain == self.domain)
            && wanted.rule.as_ref().is_none_or(|rule| Some(rule) == self.rule.as_ref())
            && wanted.from.is_none_or(|from| self.at >= from)
            && wanted.to.is_none_or(|to| self.at < to)
    }
}

impl Line {
    /// The same of a line that was read.
    fn is(&self, wanted: &DecidedFilter) -> bool {
        self.caller.as_ref() == Some(&wanted.caller)
            && wanted.domain.as_ref().is_none_or(|domain| *domain == self.domain)
            && wanted.rule.as_ref().is_none_or(|rule| Some(rule) == self.rule.as_ref())
            && wanted.from.is_none_or(|from| self.at.0 >= from)
            && wanted.to.is_none_or(|to| self.at.0 < to)
    }
}
