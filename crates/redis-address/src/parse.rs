//! Parses addresses. Errors never show the text before the last `@`: it may be a password.

use std::net::Ipv6Addr;
use std::path::PathBuf;
use std::str::FromStr;

use super::{Address, AddressError, Layout, Node};
use crate::password::Password;

/// The type of an address.
#[derive(Clone, Copy, PartialEq, Eq)]
enum AddressKind {
    Servers,
    Cluster,
    Sentinel,
    Socket,
}

/// Every scheme, whether it means TLS, and its type.
const SCHEMES: [(&str, bool, AddressKind); 8] = [
    ("redis", false, AddressKind::Servers),
    ("rediss", true, AddressKind::Servers),
    ("redis+cluster", false, AddressKind::Cluster),
    ("rediss+cluster", true, AddressKind::Cluster),
    ("redis+sentinel", false, AddressKind::Sentinel),
    ("rediss+sentinel", true, AddressKind::Sentinel),
    ("redis+unix", false, AddressKind::Socket),
    ("unix", false, AddressKind::Socket),
];

const PORT: u16 = 6379;
const SENTINEL_PORT: u16 = 26379;

/// The maximum length of an address, in bytes.
const MAX_ADDRESS_BYTES: usize = 16 * 1024;
/// The maximum length of a host name in DNS.
const MAX_HOST_BYTES: usize = 253;
/// The maximum length of a socket path on Linux.
const MAX_PATH_BYTES: usize = 107;
/// The maximum length of a sentinel's name for a primary.
const MAX_NAME_BYTES: usize = 256;

/// The user and password before the `@`.
type Credentials = (Option<String>, Option<Password>);

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Address, AddressError> {
        if text.len() > MAX_ADDRESS_BYTES {
            return wrong(format!("the address has {} bytes, at most {MAX_ADDRESS_BYTES} are allowed", text.len()));
        }
        let parsed = text.split_once("://").and_then(|(scheme, rest)| {
            let (name, tls, kind) = SCHEMES.into_iter().find(|(name, ..)| *name == scheme)?;
            Some((name, tls, kind, rest))
        });
        let Some((scheme, tls, kind, rest)) = parsed else {
            return wrong(
                "an address begins with redis://, rediss://, redis+cluster://, redis+sentinel:// or unix://; \
                 write for instance redis://localhost:6379",
            );
        };
        match kind {
            AddressKind::Socket => socket(rest),
            AddressKind::Servers | AddressKind::Cluster | AddressKind::Sentinel => servers(scheme, tls, kind, rest),
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
    if path.len() > MAX_PATH_BYTES || path.len() == 1 || path.contains('\0') {
        return wrong(format!("the path of a socket has 2 to {MAX_PATH_BYTES} bytes"));
    }
    Ok(Address { layout: Layout::One(Node::Unix(PathBuf::from(path))), tls: false, user, password })
}

fn servers(scheme: &str, tls: bool, kind: AddressKind, rest: &str) -> Result<Address, AddressError> {
    let mut user_info = None;
    let mut nodes = Vec::new();
    let mut primary = None;
    let default = if kind == AddressKind::Sentinel { SENTINEL_PORT } else { PORT };
    for part in rest.split(&format!(",{scheme}://")) {
        if part.contains("://") {
            return wrong(format!("all nodes of a list have one scheme: write {scheme}:// once, or before each"));
        }
        let (before, after) = match part.rsplit_once('@') {
            Some((before, after)) => (Some(credentials(before)?), after),
            None => (None, part),
        };
        if user_info.is_some() && before.is_some() && before != user_info {
            return wrong("all nodes of a list have one user and password: write them once, before the first");
        }
        user_info = user_info.or(before);
        let (hosts, path) = match after.split_once('/') {
            Some((hosts, path)) => (hosts, Some(path)),
            None => (after, None),
        };
        for host in hosts.split(',') {
            nodes.push(node(host, default)?);
        }
        primary = primary.or(path);
    }
    if nodes.len() > Address::MAX_NODES {
        return wrong(format!(
            "{} nodes, at most {}: a few are enough to find the others",
            nodes.len(),
            Address::MAX_NODES
        ));
    }
    let (user, password) = user_info.unwrap_or_default();
    Ok(Address { layout: layout(kind, nodes, primary)?, tls, user, password })
}

fn layout(kind: AddressKind, mut nodes: Vec<Node>, path: Option<&str>) -> Result<Layout, AddressError> {
    if kind == AddressKind::Sentinel {
        return match path {
            Some(name) if (1..=MAX_NAME_BYTES).contains(&name.len()) && !name.contains(['/', '?', '#']) => {
                Ok(Layout::Sentinel { sentinels: nodes, primary: name.to_owned() })
            }
            _ => wrong("sentinels know a primary by its name: write redis+sentinel://host:26379/mymaster"),
        };
    }
    if !matches!(path, None | Some("" | "0")) {
        return wrong("counters live in database 0, under a prefix of their own: end the address after the port");
    }
    match (kind, nodes.pop()) {
        (AddressKind::Servers, Some(node)) if nodes.is_empty() => Ok(Layout::One(node)),
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
    if host.len() > MAX_HOST_BYTES || !host.chars().all(is_named) {
        return wrong(format!(
            "a host has at most {MAX_HOST_BYTES} letters, digits, dots and hyphens; in a user or password write \
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
        // The port is not shown: if the host is missing, the password is in its place.
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

/// Decodes `%40` as `@`.
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
