//! Upstreams, and how their servers are found and reached.

mod servers;

use tollgate_rules::problem::{TextFault, quoted};
use tollgate_rules::yaml::fields::{Fields, switch, text};
use tollgate_rules::yaml::{Yaml, YamlKind};

use self::servers::{Scheme, Servers};
use super::values::{self, count, set, share, time};
use super::{Context, defaults, patterns, shedding};
use crate::model::{
    ConnectionConfig, EjectionConfig, HealthConfig, HostPattern, ServerAddress, ServerSource, UpstreamConfig,
    UpstreamProtocol, UpstreamTls,
};

/// The most upstreams.
const MAX_UPSTREAMS: usize = 1_000;
/// The most statuses that are failures.
const MAX_STATUSES: usize = 100;

/// The names of the upstreams in the file, right or not, with their lines: their positions are the indexes in routes.
pub(super) fn names<'y>(map: &Fields<'y>) -> Vec<(&'y str, usize)> {
    match map.entry("upstreams").map(|entry| &entry.value.kind) {
        Some(YamlKind::Map(entries)) => entries.iter().map(|entry| (entry.key.text.as_str(), entry.line)).collect(),
        _ => Vec::new(),
    }
}

pub(super) fn upstreams(map: &Fields<'_>, context: &Context<'_>) -> Vec<UpstreamConfig> {
    map.require("upstreams", "write for instance `upstreams: {orders: {servers: [10.0.1.1:8080]}}`");
    let Some(entries) = map.map("upstreams").map(|map| map.entries()) else { return Vec::new() };
    if entries.len() > MAX_UPSTREAMS {
        map.fault_at("upstreams", "there are too many upstreams", &format!("write at most {MAX_UPSTREAMS}"));
    }
    let read = entries.iter().take(MAX_UPSTREAMS).filter_map(|entry| {
        let name = map.faults().sound(entry.line, values::name("an upstream", &entry.key.text));
        let map = Fields::of(&entry.value, "an upstream", map.faults())?;
        let upstream = upstream(name.unwrap_or_default(), &map, context);
        map.finish();
        upstream
    });
    read.collect()
}

fn upstream(name: String, map: &Fields<'_>, context: &Context<'_>) -> Option<UpstreamConfig> {
    map.require("servers", "write for instance `servers: [10.0.1.1:8080]`");
    let servers = map.entry("servers").and_then(|entry| servers::servers(entry, map, context));
    let protocols = [
        ("http1", UpstreamProtocol::Http1),
        ("http2", UpstreamProtocol::Http2),
        ("auto", UpstreamProtocol::Negotiated),
    ];
    let protocol = map.read("protocol", |value| values::word("a protocol", value, &protocols));
    let tls = tls(map, servers.as_ref(), context);
    let (health, ejection) = (health(map), ejection(map));
    let (connections, adaptive, fairness) = (connections(map), shedding::adaptive(map), shedding::fairness(map));
    Some(UpstreamConfig {
        name,
        servers: servers?.source,
        protocol: protocol.unwrap_or(UpstreamProtocol::Negotiated),
        tls,
        health,
        ejection,
        connections,
        adaptive,
        fairness,
    })
}

/// `tls: on`, or its settings. Servers with `https://` have TLS without it.
fn tls(map: &Fields<'_>, servers: Option<&Servers>, context: &Context<'_>) -> Option<UpstreamTls> {
    let scheme = servers.and_then(|servers| servers.scheme);
    let plain = UpstreamTls { server_name: None, ca: None, certificate: None };
    let mut tls = match map.entry("tls").map(|entry| &entry.value.kind) {
        None => (scheme == Some(Scheme::Https)).then_some(plain),
        Some(YamlKind::Scalar(_)) => map.read("tls", switch).unwrap_or(false).then_some(plain),
        Some(_) => map.map("tls").map(|map| tls_settings(&map, context)),
    };
    match (scheme, &tls) {
        (Some(Scheme::Https), None) => {
            map.fault_at("tls", "servers with https:// have TLS", "remove `tls`, or write them with http://");
        }
        (Some(Scheme::Http), Some(_)) => {
            map.fault_at("tls", "servers with http:// have no TLS", "remove `tls`, or write them with https://");
        }
        (_, Some(tls)) if tls.server_name.is_none() && servers.is_some_and(Servers::has_socket_file) => {
            map.fault_at("tls", "a Unix socket has no name that a certificate could have", "write `server_name`");
        }
        _ => {}
    }
    // Its servers are addresses when they are connected to, and their certificates have the name.
    if let (Some(tls), Some(ServerSource::Dns { host, .. })) = (&mut tls, servers.map(|servers| &servers.source)) {
        tls.server_name.get_or_insert_with(|| host.clone());
    }
    tls
}

fn tls_settings(map: &Fields<'_>, context: &Context<'_>) -> UpstreamTls {
    let file = |key: &'static str| map.read(key, |value| values::file(value, context.folder));
    let server_name = map.read("server_name", |value| match patterns::host(text(value)?)? {
        HostPattern::Exact(host) => Ok(host),
        HostPattern::Suffix(_) => {
            Err(TextFault::new("a server's name has no `*`", "write for instance api.example.com"))
        }
    });
    let (ca, cert, key) = (file("ca"), file("cert"), file("key"));
    match (map.has("cert"), map.has("key")) {
        (true, false) => map.fault_at("cert", "there is a certificate without its key", "write `key` too"),
        (false, true) => map.fault_at("key", "there is a key without its certificate", "write `cert` too"),
        _ => {}
    }
    map.finish();
    UpstreamTls { server_name, ca, certificate: cert.zip(key) }
}

/// `health: /healthz`, or its settings.
fn health(map: &Fields<'_>) -> Option<HealthConfig> {
    let path = |map: &Fields<'_>, key| {
        map.read(key, |value| {
            let given = text(value)?;
            match patterns::is_literal(&patterns::path(given)?) {
                true => Ok(given.to_owned()),
                false => Err(TextFault::new("this is a pattern, not a path", "write for instance /healthz")),
            }
        })
    };
    let mut health = HealthConfig {
        path: String::new(),
        every: defaults::EVERY,
        timeout: defaults::HEALTH_TIMEOUT,
        fails: 3,
        passes: 2,
    };
    if matches!(map.entry("health")?.value.kind, YamlKind::Scalar(_)) {
        return Some(HealthConfig { path: path(map, "health")?, ..health });
    }
    let map = map.map("health")?;
    map.require("path", "write for instance `path: /healthz`");
    set(&mut health.path, path(&map, "path"));
    set(&mut health.every, map.read("every", time));
    set(&mut health.timeout, map.read("timeout", time));
    set(&mut health.fails, map.read("fails", |value| count(value, 1..=100)));
    set(&mut health.passes, map.read("passes", |value| count(value, 1..=100)));
    map.finish();
    Some(health)
}

/// `eject: on`, or its settings.
fn ejection(map: &Fields<'_>) -> Option<EjectionConfig> {
    let mut ejection = EjectionConfig::default();
    if matches!(map.entry("eject")?.value.kind, YamlKind::Scalar(_)) {
        return map.read("eject", switch)?.then_some(ejection);
    }
    let map = map.map("eject")?;
    set(&mut ejection.failures, map.read("failures", |value| count(value, 1..=1_000)));
    set(&mut ejection.statuses, map.read("statuses", statuses));
    set(&mut ejection.time, map.read("for", time));
    set(&mut ejection.most, map.read("most", |value| share(value, 1..=100)));
    map.finish();
    Some(ejection)
}

/// Statuses of servers that failed: some, or none.
fn statuses(value: &Yaml) -> Result<Vec<u16>, TextFault> {
    let items = values::one_or_more(value, MAX_STATUSES)?.iter();
    let status = |item: &Yaml| {
        let given = text(item)?;
        given.parse().ok().filter(|status| (500..=599).contains(status)).ok_or_else(|| {
            let message = format!("{} is no status of a server that failed", quoted(given));
            TextFault::new(message, "write statuses from 500 to 599, or [] for none")
        })
    };
    items.map(status).collect()
}

fn connections(map: &Fields<'_>) -> ConnectionConfig {
    let mut connections = ConnectionConfig::default();
    let Some(map) = map.map("connections") else { return connections };
    set(&mut connections.most, map.read("most", |value| count(value, 1..=65_535)));
    set(&mut connections.waiting, map.read("waiting", |value| count(value, 0..=1_000_000)));
    set(&mut connections.idle, map.read("idle", time));
    set(&mut connections.age, map.read("age", time));
    map.finish();
    connections
}

// === impl Servers ===

impl Servers {
    fn has_socket_file(&self) -> bool {
        let is_file = |server: &ServerAddress| matches!(server, ServerAddress::Unix(_));
        matches!(&self.source, ServerSource::Static(servers) if servers.iter().any(is_file))
    }
}
