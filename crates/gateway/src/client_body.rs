//! The body of a client's request, before it is forwarded.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::request::Parts;
use http::{StatusCode, header};
use http_body::Body as _;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;

use crate::answers::Answer;
use crate::forwarded_body::{ForwardedBody, UploadProgress};
use crate::model::RouteConfig;

/// A body, of which a part may have been read.
pub(crate) struct ClientBody {
    ahead: Option<Bytes>,
    /// `None` if all of it was read.
    rest: Option<Incoming>,
}

impl ClientBody {
    /// # Errors
    /// If the body is larger than the route allows.
    pub(crate) fn new(route: &RouteConfig, parts: &Parts, body: Incoming) -> Result<ClientBody, Answer> {
        let length =
            parts.headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<u64>().ok());
        if length.is_some_and(|length| length > route.max_body) {
            return Err(too_large());
        }
        Ok(ClientBody { ahead: None, rest: Some(body) })
    }

    /// Reads the body, or a little more than `most` of a long one.
    pub(crate) async fn read_ahead(&mut self, most: usize, idle: Duration) -> Result<(), Answer> {
        let Some(mut body) = self.rest.take() else { return Ok(()) };
        let mut ahead = BytesMut::new();
        while ahead.len() <= most {
            match tokio::time::timeout(idle, body.frame()).await {
                Ok(Some(Ok(frame))) => {
                    if let Some(data) = frame.data_ref() {
                        ahead.extend_from_slice(data);
                    }
                }
                Ok(None) => {
                    self.ahead = Some(ahead.freeze());
                    return Ok(());
                }
                Ok(Some(Err(_))) => return Err(Answer::bad_request("broken_body", "The body could not be read.")),
                Err(_) => {
                    let detail = "The body did not arrive in time.";
                    return Err(Answer::problem(StatusCode::REQUEST_TIMEOUT, "body_timeout", detail).closing());
                }
            }
        }
        (self.ahead, self.rest) = (Some(ahead.freeze()), Some(body));
        Ok(())
    }

    /// What was read of the body.
    pub(crate) fn ahead(&self) -> Option<&[u8]> {
        self.ahead.as_deref()
    }

    /// The whole body, if it was read.
    pub(crate) fn whole(&self) -> Option<&[u8]> {
        self.ahead.as_deref().filter(|_| self.rest.is_none())
    }

    /// Sends another body.
    pub(crate) fn replace(&mut self, body: Vec<u8>) {
        (self.ahead, self.rest) = (Some(body.into()), None);
    }

    /// The body for the upstream.
    pub(crate) fn into_request(self, route: &RouteConfig) -> (ForwardedBody, Arc<UploadProgress>) {
        match self.rest {
            None => ForwardedBody::read(self.ahead.unwrap_or_default()),
            Some(rest) if rest.is_end_stream() && self.ahead.is_none() => ForwardedBody::read(Bytes::new()),
            Some(rest) => ForwardedBody::streamed(self.ahead, rest, route.max_body, route.timeouts.request_idle),
        }
    }
}

fn too_large() -> Answer {
    let detail = "The body is larger than this route allows.";
    Answer::problem(StatusCode::PAYLOAD_TOO_LARGE, "body_too_large", detail).closing()
}
