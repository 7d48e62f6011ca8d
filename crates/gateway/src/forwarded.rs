//! Who the client is, and what the upstream learns of it: `X-Forwarded-For` and the like.
//!
//! Each proxy appends the address of its peer to `X-Forwarded-For`, so the list is only as true as the proxies that wrote it.
//! It is read from its end as long as the writers are trusted; the first address that is not a trusted proxy's is the
//! client's. What an untrusted peer wrote is not read, and not forwarded.
//!
//! A peer on a Unix socket has no address. It is a process of this machine, but not necessarily a proxy: it is trusted only
//! if `trusted_proxies` has `unix`.

use std::net::IpAddr;

use http::{HeaderMap, HeaderName, HeaderValue};
use smallvec::SmallVec;
use tollgate_rules::parse_address;

use crate::field_marks::FieldMarks;
use crate::field_names::{X_REQUEST_ID, is_of_proxies};
use crate::model::TrustedProxies;

/// Who is at the other end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    Address(IpAddr),
    /// Whoever connected to a Unix socket.
    Unix,
}

/// What the gateway knows of a request, for the upstream.
#[derive(Clone, Copy, Debug)]
pub struct Hop<'r> {
    /// The address of the peer. One on a Unix socket has none.
    pub address: Option<&'r HeaderValue>,
    /// Whether the peer is one of the trusted proxies.
    pub is_trusted: bool,
    /// Whether the request came by TLS.
    pub is_tls: bool,
    /// The `Host` that the client sent.
    pub authority: &'r HeaderValue,
}

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const X_FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
const X_FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");

/// The most addresses of a list that are read.
const MAX_HOPS: usize = 32;

/// The longest `X-Request-Id` that is forwarded, in bytes. A longer one is replaced.
const MAX_REQUEST_ID_BYTES: usize = 128;

impl TrustedProxies {
    /// Whether a peer may say who its client is.
    pub fn contains(&self, peer: Peer) -> bool {
        match peer {
            Peer::Address(address) => self.networks.iter().any(|network| network.contains(address)),
            Peer::Unix => self.unix,
        }
    }
}

/// The address of the client: the last one that is not a trusted proxy's. If all are, it is the first of them. What is not
/// an address ends the list, as its writer did not know more. `None`: a peer on a Unix socket that said nothing.
pub fn client_address(peer: Peer, trusted: &TrustedProxies, headers: &HeaderMap) -> Option<IpAddr> {
    let mut client = match peer {
        Peer::Address(address) => Some(address.to_canonical()),
        Peer::Unix => None,
    };
    if !trusted.contains(peer) {
        return client;
    }
    let fields = headers.get_all(X_FORWARDED_FOR).into_iter().rev();
    let hops = fields.flat_map(|field| field.as_bytes().rsplit(|byte| *byte == b','));
    for hop in hops.map(<[u8]>::trim_ascii).take(MAX_HOPS) {
        // A list may have empty members (RFC 9110 5.6.1).
        if hop.is_empty() {
            continue;
        }
        let Some(address) = str::from_utf8(hop).ok().and_then(parse_address) else { break };
        client = Some(address.to_canonical());
        if !trusted.contains(Peer::Address(address)) {
            break;
        }
    }
    client
}

/// Sets the fields that say where a request with fields of these kinds comes from. `random` is called if it needs an identifier.
pub fn set_forwarded(headers: &mut HeaderMap, marks: FieldMarks, hop: &Hop<'_>, random: impl FnOnce() -> u128) {
    let list = if marks.has(FieldMarks::OF_PROXIES) {
        // Proxies write no `_`. An application may take such a field for the one that the gateway sets.
        let is_removed = |name: &&HeaderName| (!hop.is_trusted || name.as_str().contains('_')) && is_of_proxies(name);
        let removed: SmallVec<[HeaderName; 4]> = headers.keys().filter(is_removed).cloned().collect();
        for name in removed {
            headers.remove(name);
        }
        let list = forwarded_for(headers, hop);
        if list.is_none() {
            headers.remove(X_FORWARDED_FOR);
        }
        list
    } else {
        hop.address.cloned()
    };
    if let Some(list) = list {
        headers.insert(X_FORWARDED_FOR, list);
    }
    if !(hop.is_trusted && headers.contains_key(X_FORWARDED_PROTO)) {
        headers.insert(X_FORWARDED_PROTO, HeaderValue::from_static(if hop.is_tls { "https" } else { "http" }));
    }
    if !(hop.is_trusted && headers.contains_key(X_FORWARDED_HOST)) {
        headers.insert(X_FORWARDED_HOST, hop.authority.clone());
    }
    if !(marks.has(FieldMarks::REQUEST_ID) && has_request_id(headers))
        && let Ok(id) = HeaderValue::from_bytes(&hexadecimal(random()))
    {
        headers.insert(X_REQUEST_ID, id);
    }
}

/// The list with the peer at its end, in one field. A peer without an address adds nothing.
fn forwarded_for(headers: &HeaderMap, hop: &Hop<'_>) -> Option<HeaderValue> {
    let before = headers.get_all(X_FORWARDED_FOR).into_iter().filter(|_| hop.is_trusted);
    let mut list = String::new();
    for field in before.filter_map(|field| field.to_str().ok()).filter(|field| !field.trim().is_empty()) {
        append(&mut list, field.trim());
    }
    if list.is_empty() {
        return hop.address.cloned();
    }
    if let Some(address) = hop.address.and_then(|address| address.to_str().ok()) {
        append(&mut list, address);
    }
    HeaderValue::try_from(list).ok()
}

fn append(list: &mut String, member: &str) {
    if !list.is_empty() {
        list.push_str(", ");
    }
    list.push_str(member);
}

fn hexadecimal(number: u128) -> [u8; 32] {
    std::array::from_fn(|digit| b"0123456789abcdef"[(number >> (4 * (31 - digit))) as usize & 15])
}

/// Whether the client's own identifier is forwarded: there is one, and it is short and printable.
fn has_request_id(headers: &HeaderMap) -> bool {
    let mut ids = headers.get_all(X_REQUEST_ID).into_iter();
    let is_usable = |id: &HeaderValue| {
        (1..=MAX_REQUEST_ID_BYTES).contains(&id.len()) && id.as_bytes().iter().all(u8::is_ascii_graphic)
    };
    ids.next().is_some_and(is_usable) && ids.next().is_none()
}

#[cfg(test)]
mod tests;
