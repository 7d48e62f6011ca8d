//! The caller's address: the peer's, or the one that trusted proxies forward.

use std::borrow::Cow;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use http::HeaderName;
use http::request::Parts;

use super::{Attribute, Find, Network, TextFault};

/// The address of the peer, as an extension of each request. The code that accepts connections sets it. With axum's
/// `into_make_service_with_connect_info::<SocketAddr>()`, `ConnectInfo` is read instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerAddress(pub IpAddr);

/// The proxies whose `X-Forwarded-For` is trusted. The header is read from the right: each proxy appends the address of
/// its client, and everything left of the first untrusted entry may be forged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Proxies {
    /// None: the caller is the peer.
    #[default]
    None,
    /// This many proxies in a chain. The service must not be reachable except through them: others could forge the
    /// header. If the header has fewer entries, the leftmost counts.
    Count(usize),
    /// All proxies in these networks. If all entries are, the leftmost counts.
    Within(Vec<Network>),
}

/// The address of the caller.
#[derive(Clone, Debug)]
pub struct ClientAddress {
    proxies: Proxies,
    ipv6_prefix: u8,
}

/// The largest number of `X-Forwarded-For` entries that are read.
const MAX_HOPS: usize = 32;

static FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// The caller's address, under the name `remote_address`.
///
/// Rules count IPv6 addresses under this name by network, /56 by default. Under other names the address is plain text;
/// use [`ipv6_prefix`](Attribute::ipv6_prefix) there.
///
/// ```
/// use tollgate_http::tower::extract::{Proxies, client_address};
///
/// let direct = client_address(Proxies::None);
/// let behind_one = client_address(Proxies::Count(1));
/// let behind_some = client_address(Proxies::within(["10.0.0.0/8", "fd00::/8"])?).named("client").ipv6_prefix(64);
/// # let _ = (direct, behind_one, behind_some);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// A request without a known peer does not have the attribute, unless the proxies are given by their count.
pub fn client_address(proxies: Proxies) -> Attribute<ClientAddress> {
    Attribute::new("remote_address", ClientAddress { proxies, ipv6_prefix: 128 })
}

impl Proxies {
    /// All addresses in these networks: `10.0.0.0/8`, `2001:db8::/32`, or single addresses.
    ///
    /// # Errors
    /// If a text is not a network.
    pub fn within<'t>(networks: impl IntoIterator<Item = &'t str>) -> Result<Proxies, TextFault> {
        networks.into_iter().map(str::parse).collect::<Result<_, _>>().map(Proxies::Within)
    }
}

impl Attribute<ClientAddress> {
    /// Replaces IPv6 addresses by the first address of their network of this length: one caller has many addresses.
    #[must_use]
    pub fn ipv6_prefix(mut self, bits: u8) -> Attribute<ClientAddress> {
        self.value.ipv6_prefix = bits;
        self
    }
}

impl Find for ClientAddress {
    fn find<'r>(&'r self, head: &'r Parts) -> Option<Cow<'r, str>> {
        let address = match self.address(head)? {
            IpAddr::V6(address) => {
                let beyond = 128_u32.saturating_sub(self.ipv6_prefix.into());
                let mask = u128::MAX.checked_shl(beyond).unwrap_or(0);
                IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & mask))
            }
            address @ IpAddr::V4(_) => address,
        };
        Some(Cow::Owned(address.to_string()))
    }
}

impl ClientAddress {
    fn address(&self, head: &Parts) -> Option<IpAddr> {
        let peer = peer(head).map(|address| address.to_canonical());
        match &self.proxies {
            Proxies::None => peer,
            // An entry that is not an address is skipped: the last valid one counts.
            Proxies::Count(count) => forwarded(head).take(*count).flatten().last().or(peer),
            Proxies::Within(networks) => {
                let mut known = peer?;
                let mut entries = forwarded(head);
                while networks.iter().any(|network| network.contains(known)) {
                    match entries.next() {
                        Some(Some(address)) => known = address,
                        Some(None) | None => break,
                    }
                }
                Some(known)
            }
        }
    }
}

/// The address of the peer.
fn peer(head: &Parts) -> Option<IpAddr> {
    #[cfg(feature = "axum")]
    if let Some(axum::extract::ConnectInfo(address)) = head.extensions.get::<axum::extract::ConnectInfo<SocketAddr>>() {
        return Some(address.ip());
    }
    head.extensions.get::<PeerAddress>().map(|peer| peer.0)
}

/// The entries of `X-Forwarded-For`, the last one first; `None` for an entry that is not an address.
fn forwarded(head: &Parts) -> impl Iterator<Item = Option<IpAddr>> {
    let lines = head.headers.get_all(&FORWARDED_FOR).iter().rev();
    let entries = lines.flat_map(|line| line.as_bytes().rsplit(|byte| *byte == b',')).map(<[u8]>::trim_ascii);
    entries.filter(|entry| !entry.is_empty()).take(MAX_HOPS).map(|entry| read(std::str::from_utf8(entry).ok()?))
}

/// Parses an address, with or without a port or brackets.
fn read(text: &str) -> Option<IpAddr> {
    let bare = || text.strip_prefix('[')?.strip_suffix(']')?.parse().ok();
    let address = text.parse().ok().or_else(|| text.parse::<SocketAddr>().ok().map(|with_port| with_port.ip()));
    address.or_else(bare).map(|address: IpAddr| address.to_canonical())
}
