//! Plain requests: complete checks and settlements of HTTP/1.1 with a `Content-Length`, as gateways send them one after
//! the other. They are read from the connection and answered without an HTTP library in between, which costs more than a
//! check.
//!
//! Only what is certain is read here. With the first byte of anything else, be it another path, a chunked body, half a
//! head or an error, hyper gets the connection, together with what was read.

mod head;
mod rewound;
#[cfg(test)]
mod tests;

use std::pin::{Pin, pin};

use bytes::{Buf, Bytes, BytesMut};
use http::Response;
use http_body_util::{BodyExt, Full};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tollgate::poll_once;
use tollgate_http::response::ConnectionEnd;
use tollgate_net::{Closing, Stream};

use super::Http;
use super::check::check_at_once;
use super::prepared::PreparedResponse;
use super::settle::settle_at_once;
use super::{CHECK, SETTLE};
use head::{PlainEndpoint, PlainHead};
pub(super) use rewound::Rewound;

/// How the service of plain requests ends.
#[derive(Debug)]
pub(super) enum PlainEnd {
    /// The connection is closed, or has to be.
    Closed,
    /// Another kind of request begins with these bytes, if there are any.
    Other(Bytes),
}

/// A connection that has had only plain requests so far.
#[derive(Debug)]
pub(super) struct PlainConnection<'h> {
    http: &'h Http,
    received: BytesMut,
    responses: Vec<u8>,
}

/// The size of a read. A longer request is hyper's.
const READ_BYTES: usize = 4 * 1024;
/// The memory for responses that is retained.
const RETAINED_BYTES: usize = 4 * 1024;

impl<'h> PlainConnection<'h> {
    pub(super) fn new(http: &'h Http) -> PlainConnection<'h> {
        PlainConnection { http, received: BytesMut::new(), responses: Vec::new() }
    }

    /// Serves plain requests until something else arrives. `begin` is called for each of them.
    pub(super) async fn serve(
        mut self,
        stream: &mut Stream,
        closing: &mut Closing,
        mut idle: Pin<&mut impl Future<Output = ()>>,
        begin: impl Fn(),
    ) -> PlainEnd {
        let shutdown = closing.clone();
        let mut closing = pin!(closing.begun());
        loop {
            self.received.reserve(READ_BYTES);
            let read = tokio::select! {
                biased;
                // Before the others: what has arrived is answered.
                read = stream.read_buf(&mut self.received) => read,
                () = closing.as_mut() => return PlainEnd::Closed,
                () = idle.as_mut() => return PlainEnd::Closed,
            };
            if !matches!(read, Ok(1..)) {
                return PlainEnd::Closed;
            }
            let end = if shutdown.has_begun() { ConnectionEnd::AfterResponse } else { ConnectionEnd::Open };
            while let Some(head) = PlainHead::parse(&self.received) {
                begin();
                self.answer(&head, end);
            }
            if !self.responses.is_empty() {
                tokio::select! {
                    biased;
                    sent = send(stream, &self.responses) => if sent.is_err() { return PlainEnd::Closed },
                    // A client that does not read.
                    () = idle.as_mut() => return PlainEnd::Closed,
                }
                self.responses.clear();
                self.responses.shrink_to(RETAINED_BYTES);
                if end == ConnectionEnd::AfterResponse {
                    return PlainEnd::Closed;
                }
            }
            if !self.received.is_empty() {
                return self.other();
            }
        }
    }

    /// Answers the request at the start of what was received.
    fn answer(&mut self, head: &PlainHead, end: ConnectionEnd) {
        let body = &self.received[head.bytes..head.bytes + head.body_bytes];
        let state = &self.http.state;
        let path = match head.endpoint {
            PlainEndpoint::Check => CHECK,
            PlainEndpoint::Settle => SETTLE,
        };
        let response = match (self.http.refuse_client(path, &head.headers), head.endpoint) {
            (Some(refusal), _) => refusal.into(),
            (None, PlainEndpoint::Check) => check_at_once(state, &head.headers, body),
            (None, PlainEndpoint::Settle) => settle_at_once(state, &head.headers, body),
        };
        let out = &mut self.responses;
        tollgate_http::date::with_text(&state.clock, |date| match response {
            PreparedResponse::Written(response) => response.write_http1(date, end, out),
            PreparedResponse::Other(response) => write_http1(response, date, end, out),
        });
        self.received.advance(head.bytes + head.body_bytes);
    }

    fn other(&mut self) -> PlainEnd {
        PlainEnd::Other(self.received.split().freeze())
    }
}

async fn send(stream: &mut Stream, responses: &[u8]) -> std::io::Result<()> {
    stream.write_all(responses).await?;
    stream.flush().await
}

/// Appends a response with a body of known length.
#[cold]
fn write_http1(response: Response<Full<Bytes>>, date: &[u8], end: ConnectionEnd, out: &mut Vec<u8>) {
    let (head, body) = response.into_parts();
    // The body is complete, so it is collected at once.
    let body = match poll_once(body.collect()) {
        Some(Ok(body)) => body.to_bytes(),
        None => Bytes::new(),
    };
    out.extend_from_slice(format!("HTTP/1.1 {}", head.status).as_bytes());
    for (name, value) in &head.headers {
        out.extend_from_slice(b"\r\n");
        out.extend_from_slice(name.as_str().as_bytes());
        out.extend_from_slice(b": ");
        out.extend_from_slice(value.as_bytes());
    }
    out.extend_from_slice(end.field());
    out.extend_from_slice(format!("\r\ncontent-length: {}\r\ndate: ", body.len()).as_bytes());
    out.extend_from_slice(date);
    out.extend_from_slice(b"\r\n\r\n");
    out.extend_from_slice(&body);
}
