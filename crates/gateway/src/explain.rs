//! What a gateway would do with a request, from its configuration alone: nothing is sent, and no limit is checked.

mod attributes;
mod words;

use std::fmt::Write as _;
use std::net::IpAddr;

use http::request::Parts;
use http::{Method, StatusCode};
use serde::Serialize;
use tollgate_core::Timestamp;
use tollgate_http::request_target::PathNormalization;
use tollgate_shed::Class;

use crate::costs;
use crate::forwarded::{self, Peer};
use crate::identity::{ConnectionFacts, Identity, IdentityValues};
use crate::model::{GatewayConfig, HostPattern, PriorityConfig, RouteConfig, Segment};
use crate::routes::{PathParameters, RouteMatch, RouteTable};
use crate::target::{Target, without_prefix};

pub(crate) use attributes::unloaded_keys;
pub use attributes::{ExplainedAttribute, masked};

/// A request that is to be explained.
#[derive(Clone, Copy, Debug)]
pub struct ExplainedRequest<'r> {
    pub parts: &'r Parts,
    /// As far as it is known.
    pub body: Option<&'r [u8]>,
    /// The address that the client connects from.
    pub peer: IpAddr,
    pub now: Timestamp,
    /// How rules see paths.
    pub normalization: PathNormalization,
}

/// What would happen to a request, as far as the gateway decides it. Credentials are masked.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct RequestExplanation {
    /// The path that routes and rules match.
    pub path: Option<String>,
    /// The response of the gateway's own. `None`: the request is forwarded if the limits admit it.
    pub answer: Option<OwnAnswer>,
    pub route: Option<ChosenRoute>,
    pub other_routes: Vec<OtherRoute>,
    /// The path and the query that the upstream gets.
    pub forwarded: Option<String>,
    pub attributes: Vec<ExplainedAttribute>,
    pub priority: Option<ExplainedClass>,
    pub upstream: Option<ExplainedUpstream>,
    pub costs: Vec<ExplainedCost>,
    pub timeouts: Option<ExplainedTimeouts>,
    /// What can't be known here.
    pub notes: Vec<String>,
    /// The attributes for rules, with their real values.
    #[serde(skip)]
    pub entries: Vec<(String, String)>,
}

/// A response of the gateway's own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OwnAnswer {
    pub status: u16,
    pub code: &'static str,
    pub detail: String,
}

/// The route of a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ChosenRoute {
    pub name: String,
    /// Its line in the file.
    pub line: usize,
    /// What it matches.
    pub matches: String,
}

/// A route that the request does not take.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OtherRoute {
    pub name: String,
    pub line: usize,
    pub why: String,
}

/// The priority class of a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ExplainedClass {
    pub class: &'static str,
    pub why: String,
}

/// Where a request goes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ExplainedUpstream {
    pub name: String,
    pub servers: String,
}

/// A cost of a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ExplainedCost {
    pub attribute: String,
    pub units: u64,
    /// Where the units come from.
    pub from: String,
    /// Where the real cost comes from at the end.
    pub settled_by: Option<String>,
}

/// The timeouts of a request, in milliseconds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ExplainedTimeouts {
    pub connect_ms: u128,
    pub tls_ms: u128,
    pub request_idle_ms: u128,
    pub response_ms: u128,
    pub response_idle_ms: u128,
    /// `None`: no bound.
    pub whole_ms: Option<u128>,
}

/// Explains a request.
pub fn explain(config: &GatewayConfig, request: ExplainedRequest<'_>) -> RequestExplanation {
    let mut explanation = RequestExplanation::default();
    let is_own_limits = config.limits_path.as_deref() == Some(request.parts.uri.path());
    if is_own_limits && matches!(request.parts.method, Method::GET | Method::HEAD) {
        let detail = "the caller's own limits, or 401 without a valid credential".to_owned();
        explanation.path.clone_from(&config.limits_path);
        explanation.answer = Some(OwnAnswer::new(StatusCode::OK, "limits", detail));
        return explanation;
    }
    let target = match Target::read(request.parts) {
        Ok(target) => target,
        Err(fault) => {
            explanation.answer = Some(OwnAnswer::new(fault.status(), "bad_target", fault.to_string()));
            return explanation;
        }
    };
    explanation.path = Some(String::from_utf8_lossy(&target.path).into_owned());
    let found = RouteTable::new(&config.routes).find(target.host(), &target.path, &request.parts.method);
    let chosen = match &found {
        RouteMatch::Found { route, .. } => Some(*route),
        RouteMatch::WrongMethod { .. } | RouteMatch::None => None,
    };
    explanation.other_routes = others(config, chosen, &target, request.parts);
    match found {
        RouteMatch::Found { route, parameters } => {
            let route = &config.routes[route];
            explanation.take_route(config, route);
            match target.odd {
                Some(odd) if !route.odd_paths => {
                    explanation.answer = Some(OwnAnswer::new(StatusCode::BAD_REQUEST, "odd_path", odd.to_string()));
                }
                _ => explanation.take_request(config, route, &parameters, &target, request),
            }
        }
        RouteMatch::WrongMethod { allowed } => {
            let allowed = allowed.iter().map(Method::as_str).collect::<Vec<_>>().join(", ");
            let detail = format!("the path accepts {allowed}");
            explanation.answer = Some(OwnAnswer::new(StatusCode::METHOD_NOT_ALLOWED, "wrong_method", detail));
        }
        RouteMatch::None => {
            let detail = "no route matches".to_owned();
            explanation.answer = Some(OwnAnswer::new(StatusCode::NOT_FOUND, "no_route", detail));
        }
    }
    explanation
}

// === impl RequestExplanation ===

impl RequestExplanation {
    /// What is known from the route alone.
    fn take_route(&mut self, config: &GatewayConfig, route: &RouteConfig) {
        self.route = Some(ChosenRoute { name: route.name.clone(), line: route.line, matches: words::of_route(route) });
        let upstream = &config.upstreams[route.upstream];
        self.upstream =
            Some(ExplainedUpstream { name: upstream.name.clone(), servers: words::of_servers(&upstream.servers) });
        let timeouts = &route.timeouts;
        self.timeouts = Some(ExplainedTimeouts {
            connect_ms: timeouts.connect.as_millis(),
            tls_ms: timeouts.tls.as_millis(),
            request_idle_ms: timeouts.request_idle.as_millis(),
            response_ms: timeouts.response.as_millis(),
            response_idle_ms: timeouts.response_idle.as_millis(),
            whole_ms: timeouts.whole.map(|whole| whole.as_millis()),
        });
    }

    fn take_request(
        &mut self,
        config: &GatewayConfig,
        route: &RouteConfig,
        parameters: &PathParameters,
        target: &Target<'_>,
        request: ExplainedRequest<'_>,
    ) {
        let ExplainedRequest { parts, .. } = request;
        self.forwarded = Some(match &route.strip_prefix {
            Some(prefix) => without_prefix(&target.forwarded, prefix).into_owned(),
            None => target.forwarded.clone().into_owned(),
        });
        let parameters = named(route, parameters, target);
        let connection = ConnectionFacts { peer: Some(request.peer), ..ConnectionFacts::default() };
        let identity = Identity::new(&config.attributes, &[]);
        self.notes = attributes::load_keys(&identity);
        let values = match identity.read(parts, &parameters, &connection, request.now) {
            Ok(values) => values,
            Err(source) => {
                let detail = source.to_string();
                self.answer = Some(OwnAnswer::new(StatusCode::BAD_REQUEST, "ambiguous_credential", detail));
                return;
            }
        };
        self.attributes = config
            .attributes
            .iter()
            .map(|attribute| attributes::explain(attribute, parts, &parameters, &connection, request.now))
            .collect();
        let class = config.priorities.class(route, parts, &values);
        self.priority = Some(ExplainedClass {
            class: class.name(),
            why: why_class(&config.priorities, class, route, parts, &values),
        });
        self.take_costs(route, request);
        if let Some(missing) = identity.missing(&route.require, &values) {
            let detail = format!("the route requires `{missing}`, and the request has no valid one");
            self.answer = Some(OwnAnswer::new(StatusCode::UNAUTHORIZED, "unauthorized", detail));
        }
        self.entries = self.entries(config, route, target, class, request);
        self.entries.extend(values.iter().map(|(name, value)| (name.to_owned(), value.to_owned())));
    }

    fn take_costs(&mut self, route: &RouteConfig, request: ExplainedRequest<'_>) {
        if request.body.is_none() && costs::needs_body(&route.costs) {
            self.notes.push("the costs depend on the body, and none was given".to_owned());
        }
        for cost in &route.costs {
            match costs::reserve(cost, request.parts, request.body) {
                Ok(units) => self.costs.push(ExplainedCost {
                    attribute: cost.attribute.clone(),
                    units,
                    from: words::of_cost(cost),
                    settled_by: cost.settle.as_ref().map(words::of_settle),
                }),
                // Without a body there is nothing to refuse.
                Err(_) if request.body.is_none() => {}
                Err(refusal) => {
                    let answer = OwnAnswer::new(StatusCode::BAD_REQUEST, "too_expensive", refusal.to_string());
                    self.answer.get_or_insert(answer);
                }
            }
        }
    }

    /// The attributes that every request has, in the order of a check.
    fn entries(
        &self,
        config: &GatewayConfig,
        route: &RouteConfig,
        target: &Target<'_>,
        class: Class,
        request: ExplainedRequest<'_>,
    ) -> Vec<(String, String)> {
        let ExplainedRequest { parts, .. } = request;
        let path = String::from_utf8_lossy(&request.normalization.path(&target.path)).into_owned();
        let mut endpoint = String::new();
        // Writing to a text can't fail.
        let _ = write!(endpoint, "{} {path}", parts.method);
        let address = forwarded::client_address(Peer::Address(request.peer), &config.trusted_proxies, &parts.headers);
        let mut entries = vec![
            ("route".to_owned(), route.name.clone()),
            ("method".to_owned(), parts.method.to_string()),
            ("path".to_owned(), path),
            ("endpoint".to_owned(), endpoint),
            ("host".to_owned(), target.host().to_owned()),
        ];
        entries.extend(address.map(|address| ("remote_address".to_owned(), address.to_string())));
        entries.push(("priority".to_owned(), class.name().to_owned()));
        entries.extend(self.costs.iter().map(|cost| (cost.attribute.clone(), cost.units.to_string())));
        entries
    }
}

impl OwnAnswer {
    fn new(status: StatusCode, code: &'static str, detail: String) -> OwnAnswer {
        OwnAnswer { status: status.as_u16(), code, detail }
    }
}

// === Routes ===

/// The values of the path's parameters, by their names.
fn named<'a>(route: &'a RouteConfig, parameters: &PathParameters, target: &'a Target<'_>) -> Vec<(&'a str, &'a str)> {
    let named = parameters.iter().filter_map(|(segment, range)| {
        let Segment::Parameter(name) = route.path.segments.get(*segment)? else { return None };
        Some((&**name, str::from_utf8(target.path.get(range.clone())?).ok()?))
    });
    named.collect()
}

/// Why the other routes are not taken.
fn others(config: &GatewayConfig, chosen: Option<usize>, target: &Target<'_>, parts: &Parts) -> Vec<OtherRoute> {
    let others = config.routes.iter().enumerate().filter(|(index, _)| Some(*index) != chosen);
    let others = others.map(|(_, route)| OtherRoute {
        name: route.name.clone(),
        line: route.line,
        why: why_not(route, target, parts),
    });
    others.collect()
}

fn why_not(route: &RouteConfig, target: &Target<'_>, parts: &Parts) -> String {
    let hosts = || route.hosts.iter().map(words::of_host).collect::<Vec<_>>().join(", ");
    let methods = || route.methods.iter().map(Method::as_str).collect::<Vec<_>>().join(", ");
    match () {
        () if !matches_path(route, &target.path) => format!("its path is {}", words::of_path(&route.path)),
        () if !matches_host(route, target.host()) => format!("its host is {}", hosts()),
        () if !route.methods.is_empty() && !route.methods.contains(&parts.method) => {
            format!("its methods are {}", methods())
        }
        () => "it matches as well, but is less specific".to_owned(),
    }
}

fn matches_host(route: &RouteConfig, host: &str) -> bool {
    let host = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
    let matches = |pattern: &HostPattern| match pattern {
        HostPattern::Exact(exact) => *exact == host,
        HostPattern::Suffix(suffix) => host.len() > suffix.len() && host.ends_with(suffix.as_str()),
    };
    route.hosts.is_empty() || route.hosts.iter().any(matches)
}

fn matches_path(route: &RouteConfig, path: &[u8]) -> bool {
    let Some(path) = path.strip_prefix(b"/") else { return false };
    let mut given = path.split(|byte| *byte == b'/');
    let matches = route.path.segments.iter().all(|segment| match (segment, given.next()) {
        (Segment::Literal(literal), Some(part)) => literal.as_bytes() == part,
        (Segment::Parameter(_), Some(part)) => !part.is_empty(),
        (_, None) => false,
    });
    matches && (route.path.has_rest || given.next().is_none())
}

// === Priority ===

fn why_class(
    priorities: &PriorityConfig,
    class: Class,
    route: &RouteConfig,
    parts: &Parts,
    values: &IdentityValues<'_>,
) -> String {
    // No method makes a request critical, so a lone rule that does has matched.
    let has_matched = |index: &usize| {
        let mut rule = priorities.rules[*index].clone();
        rule.class = Class::Critical;
        let lone = PriorityConfig { rules: vec![rule], header: None };
        lone.class(route, parts, values) == Class::Critical
    };
    let (by, why) = match (0..priorities.rules.len()).find(has_matched) {
        Some(index) => {
            let rule = &priorities.rules[index];
            (rule.class, format!("by {}", words::of_priority(rule)))
        }
        None => (Class::from_method(parts.method.as_str()), format!("by the method {}", parts.method)),
    };
    match &priorities.header {
        Some(header) if class != by => format!("{why} it is {by}, and {header} lowers it"),
        _ => why,
    }
}

#[cfg(test)]
mod tests;
