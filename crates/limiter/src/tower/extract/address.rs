//! Who is at the other end: the peer, or whom trusted proxies say that they speak for.

use std::borrow::Cow;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use http::HeaderName;
use http::request::Parts;

use super::{Fault, Find, Network, One};

/// The address of whoever is connected, as an extension of each request. Whoever accepts connections sets it; where axum does
/// (`into_make_service_with_connect_info::<SocketAddr>()`), its `ConnectInfo` is read instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerAddress(pub IpAddr);

/// Whose word on the caller's address counts. `X-Forwarded-For` is read from the right: each proxy adds there whom it was asked
/// by, and what stands left of the first one that is not trusted the caller may have written itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Proxies {
    /// Nobody's: the caller is the peer.
    #[default]
    None,
    /// That of so many, one behind the other. Nobody may reach the service past them: who did could write what they should have.
    /// Where fewer have written something, the leftmost counts.
    Count(usize),
    /// That of all in these networks. Where all are, the leftmost counts.
    Within(Vec<Network>),
}

/// The address of the caller.
#[derive(Clone, Debug)]
pub struct ClientAddress {
    proxies: Proxies,
    ipv6_prefix: u8,
}

/// The most entries of `X-Forwarded-For` that are looked at.
const MOST_HOPS: usize = 32;

static FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// The caller's address, under the name `remote_address`.
///
/// Rules count IPv6 addresses under this name by their networks, /56 unless they say otherwise; by other names the address
/// is a text as any other, and [`ipv6_prefix`](One::ipv6_prefix) is of use.
///
/// ```
/// use tollgate::tower::extract::{Proxies, client_address};
///
/// let direct = client_address(Proxies::None);
/// let behind_one = client_address(Proxies::Count(1));
/// let behind_some = client_address(Proxies::within(["10.0.0.0/8", "fd00::/8"])?).named("client").ipv6_prefix(64);
/// # let _ = (direct, behind_one, behind_some);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// A request whose peer nobody knows has no such attribute, unless a count of proxies says whom to believe.
pub fn client_address(proxies: Proxies) -> One<ClientAddress> {
    One::new("remote_address", ClientAddress { proxies, ipv6_prefix: 128 })
}

impl Proxies {
    /// All in these networks: `10.0.0.0/8`, `2001:db8::/32`, or single addresses.
    ///
    /// # Errors
    /// If one is no network.
    pub fn within<'t>(networks: impl IntoIterator<Item = &'t str>) -> Result<Proxies, Fault> {
        networks.into_iter().map(str::parse).collect::<Result<_, _>>().map(Proxies::Within)
    }
}

impl One<ClientAddress> {
    /// With IPv6 addresses as the first address of their network of this length: one caller has many.
    #[must_use]
    pub fn ipv6_prefix(mut self, bits: u8) -> One<ClientAddress> {
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
            // What is no address says nothing: whoever wrote it is as far as is known.
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

/// Who is connected.
fn peer(head: &Parts) -> Option<IpAddr> {
    #[cfg(feature = "axum")]
    if let Some(axum::extract::ConnectInfo(address)) = head.extensions.get::<axum::extract::ConnectInfo<SocketAddr>>() {
        return Some(address.ip());
    }
    head.extensions.get::<PeerAddress>().map(|peer| peer.0)
}

/// The entries of `X-Forwarded-For`, the last first; none where one is no address.
fn forwarded(head: &Parts) -> impl Iterator<Item = Option<IpAddr>> {
    let lines = head.headers.get_all(&FORWARDED_FOR).iter().rev();
    let entries = lines.flat_map(|line| line.as_bytes().rsplit(|byte| *byte == b',')).map(<[u8]>::trim_ascii);
    entries.filter(|entry| !entry.is_empty()).take(MOST_HOPS).map(|entry| read(std::str::from_utf8(entry).ok()?))
}

/// An address; some write the port too, or brackets.
fn read(text: &str) -> Option<IpAddr> {
    let bare = || text.strip_prefix('[')?.strip_suffix(']')?.parse().ok();
    let address = text.parse().ok().or_else(|| text.parse::<SocketAddr>().ok().map(|with_port| with_port.ip()));
    address.or_else(bare).map(|address: IpAddr| address.to_canonical())
}
