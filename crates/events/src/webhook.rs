//! Webhooks, signed as Standard Webhooks says: the receiver can check who sent an event, and when.

#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::StatusCode;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, USER_AGENT};
use ring::hmac;
use tollgate_core::{Span, Timestamp};
use tollgate_net::client::{PostAnswer, Poster};
use tollgate_store::Clock;

use crate::sink::{Sending, Sink, SinkError, SinkLine};

/// Posts events to an address.
pub struct Webhook {
    poster: Poster,
    /// All of them sign: receivers change from one to the next while both do.
    secrets: Vec<Secret>,
    clock: Arc<dyn Clock>,
}

/// A key of signatures.
#[derive(Clone)]
pub struct Secret(hmac::Key);

const SECRET_PREFIX: &str = "whsec_";
/// The sizes of a key.
const SECRET_BYTES: std::ops::RangeInclusive<usize> = 24..=64;
const ID: HeaderName = HeaderName::from_static("webhook-id");
const TIME: HeaderName = HeaderName::from_static("webhook-timestamp");
const SIGNATURE: HeaderName = HeaderName::from_static("webhook-signature");
const SENDER: HeaderValue = HeaderValue::from_static(concat!("tollgate/", env!("CARGO_PKG_VERSION")));
const CLOUD_EVENT: HeaderValue = HeaderValue::from_static("application/cloudevents+json");
/// Time limit of a request.
const TIMEOUT: Duration = Duration::from_secs(10);

impl Secret {
    /// A secret such as `whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw`.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<Secret, &'static str> {
        let encoded = text.strip_prefix(SECRET_PREFIX).ok_or("it does not begin with whsec_")?;
        let bytes = STANDARD.decode(encoded).map_err(|_| "what follows whsec_ is not base64")?;
        match SECRET_BYTES.contains(&bytes.len()) {
            true => Ok(Secret(hmac::Key::new(hmac::HMAC_SHA256, &bytes))),
            false => Err("it does not have 24 to 64 bytes"),
        }
    }

    /// The signature of a message.
    fn sign(&self, id: &str, seconds: u64, body: &str) -> String {
        let tag = hmac::sign(&self.0, format!("{id}.{seconds}.{body}").as_bytes());
        format!("v1,{}", STANDARD.encode(tag.as_ref()))
    }
}

impl Webhook {
    pub fn new(poster: Poster, secrets: Vec<Secret>, clock: Arc<dyn Clock>) -> Webhook {
        Webhook { poster, secrets, clock }
    }

    fn headers(&self, line: &SinkLine, now: Timestamp) -> Option<HeaderMap> {
        let seconds = now.as_micros() / 1_000_000;
        let signatures: Vec<_> = self.secrets.iter().map(|secret| secret.sign(&line.id, seconds, &line.text)).collect();
        let mut headers = HeaderMap::new();
        headers.insert(ID, HeaderValue::from_str(&line.id).ok()?);
        headers.insert(TIME, HeaderValue::from(seconds));
        headers.insert(SIGNATURE, HeaderValue::from_str(&signatures.join(" ")).ok()?);
        headers.insert(CONTENT_TYPE, CLOUD_EVENT);
        headers.insert(USER_AGENT, SENDER);
        Some(headers)
    }
}

impl Sink for Webhook {
    fn kind(&self) -> &'static str {
        "webhook"
    }

    fn max_lines(&self) -> usize {
        1
    }

    fn send<'a>(&'a self, lines: &'a [SinkLine]) -> Sending<'a> {
        Box::pin(async move {
            let Some(line) = lines.first() else { return Ok(0) };
            let headers = self.headers(line, self.clock.now());
            let headers = headers.ok_or_else(|| SinkError::Permanent("its id is not a header".to_owned()))?;
            let body = Bytes::copy_from_slice(line.text.as_bytes());
            let retry = |why: String| SinkError::Retry { why, after: None };
            result(self.poster.post(headers, body, TIMEOUT).await.map_err(retry)?)
        })
    }
}

/// What a response means: 2xx is success, 410 ends the subscription, the message is sent again otherwise.
fn result(PostAnswer { status, retry_after }: PostAnswer) -> Result<usize, SinkError> {
    match status {
        status if status.is_success() => Ok(1),
        StatusCode::GONE => Err(SinkError::Gone),
        status => {
            let after = retry_after.map(|after| Span::from_secs(after.as_secs()));
            Err(SinkError::Retry { why: format!("the receiver answered {}", status.as_u16()), after })
        }
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

impl fmt::Debug for Webhook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Webhook").field("poster", &self.poster).finish_non_exhaustive()
    }
}
