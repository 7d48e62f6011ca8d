//! Answers that are written line by line while they are sent.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::Body;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use http::HeaderValue;
use http::header::{CACHE_CONTROL, CONTENT_TYPE};
use http_body::Frame;
use serde::Serialize;
use tokio::sync::mpsc;

/// Where the lines of an answer are put. It waits while the client is slow; that it has gone is told.
#[derive(Clone, Debug)]
pub(super) struct Lines(mpsc::Sender<Bytes>);

struct Sent(mpsc::Receiver<Bytes>);

/// How many pieces wait for a slow client: it must cost little memory.
const WAITING: usize = 2;

impl Lines {
    /// Puts lines.
    ///
    /// # Errors
    /// If nobody reads them any more.
    pub(super) async fn put(&self, lines: impl Into<Bytes>) -> Result<(), Gone> {
        self.0.send(lines.into()).await.map_err(|_| Gone)
    }

    /// Waits until nobody reads them any more.
    pub(super) async fn gone(&self) {
        self.0.closed().await;
    }

    /// Puts one line.
    ///
    /// # Errors
    /// If nobody reads it any more.
    pub(super) async fn line(&self, line: &impl Serialize) -> Result<(), Gone> {
        // Texts and numbers always have a form in JSON.
        let mut text = serde_json::to_vec(line).unwrap_or_default();
        text.push(b'\n');
        self.put(text).await
    }
}

/// Nobody reads the answer any more.
#[derive(Debug)]
pub(super) struct Gone;

/// An answer, and where its lines are put.
pub(super) fn lines() -> (Lines, Response) {
    let (lines, body) = sent();
    (lines, of_lines(body))
}

/// An answer of events, and where those are put.
pub(super) fn events() -> (Lines, Response) {
    let (lines, body) = sent();
    let mut response = of_kind(body, HeaderValue::from_static("text/event-stream"));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    (lines, response)
}

/// An answer whose body is lines of JSON.
pub(super) fn of_lines(body: Body) -> Response {
    of_kind(body, HeaderValue::from_static("application/jsonl"))
}

fn of_kind(body: Body, kind: HeaderValue) -> Response {
    let mut response = body.into_response();
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

/// A body, and where its pieces are put.
fn sent() -> (Lines, Body) {
    let (sender, receiver) = mpsc::channel(WAITING);
    (Lines(sender), Body::new(Sent(receiver)))
}

impl http_body::Body for Sent {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        self.0.poll_recv(cx).map(|piece| piece.map(|piece| Ok(Frame::data(piece))))
    }
}
