//! The bodies of requests, as upstreams get them.

use std::error::Error;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;

use crate::hop_by_hop;
use crate::idle_timer::IdleTimer;

/// The body of a request.
pub(crate) enum ForwardedBody {
    /// Is in memory, and can be sent again. Empty if the request has none.
    Whole(Option<Bytes>),
    /// Is read while it is sent.
    Streamed(Box<StreamedBody>),
}

pub(crate) struct StreamedBody {
    ahead: Option<Bytes>,
    body: Incoming,
    /// The bytes that may still come.
    left: u64,
    idle: IdleTimer,
    progress: Arc<UploadProgress>,
}

/// How far a request's body was sent.
#[derive(Debug, Default)]
pub(crate) struct UploadProgress(AtomicU8);

/// Why a body ends early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UploadState {
    Running,
    Done,
    TooLarge,
    TooSlow,
    /// The client's connection failed.
    Broken,
}

/// Why a body ends early.
#[derive(Debug)]
pub(crate) enum BodyError {
    Idle(Duration),
    TooLarge,
    Connection(hyper::Error),
}

// === impl ForwardedBody ===

impl ForwardedBody {
    pub(crate) fn whole(bytes: Bytes) -> ForwardedBody {
        ForwardedBody::Whole(Some(bytes).filter(|bytes| !bytes.is_empty()))
    }

    /// A body that was read.
    pub(crate) fn read(bytes: Bytes) -> (ForwardedBody, Arc<UploadProgress>) {
        let progress = UploadProgress::default();
        progress.set(UploadState::Done);
        (ForwardedBody::whole(bytes), Arc::new(progress))
    }

    /// A body of at most `max` bytes, of which the first part may have been read.
    pub(crate) fn streamed(
        ahead: Option<Bytes>,
        body: Incoming,
        max: u64,
        idle: Duration,
    ) -> (ForwardedBody, Arc<UploadProgress>) {
        let progress = Arc::<UploadProgress>::default();
        let idle = IdleTimer::new(idle, None);
        let streamed = StreamedBody { ahead, body, left: max, idle, progress: progress.clone() };
        (ForwardedBody::Streamed(Box::new(streamed)), progress)
    }

    /// The same body once more, if it is in memory.
    pub(crate) fn again(&self) -> Option<ForwardedBody> {
        match self {
            ForwardedBody::Whole(bytes) => Some(ForwardedBody::Whole(bytes.clone())),
            ForwardedBody::Streamed(_) => None,
        }
    }
}

impl Body for ForwardedBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match self.get_mut() {
            ForwardedBody::Whole(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            ForwardedBody::Streamed(streamed) => streamed.poll_frame(context),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            ForwardedBody::Whole(bytes) => bytes.is_none(),
            ForwardedBody::Streamed(streamed) => streamed.ahead.is_none() && streamed.body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            ForwardedBody::Whole(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64)),
            // A part of it was read, so its length is that of the header, or unknown.
            ForwardedBody::Streamed(streamed) if streamed.ahead.is_some() => SizeHint::new(),
            ForwardedBody::Streamed(streamed) => streamed.body.size_hint(),
        }
    }
}

impl StreamedBody {
    fn poll_frame(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if let Some(ahead) = self.ahead.take() {
            self.left = self.left.saturating_sub(ahead.len() as u64);
            return Poll::Ready(Some(Ok(Frame::data(ahead))));
        }
        let frame = match Pin::new(&mut self.body).poll_frame(context) {
            Poll::Pending if self.idle.poll(context) => {
                self.progress.set(UploadState::TooSlow);
                return Poll::Ready(Some(Err(BodyError::Idle(self.idle.time))));
            }
            Poll::Pending => return Poll::Pending,
            Poll::Ready(frame) => frame,
        };
        self.idle.stop();
        match frame {
            Some(Ok(mut frame)) => {
                if let Some(trailers) = frame.trailers_mut() {
                    hop_by_hop::clean_trailers(trailers);
                }
                let bytes = frame.data_ref().map_or(0, |data| data.len() as u64);
                if bytes > self.left {
                    self.progress.set(UploadState::TooLarge);
                    return Poll::Ready(Some(Err(BodyError::TooLarge)));
                }
                self.left -= bytes;
                if self.body.is_end_stream() {
                    self.progress.set(UploadState::Done);
                }
                Poll::Ready(Some(Ok(frame)))
            }
            Some(Err(error)) => {
                self.progress.set(UploadState::Broken);
                Poll::Ready(Some(Err(BodyError::Connection(error))))
            }
            None => {
                self.progress.set(UploadState::Done);
                Poll::Ready(None)
            }
        }
    }
}

// === impl UploadProgress ===

impl UploadProgress {
    fn set(&self, state: UploadState) {
        self.0.store(state as u8, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> UploadState {
        match self.0.load(Ordering::Relaxed) {
            1 => UploadState::Done,
            2 => UploadState::TooLarge,
            3 => UploadState::TooSlow,
            4 => UploadState::Broken,
            _ => UploadState::Running,
        }
    }
}

// === impl BodyError ===

impl fmt::Display for BodyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BodyError::Idle(time) => write!(f, "nothing came for {time:?}"),
            BodyError::TooLarge => f.write_str("the body is larger than the route allows"),
            BodyError::Connection(error) => write!(f, "{error}"),
        }
    }
}

impl Error for BodyError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            BodyError::Connection(error) => Some(error),
            _ => None,
        }
    }
}
