//! One trace through the gateway, and through Envoy with the rate limit service: the same requests are admitted, and clients get
//! the same headers.
//!
//! Limits on concurrent requests are compared apart from the trace: Envoy reports no end of a request, so its slots expire by time.

use std::collections::BTreeMap;
use std::sync::mpsc;

use fastrand::Rng;
use tollgate_testing::{Redis, Server, ServerBuilder, TIMEOUT, until};

use super::upstream::Upstream;
use super::{FILE, write_file};
use crate::clients::envoy::{Envoy, EnvoyConfig};
use crate::clients::http::{Headers, send};
use crate::http::get;
use crate::new_server;

/// Periods that do not end during a test, and hardly refill.
const RULES: &str = "
domain: api
entity: api_key
tiers: {free: {paid: false}, pro: {paid: true}}
tier_from: tier
lease: off
rules:
  - {name: by-key, key: [api_key], limit: {free: 25/day, pro: 40/day}, algorithm: sliding_log}
  - {name: writes, key: [api_key], match: {method: POST}, limit: 12/year, algorithm: fixed_window}
  - {name: bucket, key: [path], limit: 10/year, algorithm: token_bucket, burst: 45}
  - {name: points, key: [api_key], cost: points, limit: 110/year, algorithm: gcra, burst: 110}
  - {name: login, key: [api_key], match: {path: /v1/login}, limit: 5/year, policy: security}
  - {name: everyone, key: [], limit: 170/year}
";

const CALLERS: [(&str, &str); 6] =
    [("ada", "pro"), ("bob", "free"), ("cyd", "free"), ("dan", "pro"), ("eve", "free"), ("fay", "free")];
const PATHS: [&str; 4] = ["/v1/orders", "/v1/search", "/v1/items", "/v1/login"];
const REQUESTS: usize = 240;

/// A request of the trace.
#[derive(Debug)]
struct Sent {
    method: &'static str,
    path: &'static str,
    caller: &'static str,
    tier: &'static str,
    cost: u64,
}

/// The same requests each time, some callers more often than others.
fn trace() -> Vec<Sent> {
    let mut rng = Rng::with_seed(7);
    let requests = (0..REQUESTS).map(|_| {
        let (caller, tier) = CALLERS[rng.usize(..CALLERS.len()).min(rng.usize(..CALLERS.len()))];
        let method = if rng.usize(..3) == 0 { "POST" } else { "GET" };
        let path = PATHS[rng.usize(..PATHS.len()).min(rng.usize(..PATHS.len()))];
        Sent { method, path, caller, tier, cost: rng.u64(1..=6) }
    });
    requests.collect()
}

impl Sent {
    /// The counters that it takes from: the rule and the key, the units, and the most units.
    fn charges(&self) -> Vec<(String, u64, u64)> {
        let mut charges = vec![
            (format!("by-key {}", self.caller), 1, if self.tier == "pro" { 40 } else { 25 }),
            (format!("bucket {}", self.path), 1, 45),
            (format!("points {}", self.caller), self.cost, 110),
            ("everyone".to_owned(), 1, 170),
        ];
        if self.method == "POST" {
            charges.push((format!("writes {}", self.caller), 1, 12));
        }
        if self.path == "/v1/login" {
            charges.push((format!("login {}", self.caller), 1, 5));
        }
        charges
    }

    /// What a proxy at this address answers.
    #[track_caller]
    fn send(&self, address: &str) -> Answered {
        let cost = self.cost.to_string();
        let headers: Headers<'_> = &[("X-Api-Key", self.caller), ("X-Tier", self.tier), ("X-Cost", &cost)];
        let response = send(address, self.method, self.path, headers);
        let limits = LIMIT_HEADERS.map(|name| response.header(name).map(str::to_owned));
        Answered { status: response.status, limits }
    }
}

/// The answer to a request, as far as both proxies must agree.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Answered {
    status: u16,
    limits: [Option<String>; LIMIT_HEADERS.len()],
}

/// The headers of the limits that do not depend on the moment.
const LIMIT_HEADERS: [&str; 5] =
    ["x-ratelimit-limit", "x-ratelimit-remaining", "x-ratelimit-used", "x-ratelimit-bucket", "x-ratelimit-denied-by"];

/// Both proxies, each with a server of its own.
struct Proxies {
    gateway: Server,
    service: Server,
    envoy: Envoy,
    upstream: Upstream,
}

impl Proxies {
    /// `prepare` adds what both servers have, by number.
    fn start(rules: &str, prepare: impl Fn(ServerBuilder, usize) -> ServerBuilder) -> Proxies {
        Proxies::with_actions(ACTIONS, rules, prepare)
    }

    /// With these actions of Envoy.
    fn with_actions(actions: &str, rules: &str, prepare: impl Fn(ServerBuilder, usize) -> ServerBuilder) -> Proxies {
        let upstream = Upstream::start();
        let builder = new_server();
        write_file(builder.home(), &file(upstream.address()));
        let path = builder.home().join(FILE).display().to_string();
        let builder = builder.rules(rules).args(&["--gateway", &path]).listen(&["admin"]);
        let gateway = prepare(builder, 0).start();
        let service = prepare(new_server().rules(rules).listen(&["grpc", "admin"]), 1).start();
        let envoy = EnvoyConfig::new(service.address("grpc"))
            .with("prefix: /public", "prefix: /v1")
            .with("[{generic_key: {descriptor_key: route, descriptor_value: public}}]", actions)
            .with("domain: edge", "domain: api")
            .with("failure_mode_deny: false", "failure_mode_deny: true")
            .start();
        Proxies { gateway, service, envoy, upstream }
    }

    fn servers(&self) -> [&Server; 2] {
        [&self.gateway, &self.service]
    }

    /// Sends a part of the trace through both, request by request, and returns the answers of each.
    fn answers(&self, requests: &[Sent]) -> (Vec<Answered>, Vec<Answered>) {
        let send = |sent: &Sent| (sent.send(self.gateway.address("gateway")), sent.send(self.envoy.address()));
        requests.iter().map(send).unzip()
    }

    /// The same with the statuses only.
    fn send(&self, requests: &[Sent]) -> (Vec<u16>, Vec<u16>) {
        let (gateway, envoy) = self.answers(requests);
        (statuses(&gateway), statuses(&envoy))
    }
}

/// What the gateway knows of a request, in one descriptor.
const ACTIONS: &str = "[{request_headers: {header_name: x-api-key, descriptor_key: api_key}}, \
    {request_headers: {header_name: x-tier, descriptor_key: tier}}, \
    {request_headers: {header_name: x-cost, descriptor_key: points}}, \
    {request_headers: {header_name: ':method', descriptor_key: method}}, \
    {request_headers: {header_name: ':path', descriptor_key: path}}]";

fn file(upstream: &str) -> String {
    format!(
        "listen: 127.0.0.1:0\n\
         domain: api\n\
         attributes: {{api_key: {{header: X-Api-Key}}, tier: {{header: X-Tier}}}}\n\
         upstreams: {{app: {{servers: [\"{upstream}\"]}}}}\n\
         routes:\n  - {{name: all, match: \"/*\", upstream: app, cost: {{points: {{header: X-Cost}}}}}}\n"
    )
}

fn statuses(answers: &[Answered]) -> Vec<u16> {
    answers.iter().map(|answer| answer.status).collect()
}

/// Statuses and headers must be equal; and each counter within its limit.
#[track_caller]
fn assert_same(requests: &[Sent], (gateway, envoy): &(Vec<Answered>, Vec<Answered>)) {
    for (number, sent) in requests.iter().enumerate() {
        assert!(matches!(gateway[number].status, 200 | 429), "{number}: {sent:?} {:?}", gateway[number]);
        assert!(gateway[number].limits[1].is_some(), "{number}: {sent:?} {:?}", gateway[number]);
        assert_eq!(gateway[number], envoy[number], "{number}: {sent:?}");
    }
    let gateway = statuses(gateway);
    assert_within(requests, &gateway);
    let refused = gateway.iter().filter(|status| **status == 429).count();
    assert!((20..requests.len() - 20).contains(&refused), "{refused} of {} were refused", requests.len());
}

#[track_caller]
fn assert_within(requests: &[Sent], statuses: &[u16]) {
    let mut taken = BTreeMap::<String, u64>::new();
    let admitted = requests.iter().zip(statuses).filter(|(_, status)| **status == 200);
    for (counter, units, most) in admitted.flat_map(|(sent, _)| sent.charges()) {
        let total = taken.entry(counter.clone()).or_default();
        *total += units;
        assert!(*total <= most, "{counter}: {total} of {most}");
    }
}

fn on_redis(redis: &[Redis]) -> impl Fn(ServerBuilder, usize) -> ServerBuilder + '_ {
    move |builder, number| {
        let url = redis[number].url();
        builder.args(&["--store", &url, "--store-deadline", "1s", "--store-cool-down", "100ms"])
    }
}

fn is_degraded(server: &Server) -> bool {
    !get(&server.url("admin", "/readyz")).json()["degraded"].as_array().is_none_or(Vec::is_empty)
}

#[test]
fn in_memory_the_same_requests_are_admitted() {
    let proxies = Proxies::start(RULES, |builder, _| builder);
    let trace = trace();
    assert_same(&trace, &proxies.answers(&trace));
}

#[test]
fn as_many_requests_are_admitted_at_the_same_time() {
    let rules =
        "domain: api\nentity: api_key\nrules:\n  - {name: at-once, key: [api_key], limit: 3 concurrent, hold: 1h}\n";
    // Without a name of the claim, Envoy's requests hold no slots.
    let claim = ", {request_headers: {header_name: x-request-id, descriptor_key: tollgate.claim}}]";
    let actions = ACTIONS.strip_suffix(']').unwrap().to_owned() + claim;
    let proxies = Proxies::with_actions(&actions, rules, |builder, _| builder);
    let status = |address: &str, path: &str, caller: &str| {
        send(address, "GET", path, &[("X-Api-Key", caller), ("X-Tier", "free"), ("X-Cost", "1")]).status
    };
    let (sender, statuses) = mpsc::channel();
    for _ in 0..5 {
        let (address, sender) = (proxies.gateway.address("gateway").to_owned(), sender.clone());
        std::thread::spawn(move || sender.send(status(&address, "/held", "ada")));
    }
    let next = |count: usize| (0..count).map(|_| statuses.recv_timeout(TIMEOUT).unwrap()).collect::<Vec<_>>();
    assert_eq!(next(2), [429; 2], "three are held");
    assert_eq!(status(proxies.gateway.address("gateway"), "/v1/orders", "bob"), 200);
    proxies.upstream.release();
    assert_eq!(next(3), [200; 3]);
    // Envoy reports no end, so that all of them are in flight.
    let envoy: Vec<u16> = (0..5).map(|_| status(proxies.envoy.address(), "/v1/held", "ada")).collect();
    assert_eq!(envoy, [200, 200, 200, 429, 429]);
    assert_eq!(status(proxies.envoy.address(), "/v1/orders", "bob"), 200);
}

#[test]
fn on_redis_the_same_requests_are_admitted_also_when_it_is_killed() {
    let mut redis = [Redis::start(), Redis::start()];
    let proxies = Proxies::start(RULES, on_redis(&redis));
    for server in proxies.servers() {
        until("the server uses Redis", || !is_degraded(server));
    }
    let trace = trace();
    let (before, after) = trace.split_at(REQUESTS / 2);
    let mut statuses = proxies.send(before);
    redis.iter_mut().for_each(Redis::kill);
    let rest = proxies.send(after);
    statuses.0.extend(rest.0);
    statuses.1.extend(rest.1);
    for server in proxies.servers() {
        assert!(is_degraded(server), "{}", server.log());
    }
    let (gateway, envoy) = &statuses;
    // Where a policy denies for want of the store, the gateway answers 503, and Envoy 429 as for every refusal.
    assert!(gateway.iter().all(|status| matches!(status, 200 | 429 | 503)), "{gateway:?}");
    let admitted = |statuses: &[u16]| statuses.iter().map(|status| *status == 200).collect::<Vec<bool>>();
    assert_eq!(admitted(gateway), admitted(envoy));
    assert_within(before, &gateway[..before.len()]);
    // Where `security` denies, nothing passes without the store.
    let is_login = |(sent, _): &(&Sent, &u16)| sent.path == "/v1/login";
    assert!(after.iter().zip(&gateway[before.len()..]).filter(is_login).all(|(_, status)| *status != 200));
}

#[test]
fn with_leases_no_limit_is_exceeded_by_either() {
    let redis = [Redis::start(), Redis::start()];
    let rules = RULES.replace("lease: off", "lease: on").replace("algorithm: sliding_log", "algorithm: sliding_window");
    let proxies = Proxies::start(&rules, on_redis(&redis));
    for server in proxies.servers() {
        until("the server uses Redis", || !is_degraded(server));
    }
    let trace = trace();
    let (gateway, envoy) = proxies.send(&trace);
    for statuses in [&gateway, &envoy] {
        assert_within(&trace, statuses);
        assert!(statuses.iter().filter(|status| **status == 200).count() > 80, "{statuses:?}");
    }
}
