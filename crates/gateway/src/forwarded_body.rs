//! The bodies of requests, as upstreams get them.

use std::error::Error;
use std::fmt;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use tokio::sync::Notify;

use crate::hop_by_hop;
use crate::idle_timer::IdleTimer;
use crate::incoming_body::{IncomingBody, IncomingBodyError};

/// The body of a request.
pub(crate) enum ForwardedBody {
    /// Is in memory, and can be sent again. Empty if the request has none.
    Whole(Option<Bytes>),
    /// Is in memory as well, and has trailers, which few have.
    Trailing(Box<TrailingBody>),
    /// Is read while it is sent.
    Streamed(Box<StreamedBody>),
    /// The same, while it is retained.
    Lent(Arc<LentBody>),
}

/// A body that is sent over HTTP/2, and can be taken back if the server has not processed the request.
pub(crate) enum RetainedBody {
    Whole(ForwardedBody),
    Lent(Arc<LentBody>),
}

/// `None` once it was taken back.
pub(crate) struct LentBody(Mutex<Option<Box<StreamedBody>>>);

/// A body with trailers. What was sent of it is `None`.
#[derive(Clone)]
pub(crate) struct TrailingBody {
    bytes: Option<Bytes>,
    trailers: Option<HeaderMap>,
}

pub(crate) struct StreamedBody {
    ahead: Option<Bytes>,
    body: IncomingBody,
    /// The bytes that may still come.
    left: u64,
    idle: IdleTimer,
    progress: Arc<UploadProgress>,
    /// What was sent of it, if it can be sent again.
    sent: Option<SentParts>,
}

#[derive(Default)]
struct SentParts {
    bytes: BytesMut,
    trailers: Option<HeaderMap>,
}

/// What is retained at most of a body that is sent while it arrives.
const MAX_RETAINED_BYTES: usize = 64 * 1024;

/// How far a request's body was sent.
#[derive(Debug, Default)]
pub(crate) struct UploadProgress {
    state: AtomicU8,
    /// Whether the client's next part is awaited.
    is_awaited: AtomicBool,
    /// How often a part was requested from it. It may wrap around.
    requested: AtomicU32,
    /// The bytes that were read to be sent.
    bytes: AtomicU64,
    ended: Notify,
}

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
    /// It is longer or shorter than its length says.
    WrongLength,
    /// It was taken back, to be sent on another connection.
    TakenBack,
    /// The client's connection failed.
    Connection(IncomingBodyError),
}

// === impl ForwardedBody ===

impl ForwardedBody {
    pub(crate) fn whole(bytes: Bytes) -> ForwardedBody {
        ForwardedBody::Whole(not_empty(bytes))
    }

    /// A body that was read, and its trailers.
    pub(crate) fn read(bytes: Bytes, trailers: Option<HeaderMap>) -> ForwardedBody {
        match trailers.filter(|trailers| !trailers.is_empty()) {
            None => ForwardedBody::whole(bytes),
            trailers => ForwardedBody::Trailing(Box::new(TrailingBody { bytes: not_empty(bytes), trailers })),
        }
    }

    /// A body of at most `max` bytes, of which the first part may have been read.
    pub(crate) fn streamed(
        ahead: Option<Bytes>,
        body: IncomingBody,
        max: u64,
        idle: Duration,
    ) -> (ForwardedBody, Arc<UploadProgress>) {
        let progress = Arc::<UploadProgress>::default();
        let idle = IdleTimer::new(idle, None);
        let streamed = StreamedBody { ahead, body, left: max, idle, progress: progress.clone(), sent: None };
        (ForwardedBody::Streamed(Box::new(streamed)), progress)
    }

    /// A part was read that was not sent.
    pub(crate) fn put_back(&mut self, part: Bytes) {
        let Some(part) = not_empty(part) else { return };
        match self {
            ForwardedBody::Whole(bytes) => *bytes = Some(part),
            ForwardedBody::Trailing(body) => body.bytes = Some(part),
            ForwardedBody::Streamed(streamed) => streamed.put_back(part),
            ForwardedBody::Lent(lent) => lent.lock().iter_mut().for_each(|streamed| streamed.put_back(part.clone())),
        }
    }

    /// Retains what is sent of it, up to a bound.
    pub(crate) fn retain(&mut self) -> Option<RetainedBody> {
        let mut streamed = match std::mem::replace(self, ForwardedBody::Whole(None)) {
            ForwardedBody::Streamed(streamed) => streamed,
            whole => {
                *self = whole;
                return self.again().map(RetainedBody::Whole);
            }
        };
        streamed.sent = Some(SentParts::default());
        let lent = Arc::new(LentBody(Mutex::new(Some(streamed))));
        *self = ForwardedBody::Lent(lent.clone());
        Some(RetainedBody::Lent(lent))
    }

    /// The same body once more, if it is in memory.
    pub(crate) fn again(&self) -> Option<ForwardedBody> {
        match self {
            ForwardedBody::Whole(bytes) => Some(ForwardedBody::Whole(bytes.clone())),
            ForwardedBody::Trailing(body) => Some(ForwardedBody::Trailing(body.clone())),
            ForwardedBody::Streamed(_) | ForwardedBody::Lent(_) => None,
        }
    }
}

impl RetainedBody {
    /// The body, as if nothing of it had been sent. `None` if more of it was sent than is retained, or if it failed.
    pub(crate) fn take_back(self) -> Option<ForwardedBody> {
        match self {
            RetainedBody::Whole(body) => Some(body),
            RetainedBody::Lent(lent) => lent.lock().take()?.take_back(),
        }
    }

    /// It will not be sent again.
    pub(crate) fn release(self) {
        if let RetainedBody::Lent(lent) = self {
            lent.lock().iter_mut().for_each(|streamed| streamed.sent = None);
        }
    }
}

impl LentBody {
    fn lock(&self) -> MutexGuard<'_, Option<Box<StreamedBody>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Body for ForwardedBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match self.get_mut() {
            ForwardedBody::Whole(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            ForwardedBody::Trailing(body) => Poll::Ready(body.next().map(Ok)),
            ForwardedBody::Streamed(streamed) => streamed.poll_frame(context),
            ForwardedBody::Lent(lent) => match lent.lock().as_mut() {
                Some(streamed) => streamed.poll_frame(context),
                None => Poll::Ready(Some(Err(BodyError::TakenBack))),
            },
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            ForwardedBody::Whole(bytes) => bytes.is_none(),
            ForwardedBody::Trailing(body) => body.bytes.is_none() && body.trailers.is_none(),
            ForwardedBody::Streamed(streamed) => streamed.is_end_stream(),
            ForwardedBody::Lent(lent) => lent.lock().as_ref().is_some_and(|streamed| streamed.is_end_stream()),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            ForwardedBody::Whole(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64)),
            ForwardedBody::Trailing(body) => {
                SizeHint::with_exact(body.bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
            }
            ForwardedBody::Streamed(streamed) => streamed.size_hint(),
            ForwardedBody::Lent(lent) => {
                lent.lock().as_ref().map_or_else(SizeHint::new, |streamed| streamed.size_hint())
            }
        }
    }
}

impl TrailingBody {
    fn next(&mut self) -> Option<Frame<Bytes>> {
        self.bytes.take().map(Frame::data).or_else(|| self.trailers.take().map(Frame::trailers))
    }
}

impl StreamedBody {
    fn is_end_stream(&self) -> bool {
        self.ahead.is_none() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        // A part of it was read, so its length is that of the header, or unknown.
        if self.ahead.is_some() { SizeHint::new() } else { self.body.size_hint() }
    }

    /// A part was read that was not sent.
    fn put_back(&mut self, part: Bytes) {
        self.left = self.left.saturating_add(part.len() as u64);
        self.progress.bytes.fetch_sub(part.len() as u64, Ordering::Relaxed);
        self.ahead = Some(part);
    }

    /// The body, as if nothing of it had been sent.
    fn take_back(mut self: Box<Self>) -> Option<ForwardedBody> {
        let SentParts { bytes, trailers } = self.sent.take()?;
        match self.progress.get() {
            UploadState::Running if trailers.is_none() => {
                if !bytes.is_empty() {
                    self.put_back(bytes.freeze());
                }
                Some(ForwardedBody::Streamed(self))
            }
            UploadState::Running | UploadState::Done => Some(ForwardedBody::read(bytes.freeze(), trailers)),
            UploadState::TooLarge | UploadState::TooSlow | UploadState::Broken => None,
        }
    }

    fn poll_frame(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let polled = self.poll_next(context);
        if let Poll::Ready(Some(Ok(frame))) = &polled {
            let bytes = frame.data_ref().map_or(0, Bytes::len);
            self.progress.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        }
        if let (Poll::Ready(Some(Ok(frame))), Some(sent)) = (&polled, &mut self.sent) {
            match frame.data_ref() {
                Some(data) if sent.bytes.len() + data.len() > MAX_RETAINED_BYTES => self.sent = None,
                Some(data) => sent.bytes.extend_from_slice(data),
                None => sent.trailers = frame.trailers_ref().cloned(),
            }
        }
        polled
    }

    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        if let Some(ahead) = self.ahead.take() {
            self.left = self.left.saturating_sub(ahead.len() as u64);
            return Poll::Ready(Some(Ok(Frame::data(ahead))));
        }
        let read = Pin::new(&mut self.body).poll_frame(context);
        self.progress.request(read.is_pending());
        let frame = match read {
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

fn not_empty(bytes: Bytes) -> Option<Bytes> {
    Some(bytes).filter(|bytes| !bytes.is_empty())
}

// === impl UploadProgress ===

impl UploadProgress {
    pub(crate) fn set(&self, state: UploadState) {
        self.state.store(state as u8, Ordering::Relaxed);
        self.ended.notify_one();
    }

    pub(crate) fn request(&self, is_awaited: bool) {
        self.is_awaited.store(is_awaited, Ordering::Relaxed);
        self.requested.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether the client's next part is awaited, and not that the server takes the last one.
    pub(crate) fn is_awaited(&self) -> bool {
        self.is_awaited.load(Ordering::Relaxed)
    }

    /// A number that changes while the server takes the body.
    pub(crate) fn requested(&self) -> u32 {
        self.requested.load(Ordering::Relaxed)
    }

    /// The bytes that were sent, or are about to be.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Completes when the body has ended. One task at a time may wait.
    pub(crate) async fn ended(&self) {
        while self.get() == UploadState::Running {
            self.ended.notified().await;
        }
    }

    pub(crate) fn get(&self) -> UploadState {
        match self.state.load(Ordering::Relaxed) {
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
            BodyError::WrongLength => f.write_str("the body is longer or shorter than its length says"),
            BodyError::TakenBack => f.write_str("the body is sent on another connection"),
            BodyError::Connection(error) => write!(f, "{error}"),
        }
    }
}

impl Error for BodyError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            BodyError::Connection(error) => Some(error),
            BodyError::Idle(_) | BodyError::TooLarge | BodyError::WrongLength | BodyError::TakenBack => None,
        }
    }
}
