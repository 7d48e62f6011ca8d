//! Layers that shed load: an adaptive cap on the requests inside a service, and a shedder for a process that is overloaded.
//!
//! Both refuse with 503, `Retry-After` and a problem document, the least important requests first. 429 is a caller over its
//! limit, and comes from [`TollgateLayer`](super::TollgateLayer). A gRPC call gets the status UNAVAILABLE. A shedder that panics
//! refuses nothing.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderValue, Request, Response, header};
use http_body::Body;
use http_body_util::{Either, Full};
use pin_project_lite::pin_project;
use tollgate_shed::{
    AdaptiveCap, Admission, Begun, Class, Monotonic, RequestEnd, RetryAfter, Shedder, WorkerShedder, WorkerVerdict,
    guarded,
};
use tollgate_store::{Clock as _, SystemClock};
use tower_layer::Layer;
use tower_service::Service;

use super::responses::{grpc as grpc_refusal, is_failure, is_grpc};
use crate::problem::Problem;
use crate::response::SHED;

/// Finds the class of a request.
type ClassFn = dyn Fn(&Parts) -> Class + Send + Sync;

/// Limits the requests inside a service by an [`AdaptiveCap`], which follows the latency of the service.
///
/// A request counts until the head of its response; its latency is a sample if that is no failure: no status of 500 or above, and no
/// gRPC status that is the fault of the server.
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
        Refused { by: Shedder, is_grpc: bool },
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

    /// `None` if the request is refused.
    fn acquire(&self, class: Class) -> Option<CapSlot> {
        let (cap, clock) = (self.cap.clone(), self.common.clock.clone());
        // A request that no cap counts has no slot to release.
        let begun = match guarded(|| Some(cap.try_acquire(class, moment(&clock))), None) {
            Some(Admission::Admitted(begun) | Admission::WouldRefuse(begun)) => Some(begun),
            Some(Admission::Refused) => return None,
            None => None,
        };
        Some(CapSlot { cap, clock, begun, end: RequestEnd::Unsampled })
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
            None => ShedFuture::refused(Shedder::Adaptive, &head),
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
        let class = (self.layer.common.class)(&head);
        match guarded(|| self.layer.shedder.admit(class, fastrand::u32(..)), WorkerVerdict::Admitted) {
            WorkerVerdict::Refused => ShedFuture::refused(Shedder::Worker, &head),
            WorkerVerdict::Admitted | WorkerVerdict::WouldRefuse => {
                ShedFuture::inside(self.inner.call(Request::from_parts(head, body)), None)
            }
        }
    }
}

impl<F> ShedFuture<F> {
    fn refused(by: Shedder, head: &Parts) -> ShedFuture<F> {
        ShedFuture { state: ShedState::Refused { by, is_grpc: is_grpc(&head.headers) } }
    }

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
            ShedStateProjection::Refused { by, is_grpc } => {
                let refusal = refusal(*by);
                // A gRPC response has no body.
                let refusal = match *is_grpc {
                    true => grpc_refusal(refusal.map(|_| Bytes::new())).map(Full::new),
                    false => refusal,
                };
                Poll::Ready(Ok(refusal.map(Either::Right)))
            }
            ShedStateProjection::Inside { inner, slot } => {
                let answer = ready!(inner.poll(context));
                if let (Some(slot), Ok(response)) = (slot.as_mut(), &answer)
                    && !is_failure(response)
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
            guarded(|| self.cap.release(begun, moment(&self.clock), self.end), ());
        }
    }
}

fn moment(clock: &SystemClock) -> Monotonic {
    Monotonic::from_nanos(clock.steady().as_micros().saturating_mul(1_000))
}

fn refusal(by: Shedder) -> Response<Full<Bytes>> {
    let seconds = RetryAfter::default().draw_seconds(fastrand::u64(..));
    let mut response = Problem::shed(by, seconds).into_response();
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

    use http::{HeaderName, StatusCode};
    use tollgate::poll_once;
    use tollgate_shed::{CapSettings, ShedMode};
    use tower::service_fn;

    type Answer = Result<Response<Full<Bytes>>, Infallible>;

    const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");

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
        let Either::Right(body) = refused.into_body() else { panic!("it is not the service's") };
        let body = poll_once(http_body_util::BodyExt::collect(body)).unwrap().unwrap().to_bytes();
        assert!(body.windows(27).any(|part| part == b"temporary-reduced-capacity\""), "{body:?}");
        drop(waiting);
        assert_eq!(poll_once(fast.call(Request::new(()))).unwrap().unwrap().status(), 200);
        assert_eq!(cap.status().in_flight, 0);
    }

    #[test]
    fn a_grpc_call_is_unavailable() {
        let layer = AdaptiveLayer::new(cap(1));
        let (mut slow, mut fast) = (layer.layer(service_fn(never)), layer.layer(service_fn(well)));
        let _waiting = slow.call(Request::new(()));
        let call = Request::builder().header("content-type", "application/grpc").body(()).unwrap();
        let refused = poll_once(fast.call(call)).unwrap().unwrap();
        assert_eq!((refused.status(), &refused.headers()["grpc-status"]), (StatusCode::OK, &"14".parse().unwrap()));
        assert_eq!(refused.headers()["x-tollgate-shed"], "adaptive");
        let Either::Right(body) = refused.into_body() else { panic!("it is not the service's") };
        assert!(poll_once(http_body_util::BodyExt::collect(body)).unwrap().unwrap().to_bytes().is_empty());
    }

    #[test]
    fn a_failure_that_comes_at_once_is_no_sample() {
        async fn fails(request: Request<()>) -> Answer {
            let mut response = Response::new(Full::new(Bytes::new()));
            response.headers_mut().extend(request.headers().get("grpc-status").map(|code| (GRPC_STATUS, code.clone())));
            Ok(response)
        }
        for (code, is_sample) in [("14", false), ("5", true)] {
            let cap = cap(10);
            let mut service = AdaptiveLayer::new(cap.clone()).layer(service_fn(fails));
            let (clock, mut calls) = (SystemClock::default(), 0);
            let begun = clock.steady();
            // For longer than a window.
            while calls < 100 || clock.steady().since(begun).as_micros() < 300_000 {
                let call = Request::builder().header("grpc-status", code).body(()).unwrap();
                poll_once(service.call(call)).unwrap().unwrap();
                calls += 1;
            }
            assert_eq!(cap.status().sample_rtt.is_some(), is_sample, "{code}");
        }
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
