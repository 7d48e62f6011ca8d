//! What a replay says on standard error while it runs: lines that can't be read, and how far it is.

use std::fmt::Display;
use std::io::{self, IsTerminal, Write};

use tollgate::{Clock, Span, SystemClock, Timestamp};

/// The most bad lines that are told one by one.
pub(super) const MOST_TOLD: u64 = 100;

/// How often the clock is looked at, in lines.
const LINES_BETWEEN_LOOKS: u64 = 4096;
/// How often progress is shown.
const BETWEEN_SIGNS: Span = Span::from_micros(250_000);

/// Clears a terminal's line.
const CLEAR: &str = "\r\x1b[K";

/// Standard error.
#[derive(Debug)]
pub(super) struct Console {
    clock: SystemClock,
    is_terminal: bool,
    started: Timestamp,
    shown: Timestamp,
    /// Progress stands on the last line.
    is_drawn: bool,
    bad: u64,
}

impl Console {
    pub(super) fn new() -> Console {
        let clock = SystemClock::default();
        let now = clock.now();
        Console { clock, is_terminal: io::stderr().is_terminal(), started: now, shown: now, is_drawn: false, bad: 0 }
    }

    /// How many lines were bad.
    pub(super) fn bad(&self) -> u64 {
        self.bad
    }

    /// Tells of a bad line, or only counts it where too many were told.
    pub(super) fn bad_line(&mut self, number: u64, what: &str) {
        self.bad += 1;
        if self.bad <= MOST_TOLD {
            self.say(format_args!("line {number}: {what}"));
        } else if self.bad == MOST_TOLD + 1 {
            self.say(format_args!("line {number}: {what}; further bad lines are only counted"));
        }
    }

    pub(super) fn say(&mut self, text: impl Display) {
        let clear = if std::mem::take(&mut self.is_drawn) { CLEAR } else { "" };
        crate::cli::complain(format_args!("{clear}{text}"));
    }

    /// Shows how far the replay is, if somebody watches and it is time to.
    pub(super) fn progress(&mut self, lines: u64) {
        if !self.is_terminal || !lines.is_multiple_of(LINES_BETWEEN_LOOKS) {
            return;
        }
        let now = self.clock.now();
        if now.since(self.shown) >= BETWEEN_SIGNS {
            self.shown = now;
            self.is_drawn = true;
            let rate = rate(lines, now.since(self.started));
            // Progress that can't be shown need not be.
            let _ = write!(io::stderr().lock(), "{CLEAR}{lines} lines, {} bad, {rate} lines/s", self.bad);
        }
    }

    /// Lines a second since the start.
    pub(super) fn rate(&self, lines: u64) -> u64 {
        rate(lines, self.clock.now().since(self.started))
    }
}

fn rate(lines: u64, time: Span) -> u64 {
    lines.saturating_mul(1_000_000) / time.as_micros().max(1)
}
