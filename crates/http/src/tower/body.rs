//! The body of a response: the handler's, or the layer's own.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

use super::guard::Guard;
use super::responses;

pin_project! {
    /// The body of a response. The request's receipt is settled when the body ends or is dropped.
    pub struct ResponseBody<R> {
        #[pin]
        kind: BodyKind<R>,
    }
}

pin_project! {
    #[project = BodyKindProjection]
    enum BodyKind<R> {
        // The handler's body. It is dropped before the guard, which makes room for other requests.
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
            return ResponseBody { kind: BodyKind::Ended };
        }
        ResponseBody { kind: BodyKind::Inner { body, guard } }
    }

    pub(super) fn own(bytes: Bytes) -> ResponseBody<R> {
        ResponseBody { kind: BodyKind::Own { bytes: Some(bytes).filter(|bytes| !bytes.is_empty()) } }
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
            BodyKindProjection::Inner { mut body, guard } => {
                let Poll::Ready(frame) = guard.during(|| body.as_mut().poll_frame(context)) else {
                    return Poll::Pending;
                };
                let is_failure = match &frame {
                    Some(Ok(frame)) => frame.trailers_ref().is_some_and(responses::is_grpc_failure),
                    Some(Err(_)) => true,
                    None => false,
                };
                if is_failure {
                    guard.fail();
                }
                let is_over = !matches!(frame, Some(Ok(_))) || body.is_end_stream();
                (frame, is_over)
            }
            BodyKindProjection::Own { bytes } => (bytes.take().map(|bytes| Ok(Frame::data(bytes.into()))), true),
            BodyKindProjection::Ended => (None, false),
        };
        if is_over {
            kind.set(BodyKind::Ended);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            BodyKind::Inner { body, .. } => body.is_end_stream(),
            BodyKind::Own { bytes } => bytes.is_none(),
            BodyKind::Ended => true,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            BodyKind::Inner { body, .. } => body.size_hint(),
            BodyKind::Own { bytes } => SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64)),
            BodyKind::Ended => SizeHint::with_exact(0),
        }
    }
}

impl<R> fmt::Debug for ResponseBody<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.kind {
            BodyKind::Inner { .. } => "ResponseBody(Inner)",
            BodyKind::Own { .. } => "ResponseBody(Own)",
            BodyKind::Ended => "ResponseBody(Ended)",
        })
    }
}
