//! Which route a request takes.
//!
//! Of the routes that match the host, the path and the method of a request, the most specific one is taken. The host
//! decides first: an exact one, then the longest `*.suffix`, then any. Then the path, segment by segment from the left: a
//! literal before a parameter, a parameter before the rest, and the end before an empty rest. Then the method: a named one
//! before any. A less specific route is taken if the more specific ones do not have the method or the path, so a route for
//! any host is in force for all of them.
//!
//! The segments of all paths are a trie for each host: a lookup takes a hash for each label of the host and each segment of
//! the path, however many routes there are, and allocates nothing. `matchit`, the usual crate, returns one match for a
//! path, so it can't go on to a less specific route that has the method, and its rest is never empty.

use std::collections::HashMap;
use std::ops::Range;

use foldhash::fast::RandomState;
use http::Method;
use memchr::memchr;
use smallvec::SmallVec;

use crate::model::{HostPattern, RouteConfig, Segment};

/// Routes, ready to be found.
#[derive(Debug, Default)]
pub struct RouteTable {
    /// The roots of hosts, in lower case.
    exact: HashMap<Box<str>, NodeId, RandomState>,
    /// The roots of suffixes, which begin with a dot.
    suffixes: HashMap<Box<str>, NodeId, RandomState>,
    any: Option<NodeId>,
    nodes: Vec<TrieNode>,
}

/// What a request matches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RouteMatch {
    Found {
        /// The index of the route.
        route: usize,
        parameters: PathParameters,
    },
    /// The answer is 405.
    WrongMethod { allowed: AllowedMethods },
    /// The answer is 404.
    None,
}

/// The values of a path's parameters, in order: the index of the segment in the route's pattern, and the bytes of the path.
pub type PathParameters = SmallVec<[(usize, Range<usize>); 4]>;

/// The methods of routes that match but for the method, each once.
pub type AllowedMethods = SmallVec<[Method; 8]>;

/// Two routes of which neither is more specific for a request that both match: the indexes of the earlier and the later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RouteConflict {
    pub first: usize,
    pub second: usize,
}

/// The index of a node.
type NodeId = usize;

/// What follows some segments.
#[derive(Debug, Default)]
struct TrieNode {
    literals: HashMap<Box<[u8]>, NodeId, RandomState>,
    parameter: Option<NodeId>,
    /// Routes whose path ends here.
    ends: Vec<Candidate>,
    /// Routes whose path goes on with `*`.
    rests: Vec<Candidate>,
}

/// A route that matches a host and a path, if it has the method.
#[derive(Debug)]
struct Candidate {
    route: usize,
    /// Empty: any.
    methods: Box<[Method]>,
}

/// The longest host that can match, in bytes. The longest name of DNS has 253.
const MAX_HOST_BYTES: usize = 255;

// === impl RouteTable ===

impl RouteTable {
    /// The table of routes without conflicts. Of two that conflict, the earlier one is taken.
    pub fn new(routes: &[RouteConfig]) -> RouteTable {
        RouteTable::with_conflicts(routes).0
    }

    /// The table, and each route that conflicts with an earlier one, with one of these.
    pub fn with_conflicts(routes: &[RouteConfig]) -> (RouteTable, Vec<RouteConflict>) {
        let mut table = RouteTable::default();
        let mut conflicts = Vec::new();
        for (index, route) in routes.iter().enumerate() {
            let roots: SmallVec<[NodeId; 4]> = match route.hosts.is_empty() {
                true => SmallVec::from_slice(&[table.root(None)]),
                false => route.hosts.iter().map(|host| table.root(Some(host))).collect(),
            };
            for root in roots {
                let node = table.path(root, &route.path.segments);
                let node = &mut table.nodes[node];
                let place = if route.path.has_rest { &mut node.rests } else { &mut node.ends };
                let twin = place.iter().find(|other| other.route != index && other.ties(&route.methods));
                conflicts.extend(twin.map(|other| RouteConflict { first: other.route, second: index }));
                place.push(Candidate { route: index, methods: route.methods.clone().into() });
            }
        }
        // Routes with several hosts conflict in each of them.
        conflicts.dedup_by_key(|conflict| conflict.second);
        (table, conflicts)
    }

    /// The route of a request. The host may have a port and a trailing dot, in any case; the path is in its normal form.
    pub fn find(&self, host: &str, path: &[u8], method: &Method) -> RouteMatch {
        if path.first() != Some(&b'/') {
            return RouteMatch::None;
        }
        let mut search = Search { nodes: &self.nodes, path, method, parameters: SmallVec::new(), allowed: None };
        let mut lower = [0; MAX_HOST_BYTES];
        let host = lower_host(host, &mut lower);
        if let Some(route) = self.roots(host).find_map(|root| search.walk(root, Some(1), 0)) {
            return RouteMatch::Found { route, parameters: search.parameters };
        }
        search.allowed = Some(SmallVec::new());
        for root in self.roots(host) {
            search.walk(root, Some(1), 0);
        }
        match search.allowed {
            Some(allowed) if !allowed.is_empty() => RouteMatch::WrongMethod { allowed },
            _ => RouteMatch::None,
        }
    }

    /// The roots for a host, most specific first.
    fn roots<'a>(&'a self, host: &'a str) -> impl Iterator<Item = NodeId> + 'a {
        let exact = self.exact.get(host).copied();
        // The suffix of a later dot is shorter. One that is the whole host has no label before it.
        let dots = memchr::memchr_iter(b'.', host.as_bytes()).filter(|at| *at > 0 && !self.suffixes.is_empty());
        let suffixes = dots.filter_map(move |at| self.suffixes.get(host.get(at..)?).copied());
        exact.into_iter().chain(suffixes).chain(self.any)
    }

    /// The root of a host, made if it is the first.
    fn root(&mut self, host: Option<&HostPattern>) -> NodeId {
        let next = self.nodes.len();
        let root = match host {
            None => *self.any.get_or_insert(next),
            Some(HostPattern::Exact(host)) => *self.exact.entry(host.as_str().into()).or_insert(next),
            Some(HostPattern::Suffix(suffix)) => *self.suffixes.entry(suffix.as_str().into()).or_insert(next),
        };
        if root == next {
            self.nodes.push(TrieNode::default());
        }
        root
    }

    /// The node at the end of these segments, made if it is the first.
    fn path(&mut self, root: NodeId, segments: &[Segment]) -> NodeId {
        segments.iter().fold(root, |node, segment| {
            let next = self.nodes.len();
            let node = &mut self.nodes[node];
            let child = match segment {
                Segment::Literal(text) => *node.literals.entry(text.as_bytes().into()).or_insert(next),
                Segment::Parameter(_) => *node.parameter.get_or_insert(next),
            };
            if child == next {
                self.nodes.push(TrieNode::default());
            }
            child
        })
    }
}

impl Candidate {
    /// Whether neither is more specific for some method. A named method is more specific than any.
    fn ties(&self, methods: &[Method]) -> bool {
        match (self.methods.is_empty(), methods.is_empty()) {
            (true, true) => true,
            (false, false) => methods.iter().any(|method| self.methods.contains(method)),
            _ => false,
        }
    }
}

// === Search ===

/// The way through the trie for a request.
struct Search<'a> {
    nodes: &'a [TrieNode],
    path: &'a [u8],
    method: &'a Method,
    /// Of the segments so far.
    parameters: PathParameters,
    /// If it is there, methods are collected and nothing is found.
    allowed: Option<AllowedMethods>,
}

impl Search<'_> {
    /// The most specific route from here. `start` is where the next segment begins, `None` at the end of the path. It calls
    /// itself as deep as the longest pattern, however long the path is.
    fn walk(&mut self, node: NodeId, start: Option<usize>, depth: usize) -> Option<usize> {
        let nodes = self.nodes;
        let node = nodes.get(node)?;
        let Some(start) = start else {
            return self.choose(&node.ends).or_else(|| self.choose(&node.rests));
        };
        let rest = self.path.get(start..).unwrap_or_default();
        let segment = &rest[..memchr(b'/', rest).unwrap_or(rest.len())];
        let end = start + segment.len();
        let next = (end < self.path.len()).then_some(end + 1);
        if let Some(child) = node.literals.get(segment)
            && let Some(route) = self.walk(*child, next, depth + 1)
        {
            return Some(route);
        }
        if let Some(child) = node.parameter.filter(|_| !segment.is_empty()) {
            self.parameters.push((depth, start..end));
            if let Some(route) = self.walk(child, next, depth + 1) {
                return Some(route);
            }
            self.parameters.pop();
        }
        self.choose(&node.rests)
    }

    /// The route that has the method.
    fn choose(&mut self, candidates: &[Candidate]) -> Option<usize> {
        if let Some(allowed) = &mut self.allowed {
            for method in candidates.iter().flat_map(|candidate| &candidate.methods) {
                if !allowed.contains(method) {
                    allowed.push(method.clone());
                }
            }
            return None;
        }
        let named = candidates.iter().find(|candidate| candidate.methods.contains(self.method));
        let any = || candidates.iter().find(|candidate| candidate.methods.is_empty());
        named.or_else(any).map(|candidate| candidate.route)
    }
}

/// A host in lower case, without its port and a trailing dot. One that is too long is empty, which no pattern is.
fn lower_host<'b>(host: &str, buffer: &'b mut [u8; MAX_HOST_BYTES]) -> &'b str {
    let host = without_port(host);
    let host = host.strip_suffix('.').unwrap_or(host);
    let Some(lower) = buffer.get_mut(..host.len()) else { return "" };
    lower.copy_from_slice(host.as_bytes());
    lower.make_ascii_lowercase();
    str::from_utf8(lower).unwrap_or_default()
}

/// The host of an authority. The brackets of an IPv6 address are part of it.
pub(crate) fn without_port(authority: &str) -> &str {
    let end = match authority.starts_with('[') {
        true => authority.find(']').map(|at| at + 1),
        false => memchr(b':', authority.as_bytes()),
    };
    end.and_then(|end| authority.get(..end)).unwrap_or(authority)
}

#[cfg(test)]
mod tests;
