//! The path of a request: its target, its route, its caller, its limits, its upstream, and back.

use std::sync::Arc;

use arc_swap::ArcSwap;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use tollgate::Ruleset;
use tollgate_http::request_target::PathNormalization;
use tollgate_http::response::ResponseStyle;
use tollgate_http::tower::is_grpc;
use tollgate_shed::{ByClass, RequestEnd, ShedMode, Shedder, WorkerStatus};
use tollgate_store::SystemClock;
use tollgate_wire::Gate;

use crate::activity::ConnectionState;
use crate::admission::{Admitted, Limits};
use crate::answers::Answer;
use crate::charged::Ledger;
use crate::client::Client;
use crate::client_body::ClientBody;
use crate::clock;
use crate::costs;
use crate::exchange::{self, Exchange};
use crate::forward::{self, Arrived, Outgoing};
use crate::forwarded::{self, Hop};
use crate::hop_by_hop;
use crate::keys;
use crate::metering::Metering;
use crate::model::RouteConfig;
use crate::plan::GatewayPlan;
use crate::response_body::ResponseBody;
use crate::shedding::ShedCounts;
use crate::tunnel;
use crate::upstream::{self, CapSlot};
use crate::worker::Worker;

/// The parts of a gateway.
pub struct GatewayParts {
    pub gate: Arc<Gate>,
    pub style: ResponseStyle,
    pub normalization: PathNormalization,
}

/// Serves the clients of a gateway.
#[derive(Debug)]
pub struct Gateway {
    plan: ArcSwap<GatewayPlan>,
    limits: Limits,
    worker: Worker,
}

impl Gateway {
    pub fn new(parts: GatewayParts, plan: GatewayPlan) -> Gateway {
        let GatewayParts { gate, style, normalization } = parts;
        let ledger = Arc::new(Ledger::new(gate.clone()));
        let limits = Limits {
            gate,
            style,
            normalization,
            ledger,
            clock: SystemClock::default(),
            shed_counts: ShedCounts::default(),
        };
        let worker = Worker::new(&plan.config.worker_shedding);
        Gateway { plan: ArcSwap::from_pointee(plan), limits, worker }
    }

    /// The configuration in force.
    pub fn plan(&self) -> Arc<GatewayPlan> {
        self.plan.load_full()
    }

    /// The rules in force.
    pub(crate) fn rules(&self) -> Arc<Ruleset> {
        self.limits.gate.limiter().rules()
    }

    /// What the shedder of this process does.
    pub fn worker_status(&self) -> WorkerStatus {
        self.worker.status()
    }

    /// Changes what the shedder of this process does with what it decides, from the next request on. It holds until the
    /// configuration of the shedder changes.
    pub fn set_worker_shedding(&self, mode: ShedMode) {
        self.worker.set_mode(mode);
    }

    /// The requests that a shedder refused, by class.
    pub(crate) fn shed_by(&self, by: Shedder) -> ByClass<u64> {
        self.limits.shed_counts.of(by)
    }

    /// Puts a configuration in force. Requests in progress finish by the one before.
    pub fn install(&self, plan: GatewayPlan) {
        let plan = Arc::new(plan);
        let before = self.plan.swap(plan.clone());
        if plan.config.worker_shedding != before.config.worker_shedding {
            self.worker.configure(&plan.config.worker_shedding);
        }
        for upstream in plan.new_upstreams(Some(&before)) {
            tokio::spawn(upstream::run(Arc::downgrade(upstream)));
        }
    }

    /// The background work: servers are found and checked, slots of running requests extended.
    pub async fn run(self: Arc<Self>) {
        for upstream in &self.plan().upstreams {
            tokio::spawn(upstream::run(Arc::downgrade(upstream)));
        }
        tokio::join!(self.limits.ledger.clone().run(), keys::run(|| self.plan()), self.worker.run());
    }

    /// Answers a request.
    pub(crate) async fn respond(
        self: &Arc<Self>,
        request: Request<Incoming>,
        client: &Client,
        state: &Arc<ConnectionState>,
    ) -> Response<ResponseBody> {
        let plan = self.plan.load_full();
        let (mut parts, body) = request.into_parts();
        let is_grpc = is_grpc(&parts.headers);
        let arriving = Arriving { gateway: self, plan: &plan, client, state };
        match arriving.respond(&mut parts, body).await {
            Ok(response) => response,
            Err(answer) => answer.into_response(is_grpc),
        }
    }
}

/// A request, and what it meets.
struct Arriving<'g> {
    gateway: &'g Arc<Gateway>,
    plan: &'g GatewayPlan,
    client: &'g Client,
    state: &'g Arc<ConnectionState>,
}

impl Arriving<'_> {
    async fn respond(&self, parts: &mut Parts, body: Incoming) -> Result<Response<ResponseBody>, Answer> {
        if self.state.is_ambiguous() {
            let detail = "The request has more than one length or encoding of its body.";
            return Err(Answer::bad_request("ambiguous_body", detail).closing());
        }
        check_encoding(parts)?;
        let is_own_limits = self.plan.config.limits_path.as_deref() == Some(parts.uri.path());
        if is_own_limits && matches!(parts.method, Method::GET | Method::HEAD) {
            // Boxed, as everything that few requests do, so that the future of a request stays small.
            return Err(Box::pin(self.gateway.limits.own_limits(self.plan, parts, self.client)).await);
        }
        let found = self.plan.find(parts)?;
        let number = found.route;
        let (route, counts) = (&self.plan.config.routes[number], &self.plan.route_counts[number]);
        let mut body = ClientBody::new(route, parts, body)?;
        let most = costs::body_bound(&route.costs);
        if most > 0 {
            Box::pin(body.read_ahead(most, route.timeouts.request_idle)).await?;
        }
        let admitted = match self
            .gateway
            .limits
            .admit(self.plan, &found, parts, body.ahead(), self.client, &self.gateway.worker)
            .await
        {
            Ok(admitted) => admitted,
            Err(answer) => {
                counts.refuse(&answer);
                return Err(answer);
            }
        };
        drop(found);
        let response = self.forward(route, parts, body, admitted).await;
        match &response {
            Ok(response) => counts.count(response.status()),
            Err(answer) => counts.refuse(answer),
        }
        response
    }

    /// Sends an admitted request to its upstream.
    async fn forward(
        &self,
        route: &RouteConfig,
        parts: &mut Parts,
        mut body: ClientBody,
        admitted: Admitted<'_>,
    ) -> Result<Response<ResponseBody>, Answer> {
        let Admitted { mut charged, limits, delay, class, reserve, target, authority, to_upstream, slot } = admitted;
        if !delay.is_zero() {
            Box::pin(tokio::time::sleep(delay)).await;
        }
        let upstream = &*self.plan.upstreams[route.upstream];
        let cap = match slot.or_else(|| CapSlot::acquire(upstream, reserve, class)) {
            Some(cap) => cap,
            None => {
                // The room was taken since. What can be given back is.
                charged.cancel();
                return Err(self.gateway.limits.shed(self.plan, route, (Shedder::Adaptive, class), parts, None));
            }
        };
        let is_websocket = hop_by_hop::is_websocket(parts);
        let upgrade = parts.extensions.remove::<OnUpgrade>().filter(|_| is_websocket);
        let (metering, changed) = Metering::prepare(route, parts, body.whole());
        if let Some(changed) = changed {
            body.replace(changed);
        }
        let (body, upload) = body.into_request(route);
        let mut request = Request::new(body);
        *request.method_mut() = parts.method.clone();
        *request.headers_mut() = self.headers_to_upstream(parts, is_websocket, &authority, to_upstream);
        let deadline = route.timeouts.whole.map(clock::after);
        let out = Outgoing { request, target, authority, is_tls: self.client.is_tls, upload, deadline };
        let arrived = match forward::send(upstream, route, out).await {
            Ok(arrived) => arrived,
            Err(error) => {
                cap.release(error.end());
                if error.is_failure() {
                    charged.fail();
                }
                tracing::debug!(route = route.name, upstream = upstream.config.name, %error, "not answered by the upstream");
                return Err(error.answer().with_limits(limits));
            }
        };
        cap.release(if arrived.response.status().is_server_error() {
            RequestEnd::Unsampled
        } else {
            RequestEnd::Answered
        });
        let Arrived { response, lease, in_flight, upload } = arrived;
        let (mut head, body) = response.into_parts();
        if exchange::is_failure(head.status, &head.headers) {
            charged.fail();
        }
        let exchange = Exchange::new(lease, in_flight, upload, metering.begin(&mut head), charged);
        let is_upgraded = head.status == StatusCode::SWITCHING_PROTOCOLS;
        hop_by_hop::clean_response(&mut head.headers, is_upgraded && is_websocket);
        if let Some(limits) = limits {
            limits.add_headers(&mut head.headers);
        }
        if is_upgraded {
            return tunnel::begin(self.state, head, body, upgrade, exchange, route);
        }
        // The version of this connection is hyper's to write.
        head.version = http::Version::HTTP_11;
        Ok(Response::from_parts(head, ResponseBody::upstream(body, route.timeouts.response_idle, deadline, exchange)))
    }

    fn headers_to_upstream(
        &self,
        parts: &mut Parts,
        is_websocket: bool,
        authority: &HeaderValue,
        to_upstream: impl IntoIterator<Item = (&'static http::HeaderName, HeaderValue)>,
    ) -> HeaderMap {
        let mut headers = std::mem::take(&mut parts.headers);
        hop_by_hop::clean_request(&mut headers, is_websocket);
        // The body is sent whether or not the upstream wants it: the decision has been made.
        headers.remove(header::EXPECT);
        let hop = Hop {
            address: self.client.address.as_ref(),
            is_trusted: self.plan.config.trusted_proxies.contains(self.client.peer),
            is_tls: self.client.is_tls,
            authority,
        };
        forwarded::set_forwarded(&mut headers, &hop, || fastrand::u128(..));
        for (name, value) in to_upstream {
            headers.insert(name, value);
        }
        headers
    }
}

/// Refuses bodies whose encoding would get lost: only `chunked` is undone here.
fn check_encoding(parts: &Parts) -> Result<(), Answer> {
    let is_chunked = |value: &HeaderValue| value.as_bytes().eq_ignore_ascii_case(b"chunked");
    match parts.headers.get(header::TRANSFER_ENCODING) {
        Some(value) if !is_chunked(value) => {
            let detail = "The only transfer encoding that is accepted is chunked.";
            Err(Answer::problem(StatusCode::NOT_IMPLEMENTED, "transfer_encoding", detail).closing())
        }
        _ => Ok(()),
    }
}
