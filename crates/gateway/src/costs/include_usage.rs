//! OpenAI's streams report their usage only on request (`stream_options.include_usage`). Here it is requested for
//! clients that did not, and the event with it is removed from what they get.

use bytes::Bytes;
use http::{request, response};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_json::value::RawValue;

use super::sse::{EventEnds, EventReader};
use super::{has_type, is_encoded};

/// Removes the event with the usage. The meter must see frames before they go through here.
#[derive(Debug)]
pub struct UsageFilter {
    ends: EventEnds,
    /// The beginning of an event that has not ended: clients can't use an event before that either.
    held: Vec<u8>,
    /// Whether the current event is too long to be the one with the usage, and passes.
    is_passing: bool,
}

/// What is read of a request. The rest stays as it is, byte for byte: the order of members means something to models.
#[derive(Deserialize)]
struct StreamRequest<'b> {
    #[serde(default)]
    stream: bool,
    #[serde(borrow, default, deserialize_with = "present")]
    stream_options: Option<&'b RawValue>,
}

#[derive(Deserialize)]
struct StreamOptions<'b> {
    #[serde(borrow, default, deserialize_with = "present")]
    include_usage: Option<&'b RawValue>,
}

/// The largest request that is rewritten, in bytes.
pub const MAX_REWRITTEN_BYTES: usize = 1024 * 1024;

/// The longest event that is held. One with the usage has some hundred bytes.
const MAX_HELD_BYTES: usize = 16 * 1024;

/// The body that requests usage as well. `None` if the request is to be forwarded as it is: it is not a stream of
/// OpenAI's completions, or requests usage itself. The length of the new body is another one.
pub fn with_usage(parts: &request::Parts, body: &[u8]) -> Option<Vec<u8>> {
    let is_completion = parts.uri.path().trim_end_matches('/').ends_with("/completions");
    if !is_completion || body.len() > MAX_REWRITTEN_BYTES || is_encoded(&parts.headers) {
        return None;
    }
    let request: StreamRequest<'_> = serde_json::from_slice(body).ok()?;
    if !request.stream {
        return None;
    }
    let Some(options) = request.stream_options else {
        return insert(body, body, r#""stream_options":{"include_usage":true}"#);
    };
    if options.get() == "null" {
        return replace(body, options, r#"{"include_usage":true}"#);
    }
    match serde_json::from_str::<StreamOptions<'_>>(options.get()).ok()?.include_usage {
        Some(value) if value.get() == "true" => None,
        Some(value) => replace(body, value, "true"),
        None => insert(body, options.get().as_bytes(), r#""include_usage":true"#),
    }
}

/// Tells a member that is `null` from one that is absent.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

/// The body with a member more in an object that is a part of it.
fn insert(body: &[u8], object: &[u8], member: &str) -> Option<Vec<u8>> {
    let brace = memchr::memchr(b'{', object)?;
    let is_empty = object[brace + 1..].trim_ascii_start().starts_with(b"}");
    let at = offset(body, object)? + brace + 1;
    let comma: &[u8] = if is_empty { b"" } else { b"," };
    Some([body.get(..at)?, member.as_bytes(), comma, body.get(at..)?].concat())
}

/// The body with another text for a value that is a part of it.
fn replace(body: &[u8], value: &RawValue, text: &str) -> Option<Vec<u8>> {
    let at = offset(body, value.get().as_bytes())?;
    Some([body.get(..at)?, text.as_bytes(), body.get(at + value.get().len()..)?].concat())
}

/// Where a part begins. It borrows from the whole.
fn offset(whole: &[u8], part: &[u8]) -> Option<usize> {
    part.as_ptr().addr().checked_sub(whole.as_ptr().addr())
}

impl UsageFilter {
    /// A filter for the response to a request that [`with_usage`] has rewritten. `None` if it is no stream that can be
    /// read. A stream that is filtered has no `Content-Length`.
    pub fn new(response: &response::Parts) -> Option<UsageFilter> {
        let is_readable = has_type(&response.headers, "text/event-stream") && !is_encoded(&response.headers);
        is_readable.then(|| UsageFilter { ends: EventEnds::new(), held: Vec::new(), is_passing: false })
    }

    /// What the client gets of a frame, and of what was held before. It may be empty.
    pub fn frame(&mut self, frame: &[u8]) -> Bytes {
        let mut output = Vec::with_capacity(self.held.len() + frame.len());
        let mut rest = frame;
        while let Some(end) = self.ends.next(rest) {
            let (event, behind) = rest.split_at(end);
            self.held.extend_from_slice(event);
            self.end_event(&mut output);
            rest = behind;
        }
        self.held.extend_from_slice(rest);
        self.is_passing |= self.held.len() > MAX_HELD_BYTES;
        if self.is_passing {
            output.append(&mut self.held);
        }
        output.into()
    }

    /// What the client gets at the end of the stream.
    pub fn finish(&mut self) -> Bytes {
        let mut output = Vec::new();
        self.end_event(&mut output);
        output.into()
    }

    fn end_event(&mut self, output: &mut Vec<u8>) {
        if std::mem::take(&mut self.is_passing) || !is_usage(&self.held) {
            output.append(&mut self.held);
        }
        self.held.clear();
    }
}

/// Whether an event has the usage and nothing else: it is the only one with an empty list of choices and a usage.
fn is_usage(event: &[u8]) -> bool {
    if event.len() > MAX_HELD_BYTES || memchr::memmem::find(event, b"\"usage\"").is_none() {
        return false;
    }
    let mut is_usage = false;
    let mut reader = EventReader::default();
    let mut seen = |data: &[u8]| {
        let document: Value = serde_json::from_slice(data).unwrap_or_default();
        is_usage = document["usage"].is_object() && document["choices"].as_array().is_some_and(Vec::is_empty);
    };
    reader.feed(event, &mut seen);
    reader.finish(seen);
    is_usage
}
