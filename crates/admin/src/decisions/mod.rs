//! The decision log of this server: from the observer's queue to a sink, and lookup.
//!
//! ```text
//! Observer ─ gather ─▶ waiting (lines of JSON) ─ DecisionSink::write, twice a second ─▶ control store, files, standard output, memory
//!                          └────────── find ◀── what is written ◀───────────────┘
//! ```
//!
//! Lines that can't be written wait; past the bound new entries are dropped in the observer's queue and counted. No decision waits.

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
use tollgate_control::DecisionFilter;
use tollgate_events::{SinkError, SinkLine};
use tollgate_observe::{DecisionEntry, Observer, SampleRate};

use tollgate_net::Closing;
use tollgate_telemetry::Health;

pub use line::DecisionLine;
pub use sink::DecisionSink;

/// The decision log.
#[derive(Debug)]
pub struct Decisions {
    observer: Arc<Observer>,
    sink: DecisionSink,
    config: DecisionsConfig,
    queue: Mutex<LineQueue>,
    /// The number of the next line. Locked while lines are encoded, so that concurrent calls keep the order.
    next: Mutex<u64>,
    /// One task writes at a time, from the front of the queue.
    writing: AsyncMutex<SweepState>,
    written: AtomicU64,
    failed: AtomicU64,
}

/// The identity of this server, and retention.
#[derive(Clone, Debug)]
pub struct DecisionsConfig {
    pub server: String,
    pub region: Option<String>,
    pub keep: Span,
    /// Rows in the store of record.
    pub max_rows: u64,
    /// Bytes in the store of record.
    pub max_bytes: u64,
}

/// Counts of entries since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DecisionLogCounts {
    pub written: u64,
    /// Dropped because the queue was full.
    pub dropped: u64,
    /// Rejected by the sink for good.
    pub failed: u64,
    /// Refusals that are counted in the entry of another.
    pub summarized: u64,
}

/// Selects decisions.
#[derive(Clone, Debug)]
pub struct DecisionLookup {
    pub filter: DecisionFilter,
    pub max: usize,
}

/// An encoded line, and the fields that it is found by.
#[derive(Debug)]
struct QueuedLine {
    number: u64,
    at: Timestamp,
    domain: String,
    caller: Option<String>,
    rule: Option<String>,
    line: SinkLine,
}

/// Lines that wait to be written; if the sink is not persistent, also the last written ones.
#[derive(Debug, Default)]
struct LineQueue {
    lines: VecDeque<Arc<QueuedLine>>,
    bytes: usize,
    /// The number of written lines at the front.
    written: usize,
}

/// When old lines were last removed.
#[derive(Debug, Default)]
struct SweepState {
    swept_at: Timestamp,
    lines_since: u64,
    bytes_since: u64,
    /// Whether there was more to remove than one call removes.
    has_more: bool,
}

/// The health component of the log.
const COMPONENT: &str = "decisions";

/// How often lines are written.
const WRITE_INTERVAL: Duration = Duration::from_millis(500);
/// Delay after a failed write.
const RETRY_DELAY: Duration = Duration::from_secs(1);
/// Above this number no more entries are taken from the observer's queue.
const MAX_WAITING: usize = 16_384;
/// The same, in bytes.
const MAX_BYTES_WAITING: usize = 16 << 20;
/// Lines of one write.
const MAX_BATCH: usize = 1_000;
/// The same, in bytes.
const MAX_BATCH_BYTES: usize = 2 << 20;
/// Consecutive batches before other tasks run.
const MAX_BATCHES: usize = 10;
/// How often old lines are removed.
const SWEEP_INTERVAL: Span = Span::from_secs(60);
/// Old lines are also removed after this many written lines.
const SWEEP_AFTER_LINES: u64 = 20_000;
/// And after this share of the maximal size, one in so many.
const SWEEP_AFTER_PART: u64 = 32;

impl Decisions {
    /// Writes what this observer logs to the sink.
    pub fn new(observer: Arc<Observer>, sink: DecisionSink, config: DecisionsConfig) -> Arc<Decisions> {
        Arc::new(Decisions {
            observer,
            sink,
            config,
            queue: Mutex::default(),
            next: Mutex::new(1),
            writing: AsyncMutex::default(),
            written: AtomicU64::new(0),
            failed: AtomicU64::new(0),
        })
    }

    /// Counts of entries since the start.
    pub fn counts(&self) -> DecisionLogCounts {
        let logged = self.observer.log().counts();
        DecisionLogCounts {
            written: self.written.load(Ordering::Relaxed),
            dropped: logged.dropped,
            failed: self.failed.load(Ordering::Relaxed),
            summarized: logged.summarized,
        }
    }

    /// The name of the sink; `None` if nothing is logged.
    pub fn place(&self) -> Option<&'static str> {
        self.observer.log().config().on.then(|| self.sink.name())
    }

    /// Retention.
    pub fn keep(&self) -> Span {
        self.config.keep
    }

    /// The sample rates of decisions that are not refusals, and of callers.
    pub fn sample_rates(&self) -> (SampleRate, SampleRate) {
        let config = self.observer.log().config();
        (config.sample, config.callers)
    }

    /// Writes lines until the server is about to stop.
    pub async fn run(self: Arc<Decisions>, health: Arc<Health>, clock: impl Clock, mut closing: Closing) {
        let mut tick = tokio::time::interval(WRITE_INTERVAL);
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
                    health.restore(COMPONENT);
                }
                Ok(()) => {}
                Err(why) => {
                    if !is_failing {
                        tracing::warn!("decisions can't be logged and are queued: {why}");
                    }
                    let (queue, dropped) = (self.queue().left(), self.counts().dropped);
                    health.degrade(
                        COMPONENT,
                        format!("decisions can't be logged: {why}; {queue} queued, {dropped} dropped"),
                    );
                }
            }
            is_failing = written.is_err();
            if is_failing {
                tokio::select! {
                    () = tokio::time::sleep(RETRY_DELAY) => {}
                    () = closing.begun() => return,
                }
            }
        }
    }

    /// Writes queued lines: all of them, unless there are very many.
    ///
    /// # Errors
    /// A message for operators. Unwritten lines stay queued.
    pub async fn write(self: &Arc<Decisions>, now: Timestamp) -> Result<(), String> {
        // While there is no room for them, they go on counting.
        let is_full = self.queue().is_full();
        let summaries = if is_full { Vec::new() } else { self.observer.log().take_summaries(Some(now)) };
        self.write_with(summaries, now).await
    }

    /// Writes everything that is left, when no more decisions are made.
    ///
    /// # Errors
    /// As above.
    pub async fn write_last(self: &Arc<Decisions>, now: Timestamp) -> Result<(), String> {
        let summaries = self.observer.log().take_summaries(None);
        self.write_with(summaries, now).await
    }

    async fn write_with(
        self: &Arc<Decisions>,
        mut summaries: Vec<DecisionEntry>,
        now: Timestamp,
    ) -> Result<(), String> {
        if !self.observer.log().config().on {
            return Ok(());
        }
        let mut sweep = self.writing.lock().await;
        for _ in 0..MAX_BATCHES {
            self.gather(std::mem::take(&mut summaries)).await;
            let batch = self.queue().batch();
            if batch.is_empty() {
                break;
            }
            match self.sink.write(&batch).await {
                Ok(lines) => {
                    self.queue().done(lines, self.sink.is_persistent());
                    self.written.fetch_add(lines as u64, Ordering::Relaxed);
                    sweep.lines_since += lines as u64;
                    sweep.bytes_since += batch.iter().take(lines).map(|line| line.line.text.len() as u64).sum::<u64>();
                }
                Err(error @ (SinkError::Permanent(_) | SinkError::Gone)) => {
                    let why = error.to_string();
                    tracing::error!(lines = batch.len(), "decisions can't be logged and are lost: {why}");
                    self.queue().done(batch.len(), true);
                    self.failed.fetch_add(batch.len() as u64, Ordering::Relaxed);
                }
                Err(SinkError::Retry { why, .. }) => return Err(why),
            }
        }
        if sweep.is_due(now, self.config.max_bytes) {
            *sweep = SweepState { swept_at: now, ..SweepState::default() };
            sweep.has_more = self.sink.remove_old(&self.config, now).await?;
            self.queue().remove_old(now.before(self.config.keep));
        }
        Ok(())
    }

    /// Encodes new entries, and these.
    async fn gather(self: &Arc<Decisions>, summaries: Vec<DecisionEntry>) {
        let this = self.clone();
        // Encoding thousands of lines takes a while: not on an async thread. A panic has been logged.
        let _ = tokio::task::spawn_blocking(move || this.gather_now(summaries)).await;
    }

    fn gather_now(&self, summaries: Vec<DecisionEntry>) {
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        let entries = if self.queue().is_full() { Vec::new() } else { self.observer.log().take() };
        let encode = |entry| {
            let number = *next;
            *next += 1;
            self.encode(entry, number)
        };
        // Encode before locking the queue.
        let lines: Vec<_> = entries.into_iter().chain(summaries).map(encode).collect();
        let mut queue = self.queue();
        lines.into_iter().for_each(|line| queue.add(line));
    }

    fn encode(&self, entry: DecisionEntry, number: u64) -> QueuedLine {
        let line = DecisionLine::from_entry(entry, &self.config.server, self.config.region.as_deref());
        // Texts and numbers are always valid JSON.
        let text = serde_json::to_string(&line).unwrap_or_default();
        let DecisionLine { at, domain, caller, rule, .. } = line;
        let line = SinkLine { id: format!("{}-{number}", self.config.server).into(), text: text.into() };
        QueuedLine { number, at: at.0, domain, caller, rule, line }
    }

    /// The selected lines, newest first, including those that are not written yet and the summaries of the current minute.
    pub async fn find(self: &Arc<Decisions>, lookup: &DecisionLookup) -> Result<Vec<DecisionLine>, SinkError> {
        self.gather(Vec::new()).await;
        let summaries = self.observer.log().summaries().into_iter().map(|entry| self.encode(entry, 0));
        let summaries = summaries.filter(|line| line.matches(&lookup.filter)).map(|line| line.line.text.to_string());
        let mut texts: Vec<String> = summaries.take(lookup.max).collect();
        // Read the queue first: lines that are written meanwhile are found twice and deduplicated.
        {
            let queue = self.queue();
            let matching = queue.lines.iter().rev().filter(|line| line.matches(&lookup.filter));
            texts.extend(matching.take(lookup.max).map(|line| line.line.text.to_string()));
        }
        texts.extend(self.sink.find(lookup).await?);
        let mut seen = HashSet::new();
        texts.retain(|text| seen.insert(text.clone()));
        let mut lines: Vec<DecisionLine> = texts.iter().filter_map(|text| serde_json::from_str(text).ok()).collect();
        lines.sort_by_key(|line| Reverse(line.at));
        lines.truncate(lookup.max);
        Ok(lines)
    }

    fn queue(&self) -> MutexGuard<'_, LineQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl SweepState {
    fn is_due(&self, now: Timestamp, max_bytes: u64) -> bool {
        self.has_more
            || self.swept_at.after(SWEEP_INTERVAL) <= now
            || self.lines_since >= SWEEP_AFTER_LINES
            || self.bytes_since >= max_bytes / SWEEP_AFTER_PART
    }
}

impl LineQueue {
    /// The number of unwritten lines.
    fn left(&self) -> usize {
        self.lines.len() - self.written
    }

    fn is_full(&self) -> bool {
        self.left() >= MAX_WAITING || self.bytes >= 2 * MAX_BYTES_WAITING
    }

    fn add(&mut self, line: QueuedLine) {
        self.bytes += line.line.text.len();
        self.lines.push_back(Arc::new(line));
    }

    /// The next lines to write.
    fn batch(&self) -> Vec<Arc<QueuedLine>> {
        let mut bytes = 0;
        let left = self.lines.iter().skip(self.written).take(MAX_BATCH);
        left.take_while(|line| {
            let is_first = bytes == 0;
            bytes += line.line.text.len();
            is_first || bytes <= MAX_BATCH_BYTES
        })
        .cloned()
        .collect()
    }

    /// Marks the next lines as written. If the sink is persistent they are dropped here.
    fn done(&mut self, lines: usize, are_stored: bool) {
        self.written = (self.written + lines).min(self.lines.len());
        while self.written > 0 && (are_stored || self.lines.len() > MAX_WAITING || self.bytes > MAX_BYTES_WAITING) {
            self.pop();
        }
    }

    /// Drops written lines older than `before`.
    fn remove_old(&mut self, before: Timestamp) {
        while self.written > 0 && self.lines.front().is_some_and(|line| line.at < before) {
            self.pop();
        }
    }

    fn pop(&mut self) {
        if let Some(line) = self.lines.pop_front() {
            self.bytes -= line.line.text.len();
            self.written -= 1;
        }
    }
}

impl QueuedLine {
    fn matches(&self, filter: &DecisionFilter) -> bool {
        self.caller.as_ref() == Some(&filter.caller)
            && filter.domain.as_ref().is_none_or(|domain| *domain == self.domain)
            && filter.rule.as_ref().is_none_or(|rule| Some(rule) == self.rule.as_ref())
            && filter.from.is_none_or(|from| self.at >= from)
            && filter.to.is_none_or(|to| self.at < to)
    }
}

impl DecisionLine {
    /// The same for a line that was read.
    fn matches(&self, filter: &DecisionFilter) -> bool {
        self.caller.as_ref() == Some(&filter.caller)
            && filter.domain.as_ref().is_none_or(|domain| *domain == self.domain)
            && filter.rule.as_ref().is_none_or(|rule| Some(rule) == self.rule.as_ref())
            && filter.from.is_none_or(|from| self.at.0 >= from)
            && filter.to.is_none_or(|to| self.at.0 < to)
    }
}
