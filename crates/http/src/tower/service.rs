//! The service: a limiter in front of an inner service.

use std::fmt;
use std::mem;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use tower_service::Service;

use super::body::ResponseBody;
use super::future::ResponseFuture;
use super::gate::{Admission, LayerGate};
use super::stats::Stats;

/// A service that receives only the requests that its limits admit: see [the module](super).
#[derive(Clone)]
pub struct Tollgate<S> {
    inner: S,
    gate: Arc<dyn LayerGate>,
}

impl<S> Tollgate<S> {
    pub(super) fn new(inner: S, gate: Arc<dyn LayerGate>) -> Tollgate<S> {
        Tollgate { inner, gate }
    }

    /// The statistics of the layer, over all services that it wraps.
    pub fn stats(&self) -> Stats {
        self.gate.counts().read()
    }
}

impl<S, B, R> Service<Request<B>> for Tollgate<S>
where
    S: Service<Request<B>, Response = Response<R>> + Clone,
    R: Body,
    R::Data: From<Bytes>,
{
    type Response = Response<ResponseBody<R>>;
    type Error = S::Error;
    type Future = ResponseFuture<S, B>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let (head, body) = request.into_parts();
        match self.gate.clone().admit_now(&head) {
            Some(Admission::Refused(response)) => ResponseFuture::refused(response),
            Some(Admission::Passed(pass)) if pass.delay.is_zero() => {
                ResponseFuture::inside(&mut self.inner, Request::from_parts(head, body), pass)
            }
            Some(Admission::Passed(pass)) => {
                ResponseFuture::delayed(self.ready(), Request::from_parts(head, body), pass)
            }
            None => ResponseFuture::checking(self.ready(), self.gate.clone().admit(head), body),
        }
    }
}

impl<S: Clone> Tollgate<S> {
    /// Takes out the service that is ready, for a later call.
    fn ready(&mut self) -> S {
        let next = self.inner.clone();
        mem::replace(&mut self.inner, next)
    }
}

impl<S: fmt::Debug> fmt::Debug for Tollgate<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tollgate").field("inner", &self.inner).field("stats", &self.stats()).finish()
    }
}
