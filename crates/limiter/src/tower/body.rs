//! The body of an answer: the handler's, or the layer's own.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use super::answers;
use super::guard::Guard;

pin_project! {
    /// The body of an answer. What its request took is settled when it ends or is dropped.
    pub struct ResponseBody<R> {
        #[pin]
        kind: Kind<R>,
    }
}

pin_project! {
    #[project = KindProjection]
    enum Kind<R> {
        // The handler's. It is dropped before the guard, which is what makes room for others.
        Inner { #[pin] body: R, guard: Guard },
        Own { bytes: Option<Bytes> },
        Ended,
    }
}

impl<R: Body> ResponseBody<R> {
    pub(super) fn inner(body: R, guard: Guard) -> ResponseBody<R> {
        if body.is_end_stream() {
            drop(body);
            drop(guard);
            return ResponseBody { kind: Kind::Ended };
        }
        ResponseBody { kind: Kind::Inner { body, guard } }
    }

    pub(super) fn own(bytes: Bytes) -> ResponseBody<R> {
        ResponseBody { kind: Kind::Own { bytes: Some(bytes).filter(|bytes| !bytes.is_empty()) } }
    }
}

impl<R> Body for ResponseBody<R>
where
    R: Body,
    R::Data: From<Bytes>,
{
    type Data = R::Data;
    type Error = R::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        let mut kind = self.project().kind;
        let (frame, is_over) = match kind.as_mut().project() {
            KindProjection::Inner { mut body, guard } => {
                let Poll::Ready(frame) = guard.during(|| body.as_mut().poll_frame(context)) else {
                    return Poll::Pending;
                };
                let is_failure = match &frame {
                    Some(Ok(frame)) => frame.trailers_ref().is_some_and(answers::is_grpc_failure),
                    Some(Err(_)) => true,
                    None => false,
                };
                if is_failure {
                    guard.failed();
                }
                let is_over = !matches!(frame, Some(Ok(_))) || body.is_end_stream();
                (frame, is_over)
            }
            KindProjection::Own { bytes } => (bytes.take().map(|bytes| Ok(Frame::data(bytes.into()))), true),
            KindProjection::Ended => (None, false),
        };
        if is_over {
            kind.set(Kind::Ended);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            Kind::Inner { body, .. } => body.is_end_stream(),
            Kind::Own { bytes } => bytes.is_none(),
            Kind::Ended => true,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            Kind::Inner { body, .. } => body.size_hint(),
            Kind::Own { bytes } => SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64)),
            Kind::Ended => SizeHint::with_exact(0),
        }
    }
}

impl<R> fmt::Debug for ResponseBody<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.kind {
            Kind::Inner { .. } => "ResponseBody(Inner)",
            Kind::Own { .. } => "ResponseBody(Own)",
            Kind::Ended => "ResponseBody(Ended)",
        })
    }
}
