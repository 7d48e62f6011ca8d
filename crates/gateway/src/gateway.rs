//! The path of a request: its target, its route, its caller, its limits, its upstream, and back.

use std::sync::Arc;

use arc_swap::ArcSwap;
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode};
use tollgate::Ruleset;
use tollgate_http::request_target::PathNormalization;
use tollgate_http::response::ResponseStyle;
use tollgate_http::tower::is_grpc;
use tollgate_net::budget::Budget;
use tollgate_net::workers::BusyTimes;
use tollgate_shed::{ByClass, ShedMode, Shedder, WorkerStatus};
use tollgate_store::{Steady, SystemClock};
use tollgate_wire::Gate;

use crate::activity::ConnectionState;
use crate::admission::{Admitted, Found, Limits};
use crate::agreement::Disagreement;
use crate::answers::Answer;
use crate::charged::Ledger;
use crate::client::Client;
use crate::client_body::ClientBody;
use crate::clock;
use crate::costs;
use crate::exchange::Exchange;
use crate::field_marks::FieldMarks;
use crate::forward::{self, Arrived, Outgoing, Unanswered};
use crate::forwarded::{self, Hop};
use crate::hop_by_hop;
use crate::incoming_body::IncomingBody;
use crate::keys;
use crate::metering::Metering;
use crate::model::RouteConfig;
use crate::plan::{GatewayPlan, RouteCounts};
use crate::questions::Questions;
use crate::response_body::ResponseBody;
use crate::shedding::ShedCounts;
use crate::tunnel;
use crate::upstream::{self, CapSlot, RequestHead};
use crate::worker::Worker;

/// The parts of a gateway.
pub struct GatewayParts {
    pub gate: Arc<Gate>,
    pub style: ResponseStyle,
    pub normalization: PathNormalization,
    /// The threads that serve the clients.
    pub workers: BusyTimes,
}

/// Serves the clients of a gateway.
#[derive(Debug)]
pub struct Gateway {
    plan: ArcSwap<GatewayPlan>,
    limits: Limits,
    worker: Worker,
    /// The bodies that are being read before their requests are decided.
    read_ahead: Budget,
}

/// The memory of all bodies that are being read before their requests are decided.
const MAX_READ_AHEAD_BYTES: usize = 256 * 1024 * 1024;

impl Gateway {
    pub fn new(parts: GatewayParts, plan: GatewayPlan) -> Gateway {
        let GatewayParts { gate, style, normalization, workers } = parts;
        let ledger = Arc::new(Ledger::new(gate.clone()));
        let limits = Limits {
            gate,
            style,
            normalization,
            ledger,
            clock: SystemClock::default(),
            shed_counts: ShedCounts::default(),
            questions: Questions::default(),
        };
        let worker = Worker::new(&plan.config.worker_shedding, workers);
        let read_ahead = Budget::new(MAX_READ_AHEAD_BYTES);
        Gateway { plan: ArcSwap::from_pointee(plan), limits, worker, read_ahead }
    }

    /// The configuration in force.
    pub fn plan(&self) -> Arc<GatewayPlan> {
        self.plan.load_full()
    }

    /// The rules in force.
    pub(crate) fn rules(&self) -> Arc<Ruleset> {
        self.limits.gate.limiter().rules()
    }

    /// What the configuration and the rules in force do not agree on.
    pub fn disagreements(&self) -> Vec<Disagreement> {
        Disagreement::find(&self.plan().config, &self.rules())
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
        tokio::join!(
            self.limits.ledger.clone().run(),
            keys::run(|| self.plan().keys.clone()),
            self.worker.run(|| self.limits.gate.load())
        );
    }

    /// Answers a request.
    pub(crate) async fn respond(
        self: &Arc<Self>,
        (mut parts, marks): (Parts, FieldMarks),
        body: IncomingBody,
        client: &Client,
        state: &Arc<ConnectionState>,
    ) -> Response<ResponseBody> {
        let plan = self.plan.load_full();
        let is_grpc = is_grpc(&parts.headers);
        let arriving = Arriving { gateway: self, plan: &plan, client, state, marks };
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
    /// The kinds of its fields.
    marks: FieldMarks,
}

impl Arriving<'_> {
    async fn respond(&self, parts: &mut Parts, body: IncomingBody) -> Result<Response<ResponseBody>, Answer> {
        let is_own_limits = self.plan.config.limits_path.as_deref() == Some(parts.uri.path());
        if is_own_limits && matches!(parts.method, Method::GET | Method::HEAD) {
            // Boxed, as everything that few requests do, so that the future of a request stays small.
            let Gateway { limits, worker, .. } = &**self.gateway;
            return Err(Box::pin(limits.own_limits(self.plan, parts, self.client, worker)).await);
        }
        let found = self.plan.find(parts)?;
        let number = found.route;
        let (route, counts) = (&self.plan.config.routes[number], &self.plan.route_counts[number]);
        let deadline = route.timeouts.whole.map(clock::after);
        let mut body = ClientBody::new(route, parts, body)?;
        let most = costs::body_bound(&route.costs);
        let admitted = if most == 0 {
            self.admit(&found, parts, &body).await
        } else {
            // Boxed, because few routes have such costs.
            Box::pin(self.admit_with_body(&found, parts, &mut body, (most, deadline))).await
        };
        let admitted = match admitted {
            Ok(admitted) => admitted,
            Err(answer) => {
                counts.refuse(&answer);
                return Err(answer);
            }
        };
        drop(found);
        let response = self.forward((route, counts), parts, body, admitted, deadline).await;
        match &response {
            Ok(response) => counts.count(response.status()),
            Err(answer) => counts.refuse(answer),
        }
        response
    }

    async fn admit(&self, found: &Found<'_>, parts: &Parts, body: &ClientBody) -> Result<Admitted, Answer> {
        let Gateway { limits, worker, .. } = &**self.gateway;
        let entered = limits.enter(self.plan, found, parts, self.client, worker)?;
        limits.admit(self.plan, found, parts, body.arrived(), self.client, entered).await
    }

    /// The same, if a cost is in the body: it is read before the limits are checked, and not requested of a client that is refused
    /// anyway.
    async fn admit_with_body(
        &self,
        found: &Found<'_>,
        parts: &Parts,
        body: &mut ClientBody,
        (most, deadline): (usize, Option<Steady>),
    ) -> Result<Admitted, Answer> {
        let Gateway { limits, worker, read_ahead, .. } = &**self.gateway;
        let entered = limits.enter(self.plan, found, parts, self.client, worker)?;
        let idle = self.plan.config.routes[found.route].timeouts.request_idle;
        let _reservation = body.read_ahead(most, idle, deadline, read_ahead).await?;
        limits.admit(self.plan, found, parts, body.arrived(), self.client, entered).await
    }

    /// Sends an admitted request to its upstream.
    async fn forward(
        &self,
        (route, counts): (&RouteConfig, &RouteCounts),
        parts: &mut Parts,
        mut body: ClientBody,
        admitted: Admitted,
        deadline: Option<Steady>,
    ) -> Result<Response<ResponseBody>, Answer> {
        let Admitted { mut charged, limits, delay, class, reserve, target, authority, to_upstream } = admitted;
        // The store's decision is not cut off, since it has a deadline of its own and has to be settled.
        if clock::until(deadline).is_some_and(|left| left <= delay) {
            charged.cancel();
            return Err(forward::overdue());
        }
        if !delay.is_zero() {
            Box::pin(tokio::time::sleep(delay)).await;
        }
        let upstream = &*self.plan.upstreams[route.upstream];
        let Some(mut cap) = CapSlot::acquire(upstream, reserve, class) else {
            // The room was taken since. What can be given back is.
            charged.cancel();
            return Err(self.gateway.limits.shed(self.plan, route, (Shedder::Adaptive, class), parts, None));
        };
        let is_websocket = hop_by_hop::is_websocket(parts, self.marks);
        let (metering, changed) = Metering::prepare(route, parts, body.whole());
        if let Some(changed) = changed {
            body.replace(changed);
        }
        let (body, upload) = body.into_request(route);
        if let Some((upload, bytes)) = upload.clone().zip(costs::counted_length(&route.costs, &parts.headers)) {
            charged.count_upload(upload, bytes);
        }
        let headers = self.headers_to_upstream(parts, is_websocket, &authority, to_upstream);
        let method = parts.method.clone();
        // HTTP/1.0 has none, and hyper writes none to clients of HTTP/2.
        let interim = (parts.version == http::Version::HTTP_11).then(|| self.state.clone());
        let head = RequestHead { method, target, authority, headers, is_tls: self.client.is_tls, interim };
        let out = Outgoing { head, body, upload, deadline };
        let arrived = match forward::send(upstream, route, out, &mut cap).await {
            Ok(arrived) => arrived,
            Err(Unanswered { error, is_sent }) => {
                cap.release(error.end());
                if !is_sent {
                    charged.cancel();
                } else if error.is_failure() {
                    charged.fail();
                }
                tracing::debug!(route = route.name, upstream = upstream.config.name, %error, "not answered by the upstream");
                return Err(error.answer().with_limits(limits));
            }
        };
        cap.release(arrived.end);
        let Arrived { response, in_flight, is_failure, .. } = arrived;
        let (mut head, body) = response.into_parts();
        if is_failure {
            charged.fail();
        }
        let exchange = Exchange::new(in_flight, metering.begin(&mut head, &counts.estimated), charged);
        let is_upgraded = head.status == StatusCode::SWITCHING_PROTOCOLS;
        hop_by_hop::clean_response(&mut head.headers, is_upgraded && is_websocket);
        if let Some(limits) = limits {
            limits.add_headers(&mut head.headers);
        }
        if is_upgraded {
            return tunnel::begin(self.state, head, body, is_websocket, exchange, route);
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
        hop_by_hop::clean_request(&mut headers, self.marks, is_websocket);
        self.plan.identity.remove_lookalikes(&mut headers, self.marks);
        let hop = Hop {
            address: self.client.address.as_ref(),
            is_trusted: self.plan.config.trusted_proxies.contains(self.client.peer),
            is_tls: self.client.is_tls,
            authority,
        };
        forwarded::set_forwarded(&mut headers, self.marks, &hop, || fastrand::u128(..));
        for (name, value) in to_upstream {
            headers.insert(name, value);
        }
        headers
    }
}
