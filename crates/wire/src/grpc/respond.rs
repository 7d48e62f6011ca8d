//! Responses on a stream.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::server::SendResponse;
use h2::{Reason, SendStream};
use http::{HeaderMap, HeaderName, HeaderValue, Response, header};
use http_body::Body;

use super::status::GrpcStatus;

pub(super) const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
/// The content type of every response.
pub(super) const APPLICATION_GRPC: HeaderValue = HeaderValue::from_static("application/grpc");
const OK: HeaderValue = HeaderValue::from_static("0");

/// Sends a message and status 0, or an error. The bytes wait in the stream until the client's window has room; such a
/// stream counts as one of the connection's.
pub(super) fn send(respond: &mut SendResponse<Bytes>, answer: Result<Bytes, GrpcStatus>) {
    let sent = match answer {
        Ok(message) => send_message(respond, message),
        Err(status) => respond.send_response(status.response(), true).map(drop),
    };
    // The client has reset the stream.
    if let Err(error) = sent {
        tracing::debug!(%error, "a gRPC response could not be sent");
    }
}

fn send_message(respond: &mut SendResponse<Bytes>, message: Bytes) -> Result<(), h2::Error> {
    let mut response = Response::new(());
    response.headers_mut().insert(header::CONTENT_TYPE, APPLICATION_GRPC);
    let mut stream = respond.send_response(response, false)?;
    stream.send_data(message, false)?;
    let mut trailers = HeaderMap::with_capacity(1);
    trailers.insert(GRPC_STATUS, OK);
    stream.send_trailers(trailers)
}

/// Waits for a future; `None` if the client resets the stream before.
pub(super) async fn unless_reset<F: Future>(respond: &mut SendResponse<Bytes>, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    poll_fn(|context| match future.as_mut().poll(context) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        // An error means that the connection has ended.
        Poll::Pending => respond.poll_reset(context).map(|_| None),
    })
    .await
}

/// Sends a response whose body may take its time, as fast as the client reads it, until the client resets the stream.
pub(super) async fn send_body<B>(respond: &mut SendResponse<Bytes>, response: Response<B>) -> Result<(), h2::Error>
where
    B: Body<Data = Bytes> + Unpin,
{
    let (head, mut body) = response.into_parts();
    let head = Response::from_parts(head, ());
    let is_end = body.is_end_stream();
    let mut stream = respond.send_response(head, is_end)?;
    if is_end {
        return Ok(());
    }
    loop {
        let frame = poll_fn(|context| {
            poll_not_reset(&mut stream, context)?;
            Pin::new(&mut body).poll_frame(context).map(Ok::<_, h2::Error>)
        });
        match frame.await? {
            Some(Ok(frame)) => match frame.into_data() {
                Ok(data) => send_data(&mut stream, data).await?,
                Err(frame) => {
                    if let Ok(trailers) = frame.into_trailers() {
                        return stream.send_trailers(trailers);
                    }
                }
            },
            Some(Err(_)) => {
                stream.send_reset(Reason::INTERNAL_ERROR);
                return Ok(());
            }
            None => return stream.send_data(Bytes::new(), true),
        }
    }
}

/// Sends bytes when the client's window has room, so that no more than these wait.
async fn send_data(stream: &mut SendStream<Bytes>, mut data: Bytes) -> Result<(), h2::Error> {
    while !data.is_empty() {
        stream.reserve_capacity(data.len());
        let room = poll_fn(|context| poll_room(stream, context)).await?;
        stream.send_data(data.split_to(room.min(data.len())), false)?;
    }
    Ok(())
}

/// How many bytes may be sent; waits until there are some.
fn poll_room(stream: &mut SendStream<Bytes>, context: &mut Context<'_>) -> Poll<Result<usize, h2::Error>> {
    poll_not_reset(stream, context)?;
    loop {
        // Read first: only a change of it is reported below.
        match stream.capacity() {
            0 => match ready!(stream.poll_capacity(context)) {
                Some(changed) => _ = changed?,
                // The stream was closed meanwhile.
                None => return Poll::Ready(Err(Reason::CANCEL.into())),
            },
            room => return Poll::Ready(Ok(room)),
        }
    }
}

/// An error if the client has reset the stream. Otherwise the task is woken when it does.
fn poll_not_reset(stream: &mut SendStream<Bytes>, context: &mut Context<'_>) -> Result<(), h2::Error> {
    match stream.poll_reset(context) {
        Poll::Ready(Ok(reason)) => Err(reason.into()),
        Poll::Ready(Err(error)) => Err(error),
        Poll::Pending => Ok(()),
    }
}
