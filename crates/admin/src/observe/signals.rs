//! Signals: what servers report to each other, and what is logged when one is raised.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tollgate::{Ruleset, Span, Timestamp};
use tollgate_events::{CloudEvent, EventSeverity, EventType, FLEET};
use tollgate_observe::{DistinctSketch, RaisedSignal, SignalChange, SignalReport};
use tollgate_records::Rfc3339;

use super::Observability;
use super::events::EventKind;

/// What a server counted for one key: domain, signal, hash and text of the key, sketch.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct SignalLine(String, String, String, String, String);

/// Servers that see the same within this time give it the same id.
const SAME_MOMENT: Span = Span::from_secs(600);

impl SignalLine {
    pub(super) fn new(report: &SignalReport) -> SignalLine {
        let sketch = STANDARD_NO_PAD.encode(report.sketch.to_bytes());
        SignalLine(
            report.domain.clone(),
            report.signal.clone(),
            format!("{:032x}", report.key),
            report.key_text.clone(),
            sketch,
        )
    }

    /// The report, if it is one.
    pub(super) fn into_report(self) -> Option<SignalReport> {
        let SignalLine(domain, signal, key, key_text, sketch) = self;
        let key = u128::from_str_radix(&key, 16).ok()?;
        let sketch = DistinctSketch::from_bytes(&STANDARD_NO_PAD.decode(sketch).ok()?)?;
        Some(SignalReport { domain, signal, key, key_text, sketch })
    }
}

impl Observability {
    /// Adds up what all servers counted for signals, and logs those that were raised or ended.
    pub(super) fn evaluate_signals(&self, rules: &Ruleset, now: Timestamp) {
        let mut events = Vec::new();
        for change in self.observer.signals().evaluate(rules, &self.fleet.signal_reports(now), now) {
            let (raised, verb) = match &change {
                SignalChange::Raised(raised) => (raised, "raised"),
                SignalChange::Ended(raised) => (raised, "over"),
            };
            let RaisedSignal { name, count, threshold, .. } = raised;
            // Events are shown to whoever may read: without values of callers.
            let key = self.fleet.hash_key(name.key());
            let text = format!("the signal {} is {verb} for {key}: {count} {}", name.rule(), raised.distinct);
            self.sampler.events.add(now, EventKind::Signal, &text);
            events.push(self.signal_event(&change, text, now));
            tracing::info!(
                domain = name.domain(),
                signal = name.rule(),
                key,
                distinct = &*raised.distinct,
                count,
                threshold,
                "a signal is {verb}; see /admin/v1/signals for the values"
            );
        }
        for event in self.fleet.events.select(events, self.fleet.is_first(now), now) {
            self.sampler.events.stream().emit(event);
        }
    }

    /// The event of a signal. Servers see it within a moment of each other, and give it the same id.
    fn signal_event(&self, change: &SignalChange, text: String, now: Timestamp) -> CloudEvent {
        let (raised, kind, severity) = match change {
            SignalChange::Raised(raised) => (raised, EventType::SignalRaised, EventSeverity::Warning),
            SignalChange::Ended(raised) => (raised, EventType::SignalEnded, EventSeverity::Info),
        };
        let RaisedSignal { name, distinct, per, count, threshold, window, since, examples, .. } = raised;
        let (domain, signal, key) = (name.domain(), name.rule(), name.key());
        let digest = self.fleet.hash_key(&format!("{domain}\n{signal}\n{key}"));
        let moment = now.as_micros() / SAME_MOMENT.as_micros();
        let data = json!({
            "domain": domain, "signal": signal, "key": key, "per": per, "distinct": distinct, "count": count,
            "threshold": threshold, "window_seconds": window.as_secs_ceil(), "since": Rfc3339(*since), "examples": examples,
        });
        CloudEvent {
            id: format!("{}-{moment}-{}", kind.name(), digest.trim_start_matches('#')),
            source: FLEET.to_owned(),
            at: now,
            kind,
            severity,
            subject: Some(signal.to_owned()),
            text,
            data: data.as_object().cloned().unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_are_read_as_they_were_written_and_damaged_ones_are_left_out() {
        let mut sketch = DistinctSketch::default();
        (0..1_000u64).for_each(|value| {
            sketch.insert(value.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        });
        let (domain, signal) = ("shop".to_owned(), "accounts".to_owned());
        let report = SignalReport { domain, signal, key: u128::MAX - 1, key_text: "203.0.113.7".to_owned(), sketch };
        let text = serde_json::to_string(&SignalLine::new(&report)).unwrap();
        let read: SignalLine = serde_json::from_str(&text).unwrap();
        let read = read.into_report().unwrap();
        assert_eq!((read.key, &read.sketch, &*read.key_text), (report.key, &report.sketch, "203.0.113.7"));
        let damaged = |at: usize, value: &str| {
            let mut line: Vec<String> = serde_json::from_str(&text).unwrap();
            line[at] = value.to_owned();
            serde_json::from_value::<SignalLine>(line.into()).unwrap().into_report()
        };
        assert!(damaged(2, "no number").is_none());
        assert!(damaged(4, "AAA").is_none());
        assert!(damaged(4, "?").is_none());
        assert!(damaged(0, "other").is_some());
    }
}
