//! The way of a request: decided, held back perhaps, inside.

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

use super::Settling;
use super::answers;
use super::body::ResponseBody;
use super::gate::{Admission, Pass};

pin_project! {
    /// The answer to a request, be it the limiter's or the inner service's.
    pub struct ResponseFuture<S, B>
    where
        S: Service<Request<B>>,
    {
        #[pin]
        state: State<S, B, S::Future>,
    }
}

pin_project! {
    #[project = StateProjection]
    enum State<S, B, F> {
        Refused { response: Option<Response<Bytes>> },
        // The store is asked.
        Asking { asking: Asking, entry: Option<(S, B)> },
        // Held back, so that requests leave evenly spaced.
        Delayed { sleep: Pin<Box<Sleep>>, entry: Option<(S, Request<B>, Pass)> },
        // With the inner service, whose future is dropped before the pass, which is what makes room for others.
        Inside { #[pin] inner: F, pass: Pass },
        // Answered: who asks again is not.
        Done,
    }
}

/// A check under way. If nobody waits for it any more it goes on by itself: what it takes must be given back.
struct Asking(Option<Settling<'static, (Parts, Admission)>>);

impl<S, B> ResponseFuture<S, B>
where
    S: Service<Request<B>>,
{
    pub(super) fn refused(response: Response<Bytes>) -> Self {
        ResponseFuture { state: State::Refused { response: Some(response) } }
    }

    pub(super) fn asking(service: S, asking: Settling<'static, (Parts, Admission)>, body: B) -> Self {
        ResponseFuture { state: State::Asking { asking: Asking(Some(asking)), entry: Some((service, body)) } }
    }

    pub(super) fn delayed(service: S, request: Request<B>, pass: Pass) -> Self {
        ResponseFuture { state: State::delayed(service, request, pass) }
    }

    pub(super) fn inside(service: &mut S, request: Request<B>, pass: Pass) -> Self {
        ResponseFuture { state: State::inside(service, request, pass) }
    }
}

impl<S, B> State<S, B, S::Future>
where
    S: Service<Request<B>>,
{
    fn admitted(admission: Admission, mut service: S, head: Parts, body: B) -> Self {
        match admission {
            Admission::Refused(response) => State::Refused { response: Some(response) },
            Admission::Passed(pass) if pass.delay.is_zero() => {
                State::inside(&mut service, Request::from_parts(head, body), pass)
            }
            Admission::Passed(pass) => State::delayed(service, Request::from_parts(head, body), pass),
        }
    }

    fn delayed(service: S, request: Request<B>, pass: Pass) -> Self {
        State::Delayed { sleep: Box::pin(sleep(pass.delay)), entry: Some((service, request, pass)) }
    }

    fn inside(service: &mut S, mut request: Request<B>, mut pass: Pass) -> Self {
        request.extensions_mut().insert(pass.guard.spent());
        let inner = pass.guard.during(|| service.call(request));
        State::Inside { inner, pass }
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
                StateProjection::Refused { response } => {
                    let response = response.take().unwrap_or_default();
                    state.set(State::Done);
                    return Poll::Ready(Ok(response.map(ResponseBody::own)));
                }
                StateProjection::Asking { asking, entry } => {
                    let (head, admission) = ready!(asking.poll(context));
                    entry.take().map_or(State::Done, |(service, body)| State::admitted(admission, service, head, body))
                }
                StateProjection::Delayed { sleep, entry } => {
                    ready!(sleep.as_mut().poll(context));
                    entry
                        .take()
                        .map_or(State::Done, |(mut service, request, pass)| State::inside(&mut service, request, pass))
                }
                StateProjection::Inside { inner, pass } => {
                    let answer = ready!(pass.guard.during(|| inner.poll(context)));
                    let pass = mem::take(pass);
                    state.set(State::Done);
                    return Poll::Ready(pass.answered(answer));
                }
                StateProjection::Done => return Poll::Pending,
            };
            state.set(next);
        }
    }
}

impl Asking {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<(Parts, Admission)> {
        let Some(asking) = &mut self.0 else { return Poll::Pending };
        let answer = ready!(asking.as_mut().poll(context));
        self.0 = None;
        Poll::Ready(answer)
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        // Without a runtime nobody goes on: what was taken by then frees itself.
        if let (Some(asking), Ok(runtime)) = (self.0.take(), Handle::try_current()) {
            runtime.spawn(async move { drop(asking.await) });
        }
    }
}

impl Pass {
    /// The answer of the inner service, with what is told of its limits.
    fn answered<R: Body, E>(self, answer: Result<Response<R>, E>) -> Result<Response<ResponseBody<R>>, E> {
        let Pass { headers, mut guard, .. } = self;
        if answer.as_ref().map_or(true, answers::is_failure) {
            guard.failed();
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
            State::Refused { .. } => "ResponseFuture(Refused)",
            State::Asking { .. } => "ResponseFuture(Asking)",
            State::Delayed { .. } => "ResponseFuture(Delayed)",
            State::Inside { .. } => "ResponseFuture(Inside)",
            State::Done => "ResponseFuture(Done)",
        })
    }
}
