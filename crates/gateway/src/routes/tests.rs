//! Tests of routes.

use std::cmp::Reverse;

use proptest::prelude::*;

use super::*;
use crate::model::GatewayConfig;

/// Routes from rows: `METHODS HOSTS PATH`, `-` for any.
fn routes(rows: &[&str]) -> Vec<RouteConfig> {
    let mut yaml = "listen: 127.0.0.1:0\nupstreams: {u: {servers: [127.0.0.1:1]}}\nroutes:\n".to_owned();
    for (index, row) in rows.iter().enumerate() {
        let [methods, hosts, path] = row.split(' ').collect::<Vec<_>>()[..] else { panic!("{row}") };
        let methods = if methods == "-" { String::new() } else { format!(", methods: [{methods}]") };
        let hosts = if hosts == "-" { String::new() } else { format!(", host: [{}]", quote_each(hosts)) };
        yaml += &format!("  - {{name: r{index}, match: {{path: '{path}'{methods}{hosts}}}, upstream: u}}\n");
    }
    let read = GatewayConfig::read("f", &yaml, "/".as_ref());
    read.unwrap_or_else(|problems| panic!("{}\n{yaml}", problems[0])).config.routes
}

fn quote_each(hosts: &str) -> String {
    hosts.split(',').map(|host| format!("'{host}'")).collect::<Vec<_>>().join(", ")
}

/// What a request finds, in short: the route and its parameters, the allowed methods, or nothing.
fn find(rows: &[&str], request: &str) -> String {
    let [method, host, path] = request.split(' ').collect::<Vec<_>>()[..] else { panic!("{request}") };
    let routes = routes(rows);
    match RouteTable::new(&routes).find(host, path.as_bytes(), &method.parse().unwrap()) {
        RouteMatch::Found { route, parameters } => {
            let shown = parameters.into_iter().map(|(segment, range)| {
                let Segment::Parameter(name) = &routes[route].path.segments[segment] else { panic!("{segment}") };
                format!(" {name}={}", &path[range])
            });
            format!("r{route}{}", shown.collect::<String>())
        }
        RouteMatch::WrongMethod { allowed } => {
            format!("405 {}", allowed.iter().map(Method::as_str).collect::<Vec<_>>().join(","))
        }
        RouteMatch::None => "404".to_owned(),
    }
}

#[test]
fn the_most_specific_route_is_found() {
    let rows = &[
        "- - /*",
        "- - /v1/orders/*",
        "GET,POST - /v1/orders/{id}",
        "- - /v1/orders/{id}/items/{item}",
        "POST - /v1/orders/new",
        "GET - /",
    ];
    for (request, expected) in [
        ("GET h /", "r5"),
        ("POST h /", "r0"),
        ("GET h /v1", "r0"),
        ("GET h /v1/orders", "r1"),
        ("GET h /v1/orders/", "r1"),
        ("GET h /v1/orders/7", "r2 id=7"),
        ("PUT h /v1/orders/7", "r1"),
        ("POST h /v1/orders/new", "r4"),
        ("GET h /v1/orders/new", "r2 id=new"),
        ("GET h /v1/orders/new/items/3", "r3 id=new item=3"),
        ("GET h /v1/orders/7/items/", "r1"),
        ("GET h /v1/orders/7/items/3/more", "r1"),
        ("OPTIONS h *", "404"),
    ] {
        assert_eq!(find(rows, request), expected, "{request}");
    }
}

#[test]
fn hosts_come_before_paths() {
    let rows = &[
        "- - /a/b",
        "- *.example.com /a/*",
        "- *.eu.example.com /a/*",
        "GET api.example.com /*",
        "- www.example.com,www.example.org /w",
        "- - /health",
    ];
    for (request, expected) in [
        ("GET other /a/b", "r0"),
        ("GET x.example.com /a/b", "r1"),
        ("GET x.y.example.com /a/b", "r1"),
        ("GET x.eu.example.com /a/b", "r2"),
        ("GET eu.example.com /a/b", "r1"),
        ("GET example.com /a/b", "r0"),
        ("GET .example.com /a/b", "r0"),
        ("GET notexample.com /a/b", "r0"),
        ("GET API.Example.com:8443 /a/b", "r3"),
        ("GET api.example.com. /a/b", "r3"),
        ("GET api.example.com.:80 /a/b", "r3"),
        ("POST api.example.com /a/b", "r1"),
        ("POST api.example.com /health", "r5"),
        ("POST api.example.com /z", "405 GET"),
        ("GET www.example.org /w", "r4"),
        ("GET [::1]:80 /health", "r5"),
        ("GET [::1]:80 /w", "404"),
    ] {
        assert_eq!(find(rows, request), expected, "{request}");
    }
    let long = "x.".repeat(200);
    assert_eq!(find(rows, &format!("GET {long}example.com /a/b")), "r0");
}

#[test]
fn methods_that_would_do_are_collected_once() {
    let rows = &["GET,PUT - /a", "PUT,DELETE - /{x}", "POST a.b /a"];
    assert_eq!(find(rows, "PATCH a.b /a"), "405 POST,GET,PUT,DELETE");
    assert_eq!(find(rows, "PATCH h /a"), "405 GET,PUT,DELETE");
    assert_eq!(find(rows, "PATCH h /b"), "405 PUT,DELETE");
    assert_eq!(find(rows, "PATCH h /b/c"), "404");
    assert_eq!(find(rows, "HEAD h /a"), "405 GET,PUT,DELETE", "HEAD is a method of its own");
}

#[test]
fn a_path_of_many_segments_does_not_go_deep() {
    let path = "/a".repeat(100_000);
    assert_eq!(find(&["- - /a/*"], &format!("GET h {path}")), "r0");
    assert_eq!(find(&["- - /a/{b}"], &format!("GET h {path}")), "404");
}

#[test]
fn a_lookup_allocates_nothing() {
    let table =
        RouteTable::new(&routes(&["GET api.example.com /v1/{a}/x/{b}", "- *.example.com /v1/*", "- - /v1/{a}"]));
    for (host, path) in [("API.example.com:80", "/v1/1/x/2"), ("b.example.com", "/v1/1/2"), ("h", "/v1/7"), ("h", "/")]
    {
        let allocated = allocation_counter::measure(|| drop(table.find(host, path.as_bytes(), &Method::GET)));
        assert_eq!(allocated.count_total, 0, "{host} {path}");
    }
}

// === The reference ===

/// How specific a route is for a host: the smaller, the more. `None`: it does not match.
fn host_rank(route: &RouteConfig, host: &str) -> Option<(u8, Reverse<usize>)> {
    if route.hosts.is_empty() {
        return Some((2, Reverse(0)));
    }
    let ranks = route.hosts.iter().filter_map(|pattern| match pattern {
        HostPattern::Exact(exact) => (exact == host).then_some((0, Reverse(0))),
        HostPattern::Suffix(suffix) => {
            (host.ends_with(suffix.as_str()) && host.len() > suffix.len()).then_some((1, Reverse(suffix.len())))
        }
    });
    ranks.min()
}

fn path_rank(route: &RouteConfig, path: &str) -> Option<Vec<u8>> {
    let given: Vec<&str> = path[1..].split('/').collect();
    let pattern = &route.path.segments;
    if given.len() < pattern.len() || given.len() > pattern.len() && !route.path.has_rest {
        return None;
    }
    let kinds = pattern.iter().zip(given).map(|(segment, given)| match segment {
        Segment::Literal(text) => (text == given).then_some(0),
        Segment::Parameter(_) => (!given.is_empty()).then_some(1),
    });
    kinds.chain([Some(if route.path.has_rest { 3 } else { 2 })]).collect()
}

fn naive(routes: &[RouteConfig], host: &str, path: &str, method: &Method) -> Option<usize> {
    let ranked = routes.iter().enumerate().filter_map(|(index, route)| {
        let method = match route.methods.is_empty() {
            true => 1,
            false => route.methods.contains(method).then_some(0)?,
        };
        Some(((host_rank(route, host)?, path_rank(route, path)?, method), index))
    });
    ranked.min().map(|(_, index)| index)
}

fn any_route() -> impl Strategy<Value = String> {
    let method = prop::sample::select(vec!["-", "GET", "POST", "GET,PUT"]);
    let host = prop::sample::select(vec!["-", "a.b", "*.b", "*.a.b", "a.b,*.c", "c"]);
    let segment = prop::sample::select(vec!["a", "b", "{x}"]);
    let end = prop::sample::select(vec!["", "/", "/*"]);
    (method, host, prop::collection::vec(segment, 0..4), end).prop_map(|(method, host, segments, end)| {
        let mut path: String = segments
            .iter()
            .enumerate()
            .map(|(at, segment)| format!("/{}", segment.replace('x', &format!("x{at}"))))
            .collect();
        path += end;
        let path = if path.is_empty() { "/" } else { &path };
        format!("{method} {host} {path}")
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn finds_what_the_reference_finds(
        rows in prop::collection::vec(any_route(), 1..12),
        host in prop::sample::select(vec!["a.b", "x.a.b", "x.b", "b", "c", "x.c", "z"]),
        segments in prop::collection::vec(prop::sample::select(vec!["a", "b", "c", ""]), 1..5),
        method in prop::sample::select(vec![Method::GET, Method::POST, Method::PUT, Method::HEAD]),
    ) {
        let path = format!("/{}", segments.join("/"));
        // Rows that conflict with one before them are left out.
        let mut sound: Vec<RouteConfig> = Vec::new();
        for row in &rows {
            let mut route = routes(&[row]).remove(0);
            route.name = format!("r{}", sound.len());
            sound.push(route);
            if !RouteTable::with_conflicts(&sound).1.is_empty() {
                sound.pop();
            }
        }
        let table = RouteTable::new(&sound);
        let expected = naive(&sound, host, &path, &method);
        match table.find(host, path.as_bytes(), &method) {
            RouteMatch::Found { route, parameters } => {
                prop_assert_eq!(Some(route), expected);
                let names = sound[route].path.segments.iter().filter(|s| matches!(s, Segment::Parameter(_))).count();
                prop_assert_eq!(parameters.len(), names);
                for (segment, range) in parameters {
                    prop_assert_eq!(path[1..].split('/').nth(segment), Some(&path[range]));
                }
            }
            other => {
                prop_assert_eq!(expected, None);
                let fits = |route: &&RouteConfig| host_rank(route, host).is_some() && path_rank(route, &path).is_some();
                let expected: std::collections::HashSet<_> =
                    sound.iter().filter(fits).flat_map(|route| route.methods.clone()).collect();
                let RouteMatch::WrongMethod { allowed } = other else {
                    prop_assert!(expected.is_empty());
                    return Ok(());
                };
                prop_assert_eq!(allowed.iter().cloned().collect::<std::collections::HashSet<_>>(), expected);
            }
        }
    }
}
