//! A proxy that forwards what it gets with hyper and a pool, and does nothing else: no routes, limits, timeouts or retries.

use std::cell::RefCell;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::header::CONNECTION;
use http::{Request, Response};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::client::conn::http1 as client;
use hyper::server::conn::http1 as server;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{LocalSet, spawn_local};

type Sender = client::SendRequest<Incoming>;
type Pool = Rc<RefCell<Vec<Sender>>>;

/// Forwards every request to this address.
pub async fn hyper(listener: TcpListener, upstream: String) {
    let (pool, upstream) = (Pool::default(), Rc::<str>::from(upstream));
    let serve = async move {
        loop {
            let (stream, _) = listener.accept().await.expect("a connection");
            stream.set_nodelay(true).expect("a socket");
            let (pool, upstream) = (pool.clone(), upstream.clone());
            spawn_local(async move {
                let service = service_fn(|request| forward(&pool, &upstream, request));
                // What breaks a connection is its client's problem.
                let _ = server::Builder::new().serve_connection(TokioIo::new(stream), service).await;
            });
        }
    };
    LocalSet::new().run_until(serve).await;
}

async fn forward(pool: &Pool, upstream: &str, mut request: Request<Incoming>) -> hyper::Result<Response<PooledBody>> {
    request.headers_mut().remove(CONNECTION);
    let mut sender = match unused(pool).await {
        Some(sender) => sender,
        None => connect(upstream).await?,
    };
    let response = sender.send_request(request).await?;
    Ok(response.map(|body| PooledBody { body, connection: Some((sender, pool.clone())) }))
}

/// A connection that is open: those of an upstream that has ended are dropped.
async fn unused(pool: &Pool) -> Option<Sender> {
    loop {
        let mut sender = pool.borrow_mut().pop()?;
        if sender.ready().await.is_ok() {
            return Some(sender);
        }
    }
}

async fn connect(upstream: &str) -> hyper::Result<Sender> {
    let stream = TcpStream::connect(upstream).await.expect("an upstream");
    stream.set_nodelay(true).expect("a socket");
    let (mut sender, connection) = client::handshake(TokioIo::new(stream)).await?;
    spawn_local(async move {
        // Its sender gets the error.
        let _ = connection.await;
    });
    sender.ready().await?;
    Ok(sender)
}

/// A body, at whose end its connection can be used again.
struct PooledBody {
    body: Incoming,
    connection: Option<(Sender, Pool)>,
}

impl Body for PooledBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<hyper::Result<Frame<Bytes>>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        if (frame.is_none() || self.body.is_end_stream())
            && let Some((sender, pool)) = self.connection.take()
        {
            pool.borrow_mut().push(sender);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
