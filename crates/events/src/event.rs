//! An event, and its form as a CloudEvent.

use serde::Serialize;
use serde_json::{Map, Value};
use tollgate_core::Timestamp;
use tollgate_records::Rfc3339;

/// Something that matters to operators.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CloudEvent {
    /// The same on every server, and each time that the event is sent, if the cause is the same.
    pub id: String,
    /// Who saw it: a server, or the store of record of a fleet.
    pub source: String,
    pub at: Timestamp,
    pub kind: EventType,
    pub severity: EventSeverity,
    /// What it is about: a rule, a caller.
    pub subject: Option<String>,
    /// A sentence without the full stop and without values of callers.
    pub text: String,
    /// Details, which may have values of callers.
    pub data: Map<String, Value>,
}

/// The type of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EventType {
    ServerStarted,
    RulesReloaded,
    RulesRejected,
    StoreLevel,
    SignalRaised,
    SignalEnded,
    KeyHot,
    RuleChanged,
    SwitchChanged,
    EmergencyChanged,
    BlockChanged,
    BanBegun,
    BanEnded,
    PlanHeld,
    PlanApproved,
    PlanConfirmed,
    LeaseChanged,
    GatewayChanged,
    /// Only to try a sink.
    Test,
}

/// How urgent an event is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum EventSeverity {
    Info,
    Warning,
    Critical,
}

#[derive(Serialize)]
struct CloudEventLine<'e> {
    specversion: &'static str,
    id: &'e str,
    source: &'e str,
    #[serde(rename = "type")]
    kind: String,
    time: Rfc3339,
    #[serde(skip_serializing_if = "Option::is_none")]
    subject: Option<&'e str>,
    datacontenttype: &'static str,
    data: Details<'e>,
}

#[derive(Serialize)]
struct Details<'e> {
    severity: &'static str,
    text: &'e str,
    #[serde(skip_serializing_if = "Option::is_none")]
    truncated: Option<bool>,
    #[serde(flatten)]
    data: &'e Map<String, Value>,
}

/// The source of events that all servers of a fleet see.
pub const FLEET: &str = "tollgate";
/// What the types of all events begin with.
const PREFIX: &str = "tollgate.";
/// The longest line. A longer event is sent without its details.
pub(crate) const MAX_LINE_BYTES: usize = 64 << 10;
/// The longest text, id and subject.
const MAX_TEXT_BYTES: usize = 1 << 10;

impl EventType {
    pub const ALL: [EventType; 19] = [
        EventType::ServerStarted,
        EventType::RulesReloaded,
        EventType::RulesRejected,
        EventType::StoreLevel,
        EventType::SignalRaised,
        EventType::SignalEnded,
        EventType::KeyHot,
        EventType::RuleChanged,
        EventType::SwitchChanged,
        EventType::EmergencyChanged,
        EventType::BlockChanged,
        EventType::BanBegun,
        EventType::BanEnded,
        EventType::PlanHeld,
        EventType::PlanApproved,
        EventType::PlanConfirmed,
        EventType::LeaseChanged,
        EventType::GatewayChanged,
        EventType::Test,
    ];

    /// The name, which is the type of the CloudEvent without `tollgate.`.
    pub const fn name(self) -> &'static str {
        match self {
            EventType::ServerStarted => "server.started",
            EventType::RulesReloaded => "rules.reloaded",
            EventType::RulesRejected => "rules.rejected",
            EventType::StoreLevel => "store.level",
            EventType::SignalRaised => "signal.raised",
            EventType::SignalEnded => "signal.ended",
            EventType::KeyHot => "key.hot",
            EventType::RuleChanged => "rule.changed",
            EventType::SwitchChanged => "switch.changed",
            EventType::EmergencyChanged => "emergency.changed",
            EventType::BlockChanged => "block.changed",
            EventType::BanBegun => "ban.begun",
            EventType::BanEnded => "ban.ended",
            EventType::PlanHeld => "plan.held",
            EventType::PlanApproved => "plan.approved",
            EventType::PlanConfirmed => "plan.confirmed",
            EventType::LeaseChanged => "lease.changed",
            EventType::GatewayChanged => "gateway.changed",
            EventType::Test => "events.test",
        }
    }
}

impl EventSeverity {
    pub const fn name(self) -> &'static str {
        match self {
            EventSeverity::Info => "info",
            EventSeverity::Warning => "warning",
            EventSeverity::Critical => "critical",
        }
    }
}

impl CloudEvent {
    /// The event as a line of JSON, at most [`MAX_LINE_BYTES`] long.
    pub fn to_line(&self) -> String {
        let line = self.encode(&self.data, None);
        if line.len() <= MAX_LINE_BYTES { line } else { self.encode(&Map::new(), Some(true)) }
    }

    fn encode(&self, data: &Map<String, Value>, truncated: Option<bool>) -> String {
        let event = CloudEventLine {
            specversion: "1.0",
            id: bounded(&self.id),
            source: bounded(&self.source),
            kind: format!("{PREFIX}{}", self.kind.name()),
            time: Rfc3339(self.at),
            subject: self.subject.as_deref().map(bounded),
            datacontenttype: "application/json",
            data: Details { severity: self.severity.name(), text: bounded(&self.text), truncated, data },
        };
        // Texts and numbers are always valid JSON.
        serde_json::to_string(&event).unwrap_or_default()
    }
}

/// The beginning of a text.
fn bounded(text: &str) -> &str {
    &text[..text.floor_char_boundary(MAX_TEXT_BYTES)]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn event() -> CloudEvent {
        CloudEvent {
            id: "e1".to_owned(),
            source: "tollgate/a".to_owned(),
            at: Timestamp::from_secs(1_700_000_000),
            kind: EventType::SignalRaised,
            severity: EventSeverity::Warning,
            subject: Some("accounts".to_owned()),
            text: "the signal accounts is raised".to_owned(),
            data: Map::from_iter([("count".to_owned(), json!(41))]),
        }
    }

    #[test]
    fn an_event_is_a_cloud_event() {
        let read: Value = serde_json::from_str(&event().to_line()).unwrap();
        let expected = json!({
            "specversion": "1.0", "id": "e1", "source": "tollgate/a", "type": "tollgate.signal.raised",
            "time": "2023-11-14T22:13:20Z", "subject": "accounts", "datacontenttype": "application/json",
            "data": {"severity": "warning", "text": "the signal accounts is raised", "count": 41},
        });
        assert_eq!(read, expected);
        let read: Value = serde_json::from_str(&CloudEvent { subject: None, ..event() }.to_line()).unwrap();
        assert_eq!(read.get("subject"), None);
    }

    #[test]
    fn a_long_event_is_sent_without_its_details() {
        let data = Map::from_iter([("after".to_owned(), json!("\u{1}".repeat(MAX_LINE_BYTES)))]);
        let long = CloudEvent { text: "ä".repeat(MAX_TEXT_BYTES), data, ..event() };
        let line = long.to_line();
        let read: Value = serde_json::from_str(&line).unwrap();
        assert!(line.len() <= MAX_LINE_BYTES);
        assert_eq!((read["data"].get("after"), &read["data"]["truncated"]), (None, &json!(true)));
        assert_eq!(read["data"]["text"].as_str().unwrap().len(), MAX_TEXT_BYTES);
    }

    #[test]
    fn names_are_distinct() {
        let names: std::collections::BTreeSet<_> = EventType::ALL.map(EventType::name).into();
        assert_eq!(names.len(), EventType::ALL.len());
    }
}
