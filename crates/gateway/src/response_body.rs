//! The bodies of responses.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use tollgate_store::Steady;

use crate::activity::OpenRequest;
use crate::exchange::Exchange;
use crate::forwarded_body::BodyError;
use crate::idle_timer::IdleTimer;

/// The body of a response: the gateway's own, or the upstream's.
pub(crate) struct ResponseBody {
    kind: BodyKind,
    /// Ends with the body.
    open: Option<OpenRequest>,
}

enum BodyKind {
    Own(Option<Bytes>),
    Upstream(UpstreamBody),
}

/// A body that passes through, frame by frame.
struct UpstreamBody {
    body: Incoming,
    idle: IdleTimer,
    /// What lasts as long as the body. It is dropped after it.
    exchange: Option<Exchange>,
}

impl ResponseBody {
    /// A body of the gateway's own.
    pub(crate) fn own(bytes: Bytes) -> ResponseBody {
        let kind = BodyKind::Own(Some(bytes).filter(|bytes| !bytes.is_empty()));
        ResponseBody { kind, open: None }
    }

    /// The body of an upstream's response.
    pub(crate) fn upstream(
        body: Incoming,
        idle: Duration,
        deadline: Option<Steady>,
        mut exchange: Exchange,
    ) -> ResponseBody {
        if body.is_end_stream() {
            exchange.end();
            return ResponseBody::own(Bytes::new());
        }
        let (idle, exchange) = (IdleTimer::new(idle, deadline), Some(exchange));
        ResponseBody { kind: BodyKind::Upstream(UpstreamBody { body, idle, exchange }), open: None }
    }

    pub(crate) fn set_open_request(&mut self, open: OpenRequest) {
        self.open = Some(open);
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match &mut self.get_mut().kind {
            BodyKind::Own(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            BodyKind::Upstream(upstream) => upstream.poll_frame(context),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            BodyKind::Own(bytes) => bytes.is_none(),
            BodyKind::Upstream(upstream) => upstream.exchange.is_none() || upstream.body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            BodyKind::Own(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64)),
            BodyKind::Upstream(upstream) => upstream.body.size_hint(),
        }
    }
}

impl UpstreamBody {
    fn poll_frame(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let Some(exchange) = &mut self.exchange else { return Poll::Ready(None) };
        let frame = loop {
            let frame = match Pin::new(&mut self.body).poll_frame(context) {
                Poll::Pending if self.idle.poll(context) => {
                    exchange.fail();
                    self.exchange = None;
                    return Poll::Ready(Some(Err(BodyError::Idle(self.idle.time))));
                }
                Poll::Pending => return Poll::Pending,
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
                if !self.body.is_end_stream() {
                    return Poll::Ready(Some(Ok(frame)));
                }
                let last = exchange.last();
                exchange.end();
                self.exchange = None;
                Poll::Ready(Some(Ok(frame.map_data(|data| with_last(data, last)))))
            }
            Some(Err(error)) => {
                exchange.fail();
                self.exchange = None;
                Poll::Ready(Some(Err(BodyError::Connection(error))))
            }
            None => {
                let last = exchange.last();
                exchange.end();
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
