//! Routes: which requests go to which upstream, and how.

mod phases;

use std::collections::HashMap;

use http::Method;
use tollgate_rules::problem::{TextFault, quoted};
use tollgate_rules::yaml::fields::{Fields, switch, text};
use tollgate_rules::yaml::{Yaml, YamlKind};

use super::values::{self, one_or_more};
use super::{Context, costs, defaults, patterns, upstreams};
use crate::model::{HostPattern, PathPattern, RetryConfig, RouteConfig, Segment, Timeouts};
use crate::routes::RouteTable;

/// The most routes.
const MAX_ROUTES: usize = 10_000;

/// The most hosts of a route.
const MAX_HOSTS: usize = 64;

/// The most attributes that a route requires.
const MAX_REQUIRED: usize = 8;

/// What routes refer to, and what they have unless they say otherwise.
struct Surroundings<'a> {
    upstreams: Vec<(&'a str, usize)>,
    attributes: &'a [&'a str],
    timeouts: Timeouts,
    retries: RetryConfig,
}

/// Which requests a route takes.
struct RequestPattern {
    hosts: Vec<HostPattern>,
    path: PathPattern,
    methods: Vec<Method>,
}

/// The routes, and the names and lines of all that are in the file, right or not.
pub(super) fn routes(
    map: &Fields<'_>,
    context: &Context<'_>,
    attributes: &[&str],
) -> (Vec<RouteConfig>, Vec<(String, usize)>) {
    let mut timeouts = Timeouts::default();
    if let Some(map) = map.map("timeouts") {
        phases::timeouts(&map, &mut timeouts);
    }
    let mut retries = RetryConfig::default();
    phases::retries(map, &mut retries);
    let around = Surroundings { upstreams: upstreams::names(map), attributes, timeouts, retries };
    map.require("routes", "write for instance `routes: [{name: all, match: \"/*\", upstream: orders}]`");
    let items = map.items("routes", MAX_ROUTES);
    if matches!(map.entry("routes").map(|entry| &entry.value.kind), Some(YamlKind::List(items)) if items.is_empty()) {
        map.fault_at(
            "routes",
            "there is no route",
            "write for instance `{name: all, match: \"/*\", upstream: orders}`",
        );
    }
    let mut names: HashMap<String, usize> = HashMap::new();
    let mut routes = Vec::new();
    for item in items {
        let Some(map) = Fields::of(item, "a route", map.faults()) else { continue };
        map.require("name", "write for instance `name: orders`");
        let name = map.read("name", |value| values::name("a route", text(value)?));
        if let Some(first) = name.as_ref().and_then(|name| names.insert(name.clone(), map.line)) {
            let message = format!(
                "the name {} is here twice, first in line {first}",
                quoted(name.as_deref().unwrap_or_default())
            );
            map.fault_at("name", &message, "write another one");
        }
        routes.extend(route(name.unwrap_or_default(), &map, &around));
    }
    check_conflicts(map, &routes);
    warn_of_unused(&around, &routes, items.len(), context);
    let mut names: Vec<_> = names.into_iter().collect();
    names.sort_by_key(|(_, line)| *line);
    (routes, names)
}

fn route(name: String, map: &Fields<'_>, around: &Surroundings<'_>) -> Option<RouteConfig> {
    map.require("match", "write for instance `match: \"POST /v1/charges\"`");
    let pattern = map.entry("match").and_then(|entry| request_pattern(&entry.value, entry.line, map));
    map.require("upstream", "write the name of an upstream");
    let upstream = map.read("upstream", |value| {
        let given = text(value)?;
        let position = around.upstreams.iter().position(|(name, _)| *name == given);
        position.ok_or_else(|| values::unknown("upstream", given, around.upstreams.iter().map(|(name, _)| *name)))
    });
    let require = map.read("require", |value| required(value, around.attributes)).unwrap_or_default();
    let strip_prefix = map.read("strip_prefix", |value| {
        let given = text(value)?;
        pattern.as_ref().map_or(Ok(()), |pattern| check_prefix(given, &pattern.path)).map(|()| given.to_owned())
    });
    let costs = costs::costs(map, around.attributes);
    let (mut timeouts, mut retries) = (around.timeouts, around.retries.clone());
    if let Some(map) = map.map("timeouts") {
        phases::timeouts(&map, &mut timeouts);
    }
    phases::retries(map, &mut retries);
    let max_body = map.read("max_body", values::size).unwrap_or(defaults::MAX_BODY);
    let odd_paths = map.read("odd_paths", switch).unwrap_or(false);
    map.finish();
    let RequestPattern { hosts, path, methods } = pattern?;
    let upstream = upstream?;
    let line = map.line;
    Some(RouteConfig {
        name,
        line,
        hosts,
        path,
        methods,
        upstream,
        require,
        strip_prefix,
        costs,
        timeouts,
        retries,
        max_body,
        odd_paths,
    })
}

/// `"POST /v1/charges"`, or a map with `host`, `path` and `methods`.
fn request_pattern(value: &Yaml, line: usize, outer: &Fields<'_>) -> Option<RequestPattern> {
    if let YamlKind::Scalar(_) = &value.kind {
        let read = text(value).and_then(patterns::request);
        let (method, path) = outer.faults().sound(line, read)?;
        return Some(RequestPattern { hosts: Vec::new(), path, methods: method.into_iter().collect() });
    }
    let map = Fields::of(value, "a pattern of requests", outer.faults())?;
    map.require("path", "write for instance `path: \"/v1/*\"`, or \"/*\" for every path");
    let path = map.read("path", |value| patterns::path(text(value)?));
    let hosts = map.read("host", hosts);
    let methods = map.read("methods", values::methods);
    map.finish();
    // A route for any host in place of one whose host is wrong would only conflict with others.
    if map.has("host") && hosts.is_none() || map.has("methods") && methods.is_none() {
        return None;
    }
    Some(RequestPattern { hosts: hosts.unwrap_or_default(), path: path?, methods: methods.unwrap_or_default() })
}

fn hosts(value: &Yaml) -> Result<Vec<HostPattern>, TextFault> {
    let mut hosts = Vec::new();
    for item in one_or_more(value, MAX_HOSTS)? {
        let host = patterns::host(text(item)?)?;
        if hosts.contains(&host) {
            return Err(TextFault::new(
                format!("the host {} is here twice", item.described()),
                "remove one of the two",
            ));
        }
        hosts.push(host);
    }
    match hosts.is_empty() {
        true => Err(TextFault::new("the list of hosts is empty", "leave out `host` for any host")),
        false => Ok(hosts),
    }
}

fn required(value: &Yaml, attributes: &[&str]) -> Result<Vec<String>, TextFault> {
    let mut names = Vec::new();
    for item in one_or_more(value, MAX_REQUIRED)? {
        let given = text(item)?;
        if !attributes.contains(&given) {
            return Err(values::unknown("attribute", given, attributes.iter().copied()));
        }
        names.push(given.to_owned());
    }
    Ok(names)
}

/// A prefix of whole segments with which every path of the route begins.
fn check_prefix(given: &str, path: &PathPattern) -> Result<(), TextFault> {
    let mut prefix = patterns::path(given)?;
    if prefix.segments.len() > 1 && prefix.segments.last() == Some(&Segment::Literal(String::new())) {
        prefix.segments.pop();
    }
    match patterns::is_literal(&prefix) && path.segments.starts_with(&prefix.segments) && given != "/" {
        true => Ok(()),
        false => Err(TextFault::new(
            format!("the path of this route does not begin with {}", quoted(given)),
            "write the first segments of its path, without `*` and `{…}`, for instance /v1",
        )),
    }
}

fn check_conflicts(map: &Fields<'_>, routes: &[RouteConfig]) {
    for conflict in RouteTable::with_conflicts(routes).1 {
        let (first, second) = (&routes[conflict.first], &routes[conflict.second]);
        let message = format!(
            "{} takes the same requests as {} in line {}",
            quoted(&second.name),
            quoted(&first.name),
            first.line
        );
        let remedy = "remove one of the two, or give them other hosts, paths or methods";
        map.faults().push(second.line, TextFault::new(message, remedy));
    }
}

// === Warnings ===

/// Warns of upstreams that no route uses, if all routes could be read.
fn warn_of_unused(around: &Surroundings<'_>, routes: &[RouteConfig], written: usize, context: &Context<'_>) {
    if routes.len() < written {
        return;
    }
    let mut is_used = vec![false; around.upstreams.len()];
    for route in routes {
        is_used[route.upstream] = true;
    }
    for ((name, line), _) in around.upstreams.iter().zip(is_used).filter(|(_, is_used)| !is_used) {
        let message = format!("no route uses the upstream {}", quoted(name));
        context.warnings.push(*line, TextFault::new(message, "write a route to it, or remove it"));
    }
}

/// Whether a route is for this path and no other.
pub(super) fn has_path(path: &str, routes: &[RouteConfig]) -> bool {
    patterns::path(path).is_ok_and(|own| routes.iter().any(|route| route.path == own))
}

/// Warns of routes that never match, because the gateway itself answers their only path. Apart from this a route is never
/// preceded by another for all of its requests: the more specific of two takes fewer of them.
pub(super) fn warn_of_hidden(limits_path: &str, routes: &[RouteConfig], context: &Context<'_>) {
    let Ok(own) = patterns::path(limits_path) else { return };
    for route in routes.iter().filter(|route| route.path == own) {
        let message = format!("{} never matches, because `limits_path` precedes it", quoted(&route.name));
        context.warnings.push(route.line, TextFault::new(message, "remove the route, or write another `limits_path`"));
    }
}
