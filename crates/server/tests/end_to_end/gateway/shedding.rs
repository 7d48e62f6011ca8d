//! What operators see of requests that are shed: a line of the decision log each, with the reason.

use serde_json::{Value, json};
use tollgate_testing::{eventually, until};

use super::upstream::Upstream;
use super::{Load, degraded, with_rules};
use crate::http::{HttpResponse, get, new_agent, read};
use crate::observability::dashboard::gateway_queries;
use crate::observability::prometheus::Prometheus;

/// One request at a time, in the fleet and at the upstream.
fn file(upstream: &Upstream, adaptive: &str) -> String {
    format!(
        "listen: 127.0.0.1:0\n\
         domain: api\n\
         attributes: {{user: {{header: X-User}}}}\n\
         upstreams: {{app: {{servers: [\"{}\"], adaptive: {adaptive}}}}}\n\
         routes:\n  - {{name: all, match: \"/*\", upstream: app}}\n",
        upstream.address()
    )
}

/// The response to a request while another one is in flight, and its line in the log.
fn second_request(adaptive: &str, rules: &str) -> (HttpResponse, Value) {
    let upstream = Upstream::start();
    let server = with_rules(&file(&upstream, adaptive), rules).listen(&["http", "admin"]).start();
    let send = |path: &str, user: &str| {
        read(new_agent().get(server.url("gateway", path)).header("X-User", user).call()).unwrap()
    };
    let (held, second) = (server.url("gateway", "/held"), &send);
    let refused = std::thread::scope(|scope| {
        let first = scope.spawn(move || read(new_agent().get(held).header("X-User", "bob").call()).unwrap());
        upstream.wait_for_held();
        let refused = second("/x", "ann");
        upstream.release();
        assert_eq!(first.join().unwrap().status, 200);
        refused
    });
    let logged = get(&server.url("admin", "/admin/v1/decisions?caller=ann")).json();
    let metrics = get(&server.url("admin", "/metrics")).body;
    let by = refused.headers["x-tollgate-shed"].to_str().unwrap();
    let series = format!(r#"tollgate_gateway_shed_by_class_total{{shedder="{by}",class="get"}} 1"#);
    assert!(metrics.contains(&series), "{series}\n{metrics}");
    (refused, logged["decisions"][0].clone())
}

#[test]
fn a_request_beyond_the_cap_of_an_upstream_is_logged_with_its_reason() {
    let rules = "domain: api\nentity: user\nrules:\n  - {name: by-user, key: [user], limit: 100/hour}\n";
    let (refused, line) = second_request("{mode: enforce, min: 1, max: 1}", rules);
    assert_eq!((refused.status, &refused.headers["x-tollgate-shed"]), (503, &"adaptive".parse().unwrap()));
    assert_eq!((&line["verdict"], &line["source"], &line["rule"]), (&json!("deny"), &json!("shed"), &json!(null)));
    assert_eq!(line["shed"], json!({"by": "adaptive", "class": "get", "route": "all", "upstream": "app"}));
    let why = "ann was shed (503): the upstream app had as many requests in flight as it answers without a queue; it was of the class get and the route all.";
    assert_eq!(line["why"], why);
}

#[test]
fn a_request_beyond_the_capacity_of_the_fleet_is_logged_with_its_reason() {
    let rules = "domain: api\nentity: user\nrules:\n  \
                 - {name: fleet, key: [], limit_by: priority, limit: {critical: 2 concurrent, default: 1 concurrent}, shed: true}\n";
    let (refused, line) = second_request("off", rules);
    assert_eq!((refused.status, &refused.headers["x-tollgate-shed"]), (503, &"fleet".parse().unwrap()));
    assert!(refused.body.contains("temporary-reduced-capacity"), "{}", refused.body);
    assert_eq!((&line["verdict"], &line["source"], &line["rule"]), (&json!("deny"), &json!("store"), &json!("fleet")));
    assert_eq!(line["shed"], json!({"by": "fleet", "class": "get", "route": "all"}));
    let why = line["why"].as_str().unwrap();
    let begins =
        "ann was shed (503) to protect the service: fleet allows 1 at a time, all callers had 1 of 1 in flight";
    assert!(why.starts_with(begins) && why.ends_with("; it was of the class get and the route all."), "{why}");
}

#[test]
fn an_overloaded_server_sheds_and_says_so() {
    let upstream = Upstream::start();
    // Any work at all is too much for it, and everything is shed soon after.
    let rules = "domain: api\nentity: user\nrules:\n  - {name: by-user, key: [user], limit: 100000/hour}\n";
    // The load is shed last, and has none of the lines of the log: of one class, the first refusals of a minute have one each.
    let rest = "  - {name: load, match: /load, upstream: app}\n\
                priority: {critical: [{route: load}]}\n\
                shedding: {worker: {mode: enforce, from: 1%, until: 1%, ramp: 50ms, grace: 0s}}\n";
    let server = with_rules(&(file(&upstream, "off") + rest), rules).listen(&["admin"]).start();
    let load = Load::start(&server.url("gateway", "/load"));
    let send = || read(new_agent().get(server.url("gateway", "/x")).header("X-User", "ann").call()).unwrap();
    let shed = eventually(|| Some(send()).filter(|response| response.status == 503));
    let shed = shed.unwrap_or_else(|| panic!("{}", server.log()));
    assert_eq!(shed.headers["x-tollgate-shed"], "worker");
    assert!(shed.headers.contains_key("retry-after") && shed.body.contains(r#""shed":"worker""#), "{}", shed.body);
    let reasons = eventually(|| Some(degraded(&server)).filter(|parts| !parts.is_empty())).unwrap();
    assert_eq!(reasons[0]["part"], "gateway_shedding", "{reasons:?}");
    let logged = get(&server.url("admin", "/admin/v1/decisions?caller=ann")).json();
    let line = logged["decisions"].as_array().unwrap().iter().find(|line| line["shed"]["by"] == "worker");
    let line = line.unwrap_or_else(|| panic!("{logged}"));
    let why =
        "ann was shed (503): this server had been overloaded for long; it was of the class get and the route all.";
    assert_eq!(line["why"], why);
    let metrics = get(&server.url("admin", "/metrics")).body;
    let series = r#"tollgate_gateway_shed_by_class_total{shedder="worker",class="get"} "#;
    let count = metrics.lines().find_map(|line| line.strip_prefix(series));
    assert!(count.is_some_and(|count| count != "0"), "{metrics}");
    load.stop();
}

#[test]
fn panels_show_the_gateway() {
    let upstream = Upstream::start();
    let rules = "domain: api\nrules:\n  - {name: by-user, key: [user], limit: 100/hour}\n";
    let server = with_rules(&file(&upstream, "shadow"), rules).listen(&["admin"]).start();
    let prometheus = Prometheus::start(server.address("admin"));
    let mut empty = gateway_queries();
    assert_eq!(empty.len(), 6);
    until("all panels show something", || {
        assert_eq!(get(&server.url("gateway", "/")).status, 200);
        empty.retain(|(_, expr)| prometheus.numbers(expr).is_empty());
        empty.is_empty()
    });
}
