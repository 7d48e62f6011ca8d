//! HTTP/1.1 on one connection: bounded in what it reads and in how long it lives.

use std::error::Error;
use std::pin::pin;
use std::time::Duration;

use http::{Request, Response};
use http_body::Body;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::Service;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::time::{sleep, timeout};

use super::{Closing, Stream};

/// What a connection may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Http1Settings {
    /// How long a client may take from one answer to the end of the next request's head. So a connection that nobody uses ends
    /// too.
    pub(crate) head_within: Duration,
    /// The most bytes of a head. Past it the answer is 431. At least 8 KiB.
    pub(crate) most_head: usize,
    /// When a connection is asked to end, so that clients spread over new servers and nobody keeps one for ever by not reading.
    pub(crate) oldest: Duration,
    /// How long what is in flight may take once a connection was asked to end.
    pub(crate) end_within: Duration,
}

impl Default for Http1Settings {
    fn default() -> Http1Settings {
        Http1Settings {
            head_within: Duration::from_secs(60),
            most_head: 32 * 1024,
            oldest: Duration::from_secs(60 * 60),
            end_within: Duration::from_secs(10),
        }
    }
}

/// Serves a connection to its end: the client's, an error's, or ours when the server is closing or the connection is too old.
/// Then what is in flight is answered.
///
/// # Errors
/// What the client did wrong.
pub(crate) async fn serve_http1<S, B>(
    stream: Stream,
    mut closing: Closing,
    settings: &Http1Settings,
    service: S,
) -> Result<(), hyper::Error>
where
    S: Service<Request<Incoming>, Response = Response<B>>,
    S::Error: Into<Box<dyn Error + Send + Sync>>,
    B: Body + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(settings.head_within)
        // A smaller one is refused by a panic.
        .max_buf_size(settings.most_head.max(8 * 1024))
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = pin!(connection);
    tokio::select! {
        // First, so that an answer that is ready when the server stops tells the client that it is the last.
        biased;
        () = closing.begun() => {}
        ended = connection.as_mut() => return ended,
        () = sleep(settings.oldest) => {}
    }
    connection.as_mut().graceful_shutdown();
    // What takes longer is cut off: its client had the time.
    timeout(settings.end_within, connection).await.unwrap_or(Ok(()))
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::Arc;

    use bytes::Bytes;
    use http_body_util::Full;
    use hyper::service::service_fn;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::UnixStream;
    use tokio::sync::Semaphore;

    use super::*;
    use crate::net::closing::Closer;

    /// What a request asks and waits for.
    struct Gate {
        /// How many requests have come.
        come: Semaphore,
        /// How many more may be answered.
        open: Semaphore,
    }

    fn gate(open: usize) -> Arc<Gate> {
        Arc::new(Gate { come: Semaphore::new(0), open: Semaphore::new(open) })
    }

    /// Runs a connection and a client on it.
    async fn on_connection<C: Future<Output = ()>>(
        settings: Http1Settings,
        gate: Arc<Gate>,
        client: impl FnOnce(UnixStream, Closer) -> C,
    ) -> Result<(), hyper::Error> {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let (closer, closing) = Closer::new();
        let service = service_fn(move |_| {
            let gate = gate.clone();
            async move {
                gate.come.add_permits(1);
                gate.open.acquire().await.unwrap().forget();
                Ok::<_, Infallible>(Response::new(Full::new(Bytes::from_static(b"well"))))
            }
        });
        let server = serve_http1(Stream::Unix(ours), closing, &settings, service);
        let (served, ()) = tokio::join!(server, client(theirs, closer));
        served
    }

    const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n";

    fn soon() -> Duration {
        Duration::from_millis(30)
    }

    async fn read_to_end(mut client: UnixStream) -> String {
        let mut answer = Vec::new();
        // What the server did not read any more resets the connection, after the answer.
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
        let settings = Http1Settings { head_within: soon(), ..Http1Settings::default() };
        let served = on_connection(settings, gate(0), async |mut client, _closer| {
            client.write_all(b"GET / HTTP/1.1\r\nHost:").await.unwrap();
            assert_eq!(read_to_end(client).await, "");
        });
        assert!(served.await.unwrap_err().is_timeout());
    }

    #[tokio::test]
    async fn a_head_that_is_too_long_is_told_so() {
        let settings = Http1Settings { most_head: 8 * 1024, ..Http1Settings::default() };
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
            gate.come.acquire().await.unwrap().forget();
            closer.close();
            gate.open.add_permits(1);
            let answer = read_to_end(client).await;
            assert!(answer.starts_with("HTTP/1.1 200 OK") && answer.contains("connection: close"), "{answer}");
        });
        served.await.unwrap();
    }

    #[tokio::test]
    async fn an_old_connection_ends_even_if_its_answer_never_comes() {
        let settings = Http1Settings { oldest: soon(), end_within: soon(), ..Http1Settings::default() };
        let served = on_connection(settings, gate(0), async |mut client, _closer| {
            client.write_all(REQUEST).await.unwrap();
            assert_eq!(read_to_end(client).await, "");
        });
        served.await.unwrap();
    }
}
