//! A limiter with a manual clock, a layer, and controllable handlers.

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
use tollgate::{
    Clock, Descriptor, Limiter, ManualClock, MemoryConfig, MemoryStore, ReceiptWish, Ruleset, Span, Store, Timestamp,
    poll_once,
};
use tollgate_http::tower::{ResponseBody, Tollgate, TollgateLayer, extract};
use tower::{Layer, Service, ServiceExt};

/// The start: 2 March 2026, 9:00 UTC.
pub(crate) const START: Timestamp = Timestamp::from_secs(1_772_442_000);

pub(crate) type Memory = MemoryStore<ManualClock>;

/// A limiter in memory whose clock is advanced together with tokio's.
pub(crate) struct World {
    pub(crate) clock: ManualClock,
    pub(crate) limiter: Arc<Limiter<Memory>>,
}

/// A request without a body.
pub(crate) type TestRequest = Request<Empty<Bytes>>;

impl World {
    pub(crate) fn new(rules: &str) -> World {
        let clock = ManualClock::at(START);
        let store = MemoryConfig::default().build_with(clock.clone());
        World { limiter: Arc::new(Limiter::new(ruleset(rules), store)), clock }
    }

    /// A layer that maps every header to an attribute: `key`, `user`, `tokens`.
    pub(crate) fn layer(&self) -> TollgateLayer<Memory> {
        layer(self.limiter.clone())
    }

    /// Advances both clocks step by step, so that every waiting task runs in turn.
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

/// A layer that maps headers to attributes.
pub(crate) fn layer<St: Store + 'static>(limiter: Arc<Limiter<St>>) -> TollgateLayer<St> {
    TollgateLayer::new(limiter)
        .attributes(|head, attributes| {
            for (name, value) in &head.headers {
                attributes.add(name.as_str(), value.to_str().unwrap());
            }
        })
        .extract(extract::endpoint())
}

/// How many units of a rule are left, on a store that never waits.
pub(crate) fn left<St: Store>(limiter: &Limiter<St>, rule: &str, entries: &[(&str, &str)]) -> u64 {
    let descriptors = [Descriptor::new(entries)];
    let look = tollgate::Request {
        descriptors: &descriptors,
        cost: 0,
        receipt: ReceiptWish::IfNeeded,
        ..tollgate::Request::default()
    };
    let decision = poll_once(limiter.check_request(&look)).expect("it never waits").unwrap();
    let found = decision.outcomes().find(|one| one.rule.name() == rule);
    found.unwrap_or_else(|| panic!("{rule} does not apply")).reading.remaining
}

/// Runs all tasks that are ready.
pub(crate) async fn settle_down() {
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
}

/// A request with this key.
pub(crate) fn of(key: &str) -> Builder {
    Request::get("/orders").header("key", key)
}

pub(crate) fn bare(builder: Builder) -> TestRequest {
    builder.body(Empty::new()).unwrap()
}

/// A response that was read to its end.
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

/// A handler that responds at once, and counts its calls.
#[derive(Clone, Debug, Default)]
pub(crate) struct Handler {
    pub(crate) calls: Arc<AtomicU64>,
}

impl Handler {
    pub(crate) fn calls(&self) -> u64 {
        self.calls.load(Ordering::SeqCst)
    }
}

impl Service<TestRequest> for Handler {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = std::future::Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _request: TestRequest) -> Self::Future {
        self.calls.fetch_add(1, Ordering::SeqCst);
        let response = Response::builder().status(201).header("own", "yes").body(Full::from("done"));
        std::future::ready(Ok(response.unwrap()))
    }
}

/// Sends a request through a layer to a handler that responds at once.
pub(crate) async fn ask<St: Store + 'static>(layer: &TollgateLayer<St>, request: TestRequest) -> Answer {
    let response = layer.layer(Handler::default()).oneshot(request).await.unwrap();
    Answer::of(response).await
}

/// What a controlled body yields next.
pub(crate) type Next = Result<Frame<Bytes>, std::io::Error>;

/// A body that yields what the test sends, when it sends it.
pub(crate) struct ControlledBody {
    frames: mpsc::UnboundedReceiver<Next>,
}

/// A controlled body, and the sender that controls it.
pub(crate) fn controlled_body() -> (mpsc::UnboundedSender<Next>, ControlledBody) {
    let (sender, frames) = mpsc::unbounded_channel();
    (sender, ControlledBody { frames })
}

impl Body for ControlledBody {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Next>> {
        self.frames.poll_recv(context)
    }
}

/// A service from a function, behind a layer.
pub(crate) fn behind<St, F, Fut, R, E>(layer: &TollgateLayer<St>, function: F) -> Tollgate<tower::util::ServiceFn<F>>
where
    St: Store + 'static,
    F: FnMut(TestRequest) -> Fut + Clone,
    Fut: Future<Output = Result<Response<R>, E>>,
{
    layer.layer(tower::service_fn(function))
}

/// Responds once, with this body.
pub(crate) fn one_body(
    body: ControlledBody,
) -> impl Fn(TestRequest) -> std::future::Ready<Result<Response<ControlledBody>, Infallible>> + Clone {
    let body = Arc::new(Mutex::new(Some(body)));
    move |_| std::future::ready(Ok(Response::new(body.lock().unwrap().take().expect("it is called once"))))
}
