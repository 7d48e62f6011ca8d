//! Responses that are streamed line by line.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::HeaderValue;
use http::header::CONTENT_TYPE;
use http_body::Frame;
use serde::Serialize;
use tokio::sync::mpsc;

/// Sends the lines of a response. It waits for slow clients and reports when they disconnect.
#[derive(Clone, Debug)]
pub(super) struct LineSender(mpsc::Sender<Bytes>);

struct ChannelBody(mpsc::Receiver<Bytes>);

/// Pieces buffered for a slow client.
const MAX_WAITING_PIECES: usize = 2;

impl LineSender {
    /// Sends lines.
    ///
    /// # Errors
    /// If the client disconnected.
    pub(super) async fn send(&self, lines: impl Into<Bytes>) -> Result<(), ClientGone> {
        self.0.send(lines.into()).await.map_err(|_| ClientGone)
    }

    /// Waits until the client disconnects.
    pub(super) async fn closed(&self) {
        self.0.closed().await;
    }

    /// Sends one line.
    ///
    /// # Errors
    /// If the client disconnected.
    pub(super) async fn line(&self, line: &impl Serialize) -> Result<(), ClientGone> {
        // Texts and numbers are always valid JSON.
        let mut text = serde_json::to_vec(line).unwrap_or_default();
        text.push(b'\n');
        self.send(text).await
    }
}

/// The client disconnected.
#[derive(Debug)]
pub(super) struct ClientGone;

/// A response of JSON lines, and its sender.
pub(super) fn lines() -> (LineSender, Response) {
    let (lines, body) = channel();
    (lines, jsonl_response(body))
}

/// A response of events, and its sender.
pub(super) fn events() -> (LineSender, Response) {
    let (lines, body) = channel();
    (lines, with_content_type(body, HeaderValue::from_static("text/event-stream")))
}

/// A response with a body of JSON lines.
pub(super) fn jsonl_response(body: Body) -> Response {
    with_content_type(body, HeaderValue::from_static("application/jsonl"))
}

fn with_content_type(body: Body, kind: HeaderValue) -> Response {
    let mut response = body.into_response();
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

/// A body, and its sender.
fn channel() -> (LineSender, Body) {
    let (sender, receiver) = mpsc::channel(MAX_WAITING_PIECES);
    (LineSender(sender), Body::new(ChannelBody(receiver)))
}

impl http_body::Body for ChannelBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(cx).map(|piece| piece.map(|piece| Ok(Frame::data(piece))))
    }
}
