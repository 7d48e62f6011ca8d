//! A limiter on a clock that is moved, a layer, and handlers that do as they are told.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::request::Builder;
use http::{HeaderMap, Request, Response};
use http_body::{Body, Frame};
use http_body_util::{BodyExt, Empty, Full};
use tokio::sync::mpsc;
use tollgate::tower::{ResponseBody, Tollgate, TollgateLayer, extract};
use tollgate::{
    Clock, Descriptor, Limiter, ManualClock, MemoryConfig, MemoryStore, ReceiptWish, Ruleset, Span, Store, Timestamp,
    now,
};
use tower::{Layer, Service, ServiceExt};

/// When it begins: 2 March 2026, 9:00 UTC.
pub(crate) const START: Timestamp = Timestamp::from_secs(1_772_442_000);

pub(crate) type Memory = MemoryStore<ManualClock>;

/// A limiter in memory whose clock is moved together with tokio's.
pub(crate) struct World {
    pub(crate) clock: ManualClock,
    pub(crate) limiter: Arc<Limiter<Memory>>,
}

/// What a request without a body is.
pub(crate) type Asked = Request<Empty<Bytes>>;

impl World {
    pub(crate) fn new(rules: &str) -> World {
        let clock = ManualClock::at(START);
        let store = MemoryConfig::default().build_with(clock.clone());
        World { limiter: Arc::new(Limiter::new(ruleset(rules), store)), clock }
    }

    /// A layer by which every header is what rules call it: `key`, `user`, `tokens`.
    pub(crate) fn layer(&self) -> TollgateLayer<Memory> {
        layer(self.limiter.clone())
    }

    /// Moves both clocks, step by step, so that everybody who waits meanwhile does in turn what is to be done.
    pub(crate) async fn pass(&self, time: Duration) {
        const STEP: Duration = Duration::from_millis(50);
        settle_down().await;
        let mut left = time;
        while !left.is_zero() {
            let step = left.min(STEP);
            left -= step;
            self.clock.set(self.clock.now().after(Span::from_micros(step.as_micros() as u64)));
            tokio::time::advance(step).await;
            settle_down().await;
        }
    }

    /// How many units of a rule these attributes have left.
    pub(crate) fn left(&self, rule: &str, entries: &[(&str, &str)]) -> u64 {
        left(&self.limiter, rule, entries)
    }
}

pub(crate) fn ruleset(rules: &str) -> Ruleset {
    Ruleset::from_text(rules, 1).unwrap_or_else(|problems| panic!("{problems:?}")).0
}

/// A layer by which headers are attributes.
pub(crate) fn layer<St: Store + 'static>(limiter: Arc<Limiter<St>>) -> TollgateLayer<St> {
    TollgateLayer::new(limiter)
        .attributes(|head, attributes| {
            for (name, value) in &head.headers {
                attributes.add(name.as_str(), value.to_str().unwrap());
            }
        })
        .extract(extract::endpoint())
}

/// How many units of a rule there are left, on a store that never waits.
pub(crate) fn left<St: Store>(limiter: &Limiter<St>, rule: &str, entries: &[(&str, &str)]) -> u64 {
    let descriptors = [Descriptor::new(entries)];
    let look = tollgate::Request {
        descriptors: &descriptors,
        cost: 0,
        receipt: ReceiptWish::IfNeeded,
        ..tollgate::Request::default()
    };
    let decision = now(limiter.check(&look)).expect("it never waits").unwrap();
    let found = decision.outcomes().find(|one| one.rule.name() == rule);
    found.unwrap_or_else(|| panic!("{rule} does not apply")).reading.remaining
}

/// Lets all tasks run that have something to do.
pub(crate) async fn settle_down() {
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
}

/// A request with this key.
pub(crate) fn of(key: &str) -> Builder {
    Request::get("/orders").header("key", key)
}

pub(crate) fn bare(builder: Builder) -> Asked {
    builder.body(Empty::new()).unwrap()
}

/// An answer that was read to its end.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Answer {
    pub(crate) async fn of<R>(response: Response<ResponseBody<R>>) -> Answer
    where
        R: Body<Data = Bytes>,
        R::Error: std::fmt::Debug,
    {
        let (head, body) = response.into_parts();
        let body = body.collect().await.unwrap().to_bytes();
        Answer { status: head.status.as_u16(), headers: head.headers, body }
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap()
    }
}

/// A handler that answers at once, and counts how often it is asked.
#[derive(Clone, Debug, Default)]
pub(crate) struct Handler {
    pub(crate) asked: Arc<AtomicU64>,
}

impl Handler {
    pub(crate) fn asked(&self) -> u64 {
        self.asked.load(Ordering::SeqCst)
    }
}

impl Service<Asked> for Handler {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = std::future::Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _request: Asked) -> Self::Future {
        self.asked.fetch_add(1, Ordering::SeqCst);
        let response = Response::builder().status(201).header("own", "yes").body(Full::from("done"));
        std::future::ready(Ok(response.unwrap()))
    }
}

/// Asks a handler that answers at once, through a layer.
pub(crate) async fn ask<St: Store + 'static>(layer: &TollgateLayer<St>, request: Asked) -> Answer {
    let response = layer.layer(Handler::default()).oneshot(request).await.unwrap();
    Answer::of(response).await
}

/// What a stream is told to give next.
pub(crate) type Next = Result<Frame<Bytes>, std::io::Error>;

/// A body that gives what it is told to, when it is.
pub(crate) struct Told {
    frames: mpsc::UnboundedReceiver<Next>,
}

/// A body, and whoever tells it what to give.
pub(crate) fn told() -> (mpsc::UnboundedSender<Next>, Told) {
    let (sender, frames) = mpsc::unbounded_channel();
    (sender, Told { frames })
}

impl Body for Told {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Next>> {
        self.frames.poll_recv(context)
    }
}

/// A service by a function, behind a layer.
pub(crate) fn behind<St, F, Fut, R, E>(layer: &TollgateLayer<St>, function: F) -> Tollgate<tower::util::ServiceFn<F>>
where
    St: Store + 'static,
    F: FnMut(Asked) -> Fut + Clone,
    Fut: Future<Output = Result<Response<R>, E>>,
{
    layer.layer(tower::service_fn(function))
}

/// Answers once, with this body.
pub(crate) fn one_body(body: Told) -> impl Fn(Asked) -> std::future::Ready<Result<Response<Told>, Infallible>> + Clone {
    let body = Arc::new(Mutex::new(Some(body)));
    move |_| std::future::ready(Ok(Response::new(body.lock().unwrap().take().expect("it is asked once"))))
}
