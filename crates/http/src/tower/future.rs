//! The progress of a request: checked, possibly delayed, then inside the service.

use std::fmt;
use std::future::Future;
use std::mem;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::request::Parts;
use http::{Request, Response};
use http_body::Body;
use pin_project_lite::pin_project;
use tokio::runtime::Handle;
use tokio::time::{Sleep, sleep};
use tower_service::Service;

use super::BoxFuture;
use super::body::ResponseBody;
use super::gate::{Admission, Pass};
use super::responses;

pin_project! {
    /// The response to a request, from the limiter or from the inner service.
    pub struct ResponseFuture<S, B>
    where
        S: Service<Request<B>>,
    {
        #[pin]
        state: RequestState<S, B, S::Future>,
    }
}

pin_project! {
    #[project = RequestStateProjection]
    enum RequestState<S, B, F> {
        Refused { response: Option<Response<Bytes>> },
        // Waiting for the check.
        Checking { check: PendingCheck, entry: Option<(S, B)> },
        // Delayed, so that requests leave evenly spaced.
        Delayed { sleep: Pin<Box<Sleep>>, entry: Option<(S, Request<B>, Pass)> },
        // In the inner service. Its future is dropped before the pass, which makes room for other requests.
        Inside { #[pin] inner: F, pass: Pass },
        // Completed.
        Done,
    }
}

/// A check in progress. If the future is dropped, the check continues in the background, so that what it takes is given
/// back.
struct PendingCheck(Option<BoxFuture<'static, (Parts, Admission)>>);

impl<S, B> ResponseFuture<S, B>
where
    S: Service<Request<B>>,
{
    pub(super) fn refused(response: Response<Bytes>) -> Self {
        ResponseFuture { state: RequestState::Refused { response: Some(response) } }
    }

    pub(super) fn checking(service: S, check: BoxFuture<'static, (Parts, Admission)>, body: B) -> Self {
        ResponseFuture {
            state: RequestState::Checking { check: PendingCheck(Some(check)), entry: Some((service, body)) },
        }
    }

    pub(super) fn delayed(service: S, request: Request<B>, pass: Pass) -> Self {
        ResponseFuture { state: RequestState::delayed(service, request, pass) }
    }

    pub(super) fn inside(service: &mut S, request: Request<B>, pass: Pass) -> Self {
        ResponseFuture { state: RequestState::inside(service, request, pass) }
    }
}

impl<S, B> RequestState<S, B, S::Future>
where
    S: Service<Request<B>>,
{
    fn admitted(admission: Admission, mut service: S, head: Parts, body: B) -> Self {
        match admission {
            Admission::Refused(response) => RequestState::Refused { response: Some(response) },
            Admission::Passed(pass) if pass.delay.is_zero() => {
                RequestState::inside(&mut service, Request::from_parts(head, body), pass)
            }
            Admission::Passed(pass) => RequestState::delayed(service, Request::from_parts(head, body), pass),
        }
    }

    fn delayed(service: S, request: Request<B>, pass: Pass) -> Self {
        RequestState::Delayed { sleep: Box::pin(sleep(pass.delay)), entry: Some((service, request, pass)) }
    }

    fn inside(service: &mut S, mut request: Request<B>, mut pass: Pass) -> Self {
        request.extensions_mut().insert(pass.guard.spent());
        let inner = pass.guard.during(|| service.call(request));
        RequestState::Inside { inner, pass }
    }
}

impl<S, B, R> Future for ResponseFuture<S, B>
where
    S: Service<Request<B>, Response = Response<R>>,
    R: Body,
    R::Data: From<Bytes>,
{
    type Output = Result<Response<ResponseBody<R>>, S::Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.project().state;
        loop {
            let next = match state.as_mut().project() {
                RequestStateProjection::Refused { response } => {
                    let response = response.take().unwrap_or_default();
                    state.set(RequestState::Done);
                    return Poll::Ready(Ok(response.map(ResponseBody::own)));
                }
                RequestStateProjection::Checking { check, entry } => {
                    let (head, admission) = ready!(check.poll(context));
                    entry.take().map_or(RequestState::Done, |(service, body)| {
                        RequestState::admitted(admission, service, head, body)
                    })
                }
                RequestStateProjection::Delayed { sleep, entry } => {
                    ready!(sleep.as_mut().poll(context));
                    entry.take().map_or(RequestState::Done, |(mut service, request, pass)| {
                        RequestState::inside(&mut service, request, pass)
                    })
                }
                RequestStateProjection::Inside { inner, pass } => {
                    let answer = ready!(pass.guard.during(|| inner.poll(context)));
                    let pass = mem::take(pass);
                    state.set(RequestState::Done);
                    return Poll::Ready(pass.finish(answer));
                }
                RequestStateProjection::Done => return Poll::Pending,
            };
            state.set(next);
        }
    }
}

impl PendingCheck {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<(Parts, Admission)> {
        let Some(check) = &mut self.0 else { return Poll::Pending };
        let answer = ready!(check.as_mut().poll(context));
        self.0 = None;
        Poll::Ready(answer)
    }
}

impl Drop for PendingCheck {
    fn drop(&mut self) {
        // Without a runtime nothing continues: what was taken expires.
        if let (Some(check), Ok(runtime)) = (self.0.take(), Handle::try_current()) {
            runtime.spawn(async move { drop(check.await) });
        }
    }
}

impl Pass {
    /// The inner service's response, with the headers of its limits.
    fn finish<R: Body, E>(self, answer: Result<Response<R>, E>) -> Result<Response<ResponseBody<R>>, E> {
        let Pass { headers, mut guard, .. } = self;
        if answer.as_ref().map_or(true, responses::is_failure) {
            guard.fail();
        }
        let mut response = answer?;
        response.headers_mut().extend(headers);
        Ok(response.map(|body| ResponseBody::inner(body, guard)))
    }
}

impl<S, B> fmt::Debug for ResponseFuture<S, B>
where
    S: Service<Request<B>>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.state {
            RequestState::Refused { .. } => "ResponseFuture(Refused)",
            RequestState::Checking { .. } => "ResponseFuture(Checking)",
            RequestState::Delayed { .. } => "ResponseFuture(Delayed)",
            RequestState::Inside { .. } => "ResponseFuture(Inside)",
            RequestState::Done => "ResponseFuture(Done)",
        })
    }
}
