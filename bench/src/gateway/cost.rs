//! What a request costs the proxy: the time that its processes had of their core, in the program and in the kernel.

use std::net::TcpListener;

use super::envoy::{self, Filter};
use super::{Proxy, bare, nginx, ours};
use crate::load::proxied::{CONNECTIONS, HTTP2_CONNECTIONS, HTTP2_STREAMS};
use crate::server::process::load_proxy;
use crate::server::tollgate;
use crate::server::turns::{Turn, Turns, at_most, gather, middle, rounds, seconds};

/// The bytes of a small and of a large answer.
const SMALL: usize = 100;
const LARGE: usize = 64 * 1024;
/// How many connections are idle.
const IDLE: usize = 10_000;
/// The most that one of them may take, in KiB, and its requests more than without them.
const IDLE_KIB: f64 = 20.0;

/// How a proxy is loaded.
#[derive(Clone, Copy)]
struct Flood {
    protocol: &'static str,
    status: u16,
    bytes: usize,
}

const PASSES: Flood = Flood { protocol: "http1", status: 200, bytes: SMALL };
const REFUSED: Flood = Flood { status: 429, ..PASSES };
const LARGE_ANSWERS: Flood = Flood { bytes: LARGE, ..PASSES };
const OVER_HTTP2: Flood = Flood { protocol: "http2", ..PASSES };

/// What a proxy is called, the proxy, and its load.
type Contender<'a> = (&'a str, Option<&'a Proxy>, Flood);

pub fn run() {
    let Some(program) = tollgate::program("gateway") else { return };
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let upstream = listener.local_addr().expect("an address").to_string();
    requests(&program, &listener, &upstream);
    large_answers(&program, &listener, &upstream);
    over_http2(&program, &listener, &upstream);
    idle(&program, &listener, &upstream);
}

fn requests(program: &str, listener: &TcpListener, upstream: &str) {
    println!(
        "gateway, CPU of one request, {CONNECTIONS} connections, GET with 7 headers, {SMALL} bytes, {} rounds of {} s",
        rounds(),
        seconds()
    );
    let plain = ours::start(program, upstream, ours::NO_RATES, ours::PLAIN);
    let rates = ours::start(program, upstream, ours::TWO_RATES, ours::PLAIN);
    let shedders = ours::start(program, upstream, ours::IN_FLIGHT, ours::SHEDDERS);
    let refusing = ours::start(program, upstream, ours::REFUSING, ours::PLAIN);
    let bare = bare(upstream);
    let nginx = nginx::start(upstream, "", "");
    let nginx_limits = nginx::start(upstream, nginx::TWO_LIMITS, "");
    let envoy = envoy::start(upstream, &Filter::None);
    let envoy_limits = envoy::start(upstream, &Filter::RateLimit(program));
    let turns = take_turns(
        listener,
        &[
            ("tollgate, no rule applies", Some(&plain), PASSES),
            ("tollgate, two rates, all headers", Some(&rates), PASSES),
            ("and concurrency, classes, adaptive, worker", Some(&shedders), PASSES),
            ("tollgate, refused by a rate with 429", Some(&refusing), REFUSED),
            ("hyper and a pool, nothing else", Some(&bare), PASSES),
            ("nginx", nginx.as_ref(), PASSES),
            ("nginx, two limit_req", nginx_limits.as_ref(), PASSES),
            ("envoy", envoy.as_ref(), PASSES),
            ("envoy and tollgate as its rate limit service", envoy_limits.as_ref(), PASSES),
        ],
    );
    let [plain, rates, shedders, refused, bare, nginx, nginx_limits, envoy, envoy_limits] = &turns[..] else { return };
    hold("plain, tollgate to nginx", plain, nginx, 1.10);
    hold("plain, tollgate to envoy", plain, envoy, 0.40);
    // Without a goal: what of the distance to nginx is the library's.
    compare("plain, tollgate to bare hyper", plain, bare);
    compare("plain, bare hyper to nginx", bare, nginx);
    hold("two rates, tollgate to nginx with two limit_req", rates, nginx_limits, 1.35);
    hold("two rates, tollgate to envoy with tollgate", rates, envoy_limits, 0.22);
    hold("concurrency, classes, adaptive, worker to two rates", shedders, rates, 1.30);
    hold("refused to two rates that pass", refused, rates, 0.60);
}

fn large_answers(program: &str, listener: &TcpListener, upstream: &str) {
    println!("gateway, CPU of one request, answers of {} KiB, otherwise the same", LARGE / 1024);
    let plain = ours::start(program, upstream, ours::NO_RATES, ours::PLAIN);
    let nginx = nginx::start(upstream, "", "");
    let turns = take_turns(
        listener,
        &[("tollgate, no rule applies", Some(&plain), LARGE_ANSWERS), ("nginx", nginx.as_ref(), LARGE_ANSWERS)],
    );
    hold("64 KiB, tollgate to nginx", &turns[0], &turns[1], 0.65);
}

fn over_http2(program: &str, listener: &TcpListener, upstream: &str) {
    println!(
        "gateway, CPU of one request, HTTP/2 from clients and HTTP/1.1 to the upstream, {HTTP2_CONNECTIONS} connections \
         with {HTTP2_STREAMS} requests each, otherwise the same"
    );
    let plain = ours::start(program, upstream, ours::NO_RATES, ours::PLAIN);
    let nginx = nginx::start(upstream, "", nginx::HTTP2);
    let turns = take_turns(
        listener,
        &[("tollgate, no rule applies", Some(&plain), OVER_HTTP2), ("nginx", nginx.as_ref(), OVER_HTTP2)],
    );
    hold("HTTP/2 to HTTP/1.1, tollgate to nginx", &turns[0], &turns[1], 0.70);
}

/// Memory of connections that made a request and are idle, and the requests of others meanwhile.
fn idle(program: &str, listener: &TcpListener, upstream: &str) {
    println!(
        "gateway, {IDLE} idle connections, resident memory after less before, and requests on {CONNECTIONS} others"
    );
    let proxies = [
        ("tollgate", Some(ours::start(program, upstream, ours::TWO_RATES, ours::PLAIN))),
        ("nginx", nginx::start(upstream, "", "")),
        ("envoy", envoy::start(upstream, &Filter::None)),
    ];
    for (name, proxy) in &proxies {
        let Some(Proxy { server, address, .. }) = proxy else { continue };
        let busy = |seconds| Turn::read(&load(listener, PASSES, proxy.as_ref().expect("a proxy"), seconds));
        busy(1.0);
        let without = busy(seconds()).cost();
        let (idle, small, id) = (IDLE.to_string(), SMALL.to_string(), server.id().to_string());
        let lines = load_proxy(listener, &["idle", &idle, &small, address, &id, &seconds().to_string()]);
        let kib = lines[0][0] / 1024.0 / IDLE as f64;
        let with = Turn::read(&lines[1]).cost();
        println!(
            "  {name:<47} {kib:>6.1} KiB a connection   {without:.1} µs a request without them, {with:.1} µs with them"
        );
        if *name == "tollgate" {
            at_most("KiB of an idle connection", middle(vec![kib]), IDLE_KIB);
        }
    }
}

/// Lets the proxies that are there work in turn, and prints what a request cost.
fn take_turns(listener: &TcpListener, contenders: &[Contender<'_>]) -> Vec<Option<Turns>> {
    let there: Vec<_> = contenders.iter().filter_map(|(name, proxy, flood)| Some((*name, (*proxy)?, *flood))).collect();
    let work: Vec<_> = there
        .iter()
        .map(|(_, proxy, flood)| move |seconds: f64| Turn::read(&load(listener, *flood, proxy, seconds)))
        .collect();
    let listed: Vec<_> =
        there.iter().zip(&work).map(|((name, ..), work)| (*name, work as &dyn Fn(f64) -> Turn)).collect();
    let mut turns = gather(&listed).into_iter();
    let turns: Vec<Option<Turns>> = contenders.iter().map(|(_, proxy, _)| proxy.and_then(|_| turns.next())).collect();
    for ((name, ..), turns) in contenders.iter().zip(&turns) {
        let Some(turns) = turns else { continue };
        let ((cost, least, most), (rate, ..)) = (turns.whole_cost(), turns.rate());
        println!("  {name:<47} {cost:>7.1} µs   ({least:.1} to {most:.1})   {rate:.0} a second");
    }
    if turns.first().is_some_and(|ours| ours.as_ref().is_some_and(|ours| !ours.is_busy())) {
        println!("  ! neither the proxy nor the load filled its core: other programs had a part of it");
    }
    turns
}

fn load(listener: &TcpListener, flood: Flood, proxy: &Proxy, seconds: f64) -> Vec<f64> {
    let Flood { protocol, status, bytes } = flood;
    let servers: Vec<String> = [Some(&proxy.server), proxy.limiter.as_ref()]
        .into_iter()
        .flatten()
        .map(|server| server.id().to_string())
        .collect();
    let (status, bytes, seconds) = (status.to_string(), bytes.to_string(), seconds.to_string());
    load_proxy(listener, &["proxied", protocol, &status, &bytes, &proxy.address, &servers.join(","), &seconds]).concat()
}

/// The cost of a request compared with that of another proxy, if both are there.
fn hold(what: &str, ours: &Option<Turns>, theirs: &Option<Turns>, target: f64) {
    if let (Some(ours), Some(theirs)) = (ours, theirs) {
        at_most(what, ours.whole_cost_to(theirs), target);
    }
}

/// The same without a goal.
fn compare(what: &str, one: &Option<Turns>, other: &Option<Turns>) {
    if let (Some(one), Some(other)) = (one, other) {
        let (median, least, most) = one.whole_cost_to(other);
        println!("  = {what}: {median:.2} ({least:.2} to {most:.2})");
    }
}
