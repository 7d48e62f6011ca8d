//! A sink that reads the journal: one after the other, from its cursor on.

#[cfg(test)]
mod tests;

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::Deserialize;
use tokio::sync::Notify;
use tollgate_core::{Span, Timestamp};
use tollgate_records::Rfc3339;
use tollgate_store::Clock;

use crate::delivery::{Attempts, NextStep};
use crate::event::CloudEvent;
use crate::filter::EventFilter;
use crate::journal::{Journal, SinkCursor};
use crate::sink::{Sink, SinkError, SinkLine};

/// A sink as its file defines it.
#[derive(Clone, Debug)]
pub struct Definition {
    /// Unique, and a part of a file name.
    pub name: String,
    /// The receiver's host, if it has one.
    pub host: Option<String>,
    /// A digest of all that is defined.
    pub digest: String,
    pub filter: EventFilter,
    pub sink: Arc<dyn Sink>,
}

/// A sink, how far it has read, and how it fares.
#[derive(Debug)]
pub struct Subscription {
    definition: Definition,
    state: Mutex<SinkState>,
    /// The receiver takes events again.
    revived: Notify,
}

#[derive(Debug, Default)]
struct SinkState {
    cursor: SinkCursor,
    attempts: Attempts,
    /// The time of the event that is to be sent next, if one waits.
    head_at: Option<Timestamp>,
    delivered_at: Option<Timestamp>,
    error: Option<String>,
    counts: SinkCounts,
    /// Whether the cursor could not be saved.
    is_unsaved: bool,
}

/// Counts of a sink since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SinkCounts {
    pub ok: u64,
    /// Attempts after which an event is sent again.
    pub retry: u64,
    /// Events that were given up, and lines that were removed from the journal before.
    pub dropped: u64,
    /// 1 if the receiver takes no more.
    pub gone: u64,
}

/// How a sink fares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SinkStatus {
    pub name: String,
    pub kind: &'static str,
    /// The receiver's host; other sinks have none.
    pub host: Option<String>,
    /// Whether its receiver said that it takes no more.
    pub is_gone: bool,
    /// Lines of the journal that it has not read.
    pub waiting: u64,
    /// How old the event is that is to be sent next.
    pub oldest: Option<Span>,
    /// Failures since the last success.
    pub failures: u32,
    /// The next attempt, after a failure.
    pub due: Option<Timestamp>,
    pub delivered_at: Option<Timestamp>,
    pub error: Option<String>,
    pub counts: SinkCounts,
}

/// When there is more to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pace {
    Now,
    /// When there are new lines.
    Idle,
    At(Timestamp),
    /// When the receiver is revived.
    Never,
}

/// What a sink needs of a line.
#[derive(Deserialize)]
struct LineHead {
    id: String,
    #[serde(rename = "type")]
    kind: String,
    time: Rfc3339,
}

/// A line that matches.
struct Match {
    number: u64,
    at: Timestamp,
    line: SinkLine,
}

/// Lines of one read.
const MAX_READ: usize = 64;
/// A longer wait is divided, in case that the clock is set.
const MAX_SLEEP: Duration = Duration::from_secs(60);
/// Delay after the journal could not be read.
const READ_RETRY_DELAY: Span = Span::from_secs(1);

impl Subscription {
    /// A sink that continues at a cursor.
    pub(crate) fn new(definition: Definition, mut cursor: SinkCursor) -> Subscription {
        // Another definition under the same name is another receiver.
        cursor.ended = cursor.ended.filter(|ended| *ended == definition.digest);
        let state = SinkState { cursor, ..SinkState::default() };
        Subscription { definition, state: Mutex::new(state), revived: Notify::new() }
    }

    pub fn name(&self) -> &str {
        &self.definition.name
    }

    pub(crate) fn digest(&self) -> &str {
        &self.definition.digest
    }

    pub(crate) fn cursor(&self) -> SinkCursor {
        self.state().cursor.clone()
    }

    pub fn status(&self, journal: &Journal, now: Timestamp) -> SinkStatus {
        let next = journal.next();
        let state = self.state();
        let is_gone = state.cursor.ended.is_some();
        let failures = state.attempts.failures;
        SinkStatus {
            name: self.definition.name.clone(),
            kind: self.definition.sink.kind(),
            host: self.definition.host.clone(),
            is_gone,
            waiting: if is_gone { 0 } else { next.saturating_sub(state.cursor.next) },
            oldest: state.head_at.filter(|_| !is_gone).map(|at| now.since(at)),
            failures,
            due: (failures > 0).then_some(state.attempts.due),
            delivered_at: state.delivered_at,
            error: state.error.clone(),
            counts: SinkCounts { gone: u64::from(is_gone), ..state.counts },
        }
    }

    /// Sends an event at once, ahead of those that wait. If the receiver takes it, it gets those that wait, too.
    ///
    /// # Errors
    /// Why it was not taken.
    pub async fn try_out(&self, event: &CloudEvent) -> Result<(), SinkError> {
        let line = SinkLine { id: event.id.as_str().into(), text: event.to_line().into() };
        self.definition.sink.send(&[line]).await?;
        {
            let mut state = self.state();
            state.cursor.ended = None;
            state.attempts = Attempts::default();
            state.error = None;
        }
        self.revived.notify_one();
        Ok(())
    }

    /// Sends what is in the journal, and what is added to it.
    pub(crate) async fn run(self: Arc<Self>, journal: Arc<Journal>, clock: Arc<dyn Clock>) {
        let mut appended = journal.appended();
        loop {
            appended.borrow_and_update();
            match self.step(&journal, &*clock).await {
                Pace::Now => {}
                Pace::Idle => {
                    if appended.changed().await.is_err() {
                        return;
                    }
                }
                Pace::Never => self.revived.notified().await,
                Pace::At(due) => {
                    let wait = Duration::from_micros(due.since(clock.now()).as_micros()).min(MAX_SLEEP);
                    tokio::select! {
                        () = tokio::time::sleep(wait) => {}
                        () = self.revived.notified() => {}
                    }
                }
            }
        }
    }

    /// Sends the next lines, if there are any and if they are due.
    async fn step(&self, journal: &Arc<Journal>, clock: &dyn Clock) -> Pace {
        let now = clock.now();
        let (cursor, attempts) = {
            let state = self.state();
            (state.cursor.clone(), state.attempts)
        };
        if cursor.ended.is_some() {
            return Pace::Never;
        }
        if now < attempts.due {
            return Pace::At(attempts.due);
        }
        let from = cursor.next;
        let lines = match blocking(journal, move |journal| journal.read(from, MAX_READ)).await {
            Ok(lines) => lines,
            Err(error) => {
                tracing::warn!(sink = self.name(), %error, "the journal of events can't be read");
                return Pace::At(now.after(READ_RETRY_DELAY));
            }
        };
        let Some((last, _)) = lines.last() else {
            self.state().head_at = None;
            return Pace::Idle;
        };
        let (end, removed) = (last + 1, lines[0].0.saturating_sub(from));
        let (expired, matches) = self.matching(&lines, attempts, now);
        self.state().counts.dropped += removed + expired;
        let Some(first) = matches.first() else {
            self.move_to(journal, end).await;
            return Pace::Now;
        };
        self.state().head_at = Some(first.at);
        let (first_number, first_at) = (first.number, first.at);
        let batch: Vec<_> = matches.iter().map(|one| one.line.clone()).collect();
        let result = self.definition.sink.send(&batch).await;
        let now = clock.now();
        let (step, was_failing) = {
            let mut state = self.state();
            let was_failing = state.attempts.failures > 0;
            (state.attempts.record(&result, first_at, now, fastrand::u64(..)), was_failing)
        };
        match step {
            NextStep::Delivered => {
                let taken = result.unwrap_or(0).min(matches.len());
                {
                    let mut state = self.state();
                    state.counts.ok += taken as u64;
                    state.delivered_at = Some(now);
                    state.error = None;
                }
                if was_failing {
                    tracing::info!(sink = self.name(), "events are sent again");
                }
                // Lines behind the last match do not match, unless the sink takes no more at once.
                let next = matches.get(taken.max(1)).map(|one| one.number);
                let is_all = taken == matches.len() && matches.len() < self.definition.sink.max_lines();
                let after = matches[taken.max(1) - 1].number + 1;
                self.move_to(journal, next.unwrap_or(if is_all { end } else { after })).await;
                Pace::Now
            }
            NextStep::Retry => {
                self.note_failure(result, was_failing);
                let mut state = self.state();
                state.counts.retry += 1;
                // What was passed over need not be read again.
                state.cursor.next = first_number;
                Pace::At(state.attempts.due)
            }
            NextStep::Drop => {
                self.note_failure(result, was_failing);
                self.state().counts.dropped += 1;
                self.move_to(journal, first_number + 1).await;
                Pace::Now
            }
            NextStep::End => {
                tracing::warn!(
                    sink = self.name(),
                    "the receiver of events takes no more (410); change its definition or test it to try again"
                );
                self.state().cursor.ended = Some(self.definition.digest.clone());
                self.state().error = Some("the receiver takes no more events (410)".to_owned());
                self.move_to(journal, first_number).await;
                Pace::Never
            }
        }
    }

    /// The lines that are to be sent, and the number of those that are too old for that.
    fn matching(&self, lines: &[(u64, Arc<str>)], attempts: Attempts, now: Timestamp) -> (u64, Vec<Match>) {
        let (mut expired, mut matches) = (0, Vec::new());
        for (number, text) in lines {
            // A line that can't be read is not ours.
            let Ok(LineHead { id, kind, time }) = serde_json::from_str(text) else { continue };
            if !self.definition.filter.has(&kind) {
                continue;
            }
            if attempts.has_expired(time.0, now) {
                expired += 1;
                continue;
            }
            matches.push(Match { number: *number, at: time.0, line: SinkLine { id: id.into(), text: text.clone() } });
            if matches.len() == self.definition.sink.max_lines() {
                break;
            }
        }
        (expired, matches)
    }

    fn note_failure(&self, result: Result<usize, SinkError>, was_failing: bool) {
        let why = match result {
            Err(SinkError::Retry { why, .. } | SinkError::Permanent(why)) => why,
            _ => return,
        };
        if !was_failing {
            tracing::warn!(sink = self.name(), why, "an event can't be sent; those after it wait");
        }
        self.state().error = Some(why);
    }

    /// Continues at this line, also after a restart.
    async fn move_to(&self, journal: &Arc<Journal>, next: u64) {
        let cursor = {
            let mut state = self.state();
            state.cursor.next = next;
            state.cursor.clone()
        };
        let name = self.definition.name.clone();
        let saved = blocking(journal, move |journal| journal.save_cursor(&name, &cursor)).await;
        let mut state = self.state();
        let was_unsaved = std::mem::replace(&mut state.is_unsaved, saved.is_err());
        if let (Err(error), false) = (saved, was_unsaved) {
            tracing::warn!(sink = self.name(), %error, "what was sent can't be saved: a restart sends events again");
        }
    }

    fn state(&self) -> MutexGuard<'_, SinkState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Works on the journal, on a thread that may wait.
async fn blocking<T: Send + 'static>(
    journal: &Arc<Journal>,
    work: impl FnOnce(&Journal) -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    let journal = journal.clone();
    tokio::task::spawn_blocking(move || work(&journal)).await.map_err(io::Error::other)?
}
