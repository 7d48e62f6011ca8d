//! From text to an address. What stands before the last `@` is never told in an error: it may be a password.

use std::net::Ipv6Addr;
use std::path::PathBuf;
use std::str::FromStr;

use super::{Address, AddressError, Layout, Node};
use crate::redis::password::Password;

/// What an address begins with.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Servers,
    Cluster,
    Sentinel,
    Socket,
}

/// Every scheme, whether it means TLS, and what follows it.
const SCHEMES: [(&str, bool, Kind); 8] = [
    ("redis", false, Kind::Servers),
    ("rediss", true, Kind::Servers),
    ("redis+cluster", false, Kind::Cluster),
    ("rediss+cluster", true, Kind::Cluster),
    ("redis+sentinel", false, Kind::Sentinel),
    ("rediss+sentinel", true, Kind::Sentinel),
    ("redis+unix", false, Kind::Socket),
    ("unix", false, Kind::Socket),
];

const PORT: u16 = 6379;
const SENTINEL_PORT: u16 = 26379;

/// The longest address.
const LONGEST: usize = 16 * 1024;
/// The longest name of a host, as DNS has it.
const LONGEST_HOST: usize = 253;
/// The longest path of a socket, as Linux has it.
const LONGEST_PATH: usize = 107;
/// The longest name that sentinels have for a primary.
const LONGEST_NAME: usize = 256;

/// Who uses Redis: before the `@`.
type Credentials = (Option<String>, Option<Password>);

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Address, AddressError> {
        if text.len() > LONGEST {
            return wrong(format!("the address has {} bytes, at most {LONGEST} are read", text.len()));
        }
        let known = text.split_once("://").and_then(|(scheme, rest)| {
            let (name, tls, kind) = SCHEMES.into_iter().find(|(name, ..)| *name == scheme)?;
            Some((name, tls, kind, rest))
        });
        let Some((scheme, tls, kind, rest)) = known else {
            return wrong(
                "an address begins with redis://, rediss://, redis+cluster://, redis+sentinel:// or unix://; \
                 write for instance redis://localhost:6379",
            );
        };
        match kind {
            Kind::Socket => socket(rest),
            Kind::Servers | Kind::Cluster | Kind::Sentinel => servers(scheme, tls, kind, rest),
        }
    }
}

fn socket(rest: &str) -> Result<Address, AddressError> {
    let Some(slash) = rest.find('/') else {
        return wrong("a socket has a path: write unix:///run/redis/redis.sock");
    };
    let (before, path) = rest.split_at(slash);
    let (user, password) = match before.strip_suffix('@') {
        Some(text) => credentials(text)?,
        None if before.is_empty() => (None, None),
        None => return wrong("the path of a socket begins with a slash: write unix:///run/redis/redis.sock"),
    };
    if path.len() > LONGEST_PATH || path.len() == 1 || path.contains('\0') {
        return wrong(format!("the path of a socket has 2 to {LONGEST_PATH} bytes"));
    }
    Ok(Address { layout: Layout::One(Node::Unix(PathBuf::from(path))), tls: false, user, password })
}

fn servers(scheme: &str, tls: bool, kind: Kind, rest: &str) -> Result<Address, AddressError> {
    let mut who = None;
    let mut nodes = Vec::new();
    let mut primary = None;
    let default = if kind == Kind::Sentinel { SENTINEL_PORT } else { PORT };
    for part in rest.split(&format!(",{scheme}://")) {
        if part.contains("://") {
            return wrong(format!("all nodes of a list have one scheme: write {scheme}:// once, or before each"));
        }
        let (before, after) = match part.rsplit_once('@') {
            Some((before, after)) => (Some(credentials(before)?), after),
            None => (None, part),
        };
        if who.is_some() && before.is_some() && before != who {
            return wrong("all nodes of a list have one user and password: write them once, before the first");
        }
        who = who.or(before);
        let (hosts, path) = match after.split_once('/') {
            Some((hosts, path)) => (hosts, Some(path)),
            None => (after, None),
        };
        for host in hosts.split(',') {
            nodes.push(node(host, default)?);
        }
        primary = primary.or(path);
    }
    if nodes.len() > Address::MOST_NODES {
        return wrong(format!(
            "{} nodes, at most {}: a few are enough to find the others",
            nodes.len(),
            Address::MOST_NODES
        ));
    }
    let (user, password) = who.unwrap_or_default();
    Ok(Address { layout: layout(kind, nodes, primary)?, tls, user, password })
}

fn layout(kind: Kind, mut nodes: Vec<Node>, path: Option<&str>) -> Result<Layout, AddressError> {
    if kind == Kind::Sentinel {
        return match path {
            Some(name) if (1..=LONGEST_NAME).contains(&name.len()) && !name.contains(['/', '?', '#']) => {
                Ok(Layout::Sentinel { sentinels: nodes, primary: name.to_owned() })
            }
            _ => wrong("sentinels know a primary by its name: write redis+sentinel://host:26379/mymaster"),
        };
    }
    if !matches!(path, None | Some("" | "0")) {
        return wrong("counters live in database 0, under a prefix of their own: end the address after the port");
    }
    match (kind, nodes.pop()) {
        (Kind::Servers, Some(node)) if nodes.is_empty() => Ok(Layout::One(node)),
        (_, last) => {
            nodes.extend(last);
            Ok(Layout::Cluster(nodes))
        }
    }
}

fn node(text: &str, default: u16) -> Result<Node, AddressError> {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let parsed = rest.split_once(']').and_then(|(host, port)| Some((host.parse::<Ipv6Addr>().ok()?, port)));
            let Some((address, port)) = parsed else {
                return wrong("an IPv6 address stands in brackets: write [::1]:6379");
            };
            (address.to_string(), port)
        }
        None => {
            let (host, port) = text.split_at(text.find(':').unwrap_or(text.len()));
            (host.to_owned(), port)
        }
    };
    if host.is_empty() {
        return wrong("a host is missing: write for instance redis://localhost:6379");
    }
    let is_named = |c: char| c.is_ascii_alphanumeric() || "-_.:".contains(c);
    if host.len() > LONGEST_HOST || !host.chars().all(is_named) {
        return wrong(format!(
            "a host has at most {LONGEST_HOST} letters, digits, dots and hyphens; in a user or password write \
             @ as %40, / as %2F, : as %3A and , as %2C"
        ));
    }
    let port = match port.strip_prefix(':') {
        None if port.is_empty() => Some(default),
        None => None,
        Some(digits) => digits.parse().ok().filter(|&port| port > 0 && digits.bytes().all(|b| b.is_ascii_digit())),
    };
    match port {
        Some(port) => Ok(Node::Tcp { host, port }),
        // The port is not told: whoever forgot the host has their password there.
        None => wrong(format!("after {host} comes a colon and a port from 1 to 65535; an IPv6 address is in brackets")),
    }
}

fn credentials(text: &str) -> Result<Credentials, AddressError> {
    if text.contains(['@', ',', '/']) {
        return wrong(
            "in a user or password write @ as %40, , as %2C and / as %2F; both stand before the first host only",
        );
    }
    let (user, password) = match text.split_once(':') {
        Some((user, password)) => (user, Some(password)),
        None => (text, None),
    };
    let filled = |text: &str| Ok((!text.is_empty()).then_some(decoded(text)?));
    Ok((filled(user)?, password.map_or(Ok(None), filled)?.map(Password::from)))
}

/// Reads `%40` as `@`.
fn decoded(text: &str) -> Result<String, AddressError> {
    const WRONG: &str = "in a user or password % begins a character written as two hex digits; write % itself as %25";
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        rest = after;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let digit = |byte: &u8| char::from(*byte).to_digit(16);
        let [high, low, after @ ..] = rest else { return wrong(WRONG) };
        let (Some(high), Some(low)) = (digit(high), digit(low)) else { return wrong(WRONG) };
        bytes.push((high * 16 + low) as u8);
        rest = after;
    }
    String::from_utf8(bytes).or_else(|_| wrong("a user and a password are UTF-8"))
}

fn wrong<T>(what: impl Into<String>) -> Result<T, AddressError> {
    Err(AddressError(what.into()))
}
