//! HTTP/1.1 on one connection, with bounds on its size and its lifetime.

use std::error::Error;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::{Request, Response};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use pin_project_lite::pin_project;
use tokio::time::{sleep, timeout};

use super::{Closing, Slot, Stream};

/// The bounds of a connection.
#[derive(Clone, Copy, Debug)]
pub struct Http1Settings {
    /// The time from the start of a connection to the end of its first request's head.
    pub first_head_timeout: Duration,
    /// The time from one response to the end of the next request's head. It ends idle connections too.
    pub head_timeout: Duration,
    /// The longest head, in bytes; beyond it the response is 431. At least 8 KiB.
    pub max_head_bytes: usize,
    /// The age at which a connection is closed gracefully, so that clients spread over new servers and a client that does not read
    /// can't hold one forever.
    pub max_age: Duration,
    /// The time for requests in flight after a graceful close has begun.
    pub drain_timeout: Duration,
}

impl Default for Http1Settings {
    fn default() -> Http1Settings {
        Http1Settings {
            first_head_timeout: Duration::from_secs(10),
            head_timeout: Duration::from_secs(60),
            max_head_bytes: 32 * 1024,
            max_age: Duration::from_secs(60 * 60),
            drain_timeout: Duration::from_secs(10),
        }
    }
}

/// A request in flight, up to the end of its response. While there is one, the connection does not make room for others.
struct OpenRequest(Arc<Slot>);

pin_project! {
    /// The body of a response, and the request that it ends.
    struct AnswerBody<B> {
        #[pin]
        body: B,
        _request: OpenRequest,
    }
}

/// Serves a connection until the client closes it, an error occurs, the server shuts down or the connection is too old. In the
/// last two cases requests in flight are still answered.
///
/// # Errors
/// The client's error in HTTP, or that of the connection.
pub async fn serve_http1<S, B>(
    stream: Stream,
    mut closing: Closing,
    slot: Arc<Slot>,
    settings: &Http1Settings,
    service: S,
) -> Result<(), hyper::Error>
where
    S: Service<Request<Incoming>, Response = Response<B>>,
    S::Error: Into<Box<dyn Error + Send + Sync>>,
    B: Body + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let service = service_fn(|request: Request<Incoming>| {
        let open_request = OpenRequest::begin(slot.clone());
        let response = service.call(request);
        async move {
            let response = response.await?;
            Ok::<_, S::Error>(response.map(|body| AnswerBody { body, _request: open_request }))
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(settings.head_timeout)
        // A smaller value panics.
        .max_buf_size(settings.max_head_bytes.max(8 * 1024))
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = pin!(connection);
    tokio::select! {
        // First, so that a response that is ready when the server stops carries `connection: close`.
        biased;
        () = closing.begun() => {}
        ended = connection.as_mut() => return ended,
        () = silence(&slot, settings.first_head_timeout) => return Ok(()),
        () = sleep(settings.max_age) => {}
    }
    connection.as_mut().graceful_shutdown();
    // Requests that take longer are cut off.
    timeout(settings.drain_timeout, connection).await.unwrap_or(Ok(()))
}

/// Completes if no request has arrived in this time.
async fn silence(slot: &Slot, timeout: Duration) {
    sleep(timeout).await;
    if slot.had_request() {
        std::future::pending().await
    }
}

impl OpenRequest {
    fn begin(slot: Arc<Slot>) -> OpenRequest {
        slot.begin();
        OpenRequest(slot)
    }
}

impl Drop for OpenRequest {
    fn drop(&mut self) {
        self.0.wait();
    }
}

impl<B: Body> Body for AnswerBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        self.project().body.poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use bytes::Bytes;
    use http_body_util::Full;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::UnixStream;
    use tokio::sync::Semaphore;

    use super::*;
    use crate::closing::Closer;

    /// Counts requests and holds their responses back.
    struct ResponseGate {
        /// Requests that arrived.
        arrived: Semaphore,
        /// Responses that may be sent.
        open: Semaphore,
    }

    fn gate(open: usize) -> Arc<ResponseGate> {
        Arc::new(ResponseGate { arrived: Semaphore::new(0), open: Semaphore::new(open) })
    }

    /// Runs a connection and a client on it.
    async fn on_connection<C: Future<Output = ()>>(
        settings: Http1Settings,
        gate: Arc<ResponseGate>,
        client: impl FnOnce(UnixStream, Closer) -> C,
    ) -> Result<(), hyper::Error> {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let (closer, closing) = Closer::new();
        let service = service_fn(move |_| {
            let gate = gate.clone();
            async move {
                gate.arrived.add_permits(1);
                gate.open.acquire().await.unwrap().forget();
                Ok::<_, Infallible>(Response::new(Full::new(Bytes::from_static(b"well"))))
            }
        });
        let server = serve_http1(Stream::Unix(ours), closing, Arc::default(), &settings, service);
        let (served, ()) = tokio::join!(server, client(theirs, closer));
        served
    }

    const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n";

    fn soon() -> Duration {
        Duration::from_millis(30)
    }

    async fn read_to_end(mut client: UnixStream) -> String {
        let mut answer = Vec::new();
        // Bytes that the server did not read reset the connection after the response.
        let _ = client.read_to_end(&mut answer).await;
        String::from_utf8(answer).unwrap()
    }

    #[tokio::test]
    async fn requests_are_answered_until_the_client_is_done() {
        let served = on_connection(Http1Settings::default(), gate(2), async |mut client, _closer| {
            client.write_all(&[REQUEST, REQUEST].concat()).await.unwrap();
            let mut answers = Vec::new();
            while String::from_utf8_lossy(&answers).matches("\r\n\r\nwell").count() < 2 {
                assert_ne!(client.read_buf(&mut answers).await.unwrap(), 0);
            }
        });
        served.await.unwrap();
    }

    #[tokio::test]
    async fn a_slow_head_ends_the_connection() {
        let settings = Http1Settings { head_timeout: soon(), ..Http1Settings::default() };
        let served = on_connection(settings, gate(0), async |mut client, _closer| {
            client.write_all(b"GET / HTTP/1.1\r\nHost:").await.unwrap();
            assert_eq!(read_to_end(client).await, "");
        });
        assert!(served.await.unwrap_err().is_timeout());
    }

    #[tokio::test]
    async fn a_connection_without_a_first_request_ends_sooner_than_an_idle_one() {
        let settings = Http1Settings { first_head_timeout: soon(), ..Http1Settings::default() };
        let served = on_connection(settings, gate(0), async |mut client, _closer| {
            client.write_all(b"GET / HTTP/1.1\r\nHost:").await.unwrap();
            assert_eq!(read_to_end(client).await, "");
        });
        served.await.unwrap();
        let settings = Http1Settings { first_head_timeout: soon(), head_timeout: 4 * soon(), ..settings };
        let served = on_connection(settings, gate(1), async |mut client, _closer| {
            client.write_all(REQUEST).await.unwrap();
            assert!(read_to_end(client).await.ends_with("well"));
        });
        // The time for the next head was over, not that for the first.
        assert!(served.await.unwrap_err().is_timeout());
    }

    #[tokio::test]
    async fn a_head_that_is_too_long_gets_431() {
        let settings = Http1Settings { max_head_bytes: 8 * 1024, ..Http1Settings::default() };
        let served = on_connection(settings, gate(0), async |mut client, _closer| {
            let head = [b"GET / HTTP/1.1\r\nX: ".as_slice(), &[b'x'; 9 * 1024]].concat();
            client.write_all(&head).await.unwrap();
            assert!(read_to_end(client).await.starts_with("HTTP/1.1 431 "));
        });
        assert!(served.await.is_err());
    }

    #[tokio::test]
    async fn closing_ends_an_idle_connection() {
        let served = on_connection(Http1Settings::default(), gate(0), async |client, closer| {
            closer.close();
            assert_eq!(read_to_end(client).await, "");
        });
        served.await.unwrap();
    }

    #[tokio::test]
    async fn closing_lets_what_is_in_flight_be_answered() {
        let gate = gate(0);
        let served = on_connection(Http1Settings::default(), gate.clone(), async |mut client, closer| {
            client.write_all(REQUEST).await.unwrap();
            gate.arrived.acquire().await.unwrap().forget();
            closer.close();
            gate.open.add_permits(1);
            let answer = read_to_end(client).await;
            assert!(answer.starts_with("HTTP/1.1 200 OK") && answer.contains("connection: close"), "{answer}");
        });
        served.await.unwrap();
    }

    #[tokio::test]
    async fn an_old_connection_ends_even_if_its_answer_never_comes() {
        let settings = Http1Settings { max_age: soon(), drain_timeout: soon(), ..Http1Settings::default() };
        let served = on_connection(settings, gate(0), async |mut client, _closer| {
            client.write_all(REQUEST).await.unwrap();
            assert_eq!(read_to_end(client).await, "");
        });
        served.await.unwrap();
    }
}
