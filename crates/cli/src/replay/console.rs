//! Output of a replay on standard error: invalid lines and progress.

use std::fmt::Display;
use std::io::{self, IsTerminal, Write};

use tollgate::{Clock, Span, SystemClock, Timestamp};

use super::formats::InputFormat;

/// Invalid lines that are reported one by one.
const MAX_REPORTED: u64 = 100;
/// Lines of access logs that are reported: every public server has requests that are none.
const MAX_REPORTED_OF_LOGS: u64 = 5;

/// Lines between reads of the clock.
const CLOCK_INTERVAL_LINES: u64 = 4096;
/// The time between progress updates.
const PROGRESS_INTERVAL: Span = Span::from_micros(250_000);

/// Clears the line of the terminal.
const CLEAR: &str = "\r\x1b[K";

/// The output on standard error.
#[derive(Debug)]
pub(crate) struct Console {
    clock: SystemClock,
    is_terminal: bool,
    started: Timestamp,
    shown: Timestamp,
    /// Whether the last line shows progress.
    has_progress: bool,
    bad: u64,
    max_reported: u64,
}

impl Console {
    pub(crate) fn new(format: InputFormat) -> Console {
        let clock = SystemClock::default();
        let now = clock.now();
        Console {
            clock,
            is_terminal: io::stderr().is_terminal(),
            started: now,
            shown: now,
            has_progress: false,
            bad: 0,
            max_reported: if format.tolerates_invalid_lines() { MAX_REPORTED_OF_LOGS } else { MAX_REPORTED },
        }
    }

    /// The number of invalid lines.
    pub(crate) fn bad(&self) -> u64 {
        self.bad
    }

    /// Reports an invalid line, or only counts it after too many.
    pub(crate) fn bad_line(&mut self, number: u64, error: &str) {
        self.bad += 1;
        if self.bad <= self.max_reported {
            self.print(format_args!("line {number}: {error}"));
        } else if self.bad == self.max_reported + 1 {
            self.print(format_args!("line {number}: {error}; further bad lines are only counted"));
        }
    }

    pub(crate) fn print(&mut self, text: impl Display) {
        let clear = if std::mem::take(&mut self.has_progress) { CLEAR } else { "" };
        crate::print_error(format_args!("{clear}{text}"));
    }

    /// Shows progress on a terminal, at intervals.
    pub(crate) fn progress(&mut self, lines: u64) {
        if !self.is_terminal || !lines.is_multiple_of(CLOCK_INTERVAL_LINES) {
            return;
        }
        let now = self.clock.now();
        if now.since(self.shown) >= PROGRESS_INTERVAL {
            self.shown = now;
            self.has_progress = true;
            let rate = rate(lines, now.since(self.started));
            // Failures to show progress are ignored.
            let _ = write!(io::stderr().lock(), "{CLEAR}{lines} lines, {} bad, {rate} lines/s", self.bad);
        }
    }

    /// Lines per second since the start.
    pub(crate) fn rate(&self, lines: u64) -> u64 {
        rate(lines, self.clock.now().since(self.started))
    }
}

fn rate(lines: u64, time: Span) -> u64 {
    lines.saturating_mul(1_000_000) / time.as_micros().max(1)
}
