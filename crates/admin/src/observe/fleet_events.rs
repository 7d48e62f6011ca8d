//! Events that every server of a fleet sees, and one of them sends: the first by its id.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use tollgate::{Span, Timestamp};
use tollgate_events::CloudEvent;

/// Events of this server that are sent by another, as far as it is known to live.
#[derive(Debug, Default)]
pub(super) struct FleetEvents(Mutex<VecDeque<CloudEvent>>);

/// A server that has ended is known to have after a minute, so its events are here for longer.
const KEEP: Span = Span::from_secs(90);
/// Events that are here; the oldest are dropped.
const MAX_HELD: usize = 256;

impl FleetEvents {
    /// The events to send: none while another server sends them; if that is this server now, those of the last moments too, with the
    /// ids that the other one may have sent them with.
    pub(super) fn select(&self, new: Vec<CloudEvent>, is_first: bool, now: Timestamp) -> Vec<CloudEvent> {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        held.extend(new);
        held.retain(|event| event.at.after(KEEP) >= now);
        if is_first {
            return held.drain(..).collect();
        }
        let excess = held.len().saturating_sub(MAX_HELD);
        held.drain(..excess);
        Vec::new()
    }
}

#[cfg(test)]
mod tests {
    use tollgate_events::{EventSeverity, EventStream, EventType};

    use super::*;

    const NOW: Timestamp = Timestamp::from_secs(1_700_000_000);

    #[test]
    fn another_server_takes_over_what_the_first_may_not_have_sent() {
        let (stream, held) = (EventStream::new("b"), FleetEvents::default());
        let event = |at: Timestamp| stream.event(at, EventType::SignalRaised, EventSeverity::Warning, "raised");
        let later = |seconds: u64| NOW.after(Span::from_secs(seconds));
        assert!(held.select(vec![event(NOW)], false, NOW).is_empty());
        assert!(held.select(vec![event(later(40))], false, later(40)).is_empty());
        // The first server ended at 41 s, and is known to have at 101 s.
        let sent = held.select(vec![event(later(101))], true, later(101));
        assert_eq!(sent.iter().map(|event| event.at).collect::<Vec<_>>(), [later(40), later(101)]);
        assert!(held.select(Vec::new(), true, later(102)).is_empty());
        let many = (0..MAX_HELD + 10).map(|_| event(later(103))).collect();
        held.select(many, false, later(103));
        assert_eq!(held.select(Vec::new(), true, later(103)).len(), MAX_HELD);
    }
}
