//! The bodies of responses.

use std::error::Error;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tollgate_store::Steady;

use crate::activity::OpenRequest;
use crate::exchange::Exchange;
use crate::idle_timer::IdleTimer;
use crate::upstream::{UpstreamBody, UpstreamError};

/// The body of a response: the gateway's own, or the upstream's.
pub(crate) struct ResponseBody {
    kind: BodyKind,
    /// Ends with the body.
    open: Option<OpenRequest>,
}

enum BodyKind {
    Own(Option<Bytes>),
    Upstream(Box<PassingBody>),
}

/// A body that passes through, frame by frame.
struct PassingBody {
    body: UpstreamBody,
    idle: IdleTimer,
    /// Whether the client's connection may not have sent everything before: hyper drops that when a body fails.
    is_behind: bool,
    /// The failure, if it waits until that was sent.
    failure: Option<UpstreamError>,
    /// What lasts as long as the body. It is dropped after it.
    exchange: Option<Exchange>,
}

/// Why a body ends early.
#[derive(Debug)]
pub(crate) enum ResponseBodyError {
    Idle(Duration),
    /// The time of the whole request is over.
    Overdue,
    Upstream(UpstreamError),
}

impl ResponseBody {
    /// A body of the gateway's own.
    pub(crate) fn own(bytes: Bytes) -> ResponseBody {
        let kind = BodyKind::Own(Some(bytes).filter(|bytes| !bytes.is_empty()));
        ResponseBody { kind, open: None }
    }

    /// The body of an upstream's response.
    pub(crate) fn upstream(
        mut body: UpstreamBody,
        idle: Duration,
        deadline: Option<Steady>,
        mut exchange: Exchange,
    ) -> ResponseBody {
        if body.is_end_stream() {
            return ResponseBody::own(Bytes::new());
        }
        // Most bodies are short and come with the head. Then nothing is awaited of the upstream.
        if !exchange.changes_body()
            && let Some(whole) = body.take_whole()
        {
            return ResponseBody::own(exchange.frame(Frame::data(whole)).into_data().unwrap_or_default());
        }
        let (idle, exchange) = (IdleTimer::new(idle, deadline), Some(exchange));
        let passing = PassingBody { body, idle, is_behind: true, failure: None, exchange };
        ResponseBody { kind: BodyKind::Upstream(Box::new(passing)), open: None }
    }

    /// When the whole request has to be over.
    pub(crate) fn deadline(&self) -> Option<Steady> {
        match &self.kind {
            BodyKind::Own(_) => None,
            BodyKind::Upstream(upstream) => upstream.idle.deadline(),
        }
    }

    pub(crate) fn set_open_request(&mut self, open: OpenRequest) {
        self.open = Some(open);
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = ResponseBodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ResponseBodyError>>> {
        match &mut self.get_mut().kind {
            BodyKind::Own(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            BodyKind::Upstream(upstream) => upstream.poll_frame(context),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            BodyKind::Own(bytes) => bytes.is_none(),
            BodyKind::Upstream(upstream) => {
                upstream.failure.is_none() && (upstream.exchange.is_none() || upstream.body.is_end_stream())
            }
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            BodyKind::Own(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64)),
            BodyKind::Upstream(upstream) if upstream.changes_length() => SizeHint::new(),
            BodyKind::Upstream(upstream) => upstream.body.size_hint(),
        }
    }
}

impl PassingBody {
    fn changes_length(&self) -> bool {
        self.exchange.as_ref().is_some_and(Exchange::changes_body)
    }

    fn poll_frame(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, ResponseBodyError>>> {
        if let Some(error) = self.failure.take() {
            return Poll::Ready(Some(Err(ResponseBodyError::Upstream(error))));
        }
        let Some(exchange) = &mut self.exchange else { return Poll::Ready(None) };
        if self.idle.is_over() {
            exchange.fail();
            self.exchange = None;
            return Poll::Ready(Some(Err(ResponseBodyError::Overdue)));
        }
        let frame = loop {
            let frame = match Pin::new(&mut self.body).poll_frame(context) {
                Poll::Pending if self.idle.poll(context) => {
                    exchange.fail();
                    self.exchange = None;
                    return Poll::Ready(Some(Err(ResponseBodyError::Idle(self.idle.time))));
                }
                Poll::Pending => {
                    self.is_behind = false;
                    return Poll::Pending;
                }
                Poll::Ready(frame) => frame.map(|frame| frame.map(|frame| exchange.frame(frame))),
            };
            self.idle.stop();
            // Nothing may be left of a frame, if what the client did not request is removed.
            let is_empty = |frame: &Frame<Bytes>| frame.data_ref().is_some_and(Bytes::is_empty);
            if !matches!(&frame, Some(Ok(frame)) if is_empty(frame)) || self.body.is_end_stream() {
                break frame;
            }
        };
        match frame {
            Some(Ok(frame)) => {
                self.is_behind = true;
                if !self.body.is_end_stream() {
                    return Poll::Ready(Some(Ok(frame)));
                }
                let last = exchange.last();
                self.exchange = None;
                Poll::Ready(Some(Ok(frame.map_data(|data| with_last(data, last)))))
            }
            Some(Err(error)) => {
                exchange.fail();
                self.exchange = None;
                if self.is_behind {
                    self.failure = Some(error);
                    context.waker().wake_by_ref();
                    return Poll::Pending;
                }
                Poll::Ready(Some(Err(ResponseBodyError::Upstream(error))))
            }
            None => {
                let last = exchange.last();
                self.exchange = None;
                Poll::Ready(last.map(|last| Ok(Frame::data(last))))
            }
        }
    }
}

fn with_last(data: Bytes, last: Option<Bytes>) -> Bytes {
    match last {
        None => data,
        Some(last) if data.is_empty() => last,
        Some(last) => [data, last].concat().into(),
    }
}

impl fmt::Display for ResponseBodyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ResponseBodyError::Idle(time) => write!(f, "nothing came for {time:?}"),
            ResponseBodyError::Overdue => f.write_str("the time of the whole request is over"),
            ResponseBodyError::Upstream(error) => write!(f, "{error}"),
        }
    }
}

impl Error for ResponseBodyError {}
