//! What clients take of their responses over HTTP/2.
//!
//! hyper does not poll a body while its stream's window is closed, so no timer of the body fires then, and a client that opens no
//! window would hold its upstream connection and its slots for ever. So the task of each stream looks whether a part of the body
//! waits for the client. If it waits for too long, the task ends: hyper resets the stream, and what the exchange holds is released.

use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::rt::Executor;
use pin_project_lite::pin_project;
use tokio::time::Sleep;
use tollgate_store::Steady;

use crate::clock;
use crate::response_body::{ResponseBody, ResponseBodyError};

/// Runs the streams of a connection, each in a task that ends when its client takes nothing for too long.
#[derive(Clone, Copy, Debug)]
pub(super) struct StreamExecutor;

/// The body of a response, which notes what is taken of it for the task of its stream.
pub(super) struct OfferedBody(ResponseBody);

pin_project! {
    /// A stream, up to the end of its response.
    struct OfferingStream<F> {
        #[pin]
        stream: F,
        // Fires when the client has not taken the part with this number.
        late: Option<(u32, Pin<Box<Sleep>>)>,
    }
}

/// What a client is offered at the moment.
#[derive(Clone, Copy, Default)]
struct Offer {
    /// The number of the last part. It may wrap around.
    part: u32,
    /// Whether hyper has not requested the next one: the client has not made room for all of this one.
    is_waiting: bool,
    /// When the whole request has to be over.
    deadline: Option<Steady>,
}

tokio::task_local! {
    /// That of the stream whose task runs.
    static OFFER: Cell<Offer>;
}

/// How long a client may leave a part of a response.
const MAX_UNTAKEN: Duration = Duration::from_secs(60);

impl<F> Executor<F> for StreamExecutor
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, stream: F) {
        tokio::spawn(OFFER.scope(Cell::default(), OfferingStream { stream, late: None }));
    }
}

impl<F: Future<Output = ()>> Future for OfferingStream<F> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let this = self.project();
        if this.stream.poll(context).is_ready() {
            return Poll::Ready(());
        }
        let offer = OFFER.with(Cell::get);
        if !offer.is_waiting {
            return Poll::Pending;
        }
        let time = || clock::until(offer.deadline).map_or(MAX_UNTAKEN, |left| left.min(MAX_UNTAKEN));
        let (part, sleep) = this.late.get_or_insert_with(|| (offer.part, Box::pin(tokio::time::sleep(time()))));
        if *part != offer.part {
            *part = offer.part;
            sleep.set(tokio::time::sleep(time()));
        }
        ready!(sleep.as_mut().poll(context));
        tracing::debug!("a client took nothing of its response for {MAX_UNTAKEN:?}, or until the request was overdue");
        Poll::Ready(())
    }
}

impl OfferedBody {
    pub(super) fn new(body: ResponseBody) -> OfferedBody {
        OfferedBody(body)
    }
}

impl Body for OfferedBody {
    type Data = Bytes;
    type Error = ResponseBodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ResponseBodyError>>> {
        let OfferedBody(body) = self.get_mut();
        let polled = Pin::new(&mut *body).poll_frame(context);
        let _ = OFFER.try_with(|offer| {
            let is_waiting = matches!(&polled, Poll::Ready(Some(Ok(_))));
            let part = offer.get().part.wrapping_add(1);
            offer.set(Offer { part, is_waiting, deadline: body.deadline() });
        });
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.0.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use http::{Request, Response};
    use hyper::body::Incoming;
    use hyper_util::rt::TokioIo;
    use tokio::io::DuplexStream;

    use super::*;

    /// What is read of a connection at once.
    const ROOM: usize = 1 << 20;

    fn serve(server: DuplexStream, bytes: usize) {
        let service = hyper::service::service_fn(move |_: Request<Incoming>| async move {
            let body = ResponseBody::own(vec![b'x'; bytes].into());
            Ok::<_, Infallible>(Response::new(OfferedBody::new(body)))
        });
        let builder = hyper::server::conn::http2::Builder::new(StreamExecutor);
        tokio::spawn(builder.serve_connection(TokioIo::new(server), service));
    }

    /// A response to a client that opens the window of its stream after this time.
    async fn response(bytes: usize, opens_after: Duration) -> h2::RecvStream {
        let (client, server) = tokio::io::duplex(ROOM);
        serve(server, bytes);
        let (mut sender, mut connection) =
            h2::client::Builder::new().initial_window_size(0).handshake::<_, Bytes>(client).await.unwrap();
        tokio::spawn(async move {
            let _ = tokio::time::timeout(opens_after, &mut connection).await;
            connection.set_initial_window_size(1 << 16).unwrap();
            connection.await
        });
        let request = Request::get("http://api/").body(()).unwrap();
        let response = sender.send_request(request, true).unwrap().0.await.unwrap();
        assert_eq!(response.status(), 200);
        response.into_body()
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_whose_client_opens_no_window_is_reset() {
        let mut body = response(10, Duration::from_secs(3_600)).await;
        let early = tokio::time::timeout(MAX_UNTAKEN - Duration::from_secs(1), body.data()).await;
        assert!(early.is_err(), "{early:?}");
        let end = tokio::time::timeout(Duration::from_secs(2), body.data()).await.unwrap();
        assert_eq!(end.unwrap().unwrap_err().reason(), Some(h2::Reason::CANCEL));
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_takes_what_it_is_offered_in_time_gets_all_of_it() {
        let mut body = response(10, MAX_UNTAKEN - Duration::from_secs(5)).await;
        let mut taken = 0;
        while let Some(data) = body.data().await {
            taken += data.unwrap().len();
        }
        assert_eq!(taken, 10);
    }
}
