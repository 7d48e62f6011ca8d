//! Addresses as attribute values.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use tollgate_core::Value;

use crate::model::Network;
use crate::problem::{TextFault, quoted};

/// Attributes whose values are addresses, whatever the rule says.
pub(crate) const ADDRESSES: [&str; 5] = ["remote_address", "masked_remote_address", "client_ip", "ip_address", "ip"];

/// How many bits of an IPv6 address identify a counter, unless the rule says otherwise: the size of the network that
/// providers commonly assign to one customer.
pub(crate) const IPV6_PREFIX: u8 = 56;

/// The number of bits before an IPv4 address in its IPv6-mapped form.
const MAPPED_BITS: u8 = 96;

/// Whether an attribute is known to have addresses.
pub fn is_address(attribute: &str) -> bool {
    ADDRESSES.contains(&attribute)
}

/// An address, possibly with a port, which identifies a connection and not a caller: `203.0.113.7`,
/// `203.0.113.7:443`, `2001:db8::7`, `[2001:db8::7]`, `[2001:db8::7]:443`.
#[inline]
pub fn parse_address(text: &str) -> Option<IpAddr> {
    text.parse().ok().or_else(|| address_with_port(text))
}

#[cold]
fn address_with_port(text: &str) -> Option<IpAddr> {
    let with_port = text.parse::<SocketAddr>().ok().map(|address| address.ip());
    with_port.or_else(|| text.strip_prefix('[')?.strip_suffix(']')?.parse::<Ipv6Addr>().ok().map(IpAddr::V6))
}

/// An address as part of a key: IPv6 by its network, because one caller has many addresses; IPv4 as it is, in
/// whichever form it came. Anything else stays text.
pub(crate) fn counted(value: &str, ipv6_prefix: u8) -> Value<'_> {
    match parse_address(value) {
        Some(IpAddr::V4(address)) => Value::network(address.to_ipv6_mapped(), 128),
        Some(IpAddr::V6(address)) if address.to_ipv4_mapped().is_some() => Value::network(address, 128),
        Some(IpAddr::V6(address)) => Value::network(address, ipv6_prefix),
        None => Value::Text(value),
    }
}

impl Network {
    /// Whether an address is in this network.
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(network), IpAddr::V4(address)) => {
                same_bits(network.to_ipv6_mapped(), address.to_ipv6_mapped(), MAPPED_BITS + self.prefix.min(32))
            }
            (IpAddr::V6(network), IpAddr::V6(address)) => same_bits(network, address, self.prefix),
            _ => false,
        }
    }

    /// The same network with its first address, as a canonical form.
    pub fn canonical(&self) -> Network {
        let masked = |bits: u128, beyond: u32| bits & u128::MAX.checked_shl(beyond).unwrap_or(0);
        let address = match self.address {
            IpAddr::V4(address) => {
                let bits = masked(address.to_bits().into(), 32 - u32::from(self.prefix.min(32)));
                Ipv4Addr::from_bits(u32::try_from(bits).unwrap_or_default()).into()
            }
            IpAddr::V6(address) => {
                let bits = masked(address.to_bits(), 128 - u32::from(self.prefix.min(128)));
                Ipv6Addr::from_bits(bits).into()
            }
        };
        Network { address, prefix: self.prefix }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let longest = if self.address.is_ipv4() { 32 } else { 128 };
        match self.prefix {
            prefix if prefix >= longest => write!(f, "{}", self.address),
            prefix => write!(f, "{}/{prefix}", self.address),
        }
    }
}

impl FromStr for Network {
    type Err = TextFault;

    /// `10.0.0.0/8`, `2001:db8::/32`, or a single address.
    fn from_str(text: &str) -> Result<Network, TextFault> {
        let fault = || {
            let remedy = "write for instance 10.0.0.0/8 or 2001:db8::/32";
            TextFault::new(format!("{} is not a network", quoted(text)), remedy)
        };
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) => (address, Some(prefix)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| fault())?;
        let longest = if address.is_ipv4() { 32 } else { 128 };
        let prefix = match prefix {
            None => longest,
            Some(digits) if digits.bytes().all(|b| b.is_ascii_digit()) => digits.parse().map_err(|_| fault())?,
            Some(_) => return Err(fault()),
        };
        if prefix > longest {
            return Err(fault());
        }
        Ok(match address {
            IpAddr::V6(address) if prefix >= MAPPED_BITS => unmapped(address, prefix),
            _ => Network { address, prefix },
        })
    }
}

/// Whether a text is, or was meant to be, an address, a network or a range of addresses: it has the characters and the parts of one.
/// A MAC address is not one.
pub fn resembles_address(text: &str) -> bool {
    let text: String = text.chars().filter(|c| !c.is_whitespace()).collect();
    let mut ends = text.split(['-', ',']);
    let is_range = |first: &str, rest: std::str::Split<'_, [char; 2]>| {
        // The end of a range may be its last part alone: 10.0.0.0-255.
        resembles_one(first) && rest.into_iter().all(|end| resembles_one(end) || is_number(end))
    };
    ends.next().is_some_and(|first| is_range(first, ends))
}

/// A dotted number of at least three parts, a number of a network, or groups of hexadecimal digits; each may have a prefix length, a
/// port or a zone.
fn resembles_one(text: &str) -> bool {
    let (address, has_prefix) = match text.split_once('/') {
        Some((address, prefix)) => (address, prefix.bytes().all(|b| b.is_ascii_digit() || matches!(b, b'.' | b'/'))),
        None => (text, false),
    };
    let address = address.split('%').next().unwrap_or_default();
    if let Some((host, _)) = address.strip_prefix('[').and_then(|inner| inner.split_once(']')) {
        return resembles_groups(host);
    }
    let is_part = |part: &str| part == "*" || is_number(part);
    let is_dotted = |text: &str| {
        let parts: Vec<&str> = text.trim_end_matches('.').split('.').collect();
        parts.iter().all(|part| is_part(part)) && (parts.len() >= 3 || has_prefix)
    };
    match address.split_once(':') {
        Some((host, port)) if is_number(port) && is_dotted(host) => true,
        Some(_) => resembles_groups(address),
        None => is_dotted(address),
    }
}

/// Groups of hexadecimal digits between colons, of which IPv6 has at least two.
fn resembles_groups(text: &str) -> bool {
    let groups: Vec<&str> = text.split(':').collect();
    let is_mac = groups.len() == 6 && groups.iter().all(|group| group.len() == 2);
    let is_group = |group: &&str| group.bytes().all(|b| b.is_ascii_hexdigit() || matches!(b, b'.' | b'*'));
    groups.len() >= 3 && !is_mac && groups.iter().all(is_group)
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

/// IPv4-mapped IPv6 addresses match as IPv4, so their networks do too.
fn unmapped(address: Ipv6Addr, prefix: u8) -> Network {
    match address.to_ipv4_mapped() {
        Some(mapped) => Network { address: mapped.into(), prefix: prefix - MAPPED_BITS },
        None => Network { address: address.into(), prefix },
    }
}

fn same_bits(one: Ipv6Addr, other: Ipv6Addr, prefix: u8) -> bool {
    let beyond = 128 - u32::from(prefix.min(128));
    (one.to_bits() ^ other.to_bits()).checked_shr(beyond).unwrap_or(0) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_meant_to_be_an_address_is_recognized() {
        for text in [
            "10.0.0.1",
            "10.0.0.0/8",
            "2001:db8::/32",
            "::1",
            "203.0.113.0/33",
            "203.0.113/24",
            "10/8",
            "203.0.113.300",
            "203.0.113.0-203.0.113.255",
            "203.0.113.0-255",
            "203.0.113.1, 203.0.113.2",
            "203.0.113.0 /24",
            "203.0.113.*",
            "203.0.113.",
            "203.0.113.7:443",
            "203.0.113.0/255.255.255.0",
            "[2001:db8::1]:443",
            "[2001:db8::1]",
            "2001:db8::/129",
            "2001:db8:::1",
            "fe80::1%eth0",
            "::ffff:10.0.0.1",
        ] {
            assert!(resembles_address(text), "{text}");
        }
        for text in [
            "",
            "*",
            "bad",
            "bad-*",
            "1234",
            "1.5",
            "v1.2.3",
            "cafe",
            "550e8400-e29b-41d4-a716-446655440000",
            "00:1a:2b:3c:4d:5e",
            "user:7",
            "team/24",
            "10.0.0.1.example",
            "sk_live_10.0.0.1",
            "2026-11-17",
        ] {
            assert!(!resembles_address(text), "{text}");
        }
    }

    #[test]
    fn ipv6_counts_by_network_and_ipv4_by_address() {
        assert_eq!(counted("2001:db8:0:1::7", 56), counted("2001:0db8:0:00ff::1", 56));
        assert_ne!(counted("2001:db8:0:1::7", 56), counted("2001:db8:0:101::7", 56));
        assert_eq!(counted("2001:db8::1", 64).to_string(), "2001:db8::/64");
        assert_eq!(counted("::ffff:10.0.0.1", 56), counted("10.0.0.1", 56));
        assert_ne!(counted("10.0.0.1", 56), counted("10.0.0.2", 56));
        assert_eq!(counted("10.0.0.1", 56).to_string(), "10.0.0.1");
        assert_eq!(counted("fe80::1%eth0", 56), Value::Text("fe80::1%eth0"));
        assert_eq!(counted("", 56), Value::Text(""));
        assert_eq!(counted("10.0.0.1:443", 56), counted("10.0.0.1", 56));
        for with_port in ["[2001:db8::7]:443", "[2001:db8::7]"] {
            assert_eq!(counted(with_port, 56), counted("2001:db8::7", 56));
        }
        assert_eq!(counted("10.0.0.1:port", 56), Value::Text("10.0.0.1:port"));
    }

    #[test]
    fn networks_have_one_form() {
        for (text, canonical) in [
            ("10.1.2.3/8", "10.0.0.0/8"),
            ("10.1.2.3", "10.1.2.3"),
            ("10.1.2.3/32", "10.1.2.3"),
            ("10.1.2.3/0", "0.0.0.0/0"),
            ("2001:db8:1::7/32", "2001:db8::/32"),
            ("2001:DB8::7/128", "2001:db8::7"),
            ("::1/0", "::/0"),
            ("::ffff:10.1.2.3/104", "10.0.0.0/8"),
        ] {
            assert_eq!(text.parse::<Network>().unwrap().canonical().to_string(), canonical);
        }
    }

    #[test]
    fn networks_contain_what_they_should() {
        let network = |text: &str, prefix| Network { address: text.parse().unwrap(), prefix };
        let rows = [
            (network("10.0.0.0", 8), "10.255.0.1", true),
            (network("10.0.0.0", 8), "11.0.0.1", false),
            (network("10.0.0.0", 8), "::ffff:10.1.2.3", true),
            (network("0.0.0.0", 0), "1.2.3.4", true),
            (network("0.0.0.0", 0), "::1", false),
            (network("::", 0), "::1", true),
            (network("2001:db8::", 32), "2001:db8:ffff::1", true),
            (network("2001:db8::", 32), "2001:db9::1", false),
            (network("10.0.0.1", 32), "10.0.0.1", true),
            (network("10.0.0.1", 32), "10.0.0.2", false),
        ];
        for (network, address, inside) in rows {
            assert_eq!(network.contains(address.parse().unwrap()), inside, "{network:?} {address}");
        }
    }
}
