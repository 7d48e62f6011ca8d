//! Where the servers of an upstream are.

use std::net::{IpAddr, SocketAddr};

use tollgate_net::Address;
use tollgate_rules::problem::{TextFault, quoted};
use tollgate_rules::yaml::fields::{Fields, text};
use tollgate_rules::yaml::{Yaml, YamlEntry, YamlKind};

use super::super::{Context, defaults, values};
use crate::model::{ServerAddress, ServerSource};

/// The servers, and the scheme that all of them are written with.
pub(super) struct Servers {
    pub(super) source: ServerSource,
    pub(super) scheme: Option<Scheme>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Scheme {
    Http,
    Https,
}

/// The most servers of an upstream.
const MAX_SERVERS: usize = 1_000;

/// The port in remedies.
const EXAMPLE_PORT: u16 = 8080;

/// `[10.0.1.1:8080, …]`, `{dns: orders.svc:8080}` or `{file: servers.txt}`.
pub(super) fn servers(entry: &YamlEntry, outer: &Fields<'_>, context: &Context<'_>) -> Option<Servers> {
    if !matches!(entry.value.kind, YamlKind::Map(_)) {
        return fixed(entry, outer, context);
    }
    let map = Fields::of(&entry.value, "servers", outer.faults())?;
    let every = map.read("every", values::time).unwrap_or(defaults::EVERY);
    let dns = map.read("dns", |value| match server(text(value)?, context)? {
        (ServerAddress::Name { host, port }, scheme) => {
            Ok(Servers { source: ServerSource::Dns { host, port, every }, scheme })
        }
        _ => Err(TextFault::new(
            format!("{} is not a name", value.described()),
            "write for instance `dns: orders.svc:8080`; addresses are written as `servers: [10.0.1.1:8080]`",
        )),
    });
    let file = map.read("file", |value| values::file(value, context.folder));
    if map.has("dns") == map.has("file") {
        map.fault(
            "this is not one source of servers",
            "write a list, `{dns: orders.svc:8080}` or `{file: servers.txt}`",
        );
    }
    map.finish();
    dns.or(file.map(|path| Servers { source: ServerSource::File { path, every }, scheme: None }))
}

fn fixed(entry: &YamlEntry, outer: &Fields<'_>, context: &Context<'_>) -> Option<Servers> {
    let faults = outer.faults();
    let items = faults.sound(entry.line, values::one_or_more(&entry.value, MAX_SERVERS))?;
    if items.is_empty() {
        faults.push(entry.line, TextFault::new("the upstream has no servers", "write for instance 10.0.1.1:8080"));
    }
    let mut servers: Vec<ServerAddress> = Vec::new();
    let mut schemes = Vec::new();
    for item in items {
        let read = text(item).and_then(|given| server(given, context));
        let Some((address, scheme)) = faults.sound(item.line, read) else { continue };
        if servers.contains(&address) {
            faults.push(
                item.line,
                TextFault::new(format!("{} is here twice", item.described()), "remove one of the two"),
            );
        }
        check_scheme(item, scheme, &schemes, outer);
        servers.push(address);
        schemes.push(scheme);
    }
    let scheme = schemes.first().copied().flatten();
    Some(Servers { source: ServerSource::Static(servers), scheme })
}

/// All servers of an upstream have TLS, or none.
fn check_scheme(item: &Yaml, scheme: Option<Scheme>, before: &[Option<Scheme>], outer: &Fields<'_>) {
    let is_tls = |scheme: Option<Scheme>| scheme == Some(Scheme::Https);
    if before.first().is_some_and(|first| is_tls(*first) != is_tls(scheme)) {
        let message = "some servers of this upstream have https://, and some have not";
        outer.faults().push(item.line, TextFault::new(message, "write all with https://, or two upstreams"));
    }
}

/// `10.0.1.1:8080`, `orders:8080`, `https://llm.internal`, `unix:/run/app.sock`.
fn server(given: &str, context: &Context<'_>) -> Result<(ServerAddress, Option<Scheme>), TextFault> {
    let (scheme, rest) = match given.split_once("://") {
        None => (None, given),
        Some(("http", rest)) => (Some((Scheme::Http, 80)), rest),
        Some(("https", rest)) => (Some((Scheme::Https, 443)), rest),
        Some(_) => {
            let message = format!("{} has an unknown scheme", quoted(given));
            return Err(TextFault::new(message, "write http:// or https://, or leave it out"));
        }
    };
    if scheme.is_some() && rest.contains(['/', '?', '#', '@']) {
        let message = format!("{} is more than a host and a port", quoted(given));
        return Err(TextFault::new(message, "remove what follows them: the path of requests is forwarded"));
    }
    let has_port = rest.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    if given.parse::<u16>().is_ok() {
        return Err(TextFault::new(
            format!("{} has no host", quoted(given)),
            format!("write for instance 10.0.1.1:{given}"),
        ));
    }
    let address = match scheme {
        Some((_, port)) if !has_port => Address::parse(&format!("{rest}:{port}"), EXAMPLE_PORT),
        _ => Address::parse(rest, EXAMPLE_PORT),
    };
    let scheme = scheme.map(|(scheme, _)| scheme);
    match address.map_err(values::address_fault)? {
        Address::Unix(path) if scheme.is_none() => Ok((ServerAddress::Unix(context.folder.join(path)), None)),
        Address::Tcp { port: 0, .. } => {
            Err(TextFault::new(format!("{} has no port", quoted(given)), "write a port from 1 to 65535"))
        }
        Address::Tcp { host, port } => Ok(match host.parse::<IpAddr>() {
            Ok(ip) => (ServerAddress::Socket(SocketAddr::new(ip, port)), scheme),
            Err(_) => (ServerAddress::Name { host: host.to_ascii_lowercase(), port }, scheme),
        }),
        Address::Unix(_) | Address::Off => {
            Err(TextFault::new(format!("{} is not a server", quoted(given)), "write for instance 10.0.1.1:8080"))
        }
    }
}
