//! Meters what a request really cost, from its response. Frames are seen while they pass, and never held back.

use http::response::Parts;

use super::llm_usage::{BYTES_PER_TOKEN, LlmUsage, TokenCount};
use super::sse::EventReader;
use super::stream_elements::{MAX_DOCUMENT_BYTES, StreamElements};
use super::{has_type, is_encoded, number};
use crate::model::{JsonPointer, SettleSource};

/// Sees one response.
#[derive(Debug)]
pub struct Meter {
    source: MeterSource,
    form: BodyForm,
    /// The bytes of the body so far.
    bytes: u64,
    is_success: bool,
}

/// What a request cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MeteredCost {
    pub units: u64,
    /// Whether the response did not say it: the units are computed from its length.
    pub is_estimated: bool,
}

/// Where the cost is.
#[derive(Debug)]
enum MeterSource {
    Header(Option<u64>),
    /// The last number that was found in an event.
    Json(JsonPointer, Option<u64>),
    Llm(LlmUsage),
}

/// How the body is read.
#[derive(Debug)]
enum BodyForm {
    /// Not at all: it is compressed, or too long, or not needed.
    Opaque,
    /// As one document.
    Document(Vec<u8>),
    Elements(StreamElements),
    Events(EventReader),
}

impl Meter {
    /// A meter for a response with this head.
    pub fn new(source: &SettleSource, response: &Parts) -> Meter {
        let is_events = has_type(&response.headers, "text/event-stream");
        let (source, form) = match source {
            SettleSource::Header(name) => (MeterSource::Header(number(&response.headers, name)), BodyForm::Opaque),
            SettleSource::Json(pointer) => (MeterSource::Json(pointer.clone(), None), BodyForm::Document(Vec::new())),
            SettleSource::Llm { .. } => {
                (MeterSource::Llm(LlmUsage::default()), BodyForm::Elements(StreamElements::default()))
            }
        };
        let form = match form {
            _ if is_encoded(&response.headers) => BodyForm::Opaque,
            BodyForm::Document(_) | BodyForm::Elements(_) if is_events => BodyForm::Events(EventReader::default()),
            form => form,
        };
        Meter { source, form, bytes: 0, is_success: response.status.is_success() }
    }

    /// Sees a frame of the body.
    pub fn frame(&mut self, bytes: &[u8]) {
        self.bytes = self.bytes.saturating_add(bytes.len() as u64);
        match &mut self.form {
            BodyForm::Opaque => {}
            BodyForm::Document(document) if document.len() + bytes.len() > MAX_DOCUMENT_BYTES => {
                self.form = BodyForm::Opaque;
            }
            BodyForm::Document(document) => document.extend_from_slice(bytes),
            BodyForm::Elements(elements) => elements.feed(bytes, |element| self.source.see(element)),
            BodyForm::Events(events) => events.feed(bytes, |data| self.source.see(data)),
        }
    }

    /// What the request cost, by what was seen so far. `None`: nothing says it, and what was reserved stays.
    pub fn finish(&self) -> Option<MeteredCost> {
        match &self.source {
            MeterSource::Header(units) => units.map(MeteredCost::reported),
            MeterSource::Json(pointer, found) => match &self.form {
                BodyForm::Opaque => self.estimate(),
                BodyForm::Document(document) => pointer.find(document).map(MeteredCost::reported),
                BodyForm::Elements(_) => None,
                BodyForm::Events(events) => {
                    let mut found = *found;
                    events.finish(|data| found = pointer.find(data).or(found));
                    found.map(MeteredCost::reported)
                }
            },
            MeterSource::Llm(usage) => {
                let mut usage = usage.clone();
                if let BodyForm::Events(events) = &self.form {
                    events.finish(|data| usage.see(data));
                }
                match usage.count() {
                    Some(TokenCount::Reported(units)) => Some(MeteredCost::reported(units)),
                    Some(TokenCount::Estimated(units)) => Some(MeteredCost { units, is_estimated: true }),
                    None => self.estimate(),
                }
            }
        }
    }

    /// A cost by the length of the body. Failures have none, and neither has a body of which nothing came.
    fn estimate(&self) -> Option<MeteredCost> {
        let units = self.bytes.div_ceil(BYTES_PER_TOKEN);
        (self.is_success && units > 0).then_some(MeteredCost { units, is_estimated: true })
    }
}

impl MeterSource {
    /// Reads a document of a stream.
    fn see(&mut self, document: &[u8]) {
        match self {
            MeterSource::Header(_) => {}
            MeterSource::Json(pointer, found) => *found = pointer.find(document).or(*found),
            MeterSource::Llm(usage) => usage.see(document),
        }
    }
}

impl MeteredCost {
    fn reported(units: u64) -> MeteredCost {
        MeteredCost { units, is_estimated: false }
    }
}
