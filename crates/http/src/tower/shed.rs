//! Layers that shed load: an adaptive cap on the requests inside a service, and a shedder for a process that is overloaded.
//!
//! Both refuse with 503, `Retry-After` and a problem document, the least important requests first. 429 is a caller over its
//! limit, and comes from [`TollgateLayer`](super::TollgateLayer).

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderValue, Request, Response, StatusCode, header};
use http_body::Body;
use http_body_util::{Either, Full};
use pin_project_lite::pin_project;
use tollgate_shed::{
    AdaptiveCap, Admission, Begun, Class, Monotonic, RequestEnd, RetryAfter, Shedder, WorkerShedder, WorkerVerdict,
};
use tollgate_store::{Clock as _, SystemClock};
use tower_layer::Layer;
use tower_service::Service;

use crate::problem::Problem;
use crate::response::SHED;

/// Finds the class of a request.
type ClassFn = dyn Fn(&Parts) -> Class + Send + Sync;

/// Limits the requests inside a service by an [`AdaptiveCap`], which follows the latency of the service.
///
/// A request counts until the head of its response; its latency is a sample if the status is below 500.
#[derive(Clone)]
pub struct AdaptiveLayer {
    cap: Arc<AdaptiveCap>,
    common: Common,
}

/// Sheds requests while a [`WorkerShedder`] says that this process is overloaded.
#[derive(Clone)]
pub struct ShedLayer {
    shedder: Arc<WorkerShedder>,
    common: Common,
}

/// What both layers have.
#[derive(Clone)]
struct Common {
    class: Arc<ClassFn>,
    clock: Arc<SystemClock>,
}

/// A service behind an adaptive cap.
#[derive(Clone)]
pub struct Adaptive<S> {
    inner: S,
    layer: AdaptiveLayer,
}

/// A service behind a worker shedder.
#[derive(Clone)]
pub struct Shed<S> {
    inner: S,
    layer: ShedLayer,
}

/// A response of the service, or a refusal.
pub type ShedBody<R> = Either<R, Full<Bytes>>;

pin_project! {
    /// The response to a request.
    pub struct ShedFuture<F> {
        #[pin]
        state: ShedState<F>,
    }
}

pin_project! {
    #[project = ShedStateProjection]
    enum ShedState<F> {
        Refused { by: Shedder },
        // The future is dropped before the slot.
        Inside { #[pin] inner: F, slot: Option<CapSlot> },
    }
}

/// A request in flight under a cap. It is released when this is dropped.
struct CapSlot {
    cap: Arc<AdaptiveCap>,
    clock: Arc<SystemClock>,
    begun: Option<Begun>,
    end: RequestEnd,
}

impl Common {
    fn new() -> Common {
        let class: Arc<ClassFn> = Arc::new(|head: &Parts| Class::from_method(head.method.as_str()));
        Common { class, clock: Arc::default() }
    }
}

impl AdaptiveLayer {
    /// Services of this layer share the cap.
    pub fn new(cap: Arc<AdaptiveCap>) -> AdaptiveLayer {
        AdaptiveLayer { cap, common: Common::new() }
    }

    /// Finds the class of a request with this function. By default it depends on the method alone.
    #[must_use]
    pub fn class(mut self, class: impl Fn(&Parts) -> Class + Send + Sync + 'static) -> AdaptiveLayer {
        self.common.class = Arc::new(class);
        self
    }

    fn acquire(&self, class: Class) -> Option<CapSlot> {
        let (cap, clock) = (self.cap.clone(), self.common.clock.clone());
        match cap.try_acquire(class, moment(&clock)) {
            Admission::Admitted(begun) | Admission::WouldRefuse(begun) => {
                Some(CapSlot { cap, clock, begun: Some(begun), end: RequestEnd::Unsampled })
            }
            Admission::Refused => None,
        }
    }
}

impl ShedLayer {
    /// Services of this layer share the shedder. Its owner [observes](WorkerShedder::observe) the utilisation of the process.
    pub fn new(shedder: Arc<WorkerShedder>) -> ShedLayer {
        ShedLayer { shedder, common: Common::new() }
    }

    /// Finds the class of a request with this function. By default it depends on the method alone.
    #[must_use]
    pub fn class(mut self, class: impl Fn(&Parts) -> Class + Send + Sync + 'static) -> ShedLayer {
        self.common.class = Arc::new(class);
        self
    }
}

impl<S> Layer<S> for AdaptiveLayer {
    type Service = Adaptive<S>;

    fn layer(&self, inner: S) -> Adaptive<S> {
        Adaptive { inner, layer: self.clone() }
    }
}

impl<S> Layer<S> for ShedLayer {
    type Service = Shed<S>;

    fn layer(&self, inner: S) -> Shed<S> {
        Shed { inner, layer: self.clone() }
    }
}

impl<S, B, R> Service<Request<B>> for Adaptive<S>
where
    S: Service<Request<B>, Response = Response<R>>,
    R: Body<Data = Bytes>,
{
    type Response = Response<ShedBody<R>>;
    type Error = S::Error;
    type Future = ShedFuture<S::Future>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (head, body) = request.into_parts();
        match self.layer.acquire((self.layer.common.class)(&head)) {
            Some(slot) => ShedFuture::inside(self.inner.call(Request::from_parts(head, body)), Some(slot)),
            None => ShedFuture { state: ShedState::Refused { by: Shedder::Adaptive } },
        }
    }
}

impl<S, B, R> Service<Request<B>> for Shed<S>
where
    S: Service<Request<B>, Response = Response<R>>,
    R: Body<Data = Bytes>,
{
    type Response = Response<ShedBody<R>>;
    type Error = S::Error;
    type Future = ShedFuture<S::Future>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (head, body) = request.into_parts();
        match self.layer.shedder.admit((self.layer.common.class)(&head), fastrand::u32(..)) {
            WorkerVerdict::Refused => ShedFuture { state: ShedState::Refused { by: Shedder::Worker } },
            WorkerVerdict::Admitted | WorkerVerdict::WouldRefuse => {
                ShedFuture::inside(self.inner.call(Request::from_parts(head, body)), None)
            }
        }
    }
}

impl<F> ShedFuture<F> {
    fn inside(inner: F, slot: Option<CapSlot>) -> ShedFuture<F> {
        ShedFuture { state: ShedState::Inside { inner, slot } }
    }
}

impl<F, R, E> Future for ShedFuture<F>
where
    F: Future<Output = Result<Response<R>, E>>,
    R: Body<Data = Bytes>,
{
    type Output = Result<Response<ShedBody<R>>, E>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project().state.project() {
            ShedStateProjection::Refused { by } => Poll::Ready(Ok(refusal(*by).map(Either::Right))),
            ShedStateProjection::Inside { inner, slot } => {
                let answer = ready!(inner.poll(context));
                if let (Some(slot), Ok(response)) = (slot.as_mut(), &answer)
                    && !response.status().is_server_error()
                {
                    slot.end = RequestEnd::Answered;
                }
                *slot = None;
                Poll::Ready(answer.map(|response| response.map(Either::Left)))
            }
        }
    }
}

impl Drop for CapSlot {
    fn drop(&mut self) {
        if let Some(begun) = self.begun.take() {
            self.cap.release(begun, moment(&self.clock), self.end);
        }
    }
}

fn moment(clock: &SystemClock) -> Monotonic {
    Monotonic::from_nanos(clock.steady().as_micros().saturating_mul(1_000))
}

fn refusal(by: Shedder) -> Response<Full<Bytes>> {
    let detail = "The service is under too much load to answer this request now.";
    let mut response = Problem::new(StatusCode::SERVICE_UNAVAILABLE, "shed", detail).into_response();
    let seconds = RetryAfter::default().draw_seconds(fastrand::u64(..));
    response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    response.headers_mut().insert(&SHED, HeaderValue::from_static(by.name()));
    response
}

impl fmt::Debug for AdaptiveLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AdaptiveLayer").field("cap", &self.cap.status()).finish_non_exhaustive()
    }
}

impl fmt::Debug for ShedLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ShedLayer").field("shedder", &self.shedder.status()).finish_non_exhaustive()
    }
}

impl<S: fmt::Debug> fmt::Debug for Adaptive<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Adaptive").field("inner", &self.inner).field("layer", &self.layer).finish()
    }
}

impl<S: fmt::Debug> fmt::Debug for Shed<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shed").field("inner", &self.inner).field("layer", &self.layer).finish()
    }
}

impl<F> fmt::Debug for ShedFuture<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.state {
            ShedState::Refused { .. } => "ShedFuture(Refused)",
            ShedState::Inside { .. } => "ShedFuture(Inside)",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use std::convert::Infallible;
    use std::time::Duration;

    use tollgate::poll_once;
    use tollgate_shed::{CapSettings, ShedMode};
    use tower::service_fn;

    type Answer = Result<Response<Full<Bytes>>, Infallible>;

    fn cap(max: u32) -> Arc<AdaptiveCap> {
        let settings = CapSettings { mode: ShedMode::Enforce, min: 1, max, initial: max, ..CapSettings::default() };
        Arc::new(AdaptiveCap::new(settings, 1).unwrap())
    }

    async fn well(_request: Request<()>) -> Answer {
        Ok(Response::new(Full::new(Bytes::from_static(b"well"))))
    }

    async fn never(_request: Request<()>) -> Answer {
        std::future::pending().await
    }

    #[test]
    fn requests_beyond_the_cap_are_refused_until_others_end() {
        let cap = cap(1);
        let layer = AdaptiveLayer::new(cap.clone());
        let (mut slow, mut fast) = (layer.layer(service_fn(never)), layer.layer(service_fn(well)));
        let waiting = slow.call(Request::new(()));
        let refused = poll_once(fast.call(Request::new(()))).unwrap().unwrap();
        assert_eq!(refused.status(), 503);
        assert_eq!(refused.headers()["x-tollgate-shed"], "adaptive");
        assert!(refused.headers().contains_key("retry-after"));
        drop(waiting);
        assert_eq!(poll_once(fast.call(Request::new(()))).unwrap().unwrap().status(), 200);
        assert_eq!(cap.status().in_flight, 0);
    }

    #[test]
    fn a_class_has_its_share_of_the_cap() {
        let layer = AdaptiveLayer::new(cap(10)).class(|head| match head.headers.contains_key("x-critical") {
            true => Class::Critical,
            false => Class::Test,
        });
        let mut service = layer.layer(service_fn(never));
        let waiting: Vec<_> = (0..7).map(|_| service.call(Request::new(()))).collect();
        let mut well = layer.layer(service_fn(well));
        assert_eq!(poll_once(well.call(Request::new(()))).unwrap().unwrap().status(), 503);
        let critical = Request::builder().header("x-critical", "1").body(()).unwrap();
        assert_eq!(poll_once(well.call(critical)).unwrap().unwrap().status(), 200);
        drop(waiting);
    }

    #[test]
    fn an_overloaded_process_sheds_more_and_more() {
        let shedder = Arc::new(WorkerShedder::new(ShedMode::Enforce));
        let mut service = ShedLayer::new(shedder.clone()).layer(service_fn(well));
        let mut status = || poll_once(service.call(Request::new(()))).unwrap().unwrap().status();
        assert_eq!(status(), 200);
        let mut now = Monotonic::default();
        for _ in 0..200 {
            now = now.after(Duration::from_secs(1));
            status();
            shedder.observe(1.0, now);
        }
        assert_eq!(status(), 503, "everything after 148 seconds");
    }
}
