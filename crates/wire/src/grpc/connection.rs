//! A connection and its calls.
//!
//! One task serves them all. A call whose message has arrived is decided and answered where it is accepted, which costs
//! no task. Calls that have to wait for the store, and those of the auxiliary services, become tasks.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use h2::server::{Connection, SendResponse};
use h2::{Reason, RecvStream};
use http::Request;
use tollgate_net::{Slot, Stream};
use tollgate_proto::envoy::service::ratelimit::v3::RateLimitRequest;

use super::arriving::{ArrivingCall, ArrivingCalls};
use super::gathering::Gathering;
use super::keepalive::Heard;
use super::message::{Arrival, ArrivingMessage, encode, release};
use super::respond::{send_body, unless_reset};
use super::status::GrpcStatus;
use super::{CALL_BYTES, Grpc, SHOULD_RATE_LIMIT};

/// A connection and its calls.
pub(super) struct Calls<'g> {
    grpc: &'g Arc<Grpc>,
    slot: &'g Slot,
    heard: &'g Heard,
    connection: Connection<Gathering<Stream>, Bytes>,
    /// Accepted, to be served next; at most `MAX_TOGETHER`.
    accepted: Vec<AcceptedCall>,
    arriving: ArrivingCalls<'g>,
    /// Whether calls come together, as far as is known.
    together: bool,
}

type AcceptedCall = (Request<RecvStream>, SendResponse<Bytes>);

/// Calls that are served in one turn. The others of the connection wait until other connections had theirs.
const MAX_TOGETHER: usize = 64;

impl<'g> Calls<'g> {
    pub(super) fn new(
        grpc: &'g Arc<Grpc>,
        slot: &'g Slot,
        heard: &'g Heard,
        connection: Connection<Gathering<Stream>, Bytes>,
    ) -> Calls<'g> {
        let arriving = ArrivingCalls::new(grpc.config.body_timeout);
        Calls { grpc, slot, heard, connection, accepted: Vec::with_capacity(1), arriving, together: false }
    }

    /// Has clients send further calls elsewhere. The connection ends with its last call.
    pub(super) fn finish(&mut self) {
        self.connection.graceful_shutdown();
    }

    /// Ends the connection and its calls.
    pub(super) fn give_up(&mut self) {
        self.connection.abrupt_shutdown(Reason::NO_ERROR);
    }

    /// Serves what has arrived; ready when the connection ends. In between, other connections have their turn.
    pub(super) fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        // Until the last poll below, nobody has to be woken: what calls send is written there.
        let ended = self.accept_all(&mut Context::from_waker(Waker::noop()));
        self.serve_accepted();
        self.serve_arriving(context);
        if ended {
            return Poll::Ready(());
        }
        match self.accept(context) {
            Poll::Ready(true) => {
                self.together = true;
                context.waker().wake_by_ref();
            }
            Poll::Ready(false) => return Poll::Ready(()),
            Poll::Pending if self.arriving.rest(context.waker()) => {}
            Poll::Pending => context.waker().wake_by_ref(),
        }
        Poll::Pending
    }

    /// Accepts the calls that have arrived, so that their responses are written together. Where calls came alone so far,
    /// one is served without looking for others. Whether the connection has ended.
    fn accept_all(&mut self, context: &mut Context<'_>) -> bool {
        let max = if self.together { MAX_TOGETHER } else { 1 };
        while self.accepted.len() < max {
            match self.accept(context) {
                Poll::Ready(true) => {}
                Poll::Ready(false) => return true,
                Poll::Pending => break,
            }
        }
        self.together = self.accepted.len() > 1;
        false
    }

    /// Accepts a call; `false` if the connection has ended. Reads and writes all it can.
    fn accept(&mut self, context: &mut Context<'_>) -> Poll<bool> {
        pin!(self.connection.accept()).poll(context).map(|accepted| match accepted {
            Some(Ok(call)) => {
                self.accepted.push(call);
                true
            }
            Some(Err(error)) => {
                // A connection that fails is the client's problem.
                tracing::debug!(%error, "gRPC connection failed");
                false
            }
            None => false,
        })
    }

    fn serve_accepted(&mut self) {
        if self.accepted.is_empty() {
            return;
        }
        self.slot.begin_first();
        self.heard.note();
        let mut accepted = std::mem::take(&mut self.accepted);
        for (request, respond) in accepted.drain(..) {
            isolated(|| self.begin(request, respond));
        }
        if !self.together {
            accepted.shrink_to(1);
        }
        self.accepted = accepted;
    }

    /// Serves calls whose message has arrived later than they were accepted.
    fn serve_arriving(&mut self, context: &mut Context<'_>) {
        if self.arriving.is_empty() {
            return;
        }
        for _ in 0..MAX_TOGETHER {
            let next = isolated(|| {
                let (mut call, arrived) = self.arriving.next_arrived()?;
                self.heard.note();
                self.grpc.serve_arrived(arrived, &mut call.request, call.respond);
                Some(())
            });
            if matches!(next, Some(None)) {
                break;
            }
        }
        while let Some((mut call, status)) = self.arriving.next_expired(context) {
            self.grpc.answer(&mut call.respond, Err(status));
        }
    }

    /// Serves a call as far as its message has arrived.
    fn begin(&mut self, mut request: Request<RecvStream>, mut respond: SendResponse<Bytes>) {
        if request.uri().path() != SHOULD_RATE_LIMIT {
            tokio::spawn(self.grpc.clone().serve_auxiliary(request, respond));
            return;
        }
        if let Some(status) = self.grpc.refuse(request.headers()) {
            return self.grpc.answer(&mut respond, Err(status));
        }
        let Some(share) = self.grpc.arriving.reserve(CALL_BYTES) else {
            return self.grpc.serve_arrived(Ok(Arrival::Undecided(None)), &mut request, respond);
        };
        let mut message = ArrivingMessage::new(self.grpc.config.max_message, share);
        match message.poll(request.body_mut(), &mut Context::from_waker(Waker::noop())) {
            Poll::Ready(arrived) => self.grpc.serve_arrived(arrived, &mut request, respond),
            Poll::Pending => self.arriving.add(ArrivingCall { request, respond, message }),
        }
    }
}

impl Grpc {
    /// Decides and answers a call. If that has to wait for the store, a task does the rest: with leases, few calls have to.
    fn serve_arrived(
        self: &Arc<Self>,
        arrived: Result<Arrival, GrpcStatus>,
        request: &mut Request<RecvStream>,
        mut respond: SendResponse<Bytes>,
    ) {
        let decoded = match arrived {
            Ok(Arrival::Message(message)) => tollgate_proto::decode::<RateLimitRequest>(&message)
                .map_err(|error| GrpcStatus::invalid(format!("not a RateLimitRequest: {error}"))),
            Ok(Arrival::Undecided(domain)) => {
                return self.answer(&mut respond, encode(&self.envoy.undecided(domain.as_deref(), 0).into()));
            }
            Err(status) => Err(status),
        };
        let message = match decoded {
            Ok(message) => message,
            Err(status) => return self.answer(&mut respond, Err(status)),
        };
        match self.decide(&message, request.headers()) {
            Some(answer) => self.answer(&mut respond, answer),
            None => {
                let (grpc, headers) = (self.clone(), std::mem::take(request.headers_mut()));
                // Messages that were read must not keep others from arriving, however long the store takes.
                let read = request.body_mut().flow_control().used_capacity();
                release(request.body_mut(), read);
                let mut decision = Box::pin(async move {
                    let answer = grpc.decide_later(message, headers).await;
                    (grpc, answer)
                });
                // The task polls it again at once, with its own waker.
                match decision.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                    Poll::Ready((grpc, answer)) => grpc.answer(&mut respond, answer),
                    Poll::Pending => {
                        tokio::spawn(async move {
                            if let Some((grpc, answer)) = unless_reset(&mut respond, decision).await {
                                grpc.answer(&mut respond, answer);
                            }
                        });
                    }
                }
            }
        }
    }

    /// Serves a call of another service.
    async fn serve_auxiliary(self: Arc<Self>, request: Request<RecvStream>, mut respond: SendResponse<Bytes>) {
        let Some(response) = unless_reset(&mut respond, self.auxiliary.call(request)).await else { return };
        if let Err(error) = send_body(&mut respond, response).await {
            tracing::debug!(%error, "a gRPC response could not be sent");
        }
    }
}

/// Runs a part of one call. A panic, which the hook has reported, resets its stream and no other.
fn isolated<T>(part: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(part)).ok()
}
