//! From the head of a request to the decision about it.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use http::request::Parts;
use http::{HeaderName, HeaderValue, Method, StatusCode, Uri, header};
use smallvec::SmallVec;
use tollgate::{Clock as _, Descriptor, ReceiptWish, Request, RequestError, Span, poll_once};
use tollgate_http::request_target::PathNormalization;
use tollgate_http::response::{self, Detail, ResponseStyle, WrittenResponse};
use tollgate_shed::{Class, Shedder};
use tollgate_store::SystemClock;
use tollgate_wire::Gate;

use crate::answers::Answer;
use crate::charged::{Charged, Ledger};
use crate::client::Client;
use crate::costs;
use crate::forwarded;
use crate::identity::{AmbiguousSource, IdentityValues, header_value};
use crate::model::{RouteConfig, Segment, UpstreamHeaders};
use crate::plan::GatewayPlan;
use crate::questions::Questions;
use crate::routes::RouteMatch;
use crate::shedding::ShedCounts;
use crate::target::{Target, TargetFault, without_prefix};
use crate::upstream::{CapFull, CapSlot};
use crate::worker::Worker;

/// Decides requests by the limits.
#[derive(Debug)]
pub(crate) struct Limits {
    pub(crate) gate: Arc<Gate>,
    pub(crate) style: ResponseStyle,
    pub(crate) normalization: PathNormalization,
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) clock: SystemClock,
    pub(crate) shed_counts: ShedCounts,
    pub(crate) questions: Questions,
}

/// A request that may be forwarded.
pub(crate) struct Admitted {
    /// Settles what the limits took.
    pub(crate) charged: Charged,
    /// What its response says of the limits.
    pub(crate) limits: Option<Box<WrittenResponse>>,
    /// How long it is delayed, so that requests leave evenly spaced.
    pub(crate) delay: Duration,
    pub(crate) class: Class,
    /// The number of its tier's reserve at the upstream, if it has one.
    pub(crate) reserve: Option<usize>,
    /// What is forwarded, in origin form.
    pub(crate) target: Uri,
    pub(crate) authority: HeaderValue,
    /// What the upstream learns. By default nothing.
    pub(crate) to_upstream: Vec<(&'static HeaderName, HeaderValue)>,
}

/// A request that is not refused for reasons that do not need its body.
pub(crate) struct Entered<'e> {
    values: IdentityValues<'e>,
    class: Class,
    /// The number of its tier's reserve at the upstream, if it has one.
    reserve: Option<usize>,
}

/// The route of a request, and the values of its path.
pub(crate) struct Found<'r> {
    pub(crate) route: usize,
    pub(crate) target: Target<'r>,
    parameters: SmallVec<[(usize, std::ops::Range<usize>); 4]>,
}

/// A caller sends more than its fair part of an upstream that is overloaded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AboveFairRate;

/// The attributes of a check: those of every request, and as many of the configuration as fit.
type Entries<'e> = SmallVec<[(&'e str, &'e str); 16]>;

/// The longest delay of a leaky bucket. A request that would have to wait longer is refused.
const MAX_DELAY: Span = Span::from_secs(10);

/// The methods in the answer to CONNECT and TRACE, which no path accepts.
const FORWARDED_METHODS: HeaderValue = HeaderValue::from_static("GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS");

static CALLER: HeaderName = HeaderName::from_static("x-tollgate-caller");
static TIER: HeaderName = HeaderName::from_static("x-tollgate-tier");
static PRIORITY: HeaderName = HeaderName::from_static("x-tollgate-priority");
static RULE: HeaderName = HeaderName::from_static("x-tollgate-rule");
static REMAINING: HeaderName = HeaderName::from_static("x-tollgate-remaining");
static COST: HeaderName = HeaderName::from_static("x-tollgate-request-cost");

impl GatewayPlan {
    /// Finds the route of a request.
    pub(crate) fn find<'r>(&self, parts: &'r Parts) -> Result<Found<'r>, Answer> {
        let target = Target::read(parts).map_err(bad_target)?;
        let (route, parameters) = match self.routes.find(target.host(), &target.path, &parts.method) {
            RouteMatch::Found { route, parameters } => (route, parameters),
            RouteMatch::WrongMethod { allowed } => return Err(wrong_method(&allowed)),
            RouteMatch::None => {
                return Err(Answer::problem(StatusCode::NOT_FOUND, "no_route", "No route matches this request."));
            }
        };
        match target.odd {
            Some(odd) if !self.config.routes[route].odd_paths => {
                let detail = format!("The request is refused because {odd}, which servers read in different ways.");
                Err(Answer::bad_request("odd_path", detail))
            }
            _ => Ok(Found { route, target, parameters }),
        }
    }
}

/// The answer to a target that is none of a path.
pub(crate) fn bad_target(fault: TargetFault) -> Answer {
    let answer = Answer::problem(fault.status(), "bad_target", fault.to_string());
    match fault.status() {
        StatusCode::BAD_REQUEST => answer.closing(),
        StatusCode::METHOD_NOT_ALLOWED => answer.with_header(header::ALLOW, FORWARDED_METHODS),
        _ => answer,
    }
}

fn wrong_method(allowed: &[Method]) -> Answer {
    let list = allowed.iter().map(Method::as_str).collect::<Vec<_>>().join(", ");
    let detail = "This path does not accept the method; the Allow header lists those that it accepts.";
    let answer = Answer::problem(StatusCode::METHOD_NOT_ALLOWED, "wrong_method", detail);
    match HeaderValue::try_from(list) {
        Ok(list) => answer.with_header(header::ALLOW, list),
        Err(_) => answer,
    }
}

impl Limits {
    /// Decides what does not need the body of a request: whose it is, and whether it is shed.
    pub(crate) fn enter<'e>(
        &self,
        plan: &'e GatewayPlan,
        found: &'e Found<'_>,
        parts: &'e Parts,
        client: &'e Client,
        worker: &Worker,
    ) -> Result<Entered<'e>, Answer> {
        let route = &plan.config.routes[found.route];
        let parameters = found.parameters(route);
        let values = plan.identity.read(parts, &parameters, &client.facts, self.clock.now()).map_err(ambiguous)?;
        if let Some(missing) = plan.identity.missing(&route.require, &values) {
            return Err(unauthorized(plan, parts, missing));
        }
        let class = plan.config.priorities.class(route, parts, &values);
        if !worker.admits(class) {
            return Err(self.shed(plan, route, (Shedder::Worker, class), parts, Some(&values)));
        }
        let upstream = &*plan.upstreams[route.upstream];
        let reserve = self
            .reserve(plan, upstream, &values, parts, client)
            .map_err(|AboveFairRate| self.shed(plan, route, (Shedder::Fairness, class), parts, Some(&values)))?;
        CapSlot::look(upstream, reserve, class)
            .map_err(|CapFull| self.shed(plan, route, (Shedder::Adaptive, class), parts, Some(&values)))?;
        Ok(Entered { values, class, reserve })
    }

    /// Decides a request by its limits. `body` is its body, as far as it was read.
    pub(crate) async fn admit(
        &self,
        plan: &GatewayPlan,
        found: &Found<'_>,
        parts: &Parts,
        body: Option<&[u8]>,
        client: &Client,
        entered: Entered<'_>,
    ) -> Result<Admitted, Answer> {
        let admitted = self.admit_by_store(plan, found, parts, body, client, entered);
        if self.gate.waits() {
            // Boxed, so that the future of a request stays small for stores that never wait.
            return Box::pin(admitted).await;
        }
        poll_once(admitted).unwrap_or_else(|| Err(Answer::bad_request("undecided", "The limits could not be checked.")))
    }

    async fn admit_by_store(
        &self,
        plan: &GatewayPlan,
        found: &Found<'_>,
        parts: &Parts,
        body: Option<&[u8]>,
        client: &Client,
        Entered { values, class, reserve }: Entered<'_>,
    ) -> Result<Admitted, Answer> {
        let route = &plan.config.routes[found.route];
        let path = self.normalization.path(&found.target.path);
        let path = String::from_utf8_lossy(&path);
        let endpoint = [parts.method.as_str(), " ", &path].concat();
        let address = forwarded::client_address(client.peer, &plan.config.trusted_proxies, &parts.headers);
        let address = address.map(|address| client.address_text(address));
        let costs = costs_of(route, parts, body)?;

        let mut entries = Entries::new();
        entries.push(("route", &route.name));
        entries.push(("method", parts.method.as_str()));
        entries.push(("path", &path));
        entries.push(("endpoint", &endpoint));
        entries.push(("host", found.target.host()));
        entries.extend(address.as_deref().map(|address| ("remote_address", address)));
        entries.push(("priority", class.name()));
        entries.extend(costs.iter().map(|(name, cost)| (*name, cost.as_str())));
        entries.extend(values.iter().map(|(name, value)| -> (&str, &str) { (name, value) }));
        let descriptors = [Descriptor::new(&entries)];
        let request = Request {
            domain: plan.config.domain.as_deref(),
            descriptors: &descriptors,
            receipt: ReceiptWish::IfNeeded,
            ..Request::default()
        };
        let mut admission = self.decide(&request, parts, &plan.config.to_upstream).await.inspect_err(|answer| {
            if answer.is_shed() {
                self.shed_counts.count(Shedder::Fleet, class);
            }
        })?;
        if plan.config.to_upstream.tier {
            admission.tier = self.tier_header(plan, &values);
        }
        let admitted = admission.into_admitted(plan, found, parts, class, &values, &costs);
        Ok(Admitted { reserve, ..admitted })
    }

    /// Checks the limits. `sent`: what the upstream learns of them.
    async fn decide(&self, request: &Request<'_>, parts: &Parts, sent: &UpstreamHeaders) -> Result<Decided, Answer> {
        let mut decision = self.gate.limiter().decision();
        match self.gate.check(request, &parts.headers, None, &mut decision).await {
            Ok(()) => {}
            // There are no rules for the domain: nothing to count.
            Err(RequestError::UnknownDomain) => return Ok(Decided::default()),
            Err(_) if self.gate.pass_undecided(request.domain) => return Ok(Decided::default()),
            Err(error) => return Err(Answer::bad_request("undecided", error.to_string())),
        }
        if decision.allowed() && decision.delay() > MAX_DELAY {
            self.gate.limiter().refuse_for_delay(request, &mut decision, MAX_DELAY).await;
        }
        let context = self.gate.response_context(&decision);
        let charged = if decision.allowed() {
            let hold = decision.shortest_hold();
            self.ledger.charge(decision.take_receipt(), hold)
        } else {
            Charged::default()
        };
        let has_headers = !decision.is_unmatched() || !context.passes;
        if !has_headers {
            return Ok(Decided { charged, ..Decided::default() });
        }
        let limits = response::respond(&self.style, request, &decision, context, Detail::HeadersOnly);
        if !context.passes {
            return Err(Answer::from(limits.into_response()));
        }
        let is_sent = sent.rule || sent.remaining;
        let tightest = decision.tightest().filter(|_| is_sent);
        let tightest = tightest.map(|outcome| (header_value(outcome.rule.name()), outcome.reading.remaining));
        let delay = Duration::from_micros(decision.delay().as_micros());
        Ok(Decided { charged, limits: Some(Box::new(limits)), delay, tightest, tier: None })
    }
}

/// A decision, as far as a request that passes needs it.
#[derive(Default)]
struct Decided {
    charged: Charged,
    limits: Option<Box<WrittenResponse>>,
    delay: Duration,
    tightest: Option<(HeaderValue, u64)>,
    /// The caller's tier, if its upstream learns it.
    tier: Option<HeaderValue>,
}

impl Decided {
    fn into_admitted(
        self,
        plan: &GatewayPlan,
        found: &Found<'_>,
        parts: &Parts,
        class: Class,
        values: &IdentityValues<'_>,
        costs: &Costs<'_>,
    ) -> Admitted {
        let route = &plan.config.routes[found.route];
        let mut to_upstream = Vec::new();
        let UpstreamHeaders { caller, tier, priority, rule, remaining, cost } = plan.config.to_upstream;
        let mut add = |is_sent: bool, name, value: &dyn Fn() -> Option<HeaderValue>| {
            to_upstream.extend(is_sent.then(value).flatten().map(|value| (name, value)));
        };
        add(caller, &CALLER, &|| values.iter().next().map(|(_, value)| header_value(value)));
        add(tier, &TIER, &|| self.tier.clone());
        add(priority, &PRIORITY, &|| Some(HeaderValue::from_static(class.name())));
        let (name, room) = self.tightest.unzip();
        add(rule, &RULE, &|| name.clone());
        add(remaining, &REMAINING, &|| room.map(HeaderValue::from));
        add(cost, &COST, &|| costs.first().and_then(|(_, cost)| HeaderValue::from_str(cost).ok()));
        Admitted {
            charged: self.charged,
            limits: self.limits,
            delay: self.delay,
            class,
            reserve: None,
            target: forwarded_uri(&found.target, route, parts),
            authority: authority_value(&found.target, parts),
            to_upstream,
        }
    }
}

impl<'r> Found<'r> {
    /// The values of the path's parameters, by their names.
    fn parameters<'a>(&'a self, route: &'a RouteConfig) -> SmallVec<[(&'a str, &'a str); 4]> {
        let named = self.parameters.iter().filter_map(|(segment, range)| {
            let Segment::Parameter(name) = route.path.segments.get(*segment)? else { return None };
            Some((&**name, std::str::from_utf8(self.target.path.get(range.clone())?).ok()?))
        });
        named.collect()
    }
}

/// What is forwarded, in origin form.
fn forwarded_uri(target: &Target<'_>, route: &RouteConfig, parts: &Parts) -> Uri {
    let forwarded = match &route.strip_prefix {
        Some(prefix) => without_prefix(&target.forwarded, prefix),
        None => Cow::Borrowed(&*target.forwarded),
    };
    match parts.uri.path_and_query() {
        // Nearly all are forwarded as they came, and need not be read again.
        Some(own) if own.as_str() == forwarded => Uri::from(own.clone()),
        // It was a part of a URI before.
        _ => Uri::try_from(forwarded.into_owned()).unwrap_or_default(),
    }
}

fn authority_value(target: &Target<'_>, parts: &Parts) -> HeaderValue {
    let own = parts.headers.get(header::HOST).filter(|host| host.as_bytes() == target.authority.as_bytes());
    own.cloned().unwrap_or_else(|| HeaderValue::from_str(target.authority).unwrap_or(HeaderValue::from_static("")))
}

/// Costs by the names of their attributes.
type Costs<'r> = SmallVec<[(&'r str, String); 2]>;

fn costs_of<'r>(route: &'r RouteConfig, parts: &Parts, body: Option<&[u8]>) -> Result<Costs<'r>, Answer> {
    let cost = |config: &'r crate::model::CostConfig| match costs::reserve(config, parts, body) {
        Ok(cost) => Ok((&*config.attribute, cost.to_string())),
        Err(refusal) => Err(Answer::bad_request("too_expensive", refusal.to_string())),
    };
    route.costs.iter().map(cost).collect()
}

pub(crate) fn ambiguous(source: AmbiguousSource) -> Answer {
    Answer::bad_request("ambiguous_credential", source.to_string())
}

/// The answer without a credential, with what may be one.
pub(crate) fn unauthorized(plan: &GatewayPlan, parts: &Parts, missing: &str) -> Answer {
    let detail = format!("This route requires `{missing}`, and the request has no valid one.");
    let answer = Answer::problem(StatusCode::UNAUTHORIZED, "unauthorized", detail);
    let mut challenges = plan.identity.challenges(missing, &parts.headers).into_iter();
    // The first takes the place of the one that every such answer has.
    let Some(first) = challenges.next() else { return answer };
    let answer = answer.with_header(header::WWW_AUTHENTICATE, first);
    challenges.fold(answer, |answer, challenge| answer.with_further(header::WWW_AUTHENTICATE, challenge))
}
