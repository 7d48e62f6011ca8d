//! When a line is sent again. Pure: time and chance are arguments.

use tollgate_core::{Span, Timestamp};

use crate::sink::SinkError;

/// The attempts of one sink.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Attempts {
    /// Failures since the last success.
    pub failures: u32,
    /// Not before then.
    pub due: Timestamp,
}

/// What happens to a line after an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NextStep {
    /// The receiver has it.
    Delivered,
    /// It is sent again later.
    Retry,
    /// It is given up.
    Drop,
    /// Nothing more is sent.
    End,
}

/// The waits between attempts, in seconds; the last one repeats.
const WAITS: [u64; 8] = [1, 5, 30, 120, 600, 3_600, 10_800, 21_600];
/// Waits differ by so much, in percent, so that receivers are not overrun after an outage.
const JITTER: u64 = 20;
/// Longer than that no receiver may ask to wait.
const MAX_RETRY_AFTER: Span = Span::from_secs(86_400);
/// An event that is older is given up when it fails.
pub(crate) const MAX_AGE: Span = Span::from_secs(259_200);

impl Attempts {
    /// Records the result of an attempt to send an event of this time.
    pub(crate) fn record(
        &mut self,
        result: &Result<usize, SinkError>,
        event_at: Timestamp,
        now: Timestamp,
        random: u64,
    ) -> NextStep {
        match result {
            Ok(_) => {
                *self = Attempts::default();
                NextStep::Delivered
            }
            Err(SinkError::Gone) => NextStep::End,
            Err(SinkError::Permanent(_)) => NextStep::Drop,
            Err(SinkError::Retry { after, .. }) => {
                let wait = WAITS[(self.failures as usize).min(WAITS.len() - 1)] * 1_000_000;
                let jitter = wait / 100 * JITTER;
                let wait = wait - jitter + random % (2 * jitter + 1);
                let requested = after.map_or(0, |after| after.as_micros().min(MAX_RETRY_AFTER.as_micros()));
                self.failures = self.failures.saturating_add(1);
                self.due = now.after(Span::from_micros(wait.max(requested)));
                if self.has_expired(event_at, now) { NextStep::Drop } else { NextStep::Retry }
            }
        }
    }

    /// Whether an event is given up without another attempt: the sink fails, and the event is too old.
    pub(crate) fn has_expired(&self, event_at: Timestamp, now: Timestamp) -> bool {
        self.failures > 0 && event_at.after(MAX_AGE) < now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_secs(1_700_000_000);

    fn failed(after: Option<Span>) -> Result<usize, SinkError> {
        Err(SinkError::Retry { why: "503".to_owned(), after })
    }

    #[test]
    fn waits_grow_with_jitter_until_the_event_is_too_old() {
        for random in [0, 1, 12_345_678_901, u64::MAX] {
            let (mut attempts, mut now) = (Attempts::default(), NOW);
            let mut waits = Vec::new();
            let dropped_after = loop {
                let step = attempts.record(&failed(None), NOW, now, random);
                let wait = attempts.due.since(now).as_micros();
                let nominal = WAITS[waits.len().min(WAITS.len() - 1)] * 1_000_000;
                assert!(wait.abs_diff(nominal) <= nominal / 5, "{waits:?} {wait}");
                waits.push(wait);
                if step == NextStep::Drop {
                    break now.since(NOW);
                }
                assert_eq!(step, NextStep::Retry);
                now = attempts.due;
            };
            assert!(dropped_after > MAX_AGE && dropped_after < Span::from_secs(290_000), "{dropped_after:?}");
            // The next event waits for its turn, and is not sent in a burst.
            assert_eq!(attempts.record(&Ok(1), now, now, random), NextStep::Delivered);
            assert_eq!(attempts, Attempts::default());
        }
    }

    #[test]
    fn what_the_receiver_says_counts() {
        let rows = [
            (failed(Some(Span::from_secs(90))), NextStep::Retry, 90),
            (failed(Some(Span::from_secs(1 << 40))), NextStep::Retry, 86_400),
            (Err(SinkError::Gone), NextStep::End, 0),
            (Err(SinkError::Permanent("too large".to_owned())), NextStep::Drop, 0),
        ];
        for (result, step, wait) in rows {
            let mut attempts = Attempts { failures: 0, due: NOW };
            assert_eq!(attempts.record(&result, NOW, NOW, 0), step);
            assert_eq!(attempts.due.since(NOW), Span::from_secs(wait), "{result:?}");
        }
    }

    #[test]
    fn old_events_are_given_up_without_an_attempt_only_while_the_sink_fails() {
        let old = NOW.before(Span::from_secs(300_000));
        assert!(!Attempts::default().has_expired(old, NOW));
        let failing = Attempts { failures: 1, due: NOW };
        assert!(failing.has_expired(old, NOW) && !failing.has_expired(NOW, NOW));
    }
}
